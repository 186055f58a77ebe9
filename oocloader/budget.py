"""How many rows a window and a block have, and how much memory that takes: arithmetic, nothing else.

Block and window follow from the rows, their size, the chunks and the budgets that were *written*, so
that the order of rows is the same on every machine, with any batch size and any number of threads: half
of a budget is for windows, whatever the other half is for. What was measured (free memory) only decides
how many windows are read ahead.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass

from oocloader.errors import SettingError

MIB = 1 << 20
# A window in stored order: large enough that its fixed cost vanishes, small enough to stay near the caches.
ORDERED_WINDOW = 32 * MIB
# A shuffled window mixes better the larger it is; this keeps the first batch under a tenth of a second away.
SHUFFLED_WINDOW = 64 * MIB
LARGEST_WINDOW = 256 * MIB
# Fewer blocks than this mix poorly where rows are stored in order of their class.
WANTED_BLOCKS = 16
BLOCK = MIB
# Beside others this many times its size, an array may rather be kept decoded than decide how rows are cut.
LIGHT = 16
# On the host: one window filling, one filled.
HOST_WINDOWS = 2
# On a device: one window in use, one arriving, one held by a batch that is not released yet.
DEVICE_WINDOWS = 3
MOST_AHEAD = 3


@dataclass(frozen=True, slots=True)
class Column:
    """What one array of the element costs: bytes per row as stored and as delivered, and as its reader has
    it working memory per thread, whether its rows can be read one by one, what a mapping to gather them
    from takes, rows per chunk and where these are counted from."""

    name: str
    row_nbytes: int
    delivered_row_nbytes: int
    chunk_rows: int | None
    scratch_nbytes: int
    row_access: bool
    gathered_nbytes: int = 0
    starts: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rows of a block and a window and the rows they are counted from, windows read ahead by how many
    threads, whether shuffled rows are gathered from mapped files, and the memory in bytes that this takes."""

    block: int
    window: int
    starts: tuple[int, ...]
    ahead: int
    threads: int
    gather: bool
    window_nbytes: int
    host_nbytes: int
    device_nbytes: int


def free_host_memory() -> int:
    """Bytes that reading ahead takes where no budget is written: a quarter of what is free, 2 GiB at most."""
    found = available_host_memory()
    return 512 * MIB if found is None else min(2048 * MIB, found // 4)


def available_host_memory() -> int | None:
    """Bytes of memory that are free or can be freed, as the system has it."""
    try:
        with open("/proc/meminfo", encoding="ascii") as table:
            found = re.search(r"MemAvailable:\s*(\d+) kB", table.read())
    except OSError:
        found = None
    return int(found[1]) * 1024 if found else None


def parse_nbytes(value: int | str, option: str) -> int:
    """Bytes from a number, or from text such as ``"64MiB"`` (powers of 1024) or ``"1.5GB"`` (of 1000).

    >>> parse_nbytes("64MiB", "host_memory"), parse_nbytes("2 GB", "host_memory"), parse_nbytes(10, "window")
    (67108864, 2000000000, 10)
    """
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?))?b?\s*", value, re.ASCII | re.IGNORECASE)
        if found is None:
            raise _no_size(value, option)
        base = 1024 if found[3] else 1000
        nbytes = int(float(found[1]) * base ** "_kmgt".index((found[2] or "_").lower()))
    else:
        try:
            nbytes = operator.index(value)
        except TypeError:
            raise _no_size(value, option) from None
        if isinstance(value, bool):
            raise _no_size(value, option)
    if nbytes < 1:
        raise SettingError(f"{option}={value!r} must be at least one byte")
    return nbytes


def _no_size(value: object, option: str) -> SettingError:
    return SettingError(f'{option}={value!r} is no size; write bytes or a text such as "64MiB" or "2GB"')


def parse_rows(value: int | str, option: str, row_nbytes: int) -> int:
    """Rows from a number of rows, or from a size as text: as many rows as fit, at least one."""
    if isinstance(value, str):
        return max(1, parse_nbytes(value, option) // max(1, row_nbytes))
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise SettingError(f'{option}={value!r} must be a number of rows or a size such as "64MiB"')
    if int(value) < 1:
        raise SettingError(f"{option}={value!r} must be at least 1 row")
    return int(value)


@dataclass(frozen=True, slots=True)
class Cuts:
    """Multiples of `unit` rows from each of `starts` cut no chunk; `unit` is 1 where nothing is chunked.

    `smallest`: the rows that have to be read together, since chunks are decoded whole.
    """

    unit: int
    smallest: int
    starts: tuple[int, ...]


def cuts(columns: Sequence[Column], *, shuffle: bool) -> Cuts:
    """Where to cut, as far as that is cheap.

    Of the arrays decoded in chunks the one with the most bytes decides. Another's chunks join by the
    least common multiple while that stays near a megabyte: otherwise they are kept decoded until all
    their rows are used. So are those of an array that is small beside the others, such as labels. Chunks
    that need no decoding are kept whole where that is cheap.
    """
    row_nbytes = max(1, sum(column.row_nbytes for column in columns))

    def optional(column: Column) -> bool:
        return column.row_access or LIGHT * column.row_nbytes <= row_nbytes

    found: Cuts | None = None
    for column in sorted(columns, key=lambda column: (optional(column), -column.row_nbytes)):
        rows = column.chunk_rows
        if rows is None:
            continue
        if found is not None:
            joined = math.lcm(found.unit, rows)
            if joined * row_nbytes <= BLOCK and column.starts == found.starts:
                found = Cuts(joined, found.smallest if optional(column) else joined, found.starts)
        elif not optional(column):
            found = Cuts(rows, rows, column.starts)
        elif rows * row_nbytes <= (BLOCK if shuffle else ORDERED_WINDOW):
            found = Cuts(rows, 1, column.starts)
    return found or Cuts(1, 1, (0,))


def choose(
    rows: int,
    columns: Sequence[Column],
    *,
    batch_size: int,
    shuffle: bool,
    block: int | str | None,
    window: int | str | None,
    host_memory: int | None,
    device_memory: int | None,
    threads: int,
    free_host_memory: int,
    cached_nbytes: int = 0,
) -> Sizes:
    """Block, window and memory for `rows` rows.

    `host_memory` and `device_memory` are written budgets in bytes or None; `free_host_memory` is what
    the machine has to spare; `cached_nbytes` of the host's memory are for rows kept decoded. A host
    budget may allow fewer than `threads`. Raises `SettingError`, naming the smallest budget that works.
    """
    row_nbytes = max(1, sum(column.row_nbytes for column in columns))
    found = cuts(columns, shuffle=shuffle)
    smallest = min(found.smallest, rows)
    if window is not None:
        window_rows = parse_rows(window, "window", row_nbytes)
        if isinstance(window, str) and window_rows > found.unit:
            # A size is only about right anyway: chunks that windows cut are decoded to memory of their own.
            window_rows -= window_rows % found.unit
        window_rows = smallest = min(window_rows, rows)
    else:
        shares = [
            given // (2 * windows)
            for given, windows in ((host_memory, HOST_WINDOWS), (device_memory, DEVICE_WINDOWS))
            if given is not None
        ]
        window_rows = _window_nbytes(found.unit * row_nbytes, shuffle=shuffle, shares=shares) // row_nbytes
        window_rows -= window_rows % (found.unit if window_rows >= found.unit else found.smallest)
        window_rows = min(max(window_rows, smallest), rows)
    window_nbytes = window_rows * row_nbytes

    if block is not None:
        block_rows = parse_rows(block, "block", row_nbytes)
    else:
        units = min(BLOCK, window_nbytes // 64) // (found.unit * row_nbytes)
        block_rows = max(1, units) * found.unit
    block_rows = min(block_rows, window_rows)

    # Each window comes with the rows that a batch left over.
    carried = batch_size * row_nbytes
    staged = window_nbytes + carried
    batches = 2 * batch_size * sum(column.delivered_row_nbytes for column in columns)
    kept = _kept_nbytes(rows, columns, block_rows, found.starts) if shuffle and window_rows < rows else 0
    kept += cached_nbytes
    scratch = max((column.scratch_nbytes for column in columns), default=0)
    for option, given, windows, besides in (
        ("device_memory", device_memory, DEVICE_WINDOWS, DEVICE_WINDOWS * carried + batches),
        ("host_memory", host_memory, HOST_WINDOWS, HOST_WINDOWS * carried + scratch + kept),
    ):
        needed = windows * smallest * row_nbytes + besides
        if window is None:
            needed = max(needed, 2 * besides)
        if given is not None and given < needed:
            fitting = (given - besides) // windows // row_nbytes
            raise _too_small(option, given, needed, smallest, fitting, chosen=window is not None)
    least = HOST_WINDOWS * staged + scratch + kept
    if cached_nbytes and host_memory is None and least > free_host_memory:
        raise SettingError(
            f"cache='memory' keeps {cached_nbytes} bytes of rows, and with windows that is more than the "
            f"{free_host_memory} bytes (a quarter of the free memory, 2 GiB at most) that are taken unasked: "
            f"give at least host_memory={max(least, 2 * (least - HOST_WINDOWS * window_nbytes))}, "
            "or cache= a folder"
        )

    if host_memory is not None and scratch:
        threads = max(1, min(threads, (host_memory - HOST_WINDOWS * staged - kept) // scratch))
    budget = free_host_memory if host_memory is None else host_memory
    ahead = max(1, min(MOST_AHEAD, (budget - threads * scratch - kept) // staged - 1))
    host_nbytes = (ahead + 1) * staged + threads * scratch + kept
    mapped = sum(column.gathered_nbytes for column in columns) if shuffle else 0
    gather = shuffle and host_nbytes + mapped <= budget
    return Sizes(
        block=block_rows,
        window=window_rows,
        starts=found.starts,
        ahead=ahead,
        threads=threads,
        gather=gather,
        window_nbytes=window_nbytes,
        host_nbytes=host_nbytes + (mapped if gather else 0),
        device_nbytes=DEVICE_WINDOWS * staged + batches,
    )


def _window_nbytes(unit_nbytes: int, *, shuffle: bool, shares: Sequence[int]) -> int:
    """Bytes of a window that nobody chose; `shares` are the most that written budgets allow."""
    if not shuffle:
        wanted = ORDERED_WINDOW
    elif shares:
        wanted = LARGEST_WINDOW
    else:
        wanted = min(LARGEST_WINDOW, max(SHUFFLED_WINDOW, WANTED_BLOCKS * unit_nbytes))
    return min([wanted, *shares])


def _kept_nbytes(rows: int, columns: Sequence[Column], block: int, starts: tuple[int, ...]) -> int:
    """Memory for arrays whose chunks blocks cut: these stay decoded until all their rows are used."""
    return sum(
        rows * column.row_nbytes
        for column in columns
        if not column.row_access
        and column.chunk_rows is not None
        and (block % column.chunk_rows or column.starts != starts)
    )


def _too_small(
    option: str, given: int, needed: int, rows: int, fitting: int, *, chosen: bool
) -> SettingError:
    remedy = f"give at least {option}={needed}"
    if chosen:
        remedy += ", or a smaller window"
    elif fitting >= rows:
        remedy += f", or window={rows}"
    elif rows > 1:
        remedy += f", or convert to smaller chunks than {rows} rows (oocloader convert --chunk-rows)"
    else:
        remedy += ", or a smaller batch_size"
    return SettingError(f"{option}={given} is too small for windows of {rows} rows: {remedy}")
