"""What a conversion will write, decided before anything is written: pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from oocloader.conversion.encode import Codec, Format
from oocloader.conversion.options import Shards
from oocloader.errors import DataError, SettingError, UnsupportedArrayError
from oocloader.sizes import nbytes_of_row
from oocloader.stores import ArrayInfo

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30

# Large enough that a system call or a decoder's start does not count, small enough for many in a window.
_CHUNK_NBYTES = 8 * _MIB
_MOST_CHUNK_NBYTES = 32 * _MIB
_LEAST_CHUNK_NBYTES = 64 * _KIB
# Shuffling draws whole runs of rows: a thousand chunks leave it enough to draw from.
_LEAST_CHUNKS = 1000
# A window is about a quarter of the device's memory, and mixes well where it draws from 256 chunks.
_CHUNKS_IN_MEMORY = 1024
_PAGE = 4096

# HDF5 keeps the size of a chunk in 32 bits.
_HDF5_CHUNK_LIMIT = 4 * _GIB

# More chunk files than this are packed into shards: a few dozen, or more where they would pass a gibibyte.
_MOST_CHUNK_FILES = 64
_SHARDS = 32
_SHARD_NBYTES = _GIB
# Where shards cannot be had, chunks grow until there are few files, as far as chunks should grow.
_MOST_PLAIN_FILES = 256
_MOST_PLAIN_CHUNK_NBYTES = 64 * _MIB
# A folder of more files than this is slow to list, to copy and to remove.
_FILE_FLOOD = 10_000

# A thread reads and encodes this much at once: little enough to stay in the processor's cache between both.
_PIECE_NBYTES = 2 * _MIB
# Where the rows of a piece come from all over a temporary file: larger pieces, longer runs.
_SCATTERED_PIECE_NBYTES = 16 * _MIB
_MOST_PIECE_NBYTES = 32 * _MIB
_MOST_PIECE_CHUNKS = 1024
# A thread that has encoded a piece before its turn goes on with another: pieces differ little.
_SPARE_BUFFERS = 2
# What all threads together may hold, unless one alone needs more.
_MEMORY_NBYTES = 160 * _MIB


def default_chunk_rows(
    rows: int, row_nbytes: int, *, for_memory: int | None = None, most_chunks: int | None = None
) -> int:
    """Rows of a chunk where the user does not say.

    Near 8 MiB, at most a thousandth of the rows, but at least 64 KiB; whole pages where that costs
    little, since aligned chunks then lie next to each other without gaps. `for_memory` (bytes of the device
    the store is for) takes the place of the 8 MiB: a 1024th of it, at most 32 MiB. Where each chunk is a
    file, chunks grow to at most 64 MiB to be `most_chunks` at most.

    >>> default_chunk_rows(80_000, 64 * 64 * 3)
    80
    >>> default_chunk_rows(10_000_000, 28 * 28)
    9984
    >>> default_chunk_rows(3, 56 * 64 * 256)
    1
    >>> default_chunk_rows(1, 200_000)
    1
    """
    least = -(-_LEAST_CHUNK_NBYTES // row_nbytes)
    aim = _CHUNK_NBYTES if for_memory is None else min(for_memory // _CHUNKS_IN_MEMORY, _MOST_CHUNK_NBYTES)
    wanted = max(min(aim // row_nbytes, rows // _LEAST_CHUNKS), least)
    if most_chunks is not None and -(-rows // wanted) > most_chunks:
        wanted = max(wanted, min(-(-rows // most_chunks), _MOST_PLAIN_CHUNK_NBYTES // row_nbytes))
        return min(wanted, rows)
    page_rows = _PAGE // math.gcd(row_nbytes, _PAGE)
    rounded = wanted - wanted % page_rows
    if 8 * page_rows <= wanted and rounded >= least:
        wanted = rounded
    return min(wanted, rows)


@dataclass(frozen=True, slots=True)
class Reading:
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
class ArrayPlan:
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
class Plan:
    """The arrays of the new store, in order, all with the same number of rows."""

    store_format: Format
    codec: Codec
    arrays: tuple[ArrayPlan, ...]
    zarr_format: Literal[2, 3] = 3
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
    sources: Mapping[str, tuple[ArrayInfo, Reading]],
    *,
    store_format: Format,
    codec: Codec,
    chunk_rows: int | None,
    cores: int,
    shards: Shards = "auto",
    zarr_format: Literal[2, 3] = 3,
    for_memory: int | None = None,
    fills: Mapping[str, np.ndarray] | None = None,
) -> Plan:
    """Plan to write these arrays, given by their names in the new store, which `check_sources` let pass.

    `fills` are the fill values of those that have one, 0-d. Raises `SettingError` where chunks break a
    limit, or where there cannot be shards.
    """
    if shards != "auto" and (store_format == "hdf5" or (zarr_format == 2 and shards != "none")):
        what = "HDF5 keeps all chunks in one file" if store_format == "hdf5" else "Zarr format 2 has none"
        raise SettingError(f"shards: {what}; leave it out")
    if zarr_format == 2 and store_format == "hdf5":
        raise SettingError("zarr_format: the destination is HDF5; leave it out, or write a .zarr")
    plain_files = store_format == "zarr" and (zarr_format == 2 or shards == "none")
    arrays = []
    for name, (info, reading) in sources.items():
        rows, row_nbytes = info.shape[0], nbytes_of_row(info.shape, info.dtype)
        taken = _chunk_rows(
            rows, row_nbytes, chunk_rows, for_memory, _MOST_PLAIN_FILES if plain_files else None, shards
        )
        if store_format == "hdf5":
            _check_attributes(info)
        _check_chunk(info, taken * row_nbytes, row_nbytes, store_format, codec)
        chunks = -(-rows // taken)
        shard_chunks = None
        if store_format == "zarr" and not plain_files:
            shard_chunks = _shard_chunks(info, shards, taken, chunks, row_nbytes)
        fill = (fills or {}).get(name)
        piece_rows = taken * _piece_chunks(reading, taken, row_nbytes, chunks)
        pieces = -(-rows // piece_rows)
        threads, buffers = _threads(reading, piece_rows * row_nbytes, pieces, codec, cores)
        array = ArrayPlan(
            name=name,
            shape=info.shape,
            dtype=info.dtype,
            chunk_rows=taken,
            shard_rows=None if shard_chunks is None else shard_chunks * taken,
            piece_rows=piece_rows,
            threads=threads,
            buffers=buffers,
            fill=b"" if fill is None or not any(fill.tobytes()) else fill.tobytes(),
            attrs=info.attrs,
        )
        arrays.append(array)
    return Plan(store_format, codec, tuple(arrays), zarr_format)


def _chunk_rows(
    rows: int,
    row_nbytes: int,
    asked: int | None,
    for_memory: int | None,
    most_chunks: int | None,
    shards: Shards,
) -> int:
    if asked is not None:
        return min(asked, rows)
    taken = default_chunk_rows(rows, row_nbytes, for_memory=for_memory, most_chunks=most_chunks)
    if isinstance(shards, int):
        # The largest part of a shard that is no larger, so that shards can be what was asked for.
        taken = min(taken, shards)
        while shards % taken:
            taken -= 1
    return taken


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


def _check_chunk(info: ArrayInfo, nbytes: int, row_nbytes: int, store_format: Format, codec: Codec) -> None:
    limits = [(codec.max_chunk_nbytes, f"the codec {codec.name} takes at most {{}} bytes a chunk")]
    if store_format == "hdf5":
        limits.append((_HDF5_CHUNK_LIMIT - 1, "HDF5 chunks must be smaller than 4 GiB"))
    for limit, rule in limits:
        if limit is None or nbytes <= limit:
            continue
        if row_nbytes <= limit:
            remedy = f"take at most {limit // row_nbytes} rows a chunk (chunk_rows, --chunk-rows)"
        else:
            remedy = f"a row alone takes {row_nbytes:,}; write a .zarr with the codec none, zstd or gzip"
        raise SettingError(
            f"array {info.name!r}: {rule.format(f'{limit:,}')}, these would take {nbytes:,}: {remedy}",
            array=info.name,
        )


def _shard_chunks(
    info: ArrayInfo, shards: Shards, chunk_rows: int, chunks: int, row_nbytes: int
) -> int | None:
    """Chunks of a shard, `None` where there are to be no shards."""
    chunk_nbytes = chunk_rows * row_nbytes
    if isinstance(shards, int):
        if shards % chunk_rows:
            raise SettingError(
                f"shards: array {info.name!r}: a shard of {shards:,} rows is not a whole number of chunks of"
                f" {chunk_rows:,}; take a multiple",
                array=info.name,
            )
        return min(shards // chunk_rows, chunks)
    if chunks <= _MOST_CHUNK_FILES:
        return None
    packed = min(-(-chunks // _SHARDS), _SHARD_NBYTES // chunk_nbytes)
    return packed if packed > 1 else None


def _piece_chunks(reading: Reading, chunk_rows: int, row_nbytes: int, chunks: int) -> int:
    wanted = _SCATTERED_PIECE_NBYTES if reading.scattered else _PIECE_NBYTES
    if reading.chunk_rows is not None:
        # A chunk of the source that straddles pieces is decoded for each: few pieces, few times.
        wanted = max(wanted, min(4 * reading.chunk_rows * row_nbytes, _MOST_PIECE_NBYTES))
    return max(1, min(wanted // (chunk_rows * row_nbytes), chunks, _MOST_PIECE_CHUNKS))


def _threads(reading: Reading, piece_nbytes: int, pieces: int, codec: Codec, cores: int) -> tuple[int, int]:
    """How many threads there are, and buffers of pieces."""
    buffer = piece_nbytes * (1 if codec.raw else 2)
    thread = int(piece_nbytes * reading.copies) + reading.scratch_nbytes
    threads = max(1, min(cores, pieces, _MEMORY_NBYTES // (thread + buffer)))
    spare = max(0, _MEMORY_NBYTES - threads * (thread + buffer)) // buffer
    return threads, threads + min(_SPARE_BUFFERS, spare, pieces - threads)
