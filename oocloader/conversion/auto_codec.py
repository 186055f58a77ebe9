"""Which codec to use where the user leaves it open: candidates are tried on a sample of the rows."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from oocloader.codecs import Chain
from oocloader.codecs import hdf5 as hdf5_codecs
from oocloader.codecs import zarr as zarr_codecs_read
from oocloader.conversion.encode import Codec, Format, encoded_bound, encoder, hdf5_filter, zarr_codecs
from oocloader.conversion.sources import Wanted
from oocloader.conversion.store_plan import default_chunk_rows
from oocloader.conversion.transposing import boxes_of
from oocloader.reading import box_shape, in_order

AUTO = "auto"
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


@dataclass(frozen=True, slots=True)
class Choice:
    """The codec chosen, and why, in words."""

    codec: Codec
    why: str


def choose_codec(
    wanted: Iterable[Wanted], *, store_format: Format, chunk_rows: int | None, cores: int
) -> Choice:
    """The codec that loads the largest of the arrays fastest. Reads up to 16 MiB of it."""
    largest = max((one for one in wanted if one.array is not None), key=lambda one: one.stored_nbytes)
    sample = take_sample(largest, chunk_rows)
    found = [try_codec(Codec.parse(name), sample, store_format, cores) for name in _CANDIDATES[store_format]]
    best = pick(found)
    listed = ", ".join(
        f"{trial.codec} {trial.ratio:.2f}"
        + ("" if trial.codec.raw else f" ({trial.decode_rate / 1e9:.1f} GB/s)")
        for trial in found
    )
    megabytes = sum(chunk.nbytes for chunk in sample) / 1e6
    return Choice(
        best.codec,
        f"of {megabytes:.1f} MB of {largest.info.name!r} tried: {listed}; size and decoding speed, for a disk"
        f" that reads {DISK_RATE / 1e9:.0f} GB/s",
    )


def pick(trials: Sequence[Trial]) -> Trial:
    """The one that loads fastest; of those about as fast, the one that comes first.

    >>> none, zstd = Trial(Codec.parse("none"), 1.0, 1e12), Trial(Codec.parse("zstd"), 0.98, 2e9)
    >>> str(pick([none, zstd]).codec)
    'none'
    """
    best = trials[0]
    for trial in trials[1:]:
        if trial.seconds_per_gb < _BETTER * best.seconds_per_gb:
            best = trial
    return best


def take_sample(wanted: Wanted, chunk_rows: int | None) -> list[np.ndarray]:
    """Up to 8 stretches of rows from all over the array, like chunks, or as much of one as 2 MiB hold."""
    array, info = wanted.array, wanted.info
    assert array is not None
    rows = info.shape[0]
    row_nbytes = max(1, info.nbytes // rows)
    found: list[np.ndarray] = []
    if wanted.transposed:
        # Boxes as they are kept: whole rows would be gathered from the whole source.
        boxes = boxes_of(array.reader, most_nbytes=_PLACE_NBYTES)
        for number in _spread(len(boxes)):
            reader, box, _ = boxes[number]
            order = reader.chunk_geometry.order
            values = np.empty(in_order(box_shape(box), order), array.info.dtype)
            reader.read_box(box, values)
            rows_first = np.moveaxis(values, order.index(wanted.axis), 0)
            turned = np.ascontiguousarray(rows_first).reshape(-1)
            found.append(turned[: _PLACE_NBYTES // turned.itemsize])
    else:
        taken = chunk_rows or default_chunk_rows(rows, row_nbytes)
        taken = max(1, min(taken, rows, _PLACE_NBYTES // row_nbytes))
        for number in _spread(rows // taken):
            start = wanted.first + number * taken
            found.append(array.read(start, start + taken).reshape(-1))
    if wanted.cast:
        with np.errstate(all="ignore"):
            found = [values.astype(info.dtype) for values in found]
    return found


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
        chain = _chain(codec, values, store_format)
        out = np.empty(raw.nbytes, np.uint8)
        best = float("inf")
        for _ in range(_REPEATS):
            began = time.perf_counter()
            chain.decode(encoded, out)
            best = min(best, time.perf_counter() - began)
        seconds += best
        total += raw.nbytes
        stored += encoded.nbytes
    return Trial(codec, stored / total, total / max(seconds, 1e-9) * cores)


def _chain(codec: Codec, values: np.ndarray, store_format: Format) -> Chain:
    if store_format == "hdf5":
        number, settings = hdf5_filter(codec, values.itemsize, values.nbytes)
        return hdf5_codecs.chain([(number, 0, settings, b"")], dtype=values.dtype, chunk_shape=values.shape)
    steps = [{"name": "bytes", "configuration": {"endian": "little"}}, *zarr_codecs(codec, values.itemsize)]
    found = zarr_codecs_read.v3(steps, dtype=values.dtype, chunk_shape=values.shape)
    assert isinstance(found, zarr_codecs_read.Decoding)
    return found.chain
