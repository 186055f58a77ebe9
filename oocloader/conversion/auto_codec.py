"""Which codec to use where the user leaves it open: candidates are tried on a sample of the rows."""

import timeit
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from oocloader.codecs import Chain
from oocloader.codecs import hdf5 as hdf5_codecs
from oocloader.codecs import zarr as zarr_codecs_read
from oocloader.conversion.chunking import default_chunk_rows
from oocloader.conversion.encode import Codec, Format, encoded_bound, encoder, hdf5_filter, zarr_codecs
from oocloader.conversion.new_array import NewArray
from oocloader.conversion.transposing import boxes_of
from oocloader.reading import box_shape, in_order

# What the disk is taken to read, bytes a second: that of a plain SSD or of a fast network.
DISK_RATE = 1_000_000_000
# LZ4 by itself is no codec of the Zarr specification, so that it is no choice to make for someone.
_CANDIDATES: dict[Format, tuple[str, ...]] = {
    "zarr": ("none", "blosc", "zstd:1", "zstd:3"),
    "hdf5": ("none", "lz4", "blosc", "zstd:1", "zstd:3"),
}
_PLACES = 8
_PLACE_NBYTES = 2 << 20
_REPEATS = 3
# A later candidate has to be this much better than an earlier one, which decodes faster: timing is noisy.
_BETTER = 0.95


@dataclass(frozen=True, slots=True)
class Trial:
    """What a codec makes of the sample: stored over decoded bytes, decoded bytes a second on all cores."""

    codec: Codec
    ratio: float
    decode_rate: float

    @property
    def seconds_per_gb(self) -> float:
        """How long a gigabyte of rows takes to load: reading and decoding at once, so the slower of both."""
        return max(self.ratio * 1e9 / DISK_RATE, 1e9 / self.decode_rate)

    def __str__(self) -> str:
        rate = "" if self.codec.raw else f" ({self.decode_rate / 1e9:.1f} GB/s)"
        return f"{self.codec} {self.ratio:.2f}{rate}"


@dataclass(frozen=True, slots=True)
class CodecChoice:
    """The codec chosen, and why, in words."""

    codec: Codec
    why: str


def choose_codec(
    arrays: Iterable[NewArray], *, store_format: Format, chunk_rows: int | None, cores: int
) -> CodecChoice:
    """The codec that loads the largest of the arrays fastest. Reads up to 16 MiB of it."""
    largest = max(
        (array for array in arrays if array.array is not None), key=lambda array: array.stored_nbytes
    )
    sample = take_sample(largest, chunk_rows)
    trials = [try_codec(Codec.parse(name), sample, store_format, cores) for name in _CANDIDATES[store_format]]
    tried = f"{sum(chunk.nbytes for chunk in sample) / 1e6:.1f} MB of {largest.info.name!r} tried"
    disk = f"a disk that reads {DISK_RATE / 1e9:.0f} GB/s"
    why = f"of {tried}: {', '.join(map(str, trials))}; size and decoding speed, for {disk}"
    return CodecChoice(fastest(trials).codec, why)


def fastest(trials: Sequence[Trial]) -> Trial:
    """The one that loads fastest; of those about as fast, the one that comes first.

    >>> none, zstd = Trial(Codec.parse("none"), 1.0, 1e12), Trial(Codec.parse("zstd"), 0.98, 2e9)
    >>> str(fastest([none, zstd]).codec)
    'none'
    """
    best = trials[0]
    for trial in trials[1:]:
        if trial.seconds_per_gb < _BETTER * best.seconds_per_gb:
            best = trial
    return best


def take_sample(new: NewArray, chunk_rows: int | None) -> list[np.ndarray]:
    """Up to 8 stretches of rows from all over the array, like chunks, or as much of one as 2 MiB hold."""
    assert new.array is not None
    sample = list(_boxes(new) if new.transposed else _chunks(new, chunk_rows))
    if new.cast:
        with np.errstate(all="ignore"):
            sample = [values.astype(new.info.dtype) for values in sample]
    return sample


def _boxes(new: NewArray) -> Iterator[np.ndarray]:
    """Boxes as they are stored: whole rows would be gathered from the whole source."""
    assert new.array is not None
    boxes = boxes_of(new.array.reader, most_nbytes=_PLACE_NBYTES)
    for number in _spread(len(boxes)):
        reader, box, _ = boxes[number]
        order = reader.chunk_geometry.order
        values = np.empty(in_order(box_shape(box), order), new.stored_dtype)
        reader.read_box(box, values)
        turned = np.ascontiguousarray(np.moveaxis(values, order.index(new.axis), 0)).reshape(-1)
        yield turned[: _PLACE_NBYTES // turned.itemsize]


def _chunks(new: NewArray, chunk_rows: int | None) -> Iterator[np.ndarray]:
    assert new.array is not None
    rows = new.info.shape[0]
    row_nbytes = max(1, new.info.nbytes // rows)
    taken = chunk_rows or default_chunk_rows(rows, row_nbytes)
    taken = max(1, min(taken, rows, _PLACE_NBYTES // row_nbytes))
    for number in _spread(rows // taken):
        start = new.first + number * taken
        yield new.array.read(start, start + taken).reshape(-1)


def _spread(count: int) -> list[int]:
    return sorted({(count - 1) * place // max(1, _PLACES - 1) for place in range(min(_PLACES, count))} | {0})


def try_codec(codec: Codec, sample: Sequence[np.ndarray], store_format: Format, cores: int) -> Trial:
    """Encode the sample, and time decoding it as the loader does."""
    itemsize = sample[0].itemsize
    encode = encoder(codec, store_format, itemsize)
    if encode is None:
        return Trial(codec, 1.0, float("inf"))
    total = stored = 0
    seconds = 0.0
    for values in sample:
        raw = values.view(np.uint8)
        encoded = encode(raw, np.empty(encoded_bound(raw.nbytes), np.uint8)).copy()
        decode = partial(_chain(codec, values, store_format).decode, encoded, np.empty(raw.nbytes, np.uint8))
        seconds += min(timeit.repeat(decode, number=1, repeat=_REPEATS))
        total += raw.nbytes
        stored += encoded.nbytes
    return Trial(codec, stored / total, total / max(seconds, 1e-9) * cores)


def _chain(codec: Codec, values: np.ndarray, store_format: Format) -> Chain:
    if store_format == "hdf5":
        number, settings = hdf5_filter(codec, values.itemsize, values.nbytes)
        return hdf5_codecs.chain([(number, 0, settings, b"")], dtype=values.dtype, chunk_shape=values.shape)
    steps = [{"name": "bytes", "configuration": {"endian": "little"}}, *zarr_codecs(codec, values.itemsize)]
    decoding = zarr_codecs_read.v3(steps, dtype=values.dtype, chunk_shape=values.shape)
    assert isinstance(decoding, zarr_codecs_read.Decoding)
    return decoding.chain
