"""What a conversion will write, decided before anything is written: pure arithmetic."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oocloader.conversion.chunking import check_chunk, rows_of_chunk, rows_of_shard
from oocloader.conversion.encode import Codec, Format
from oocloader.conversion.options import ConvertOptions, ZarrFormat
from oocloader.errors import DataError, SettingError, UnsupportedArrayError
from oocloader.sizes import MIB, nbytes_of_row
from oocloader.stores import ArrayInfo

# A folder of more files than this is slow to list, to copy and to remove.
_FILE_FLOOD = 10_000

# A thread reads and encodes this much at once: little enough to stay in the processor's cache between both.
_PIECE_NBYTES = 2 * MIB
# Where the rows of a piece come from all over a temporary file: larger pieces, longer runs.
_SCATTERED_PIECE_NBYTES = 16 * MIB
_MOST_PIECE_NBYTES = 32 * MIB
_MOST_PIECE_CHUNKS = 1024
# A thread that has encoded a piece before its turn goes on with another: pieces differ little.
_SPARE_BUFFERS = 2
# What all threads together may hold, unless one alone needs more.
_MEMORY_NBYTES = 160 * MIB


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """How an array of the source is read.

    - `chunk_rows`: rows that are read and decoded at once, `None` where any will do.
    - `scratch_nbytes`: memory that a thread needs for that besides the rows it wants.
    - `copies`: how many times the rows it wants it needs besides.
    - `scattered`: whether the rows of a piece lie in many places.
    """

    chunk_rows: int | None = None
    scratch_nbytes: int = 0
    copies: float = 0
    scattered: bool = False


@dataclass(frozen=True, slots=True)
class StoredArrayPlan:
    """One array of the new store.

    - `shape`: `(rows, *sample_shape)`; `dtype`: native byte order.
    - `chunk_rows`: chunks hold whole rows.
    - `shard_rows`: rows of a shard, whole chunks, `None` where each chunk is a file or HDF5 keeps it.
    - `piece_rows`: rows that a thread reads and encodes at once, whole chunks.
    - `threads`: how many do that; `buffers`: how many pieces there is memory for, at least as many.
    - `fill`: the bytes of the fill value, native byte order; empty for zero.
    - `attrs`: attributes, plain values.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    chunk_rows: int
    shard_rows: int | None
    piece_rows: int
    threads: int
    buffers: int
    fill: bytes = b""
    attrs: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def fill_value(self) -> np.ndarray:
        """What is recorded as the value of what is not there, 0-d of `dtype`. Everything is there."""
        return np.frombuffer(self.fill, self.dtype).reshape(()) if self.fill else np.zeros((), self.dtype)

    @property
    def files(self) -> int:
        """Files of a Zarr store that hold its chunks."""
        return -(-self.rows // (self.shard_rows or self.chunk_rows))

    @property
    def rows(self) -> int:
        return self.shape[0]

    @property
    def row_nbytes(self) -> int:
        return nbytes_of_row(self.shape, self.dtype)

    @property
    def nbytes(self) -> int:
        return self.rows * self.row_nbytes

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        return (self.chunk_rows, *self.shape[1:])

    @property
    def chunk_nbytes(self) -> int:
        return self.chunk_rows * self.row_nbytes

    @property
    def chunks(self) -> int:
        return -(-self.rows // self.chunk_rows)

    @property
    def piece_chunks(self) -> int:
        return self.piece_rows // self.chunk_rows

    @property
    def pieces(self) -> int:
        return -(-self.rows // self.piece_rows)

    @property
    def padded_nbytes(self) -> int:
        """Bytes of all chunks before encoding: the last one is stored in full."""
        return self.chunks * self.chunk_nbytes


@dataclass(frozen=True, slots=True)
class StorePlan:
    """The arrays of the new store, in order, all with the same number of rows."""

    store_format: Format
    codec: Codec
    arrays: tuple[StoredArrayPlan, ...]
    zarr_format: ZarrFormat = 3
    checksum: bool = False
    """Whether every chunk is stored with a checksum that any reader verifies."""

    @property
    def warning(self) -> str:
        """What to tell of a plan that makes too many files, empty where it does not."""
        files = sum(array.files for array in self.arrays) if self.store_format == "zarr" else 0
        if files <= _FILE_FLOOD:
            return ""
        remedy = "larger chunks (chunk_rows, --chunk-rows)"
        if self.zarr_format == 3:
            remedy = "shards (shards, --shards) or " + remedy
        return (
            f"the store will have {files:,} files, which file systems and quotas may not bear; take {remedy}"
        )

    @property
    def rows(self) -> int:
        return self.arrays[0].rows

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    @property
    def needed_nbytes(self) -> int:
        """Room that the store takes for sure: all of it where it is not compressed."""
        return sum(array.padded_nbytes for array in self.arrays) if self.codec.raw else 0


def check_sources(sources: Iterable[ArrayInfo], *, where: str) -> None:
    """Whether each of these arrays can be converted; `where` names the source in errors.

    Raises `UnsupportedArrayError` for an array that cannot be loaded.
    """
    infos = list(sources)
    good = next((info.name for info in infos if info.reader != "none"), None)
    others = "" if good is None else f"; to convert another, name it, such as {where}::{good}"
    for info in infos:
        if info.reader == "none":
            raise UnsupportedArrayError(
                f"{where}: array {info.name!r} cannot be converted: {info.reason}{others}",
                file=where,
                array=info.name,
            )


def check_rows(rows: Mapping[str, int], *, where: str) -> None:
    """Whether arrays of so many rows, by name, can be in one store. Raises `DataError`."""
    if len(set(rows.values())) > 1:
        found = ", ".join(f"{name!r} has {count}" for name, count in rows.items())
        raise DataError(f"{where}: the arrays differ in their number of rows: {found}", file=where)


def make_plan(
    sources: Mapping[str, tuple[ArrayInfo, ReadPlan]],
    options: ConvertOptions,
    *,
    store_format: Format,
    codec: Codec,
    cores: int,
    fills: Mapping[str, np.ndarray] | None = None,
) -> StorePlan:
    """Plan to write these arrays, given by their names in the new store, which `check_sources` let pass.

    `fills` are the fill values of those that have one, 0-d. Raises `SettingError` where chunks break a
    limit, or where there cannot be shards.
    """
    _check_format(options, store_format)
    arrays = tuple(
        _plan_array(name, info, reading, (fills or {}).get(name), options, store_format, codec, cores)
        for name, (info, reading) in sources.items()
    )
    return StorePlan(store_format, codec, arrays, options.zarr_format, bool(options.checksum))


def _check_format(options: ConvertOptions, store_format: Format) -> None:
    """Raise `SettingError` where a format has not what is asked for."""
    shards, version = options.shards, options.zarr_format
    if shards != "auto" and (store_format == "hdf5" or (version == 2 and shards != "none")):
        what = "HDF5 keeps all chunks in one file" if store_format == "hdf5" else "Zarr format 2 has none"
        raise SettingError(f"shards: {what}; leave it out")
    if version == 2 and store_format == "hdf5":
        raise SettingError("zarr_format: the destination is HDF5; leave it out, or write a .zarr")


def _plan_array(
    name: str,
    info: ArrayInfo,
    reading: ReadPlan,
    fill: np.ndarray | None,
    options: ConvertOptions,
    store_format: Format,
    codec: Codec,
    cores: int,
) -> StoredArrayPlan:
    if store_format == "hdf5":
        _check_attributes(info)
    chunk_rows = rows_of_chunk(info, options, store_format)
    check_chunk(info, chunk_rows, store_format, codec, checksum=options.checksum)
    rows, row_nbytes = info.shape[0], nbytes_of_row(info.shape, info.dtype)
    piece_rows = chunk_rows * _piece_chunks(reading, chunk_rows, row_nbytes, -(-rows // chunk_rows))
    threads, buffers = _threads(reading, piece_rows * row_nbytes, -(-rows // piece_rows), codec, cores)
    return StoredArrayPlan(
        name=name,
        shape=info.shape,
        dtype=info.dtype,
        chunk_rows=chunk_rows,
        shard_rows=rows_of_shard(info, chunk_rows, options, store_format),
        piece_rows=piece_rows,
        threads=threads,
        buffers=buffers,
        fill=b"" if fill is None or not any(fill.tobytes()) else fill.tobytes(),
        attrs=info.attrs,
    )


def is_text(name: str) -> bool:
    """Whether a name can be written as UTF-8: what was no text in a file is a lone surrogate in Python."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def _check_attributes(info: ArrayInfo) -> None:
    """Refuse names of attributes that HDF5 has not, or that it would cut."""
    for name in info.attrs:
        if not name or "\0" in name or not is_text(name):
            raise SettingError(
                f"array {info.name!r}: HDF5 has no attributes of the name {name!r}; rename it in the source,"
                " or write a .zarr",
                array=info.name,
            )


def _piece_chunks(reading: ReadPlan, chunk_rows: int, row_nbytes: int, chunks: int) -> int:
    wanted = _SCATTERED_PIECE_NBYTES if reading.scattered else _PIECE_NBYTES
    if reading.chunk_rows is not None:
        # A chunk of the source that straddles pieces is decoded for each: few pieces, few times.
        wanted = max(wanted, min(4 * reading.chunk_rows * row_nbytes, _MOST_PIECE_NBYTES))
    return max(1, min(wanted // (chunk_rows * row_nbytes), chunks, _MOST_PIECE_CHUNKS))


def _threads(reading: ReadPlan, piece_nbytes: int, pieces: int, codec: Codec, cores: int) -> tuple[int, int]:
    """How many threads there are, and buffers of pieces."""
    buffer = piece_nbytes * (1 if codec.raw else 2)
    thread = int(piece_nbytes * reading.copies) + reading.scratch_nbytes
    threads = max(1, min(cores, pieces, _MEMORY_NBYTES // (thread + buffer)))
    spare = max(0, _MEMORY_NBYTES - threads * (thread + buffer)) // buffer
    return threads, threads + min(_SPARE_BUFFERS, spare, pieces - threads)
