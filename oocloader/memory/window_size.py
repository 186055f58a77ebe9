"""How many rows a window and a block have, and the least memory that delivers them.

Block and window follow from the rows, their size, the chunks and the budgets that were *written*, so
that the order of rows is the same on every machine, with any batch size and any number of threads: half
of a budget is for windows, whatever the other half is for.
"""

from dataclasses import dataclass, field
from typing import Literal, Self

from oocloader.errors import SettingError
from oocloader.memory.alignment import BLOCK, ORDERED_WINDOW, ChunkAlignment, Column, chunk_alignment
from oocloader.sizes import MIB, parse_nbytes, rows_in

# A shuffled window mixes better the larger it is; this keeps the first batch under a tenth of a second away.
SHUFFLED_WINDOW = 64 * MIB
LARGEST_WINDOW = 256 * MIB
# Fewer blocks than this mix poorly where rows are stored in order of their class.
WANTED_BLOCKS = 16
# So many blocks a window has at least, where chunks allow it.
BLOCKS = 64
# On the host: one window filling, one filled.
HOST_WINDOWS = 2
# On a device: one window in use, one arriving, one held by a batch that is not released yet.
DEVICE_WINDOWS = 3

Budget = Literal["host_memory", "device_memory"]
WINDOWS: dict[Budget, int] = {"host_memory": HOST_WINDOWS, "device_memory": DEVICE_WINDOWS}


@dataclass(frozen=True, slots=True)
class RequestedRows:
    """What `window=` or `block=` asks for: a number of `rows`, or else as many as `nbytes` hold.

    `str` gives what was written.
    """

    rows: int | None
    nbytes: int = 0
    text: str = ""

    @classmethod
    def parse(cls, option: str, value: int | str | None) -> Self | None:
        """What `value` asks for, None for nothing. Raises `SettingError`, naming the option.

        >>> size = RequestedRows.parse("window", "1KiB")
        >>> size.rows_of(100), size.rows_of(5000), RequestedRows.parse("window", 12).rows_of(100)
        (10, 1, 12)
        """
        if value is None:
            return None
        if isinstance(value, str):
            return cls(None, parse_nbytes(value, option), repr(value))
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise SettingError(f'{option}={value!r} must be a number of rows or a size such as "64MiB"')
        if int(value) < 1:
            raise SettingError(f"{option}={value!r} must be at least 1 row")
        return cls(int(value))

    def rows_of(self, row_nbytes: int) -> int:
        """The number of rows of `row_nbytes` bytes, at least one."""
        return rows_in(self.nbytes, row_nbytes) if self.rows is None else self.rows

    def __str__(self) -> str:
        return self.text or str(self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingInputs:
    """What block, window and memory are decided from, bytes and rows.

    - `columns`: the arrays of an element, of each `rows` rows
    - `host_memory`, `device_memory`: written budgets, None where none is. Block and window depend on these
      alone; `free_host_memory` and `free_device_memory` (None: not known) are the budgets in their place
    - `threads`: the most that read
    - `cached_nbytes`: rows that stay decoded on the host
    - `streamed`: whether windows go to the device; where all rows stay there instead, its budget decides on
      the window and is not checked for it
    """

    rows: int
    columns: tuple[Column, ...]
    batch_size: int
    shuffle: bool
    threads: int
    free_host_memory: int
    free_device_memory: int | None = None
    block: RequestedRows | None = None
    window: RequestedRows | None = None
    host_memory: int | None = None
    device_memory: int | None = None
    cached_nbytes: int = 0
    streamed: bool = True
    row_nbytes: int = field(init=False)
    alignment: ChunkAlignment = field(init=False)

    def __post_init__(self) -> None:
        row_nbytes = max(1, sum(column.row_nbytes for column in self.columns))
        window_rows = None if self.window is None else self.window.rows_of(row_nbytes)
        alignment = chunk_alignment(
            self.columns, shuffle=self.shuffle, rows=self.rows, window_rows=window_rows
        )
        object.__setattr__(self, "row_nbytes", row_nbytes)
        object.__setattr__(self, "alignment", alignment)

    @property
    def leftover_nbytes(self) -> int:
        """The rows that a batch left over: each window comes with them."""
        return self.batch_size * self.row_nbytes

    @property
    def batches_nbytes(self) -> int:
        """Two batches, as they are delivered."""
        return 2 * self.batch_size * sum(column.delivered_row_nbytes for column in self.columns)

    @property
    def scratch_nbytes(self) -> int:
        """A thread decodes every array with the same memory, which grows to what the largest needs."""
        return max((column.scratch_nbytes for column in self.columns), default=0)

    @property
    def smallest(self) -> int:
        """The rows of the smallest window that is not asked for."""
        return min(self.alignment.smallest, self.rows)

    def window_rows(self) -> tuple[int, str]:
        """Rows of a window, and what decided."""
        unit = self.alignment.unit
        if self.window is not None:
            chosen, why = self.window.rows_of(self.row_nbytes), "as asked for"
            # A size is only about right anyway; chunks that windows cut are decoded to memory of their own.
            if self.window.rows is None and chosen > unit:
                chosen -= chosen % unit
        else:
            nbytes, why = self._window_nbytes()
            chosen = nbytes // self.row_nbytes
            chosen -= chosen % (unit if chosen >= unit else self.alignment.smallest)
            if chosen < self.smallest:
                return self.smallest, "no fewer: chunks are decoded whole"
        return (chosen, why) if chosen < self.rows else (self.rows, "all rows fit in one")

    def _window_nbytes(self) -> tuple[int, str]:
        shares = [
            (budget // (2 * windows), f"half of {option} is for {windows} windows")
            for option, windows in WINDOWS.items()
            if (budget := self.written(option)) is not None
        ]
        mixing_nbytes = WANTED_BLOCKS * self.alignment.unit * self.row_nbytes
        if not self.shuffle:
            wanted = ORDERED_WINDOW, "enough for the fixed cost of a window to vanish"
        elif shares or mixing_nbytes > LARGEST_WINDOW:
            wanted = LARGEST_WINDOW, "the largest that is chosen without being asked for"
        elif mixing_nbytes > SHUFFLED_WINDOW:
            wanted = mixing_nbytes, f"{WANTED_BLOCKS} blocks, to mix well"
        else:
            wanted = SHUFFLED_WINDOW, "mixes well, and the first is soon read"
        return min([wanted, *shares], key=lambda choice: choice[0])

    def block_rows(self, window_rows: int) -> tuple[int, str]:
        """Rows of a block for windows of so many, and what decided."""
        unit = self.alignment.unit
        if self.block is not None:
            chosen, why = self.block.rows_of(self.row_nbytes), "as asked for"
        else:
            units = min(BLOCK, window_rows * self.row_nbytes // BLOCKS) // (unit * self.row_nbytes)
            chosen = max(1, units) * unit
            if units > 1 or unit == 1:
                why = "about a mebibyte, or a 64th of a window"
                why += ", and whole chunks" if unit > 1 else ""
            else:
                why = "whole chunks"
        return (chosen, why) if chosen <= window_rows else (window_rows, "no more than a window has")

    def shared_chunks_nbytes(self, window_rows: int, block_rows: int) -> int:
        """Memory for arrays whose chunks blocks cut: these stay decoded until all their rows are used."""
        if not self.shuffle or window_rows >= self.rows:
            return 0
        cut = self.cut_by(block_rows)
        return sum(max(self.rows * column.row_nbytes, column.touched_nbytes) for column in cut)

    def cut_by(self, block_rows: int) -> list[Column]:
        """The arrays whose chunks are cut by shuffled blocks of so many rows."""
        origins = self.alignment.chunk_origins
        return [column for column in self.columns if column.cut_by(block_rows, origins)]

    def needed(self, option: Budget) -> int:
        """The least budget that is accepted, given the window that the budgets lead to.

        The more a budget has, the larger is the window, and the less has to be kept besides: so what is
        needed never grows with what is given.
        """
        row_nbytes = WINDOWS[option] * self.row_nbytes
        if self.window is not None or self.written(option) is None:
            window_rows, _ = self.window_rows()
            return window_rows * row_nbytes + self.besides(
                option, window_rows, self.block_rows(window_rows)[0]
            )
        besides = self.besides_unasked(option)
        return max(self.smallest * row_nbytes + besides, 2 * besides)

    def besides_unasked(self, option: Budget) -> int:
        """What is needed besides windows that nobody asked for, bytes."""
        window_rows, _ = self.window_rows()
        if self.block is not None:
            block_rows = self.block.rows_of(self.row_nbytes)
        else:
            # A larger block may happen to cut no chunk where its multiple does: no reason to accept.
            block_rows = self.alignment.unit if window_rows >= self.alignment.unit else self.smallest
        return self.besides(option, window_rows, block_rows)

    def written(self, option: Budget) -> int | None:
        """The written budget, bytes."""
        return self.host_memory if option == "host_memory" else self.device_memory

    def besides(self, option: Budget, window_rows: int, block_rows: int) -> int:
        """What is needed besides windows, bytes."""
        leftovers = WINDOWS[option] * self.leftover_nbytes
        if option == "device_memory":
            return leftovers + self.batches_nbytes
        shared = self.shared_chunks_nbytes(window_rows, block_rows)
        return leftovers + self.scratch_nbytes + shared + self.cached_nbytes
