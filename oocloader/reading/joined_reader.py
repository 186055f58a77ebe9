"""Rows of several stores, one behind the other."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from oocloader.memory import Cost
from oocloader.order import RowSpan, within
from oocloader.reading.jobs import Job
from oocloader.reading.row_reader import RowReader, Target


class JoinedReader(RowReader):
    """Arrays of several stores, one behind the other along the rows."""

    def __init__(self, readers: Sequence[RowReader]) -> None:
        lengths = [reader.shape[0] for reader in readers]
        firsts = [0, *itertools.accumulate(lengths)]
        self.parts = list(zip(firsts, readers, strict=False))
        """The readers that are joined, each behind the number of its first row."""
        self.shape = (firsts[-1], *readers[0].shape[1:])
        self.dtype = readers[0].dtype
        self.chunk_rows = max(min(reader.chunk_rows or 0, reader.shape[0]) for reader in readers) or None
        self.chunk_origins = self._chunk_origins()
        self.scratch_nbytes = max(reader.scratch_nbytes for reader in readers)

    @property
    def row_access(self) -> bool:
        return all(reader.row_access for _, reader in self.parts)

    def _chunk_origins(self) -> tuple[int, ...]:
        """Where chunks do not go on from the part before in steps of `chunk_rows`."""
        if self.chunk_rows is None:
            return (0,)
        origins: list[int] = []
        for first, reader in self.parts:
            chunk_rows = min(reader.chunk_rows or 1, reader.shape[0])
            # The most rows up to `self.chunk_rows` that are whole chunks of this part.
            step = self.chunk_rows // chunk_rows * chunk_rows
            for start, stop in itertools.pairwise([*reader.chunk_origins, reader.shape[0]]):
                if step < self.chunk_rows:
                    origins += range(first + start, first + stop, step)
                elif not origins or (first + start - origins[-1]) % self.chunk_rows:
                    origins.append(first + start)
        return tuple(origins)

    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        jobs: list[Job] = []
        for first, reader, spans_of_part in self._by_part(spans):
            shared_chunks = target.shared_chunks.of_part(reader, first)
            jobs += reader.jobs(spans_of_part, Target(target.rows, shared_chunks, target.counters))
        return jobs

    def cost(self, spans: Sequence[RowSpan]) -> Cost:
        return sum((reader.cost(part) for _, reader, part in self._by_part(spans)), start=Cost(0, 0, 0))

    def _by_part(self, spans: Sequence[RowSpan]) -> Iterator[tuple[int, RowReader, list[RowSpan]]]:
        """The parts that hold some of `spans`: first row, reader, and the spans as rows of the part."""
        for first, reader in self.parts:
            parts = [part for span in spans if (part := within(span, first, first + reader.shape[0]))]
            if parts:
                yield first, reader, [part.from_row(first) for part in parts]

    def map(self, start: int, stop: int) -> np.ndarray | None:
        for first, reader in self.parts:
            if first <= start and stop <= first + reader.shape[0]:
                return reader.map(start - first, stop - first)
        return None

    def close(self) -> None:
        for _, reader in self.parts:
            reader.close()
