"""Runs of bytes in files, each read with one call: of rows that lie there as they are, and of chunks."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from oocloader.order import runs
from oocloader.reading.layout import Layout
from oocloader.reading.read_errors import damaged

# Rows and chunks this close in a file are read with one call: reading the gap costs less than another call.
GAP_NBYTES = 64 << 10
# Chunks are read together up to this many bytes: more saves few calls, and each thread holds as many.
TOGETHER_NBYTES = 256 << 10


class RowRun(NamedTuple):
    """Rows that are read with one call: `nbytes` at `offset` of file number `file`, -1: none are stored.

    Their first is stored row `row`, `at` rows behind the first of the range asked for.
    """

    file: int
    offset: int
    nbytes: int
    at: int
    row: int


@dataclass(slots=True)
class ChunkRun:
    """Chunks that are read with one call: bytes `begin:end` of file number `file`, -1 where none are stored.

    `chunks`: number, band, first byte in the run and stored bytes of each.
    """

    file: int
    begin: int
    end: int
    chunks: list[tuple[int, int, int, int]] = field(default_factory=list)


class RowRuns:
    """Where rows of raw chunks of whole rows lie: as few runs as there can be. Thread-safe.

    They are worked out at first use and remembered, 28 bytes a run.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def of(self, start: int, stop: int) -> list[RowRun]:
        """The runs of rows `start:stop`. Raises `CorruptChunkError` for a chunk of another size."""
        table, row_nbytes = self._table, self._layout.row_nbytes
        table.check(start, stop)
        first, behind = np.searchsorted(table.begin, (start, stop - 1), side="right").tolist()
        row_runs = []
        for number in range(first - 1, behind):
            begin = int(table.begin[number])
            lo, hi = max(start, begin), min(stop, int(table.end[number]))
            offset = int(table.offset[number]) + (lo - begin) * row_nbytes
            row_runs.append(RowRun(int(table.file[number]), offset, (hi - lo) * row_nbytes, lo - start, lo))
        return row_runs

    def of_each(self, ranges: Sequence[tuple[int, int]]) -> list[list[RowRun]]:
        """As `of`, for the rows `start:stop` of each of several ranges."""
        # With arrays, one takes 14 microseconds; without, 3. In `tools/bench.py --only load`, npy in order is
        # delivered 1.09 times as fast (31 pairs). One by one, hdf5-aligned shuffled was 0.9 times as fast.
        if len(ranges) < 2:
            return [self.of(*rows) for rows in ranges]
        starts, stops = np.array(ranges).T
        table, row_nbytes = self._table, self._layout.row_nbytes
        if len(table.odd):
            for rows in ranges:
                table.check(*rows)
        first = np.searchsorted(table.begin, starts, side="right") - 1
        each = np.searchsorted(table.begin, stops - 1, side="right") - first
        of_range = np.repeat(np.arange(len(starts)), each)
        number = np.arange(len(of_range)) + (first - np.cumsum(each) + each)[of_range]
        begin = table.begin[number]
        lo = np.maximum(begin, starts[of_range])
        rows = np.minimum(table.end[number], stops[of_range]) - lo
        offset = table.offset[number] + (lo - begin) * row_nbytes
        columns = table.file[number], offset, rows * row_nbytes, lo - starts[of_range], lo
        runs = iter(map(RowRun._make, zip(*(column.tolist() for column in columns), strict=True)))
        return [list(itertools.islice(runs, count)) for count in each.tolist()]

    @functools.cached_property
    def _table(self) -> _RunTable:
        layout = self._layout
        file, offset, chunk_rows = layout.file, layout.offset, layout.chunk_shape[0]
        joined = file[1:] == file[:-1]
        joined &= (offset[1:] == offset[:-1] + layout.chunk_nbytes) | (file[1:] < 0)
        first = np.concatenate([[0], np.flatnonzero(~joined) + 1])
        begin = first * chunk_rows
        odd = np.flatnonzero((layout.stored != layout.chunk_nbytes) & (file >= 0))
        return _RunTable(
            layout, begin, np.append(begin[1:], layout.shape[0]), file[first], offset[first], odd
        )


@dataclass(frozen=True, slots=True)
class _RunTable:
    """Rows `begin:end` of each run, ascending, and its `offset`: int64 (runs,); its `file`: int32 (runs,).

    `odd`: the chunks that are stored with another size than their rows have, ascending, int64.
    """

    layout: Layout
    begin: np.ndarray
    end: np.ndarray
    file: np.ndarray
    offset: np.ndarray
    odd: np.ndarray

    def check(self, start: int, stop: int) -> None:
        """Raise where rows `start:stop` lie in a chunk of another size than its rows take."""
        if not len(self.odd):
            return
        layout, chunk_rows = self.layout, self.layout.chunk_shape[0]
        at = int(np.searchsorted(self.odd, start // chunk_rows))
        if at < len(self.odd) and self.odd[at] * chunk_rows < stop:
            chunk = int(self.odd[at])
            nbytes = int(layout.stored[chunk])
            raise damaged(layout, chunk, f"it has {nbytes} stored bytes, expected {layout.chunk_nbytes}")


def near_each_other(row_runs: Iterable[RowRun]) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """What to have fetched ahead for runs of rows: the number of each file, `(offset, nbytes)` of its ranges.

    Runs that lie near each other are one, with what lies between them.
    """
    for file, group in itertools.groupby(row_runs, key=lambda run: run.file):
        if file >= 0:
            offset, nbytes = np.array([(run.offset, run.nbytes) for run in group]).T
            first, behind = runs(offset, offset + nbytes, GAP_NBYTES)
            begin = offset[first]
            end = offset[behind - 1] + nbytes[behind - 1]
            yield file, list(zip(begin.tolist(), (end - begin).tolist(), strict=True))


def in_file_order(layout: Layout, chunks: np.ndarray) -> np.ndarray:
    """`chunks` (int64), file by file as they lie there.

    Files come in the order of their rows, so that of several that are damaged the first is told of.
    """
    _, first, which = np.unique(layout.file[chunks], return_index=True, return_inverse=True)
    return chunks[np.lexsort((layout.offset[chunks], first[which]))]


def chunk_runs(layout: Layout, chunks: list[int]) -> Iterator[ChunkRun]:
    """Chunks in file order, cut where they are no neighbours in a file, or would be too much for one call."""
    across = math.prod(layout.grid[1:])
    at = np.array(chunks)
    # Looked up for all of them at once: one at a time takes longer than decoding a small chunk.
    columns = zip(
        chunks,
        layout.file[at].tolist(),
        layout.offset[at].tolist(),
        layout.stored[at].tolist(),
        (at // across).tolist(),
        strict=True,
    )
    run: ChunkRun | None = None
    last = 0
    for chunk, file, offset, stored, band in columns:
        if run is not None:
            # Between others may lie chunks that nobody wants.
            near = abs(band - last) <= 1 and offset - run.end <= GAP_NBYTES
            if not (file == run.file and near and offset + stored - run.begin <= TOGETHER_NBYTES):
                yield run
                run = None
        if run is None:
            run = ChunkRun(file, offset, offset)
        run.chunks.append((chunk, band, offset - run.begin, stored))
        run.end = max(run.end, offset + stored)
        last = band
    if run is not None:
        yield run


def stretches(layout: Layout, chunks: Sequence[int] | np.ndarray) -> Iterator[tuple[int, int, int]]:
    """What to have fetched ahead for chunks, in files where they lie near each other: file, offset, bytes."""
    at = np.asarray(chunks)
    file = layout.file[at]
    for index in np.unique(file[file >= 0]).tolist():
        held = at[file == index]
        begin = int(layout.offset[held].min())
        nbytes = int((layout.offset[held] + layout.stored[held]).max()) - begin
        if nbytes <= 2 * int(layout.stored[held].sum()):
            yield index, begin, nbytes
