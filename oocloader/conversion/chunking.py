"""How many rows a chunk takes, and a shard: pure arithmetic."""

import math

from oocloader.conversion.encode import Codec, Format
from oocloader.conversion.options import ConvertOptions
from oocloader.errors import SettingError
from oocloader.sizes import GIB, KIB, MIB, nbytes_of_row
from oocloader.stores import ArrayInfo

# Large enough that a system call or a decoder's start does not count, small enough for many in a window.
_CHUNK_NBYTES = 8 * MIB
_MOST_CHUNK_NBYTES = 32 * MIB
_LEAST_CHUNK_NBYTES = 64 * KIB
# Shuffling draws whole runs of rows: a thousand chunks leave it enough to draw from.
_LEAST_CHUNKS = 1000
# A window is about a quarter of the device's memory, and mixes well where it draws from 256 chunks.
_CHUNKS_IN_MEMORY = 1024
_PAGE = 4096

# HDF5 keeps the size of a chunk in 32 bits.
_HDF5_CHUNK_LIMIT = 4 * GIB - 1
CHECKSUM_NBYTES = 4

# More chunk files than this are packed into shards: a few dozen, or more where they would pass a gibibyte.
_MOST_CHUNK_FILES = 64
_SHARDS = 32
_SHARD_NBYTES = GIB
# Where shards cannot be had, chunks grow until there are few files, as far as chunks should grow.
_MOST_PLAIN_FILES = 256
_MOST_PLAIN_CHUNK_NBYTES = 64 * MIB


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


def rows_of_chunk(info: ArrayInfo, options: ConvertOptions, store_format: Format) -> int:
    """Rows of a chunk of a new array: as asked for, else by default."""
    rows = info.shape[0]
    if options.chunk_rows is not None:
        return min(options.chunk_rows, rows)
    most_chunks = _MOST_PLAIN_FILES if _is_file_per_chunk(options, store_format) else None
    row_nbytes = nbytes_of_row(info.shape, info.dtype)
    taken = default_chunk_rows(rows, row_nbytes, for_memory=options.device_nbytes, most_chunks=most_chunks)
    shards = options.parsed_shards
    if isinstance(shards, int):
        # The largest part of a shard that is no larger, so that shards can be what was asked for.
        taken = next(part for part in range(min(taken, shards), 0, -1) if shards % part == 0)
    return taken


def _is_file_per_chunk(options: ConvertOptions, store_format: Format) -> bool:
    return store_format == "zarr" and (options.zarr_format == 2 or options.shards == "none")


def rows_of_shard(
    info: ArrayInfo, chunk_rows: int, options: ConvertOptions, store_format: Format
) -> int | None:
    """Rows of a shard, `None` where there are to be no shards. Raises `SettingError`."""
    shards = options.parsed_shards
    if store_format == "hdf5" or _is_file_per_chunk(options, store_format):
        return None
    chunks = -(-info.shape[0] // chunk_rows)
    if isinstance(shards, int):
        if shards % chunk_rows:
            raise SettingError(
                f"shards: array {info.name!r}: a shard of {shards:,} rows is not a whole number of chunks of"
                f" {chunk_rows:,}; take a multiple",
                array=info.name,
            )
        return min(shards, chunks * chunk_rows)
    if chunks <= _MOST_CHUNK_FILES:
        return None
    chunk_nbytes = chunk_rows * nbytes_of_row(info.shape, info.dtype)
    packed = min(-(-chunks // _SHARDS), _SHARD_NBYTES // chunk_nbytes)
    return packed * chunk_rows if packed > 1 else None


def check_chunk(
    info: ArrayInfo, chunk_rows: int, store_format: Format, codec: Codec, *, checksum: bool
) -> None:
    """Raise `SettingError` where a chunk is larger than format or codec take."""
    row_nbytes = nbytes_of_row(info.shape, info.dtype)
    nbytes = chunk_rows * row_nbytes
    limits = [(codec.max_chunk_nbytes, f"the codec {codec.name} takes at most {{}} bytes a chunk")]
    if store_format == "hdf5":
        limits.append((_HDF5_CHUNK_LIMIT, "HDF5 chunks must be smaller than 4 GiB"))
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
    if checksum and store_format == "hdf5" and nbytes + CHECKSUM_NBYTES > _HDF5_CHUNK_LIMIT:
        raise SettingError(
            f"array {info.name!r}: HDF5 chunks must be smaller than 4 GiB, these take {nbytes:,} bytes and a"
            " checksum: take fewer rows a chunk (chunk_rows, --chunk-rows)",
            array=info.name,
        )
