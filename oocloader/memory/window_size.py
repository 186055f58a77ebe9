"""How many rows a window and a block have, and the least memory that delivers them.

Block and window follow from the rows, their size, the chunks and the budgets that were *written*, so
that the order of rows is the same on every machine, with any batch size and any number of threads: half
of a budget is for windows, whatever the other half is for.
"""

from __future__ import annotations

from dataclasses import dataclass

from oocloader.memory.alignment import BLOCK, ORDERED_WINDOW, ChunkAlignment, Column
from oocloader.sizes import MIB

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


@dataclass(frozen=True, slots=True)
class SizingInputs:
    """What a plan is made from: what is decided here depends on written budgets alone.

    `option` is `"host_memory"` or `"device_memory"`, wherever a method takes it.
    """

    rows: int
    row_nbytes: int
    columns: tuple[Column, ...]
    cuts: ChunkAlignment
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
            max(self.rows * column.row_nbytes, column.touched_nbytes) for column in self.cut(block_rows)
        )

    def cut(self, block_rows: int) -> list[Column]:
        """The arrays whose chunks are cut by shuffled blocks of so many rows."""
        return [column for column in self.columns if column.cut_by(block_rows, self.cuts.chunk_origins)]

    def least(self, option: str, window_rows: int, block_rows: int) -> int:
        """The memory without which no window of so many rows is delivered, bytes."""
        return self.windows(option) * window_rows * self.row_nbytes + self.besides(
            option, window_rows, block_rows
        )

    def needed(self, option: str) -> int:
        """The least budget that is accepted, given the window that the budgets lead to.

        The more a budget has, the larger is the window, and the less has to be kept besides: so what is
        needed never grows with what is given.
        """
        window_rows, _ = self.window_rows()
        if self.window is not None or self.given(option) is None:
            return self.least(option, window_rows, self.block_rows(window_rows)[0])
        besides = self.besides_unasked(option)
        return max(self.windows(option) * self.smallest * self.row_nbytes + besides, 2 * besides)

    def besides_unasked(self, option: str) -> int:
        """What is needed besides windows that nobody asked for, bytes."""
        window_rows, _ = self.window_rows()
        # A larger block may happen to cut no chunk where its multiple does: that is no reason to accept.
        block_rows = self.block or (self.cuts.unit if window_rows >= self.cuts.unit else self.smallest)
        return self.besides(option, window_rows, block_rows)

    def given(self, option: str) -> int | None:
        """The written budget, bytes."""
        return self.host_memory if option == "host_memory" else self.device_memory

    def windows(self, option: str) -> int:
        """How many windows there are at a time."""
        return HOST_WINDOWS if option == "host_memory" else DEVICE_WINDOWS

    def besides(self, option: str, window_rows: int, block_rows: int) -> int:
        """What is needed besides windows, bytes."""
        if option == "device_memory":
            return DEVICE_WINDOWS * self.carried + self.batches
        return HOST_WINDOWS * self.carried + self.scratch + self.kept(window_rows, block_rows) + self.cached
