"""What every reader of rows is, and the jobs that it gives.

A reader turns the spans of a window into jobs, which threads carry out in any order. Rows land at their
place in the buffer: reading, decoding and shuffling are one movement.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oocloader.memory import Cost
from oocloader.metrics import Counters
from oocloader.order import RowSpan
from oocloader.reading.jobs import Job
from oocloader.reading.shared_chunks import SharedChunks
from oocloader.sizes import nbytes_of_row


@dataclass(frozen=True, slots=True)
class Target:
    """Where a window of one array goes: `rows`, shape (rows, *sample_shape), native dtype, C order."""

    rows: np.ndarray
    shared_chunks: SharedChunks
    counters: Counters


class RowReader(ABC):
    """Rows of one array. Thread-safe. Memory belongs to the caller."""

    shape: tuple[int, ...]
    dtype: np.dtype
    """Native byte order."""
    chunk_rows: int | None = None
    """Rows of a chunk, where the array is kept in chunks."""
    chunk_origins: tuple[int, ...] = (0,)
    """Rows from which chunks are counted, ascending from 0: several where parts are joined."""
    scratch_nbytes = 0
    """Memory each thread needs besides the buffer it fills."""
    mapped_nbytes = 0
    """What of a `view` counts as resident memory."""

    @property
    def row_nbytes(self) -> int:
        """Decoded size of one row, bytes."""
        return nbytes_of_row(self.shape, self.dtype)

    @property
    def row_access(self) -> bool:
        """Whether single rows can be read without decoding their neighbours."""
        return False

    @abstractmethod
    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        """What fills `target` with `spans`, which ascend and do not overlap.

        Raises `CorruptChunkError` at once where it is known that a raw chunk has another size than its rows.
        """

    @abstractmethod
    def cost(self, spans: Sequence[RowSpan]) -> Cost:
        """What reading `spans`, which ascend and do not overlap, takes in one pass. Reads nothing."""

    def map(self, start: int, stop: int) -> np.ndarray | None:
        """Rows `start:stop` as a private copy-on-write mapping, aligned; None where that cannot be."""
        return None

    def view(self, spans: Sequence[RowSpan]) -> np.ndarray | None:
        """All rows as one array to gather the rows of `spans` from, None where that cannot be.

        It must neither be written to nor handed out. `mapped_nbytes` of it count as resident memory.
        """
        return None

    def fresh_view(self) -> np.ndarray | None:
        """What `view` has given, as a mapping that nobody else has, None where that cannot be."""
        return None

    def close(self) -> None:  # noqa: B027  # most hold nothing open
        """Let go of open files."""
