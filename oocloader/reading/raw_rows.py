"""Rows that lie in files as they are, read without their neighbours.

Neighbours that go to neighbouring places are read straight there. Of a shuffled window, blocks of large rows
are read straight to their places too, each run with one call (a scatter read). All others pass through a
buffer that stays in the processor's cache, several runs at once; rows that lie far apart each by a call of
their own.

In `tools/bench.py --only load`, medians of 9 pairs: with scatter reads, hdf5-raw shuffled was 1.31 times as
fast as with all rows passing through; several blocks at once, hdf5-aligned shuffled was 1.10 times as fast as
one block (of labels, which are few) at a time.
"""

import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from oocloader.codecs import scratch
from oocloader.memory import Cost, merged_ranges, row_count
from oocloader.metrics import Counters
from oocloader.order import RowSpan, apart, cut, grouped, place, shared_out
from oocloader.reading.boxes import Box, runs_of
from oocloader.reading.byte_ranges import GAP_NBYTES, RowRun, RowRuns, near_each_other
from oocloader.reading.files import FileReader, scatter_vectors
from oocloader.reading.jobs import JOB_NBYTES, Job
from oocloader.reading.layout import Layout
from oocloader.reading.read_errors import error_context
from oocloader.reading.row_reader import Target
from oocloader.sizes import rows_in

# The buffer that rows pass through on their way to other places.
SCRATCH_NBYTES = 1 << 20
# Rows of 2 KiB are read to their places 1.5 times as fast as they pass through, those of 12 KiB 1.3 times,
# those of 512 bytes 1.1 times and those of 256 bytes 0.9 times.
_SCATTER_NBYTES = 1024
# A job has no more rows than if they had this size: it works with the place of each.
_LEAST_NBYTES = 64
# The place of a row, and its address and size for the system.
_PLACE_NBYTES = 24

# A span, and where its rows lie.
_Part = tuple[RowSpan, list[RowRun]]
_ReadParts = Callable[[Sequence[_Part], Target], None]
# What is read with one call, and what the call fills.
_Read = tuple[RowRun, Any]


class RawRows:
    """The rows of one array of raw chunks of whole rows. Thread-safe. Memory belongs to the caller."""

    def __init__(self, layout: Layout, files: FileReader, runs: RowRuns) -> None:
        self._layout = layout
        self._files = files
        self._runs = runs
        self._row_nbytes = row_nbytes = layout.row_nbytes
        self._native = layout.dtype.isnative
        self._scatters = row_nbytes >= _SCATTER_NBYTES and self._native
        # The most rows of a job, of one that works with the place of each, and of the buffer.
        self._job_rows = rows_in(JOB_NBYTES, row_nbytes)
        self._placed_rows = rows_in(JOB_NBYTES, max(_LEAST_NBYTES, row_nbytes))
        self._buffer_rows = rows_in(SCRATCH_NBYTES, row_nbytes)
        rows = layout.shape[0]
        buffer_nbytes = max(min(SCRATCH_NBYTES, row_nbytes * rows), row_nbytes)
        self.scratch_nbytes = buffer_nbytes + _PLACE_NBYTES * min(self._placed_rows, rows)
        # The shape of a box that is read as one.
        whole = layout.chunk_shape == layout.shape
        self.unit = (1,) * len(layout.shape) if whole else (1, *layout.shape[1:])

    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        """What fills `target` with `spans`."""
        straight: list[RowSpan] = []
        scattered: list[RowSpan] = []
        buffered: list[RowSpan] = []
        jobs: list[Job] = []
        for span in spans:
            if self._far_apart(span):
                parts = shared_out(span, self._job_rows)
                jobs += [functools.partial(self._read_single, part, target) for part in parts]
                continue
            for part in apart(span, self._gap):
                if part.row_index is not None:
                    buffered += cut(part, self._buffer_rows)
                elif isinstance(part.dest_index, slice) and self._native:
                    straight += cut(part, self._job_rows)
                elif self._scatters and not isinstance(part.dest_index, slice):
                    scattered += cut(part, self._job_rows)
                else:
                    buffered += cut(part, self._buffer_rows)
        # A block of labels is read in less time than a thread takes to get a job.
        jobs += self._grouped(straight, self._job_rows, self._read_straight, target)
        jobs += self._grouped(scattered, self._placed_rows, self._scatter, target)
        return jobs + self._grouped(buffered, self._placed_rows, self._read_buffered, target)

    @property
    def _gap(self) -> int:
        return GAP_NBYTES // max(1, self._row_nbytes)

    def _far_apart(self, span: RowSpan) -> bool:
        """Whether most rows of a span have no neighbour that would be read with them."""
        rows = span.row_index
        return rows is not None and 2 * int(np.count_nonzero(np.diff(rows) > self._gap + 1)) >= len(rows)

    def _grouped(
        self, parts: Sequence[RowSpan], most_rows: int, read: _ReadParts, target: Target
    ) -> list[Job]:
        """Jobs that each `read` some of the parts, whose bytes are fetched meanwhile."""
        runs = self._runs.of_each([(part.start, part.stop) for part in parts])
        for file, ranges in near_each_other(itertools.chain.from_iterable(runs)):
            self._files.will_need(file, ranges)
        located = zip(parts, runs, strict=True)
        groups = (list(itertools.islice(located, len(group))) for group in grouped(parts, most_rows))
        return [functools.partial(read, group, target) for group in groups]

    def _read_straight(self, parts: Sequence[_Part], target: Target) -> None:
        began = time.perf_counter()
        reads = [read for span, runs in parts for read in self._into(target.rows[span.dest_index], runs)]
        self._count(target.counters, self._read_each(reads, self._files.read), reads, began)

    def _scatter(self, parts: Sequence[_Part], target: Target) -> None:
        began = time.perf_counter()
        rows = target.rows.reshape(len(target.rows), -1).view(np.uint8)
        dest_rows = np.concatenate([span.dest_rows() for span, _ in parts])
        vectors = scatter_vectors(rows, dest_rows)
        reads: list[_Read] = []
        first = 0
        for span, runs in parts:
            for run in runs:
                some = slice(first + run.at, first + run.at + run.nbytes // self._row_nbytes)
                if run.file < 0:
                    target.rows[dest_rows[some]] = self._layout.fill
                else:
                    reads.append((run, (rows, dest_rows[some], vectors[some])))
            first += span.rows

        calls = self._read_each(
            reads, lambda fd, file, offset, into: self._files.read_scattered(fd, file, offset, *into)
        )
        self._count(target.counters, calls, reads, began)

    def _read_buffered(self, parts: Sequence[_Part], target: Target) -> None:
        located = iter(parts)
        for group in grouped([span for span, _ in parts], self._buffer_rows):
            began = time.perf_counter()
            first = [0, *itertools.accumulate(span.stop - span.start for span in group)]
            buffer = self._buffer(first[-1])
            reads: list[_Read] = []
            for at, (span, runs) in zip(first, itertools.islice(located, len(group)), strict=False):
                reads += self._into(buffer[at : at + span.stop - span.start], runs)
            calls = self._read_each(reads, self._files.read)
            copying = time.perf_counter()
            if len(group) == 1:
                group[0].copy(buffer, target.rows, first=group[0].start)
            else:
                dest_rows = np.concatenate([span.dest_rows() for span in group])
                if len(dest_rows) < len(buffer):
                    held = zip(group, first, strict=False)
                    index = [span.from_row(span.start - at).stored_rows() for span, at in held]
                    buffer = buffer[np.concatenate(index)]
                place(target.rows, dest_rows, buffer)
            copied = row_count(group) * self._row_nbytes
            self._count(target.counters, calls, reads, began, copying=copying, copied=copied)

    def _buffer(self, rows: int) -> np.ndarray:
        """This thread's buffer of so many stored rows."""
        buffer = scratch("rows", rows * self._row_nbytes).view(self._layout.dtype)
        return buffer.reshape(rows, *self._layout.shape[1:])

    def _into(self, rows: np.ndarray, runs: Sequence[RowRun]) -> Iterator[_Read]:
        """Each run that is stored, and its bytes in `rows`; the others are filled."""
        flat = rows.reshape(-1).view(np.uint8)
        for run in runs:
            if run.file < 0:
                rows[run.at : run.at + run.nbytes // max(1, self._row_nbytes)] = self._layout.fill
            else:
                begin = run.at * self._row_nbytes
                yield run, flat[begin : begin + run.nbytes]

    def _read_each(self, reads: Sequence[_Read], read: Callable[[int, int, int, Any], int]) -> int:
        """Call `read(descriptor, file, offset, what to fill)` for each: the sum of what it gives."""
        calls = 0
        for file, group in itertools.groupby(reads, key=lambda one: one[0].file):
            near = list(group)
            with self._context(near[0][0]), self._files.opened(file) as fd:
                for run, into in near:
                    with self._context(run):
                        calls += read(fd, file, run.offset, into)
        return calls

    def _context(self, run: RowRun) -> error_context:
        return error_context(self._layout, (run.row, run.row + run.nbytes // max(1, self._row_nbytes)))

    @staticmethod
    def _count(
        counters: Counters,
        calls: int,
        reads: Sequence[_Read],
        began: float,
        *,
        copying: float | None = None,
        copied: int = 0,
    ) -> None:
        """Count what was read from `began` on, and copied from `copying` on."""
        ended = time.perf_counter()
        copying = ended if copying is None else copying
        counters.add(
            read_calls=calls,
            read_bytes=sum(run.nbytes for run, _ in reads),
            copied_bytes=copied,
            read_s=copying - began,
            gather_s=ended - copying,
        )

    def _read_single(self, span: RowSpan, target: Target) -> None:
        """Read rows that lie far apart, each by a call of its own: as little as can be is done a row."""
        layout = self._layout
        began = time.perf_counter()
        stored, dest_rows = span.stored_rows(), span.dest_rows()
        calls = 0
        for lo in range(0, len(stored), self._buffer_rows):
            rows = stored[lo : lo + self._buffer_rows]
            buffer = self._buffer(len(rows))
            calls += self._read_rows_alone(rows, buffer)
            place(target.rows, dest_rows[lo : lo + len(rows)], buffer)
        target.counters.add(
            read_calls=calls,
            read_bytes=calls * layout.row_nbytes,
            read_s=time.perf_counter() - began,
            copied_bytes=len(stored) * layout.row_nbytes,
        )

    def _read_rows_alone(self, rows: np.ndarray, out: np.ndarray) -> int:
        """Stored rows (int64, ascending) to those of `out`; how many of them are stored."""
        layout = self._layout
        chunks = rows // layout.chunk_shape[0]
        file = layout.file[chunks]
        odd = (layout.stored[chunks] != layout.chunk_nbytes) & (file >= 0)
        if odd.any():
            self._runs.of(int(rows[odd][0]), int(rows[odd][0]) + 1)  # raises
        out[file < 0] = layout.fill
        offsets = layout.offset[chunks] + (rows - chunks * layout.chunk_shape[0]) * layout.row_nbytes
        flat = out.reshape(len(rows), -1).view(np.uint8)
        for index in np.unique(file[file >= 0]).tolist():
            here = np.flatnonzero(file == index)
            with error_context(layout, (int(rows[0]), int(rows[-1]) + 1)), self._files.opened(index) as fd:
                self._files.read_each(fd, index, offsets[here].tolist(), flat, here.tolist())
        return int(np.count_nonzero(file >= 0))

    def cost(self, spans: Sequence[RowSpan]) -> Cost:
        """What reading `spans` takes."""
        # Rows before each chunk that are stored, to count those of any run.
        chunk_rows = self._layout.chunk_shape[0]
        there = np.where(self._layout.file >= 0, self._layout.stored, 0) > 0
        before = np.concatenate([[0], np.cumsum(there * chunk_rows)])

        def stored(first: np.ndarray, behind: np.ndarray) -> int:
            rows = np.concatenate([behind, first])
            chunk = np.minimum(rows // chunk_rows, len(there) - 1)
            counted = before[chunk] + there[chunk] * (rows - chunk * chunk_rows)
            return int(counted[: len(behind)].sum() - counted[len(behind) :].sum())

        single = [span for span in spans if self._far_apart(span)]
        near = [span for span in spans if not self._far_apart(span)]
        wanted = stored(*merged_ranges(spans, 0))
        read = stored(*merged_ranges(single, 0)) + stored(*merged_ranges(near, self._gap))
        nbytes = self._row_nbytes
        return Cost(wanted * nbytes, read * nbytes, row_count(spans) * nbytes)

    def read_box(self, box: Box, out: np.ndarray) -> None:
        """Fill `out` (native byte order, C order) with a box."""
        layout = self._layout
        start, stop = box[0].start, box[0].stop
        if out.shape[1:] == layout.shape[1:]:
            reads = self._into(out.view(layout.dtype), self._runs.of(start, stop))
            self._read_each(list(reads), self._files.read)
        elif layout.chunk_shape == layout.shape and layout.file[0] >= 0:
            offsets, run = runs_of(box, layout.shape, layout.dtype.itemsize)
            flat = out.reshape(-1).view(np.uint8)
            with error_context(layout, (start, stop)):
                for at, offset in enumerate(offsets.tolist()):
                    self._files.read_at(0, int(layout.offset[0]) + offset, flat[at * run : (at + 1) * run])
        else:
            whole = np.empty((stop - start, *layout.shape[1:]), layout.dtype.newbyteorder("="))
            self.read_box((box[0], *(slice(0, length) for length in layout.shape[1:])), whole)
            out[...] = whole[(slice(None), *box[1:])]
            return
        if not self._native:
            out.byteswap(inplace=True)
