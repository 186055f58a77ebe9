"""How many rows a window and a block have, and how much memory that takes: arithmetic, nothing else.

Block and window follow from the rows, their size, the chunks and the budgets that were *written*, so
that the order of rows is the same on every machine, with any batch size and any number of threads: half
of a budget is for windows, whatever the other half is for. What was measured (free memory) decides how
many windows are read ahead, and may refuse a run, naming the window that fits: it never changes the order.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass

from oocloader.errors import SettingError
from oocloader.free_memory import available_host_memory

MIB = 1 << 20
# A window in stored order: large enough that its fixed cost vanishes, small enough to stay near the caches.
ORDERED_WINDOW = 32 * MIB
# A shuffled window mixes better the larger it is; this keeps the first batch under a tenth of a second away.
SHUFFLED_WINDOW = 64 * MIB
LARGEST_WINDOW = 256 * MIB
# Fewer blocks than this mix poorly where rows are stored in order of their class.
WANTED_BLOCKS = 16
# Blocks of about a mebibyte, unless so many do not fit in a window.
BLOCK = MIB
BLOCKS = 64
# So many blocks reach 0.99 of the label entropy of a full shuffle: to have them, this may be kept decoded.
MIXING_BLOCKS = 32
KEPT = 16 * MIB
# Beside others this many times its size, an array may rather be kept decoded than decide how rows are cut.
LIGHT = 16
# On the host: one window filling, one filled.
HOST_WINDOWS = 2
# On a device: one window in use, one arriving, one held by a batch that is not released yet.
DEVICE_WINDOWS = 3
MOST_AHEAD = 3
# Half of a GPU is for the model: its weights, their moments, its activations.
MODEL_SHARE = 2
# The budget of a GPU that does not tell its memory: the largest windows fit, and hardly a GPU has less.
UNKNOWN_DEVICE = 1024 * MIB


@dataclass(frozen=True, slots=True)
class Column:
    """What one array of the element costs: bytes per row as stored and as delivered, and as its reader has
    it working memory per thread, whether its rows can be read one by one, what a mapping to gather them
    from takes, rows per chunk and where these are counted from. `touched_nbytes`: the chunks that the rows
    of a pass lie in, decoded whole (0: no more than the rows)."""

    name: str
    row_nbytes: int
    delivered_row_nbytes: int
    chunk_rows: int | None
    scratch_nbytes: int
    row_access: bool
    gathered_nbytes: int = 0
    starts: tuple[int, ...] = (0,)
    touched_nbytes: int = 0

    def cut_by(self, block_rows: int, starts: tuple[int, ...]) -> bool:
        """Whether blocks of so many rows, counted from `starts`, cut chunks that have to be decoded."""
        if self.row_access or self.chunk_rows is None:
            return False
        return block_rows % self.chunk_rows != 0 or self.starts != starts


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Host memory by part, bytes.

    - `ahead`: windows read or being read; `in_use`: the one that batches are taken from, each with the rows
      that a batch left over
    - `decoding`: what the threads decode with; `kept`: decoded chunks whose rows belong to several windows
    - `cached`: rows that stay decoded for later passes
    - `mapped`: files that shuffled rows are gathered from, which count as resident
    """

    ahead: int
    in_use: int
    decoding: int
    kept: int
    cached: int
    mapped: int

    @property
    def nbytes(self) -> int:
        return self.ahead + self.in_use + self.decoding + self.kept + self.cached + self.mapped


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Device memory by part, bytes: windows (in use, arriving, held by a batch not released yet), batches,
    and all rows where they are kept."""

    windows: int
    batches: int
    kept: int = 0

    @property
    def nbytes(self) -> int:
        return self.windows + self.batches + self.kept


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rows of a block and a window and the rows they are counted from, windows read ahead by how many
    threads, whether shuffled rows are gathered from mapped files, and the memory that this takes.
    `window_why` and `block_why` say what decided."""

    block: int
    window: int
    starts: tuple[int, ...]
    ahead: int
    threads: int
    gather: bool
    window_nbytes: int
    host: HostMemory
    device: DeviceMemory
    window_why: str
    block_why: str

    @property
    def host_nbytes(self) -> int:
        return self.host.nbytes

    @property
    def device_nbytes(self) -> int:
        return self.device.nbytes


def free_host_memory() -> int:
    """Bytes that reading ahead takes where no budget is written: a quarter of what is free, 2 GiB at most."""
    found = available_host_memory()
    return 512 * MIB if found is None else min(2048 * MIB, found // 4)


def device_share(nbytes: int | None) -> int:
    """The budget on a GPU of `nbytes` where none is written, leaving room for the model.

    >>> device_share(24 << 30) >> 30, device_share(None) >> 20
    (12, 1024)
    """
    return UNKNOWN_DEVICE if nbytes is None else nbytes // MODEL_SHARE


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


def cuts(columns: Sequence[Column], *, shuffle: bool, rows: int = 0, window_rows: int | None = None) -> Cuts:
    """Where to cut, as far as that is cheap.

    Of the arrays decoded in chunks the one with the most bytes decides. Another's chunks join by the
    least common multiple while that stays near a megabyte: otherwise they are kept decoded until all
    their rows are used. So are those of an array that is small beside the others, such as labels. Chunks
    that need no decoding are kept whole where that is cheap. Where `window_rows` were asked for that would
    hold few blocks, blocks get finer if arrays whose `rows` take little can be kept decoded for it.
    """
    row_nbytes = max(1, sum(column.row_nbytes for column in columns))

    def optional(column: Column) -> bool:
        return column.row_access or LIGHT * column.row_nbytes <= row_nbytes

    found: Cuts | None = None
    for column in sorted(columns, key=lambda column: (optional(column), -column.row_nbytes)):
        chunk_rows = column.chunk_rows
        if chunk_rows is None:
            continue
        if found is not None:
            joined = math.lcm(found.unit, chunk_rows)
            if joined * row_nbytes <= BLOCK and column.starts == found.starts:
                found = Cuts(joined, found.smallest if optional(column) else joined, found.starts)
        elif not optional(column):
            found = Cuts(chunk_rows, chunk_rows, column.starts)
        elif chunk_rows * row_nbytes <= (BLOCK if shuffle else ORDERED_WINDOW):
            found = Cuts(chunk_rows, 1, column.starts)
    found = found or Cuts(1, 1, (0,))
    if shuffle and window_rows is not None and MIXING_BLOCKS * found.unit > window_rows:
        return _finer(found, columns, rows=rows, window_rows=window_rows, row_nbytes=row_nbytes)
    return found


def _finer(found: Cuts, columns: Sequence[Column], *, rows: int, window_rows: int, row_nbytes: int) -> Cuts:
    """Cuts at smaller chunks, or at any row, where it costs little to keep decoded what they cut."""
    decoded = [column for column in columns if not column.row_access and column.chunk_rows is not None]
    little = max(KEPT, window_rows * row_nbytes)

    def kept(cut: Cuts) -> int:
        """Memory for the arrays whose chunks are cut, bytes."""
        return sum(rows * column.row_nbytes for column in decoded if column.cut_by(cut.unit, cut.starts))

    finer = [Cuts(column.chunk_rows or 1, column.chunk_rows or 1, column.starts) for column in decoded]
    if len(decoded) < len(columns):
        finer.append(Cuts(1, 1, (0,)))
    finer = [cut for cut in finer if cut.unit < found.unit and kept(cut) <= little]
    mixing = [cut for cut in finer if MIXING_BLOCKS * cut.unit <= window_rows]
    if mixing:
        return min(mixing, key=kept)
    return min(finer, key=lambda cut: cut.unit, default=found)


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
    free_device_memory: int | None = None,
    cached_nbytes: int = 0,
    streamed: bool = True,
) -> Sizes:
    """Block, window and memory for `rows` rows, `cached_nbytes` of which stay decoded on the host.

    `host_memory` and `device_memory` are written budgets in bytes or None; `free_host_memory` and
    `free_device_memory` (None: not known) are the budgets where none is written. A host budget may allow
    fewer than `threads`. Where rows are not `streamed` to the device, because all of them are kept there,
    its budget decides on the window and is not checked for it. Raises `SettingError`, naming the smallest
    budget that works or, where it was measured, the window that fits.
    """
    row_nbytes = max(1, sum(column.row_nbytes for column in columns))
    asked = None if window is None else parse_rows(window, "window", row_nbytes)
    case = _Case(
        rows=rows,
        row_nbytes=row_nbytes,
        columns=tuple(columns),
        cuts=cuts(columns, shuffle=shuffle, rows=rows, window_rows=asked),
        shuffle=shuffle,
        window=asked,
        about=isinstance(window, str),
        block=None if block is None else parse_rows(block, "block", row_nbytes),
        batch_size=batch_size,
        host_memory=host_memory,
        device_memory=device_memory,
        cached=cached_nbytes,
    )
    if streamed:
        case.check("device_memory", free_device_memory)
    case.check("host_memory", free_host_memory)
    window_rows, window_why = case.window_rows()
    block_rows, block_why = case.block_rows(window_rows)
    window_nbytes = window_rows * row_nbytes
    staged = window_nbytes + case.carried
    kept = case.kept(window_rows, block_rows)
    scratch = case.scratch

    budget = free_host_memory if host_memory is None else host_memory
    spare = budget - kept - cached_nbytes
    if scratch:
        threads = max(1, min(threads, (spare - HOST_WINDOWS * staged) // scratch))
    ahead = max(1, min(MOST_AHEAD, (spare - threads * scratch) // staged - 1))
    host = HostMemory(
        ahead=ahead * staged,
        in_use=staged,
        decoding=threads * scratch,
        kept=kept,
        cached=cached_nbytes,
        mapped=0,
    )
    mapped = sum(column.gathered_nbytes for column in columns) if shuffle else 0
    gather = shuffle and host.nbytes + mapped <= budget
    return Sizes(
        block=block_rows,
        window=window_rows,
        starts=case.cuts.starts,
        ahead=ahead,
        threads=threads,
        gather=gather,
        window_nbytes=window_nbytes,
        host=dataclasses.replace(host, mapped=mapped) if gather else host,
        device=DeviceMemory(windows=DEVICE_WINDOWS * staged, batches=case.batches),
        window_why=window_why,
        block_why=block_why,
    )


_MEASURED = {
    "host_memory": "a quarter of the free memory, 2 GiB at most",
    "device_memory": "half of the GPU's memory, the rest being for the model",
}


@dataclass(frozen=True, slots=True)
class _Case:
    """What a plan is made from. Everything but `check` depends on written budgets alone."""

    rows: int
    row_nbytes: int
    columns: tuple[Column, ...]
    cuts: Cuts
    shuffle: bool
    window: int | None
    about: bool
    """Whether the window was given as a size, which is only about right anyway."""
    block: int | None
    batch_size: int
    host_memory: int | None
    device_memory: int | None
    cached: int

    @property
    def carried(self) -> int:
        """The rows that a batch left over: each window comes with them."""
        return self.batch_size * self.row_nbytes

    @property
    def batches(self) -> int:
        return 2 * self.batch_size * sum(column.delivered_row_nbytes for column in self.columns)

    @property
    def scratch(self) -> int:
        """A thread decodes every array with the same memory, which grows to what the largest needs."""
        return max((column.scratch_nbytes for column in self.columns), default=0)

    @property
    def smallest(self) -> int:
        """The rows of the smallest window that is not asked for."""
        return min(self.cuts.smallest, self.rows)

    def window_rows(self) -> tuple[int, str]:
        """Rows of a window, and what decided."""
        unit = self.cuts.unit
        if self.window is not None:
            chosen = self.window
            if self.about and chosen > unit:
                # Chunks that windows cut are decoded to memory of their own.
                chosen -= chosen % unit
            return (chosen, "as asked for") if chosen < self.rows else (self.rows, "all rows fit in one")
        nbytes, why = self._window_nbytes()
        found = nbytes // self.row_nbytes
        found -= found % (unit if found >= unit else self.cuts.smallest)
        if found >= self.rows:
            return self.rows, "all rows fit in one"
        if found < self.smallest:
            return self.smallest, "no fewer: chunks are decoded whole"
        return found, why

    def _window_nbytes(self) -> tuple[int, str]:
        shares = [
            (given // (2 * windows), f"half of {option} is for {windows} windows")
            for option, given, windows in (
                ("host_memory", self.host_memory, HOST_WINDOWS),
                ("device_memory", self.device_memory, DEVICE_WINDOWS),
            )
            if given is not None
        ]
        if not self.shuffle:
            wanted = ORDERED_WINDOW, "enough for the fixed cost of a window to vanish"
        elif shares or WANTED_BLOCKS * self.cuts.unit * self.row_nbytes > LARGEST_WINDOW:
            wanted = LARGEST_WINDOW, "the largest that is chosen without being asked for"
        elif WANTED_BLOCKS * self.cuts.unit * self.row_nbytes > SHUFFLED_WINDOW:
            wanted = WANTED_BLOCKS * self.cuts.unit * self.row_nbytes, f"{WANTED_BLOCKS} blocks, to mix well"
        else:
            wanted = SHUFFLED_WINDOW, "mixes well, and the first is soon read"
        return min([wanted, *shares], key=lambda choice: choice[0])

    def block_rows(self, window_rows: int) -> tuple[int, str]:
        """Rows of a block for windows of so many, and what decided."""
        unit = self.cuts.unit
        if self.block is not None:
            chosen, why = self.block, "as asked for"
        else:
            units = min(BLOCK, window_rows * self.row_nbytes // BLOCKS) // (unit * self.row_nbytes)
            chosen = max(1, units) * unit
            if units > 1 or unit == 1:
                why = "about a mebibyte, or a 64th of a window"
                why += ", and whole chunks" if unit > 1 else ""
            else:
                why = "whole chunks"
        return (chosen, why) if chosen <= window_rows else (window_rows, "no more than a window has")

    def kept(self, window_rows: int, block_rows: int) -> int:
        """Memory for arrays whose chunks blocks cut: these stay decoded until all their rows are used."""
        if not self.shuffle or window_rows >= self.rows:
            return 0
        return sum(
            max(self.rows * column.row_nbytes, column.touched_nbytes) for column in self._cut(block_rows)
        )

    def _cut(self, block_rows: int) -> list[Column]:
        """The arrays whose chunks are cut by shuffled blocks of so many rows."""
        return [column for column in self.columns if column.cut_by(block_rows, self.cuts.starts)]

    def least(self, option: str, window_rows: int, block_rows: int) -> int:
        """The memory without which no window of so many rows is delivered, bytes."""
        return self._windows(option) * window_rows * self.row_nbytes + self._besides(
            option, window_rows, block_rows
        )

    def needed(self, option: str) -> int:
        """The least budget that is accepted, given the window that the budgets lead to.

        The more a budget has, the larger is the window, and the less has to be kept besides: so what is
        needed never grows with what is given.
        """
        window_rows, _ = self.window_rows()
        if self.window is not None or self._given(option) is None:
            return self.least(option, window_rows, self.block_rows(window_rows)[0])
        besides = self._besides_unasked(option)
        return max(self._windows(option) * self.smallest * self.row_nbytes + besides, 2 * besides)

    def _besides_unasked(self, option: str) -> int:
        """What is needed besides windows that nobody asked for, bytes."""
        window_rows, _ = self.window_rows()
        # A larger block may happen to cut no chunk where its multiple does: that is no reason to accept.
        block_rows = self.block or (self.cuts.unit if window_rows >= self.cuts.unit else self.smallest)
        return self._besides(option, window_rows, block_rows)

    def check(self, option: str, measured: int | None) -> None:
        """Raise `SettingError` where the budget `option`, written or else `measured`, is too small."""
        given = self._given(option)
        budget = measured if given is None else given
        if budget is None or budget >= self.needed(option):
            return
        smallest = self._smallest_budget(option)
        remedy = f"give at least {option}={smallest}{self._or(option, budget)}"
        if given is None:
            what = (
                f"windows of {self.window_rows()[0]} rows need {self.needed(option)} bytes of {option}, more "
                f"than the {budget} bytes ({_MEASURED[option]}) that are taken unasked"
            )
        else:
            what = f"{option}={given} is too small {self._too_small_for(option)}"
        raise SettingError(f"{what}: {remedy}")

    def _too_small_for(self, option: str) -> str:
        """What a written budget has no room for, in words."""
        if self.window is not None:
            return f"for windows of {self.window_rows()[0]} rows"
        besides = self._besides_unasked(option)
        if besides > self._windows(option) * self.smallest * self.row_nbytes:
            return f"to leave half of it to windows: {besides} bytes are needed besides them"
        return f"for windows of {self.smallest} rows"

    def _smallest_budget(self, option: str) -> int:
        """The smallest written budget that is accepted."""

        def accepted(nbytes: int) -> bool:
            return nbytes >= dataclasses.replace(self, **{option: nbytes}).needed(option)  # type: ignore[arg-type]  # a budget

        low, high = 0, 1
        while not accepted(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if accepted(middle) else (middle, high)
        return high

    def _or(self, option: str, budget: int) -> str:
        """What else would do, for people."""
        if option == "host_memory" and self.cached:
            return f", or cache= a folder: cache='memory' keeps {self.cached} bytes of rows"
        fitting = self._fitting_window(option, budget)
        if fitting is not None:
            return f", or window={fitting}"
        if self.window is not None:
            return ", or a smaller window"
        cut = self._cut(self.cuts.unit) if self.shuffle and self.rows > self.smallest else []
        if option == "host_memory" and cut:
            names = ", ".join(repr(column.name) for column in cut)
            return (
                f", or convert {names}, kept decoded for all windows, to chunks of {self.cuts.unit} rows "
                f"(oocloader convert --chunk-rows {self.cuts.unit})"
            )
        if self.smallest > 1:
            return (
                f", or convert to smaller chunks than {self.smallest} rows (oocloader convert --chunk-rows)"
            )
        return ", or a smaller batch_size"

    def _fitting_window(self, option: str, budget: int) -> int | None:
        """The most rows of whole chunks that a window could have, None where none would do."""
        windows = self._windows(option)
        current = self.window_rows()[0]
        for unit in dict.fromkeys((self.cuts.unit, self.smallest)):
            for kept_for in (unit, self.block or unit):
                spare = budget - self._besides(option, min(unit, self.rows - 1), kept_for)
                rows = min(spare // windows // self.row_nbytes, current)
                rows -= rows % unit
                fits = rows >= self.smallest and self._fits(option, budget, rows)
                if fits:
                    return rows
        return None

    def _fits(self, option: str, budget: int, rows: int) -> bool:
        asked = dataclasses.replace(self, window=rows, about=False)
        return asked.needed(option) <= budget

    def _given(self, option: str) -> int | None:
        return self.host_memory if option == "host_memory" else self.device_memory

    def _windows(self, option: str) -> int:
        return HOST_WINDOWS if option == "host_memory" else DEVICE_WINDOWS

    def _besides(self, option: str, window_rows: int, block_rows: int) -> int:
        """What is needed besides windows, bytes."""
        if option == "device_memory":
            return DEVICE_WINDOWS * self.carried + self.batches
        return HOST_WINDOWS * self.carried + self.scratch + self.kept(window_rows, block_rows) + self.cached
