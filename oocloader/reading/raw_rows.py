"""Rows that lie in files as they are, read without their neighbours."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence

import numpy as np

from oocloader.memory import Cost, merged_ranges, row_count
from oocloader.metrics import Counters
from oocloader.order import RowSpan, apart, cut, grouped, place, shared_out
from oocloader.reading import scatter
from oocloader.reading.boxes import Box, runs_of
from oocloader.reading.byte_ranges import GAP_NBYTES, RowRuns, near_each_other
from oocloader.reading.files import FileReader
from oocloader.reading.layout import Layout
from oocloader.reading.read_errors import error_context
from oocloader.reading.row_reader import JOB_NBYTES, Job, Target
from oocloader.reading.scatter import hot_rows, scatter_jobs, scratch_rows
from oocloader.reading.single_rows import lone, read_lone


class RawRows:
    """The rows of one array of raw chunks of whole rows. Thread-safe. Memory belongs to the caller."""

    def __init__(self, layout: Layout, files: FileReader, runs: RowRuns) -> None:
        self._layout = layout
        self._files = files
        self._runs = runs
        self._native = layout.dtype.isnative
        self.scratch_nbytes = scatter.scratch_nbytes(layout)
        # The shape of a box that is read as one.
        whole = layout.chunk_shape == layout.shape
        self.unit = (1,) * len(layout.shape) if whole else (1, *layout.shape[1:])

    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        """What fills `target` with `spans`."""
        row_nbytes = max(1, self._layout.row_nbytes)
        rows = max(1, JOB_NBYTES // row_nbytes)
        gap = GAP_NBYTES // row_nbytes
        jobs: list[Job] = []
        near: list[RowSpan] = []
        scattered: list[RowSpan] = []
        for span in spans:
            if span.row_index is None and not isinstance(span.dest_index, slice):
                scattered.append(span)
            elif span.row_index is not None and lone(span.row_index, gap):
                jobs += [self._lone_job(part, target) for part in shared_out(span, rows)]
            else:
                near += (part for near_part in apart(span, gap) for part in cut(near_part, rows))
        self._will_need(near)
        # A block of labels is read in less time than a thread takes to get a job.
        jobs += [functools.partial(self._read_parts, group, target) for group in grouped(near, rows)]
        return jobs + scatter_jobs(self._layout, self._files, self._runs, scattered, target)

    def cost(self, spans: Sequence[RowSpan]) -> Cost:
        """What reading `spans` takes."""
        layout = self._layout
        # Rows before each chunk that are there at all, to count those of any run.
        chunk_rows = layout.chunk_shape[0]
        there = np.where(layout.file >= 0, layout.stored, 0) > 0
        before = np.concatenate([[0], np.cumsum(there * chunk_rows)])

        def held(first: np.ndarray, behind: np.ndarray) -> int:
            rows = np.concatenate([behind, first])
            chunk = np.minimum(rows // chunk_rows, len(there) - 1)
            counted = before[chunk] + there[chunk] * (rows - chunk * chunk_rows)
            return int(counted[: len(behind)].sum() - counted[len(behind) :].sum())

        wanted = held(*merged_ranges(spans, 0))
        gap = GAP_NBYTES // max(1, layout.row_nbytes)
        alone = [span for span in spans if span.row_index is not None and lone(span.row_index, gap)]
        near = [span for span in spans if span.row_index is None or not lone(span.row_index, gap)]
        read = held(*merged_ranges(alone, 0)) + held(*merged_ranges(near, gap))
        touched = row_count(spans) * layout.row_nbytes
        return Cost(wanted * layout.row_nbytes, read * layout.row_nbytes, touched)

    def read_box(self, box: Box, out: np.ndarray) -> None:
        """Fill `out` (native byte order, C order) with a box."""
        layout = self._layout
        rows = (box[0].start, box[0].stop)
        if out.shape[1:] == layout.shape[1:]:
            self._read_rows(*rows, out.view(layout.dtype), Counters())
        elif layout.chunk_shape == layout.shape and layout.file[0] >= 0:
            offsets, run = runs_of(box, layout.shape, layout.dtype.itemsize)
            flat = out.reshape(-1).view(np.uint8)
            with error_context(layout, rows):
                for at, offset in enumerate(offsets.tolist()):
                    self._files.read_at(0, int(layout.offset[0]) + offset, flat[at * run : (at + 1) * run])
        else:
            whole = np.empty((rows[1] - rows[0], *layout.shape[1:]), layout.dtype.newbyteorder("="))
            self.read_box((box[0], *(slice(0, length) for length in layout.shape[1:])), whole)
            out[...] = whole[(slice(None), *box[1:])]
            return
        if not self._native:
            out.byteswap(inplace=True)

    def _will_need(self, parts: Sequence[RowSpan]) -> None:
        """Have the bytes of these parts fetched meanwhile."""
        runs = self._runs.of_all([(part.start, part.stop) for part in parts])
        for file, ranges in near_each_other(runs):
            self._files.will_need(file, ranges)

    def _read_parts(self, parts: Sequence[RowSpan], target: Target) -> None:
        for part in parts:
            if part.row_index is None and isinstance(part.dest_index, slice) and self._native:
                self._read_rows(part.start, part.stop, target.rows[part.dest_index], target.counters)
                continue
            for some in cut(part, hot_rows(self._layout)):
                self._read_part(some, target)

    def _read_part(self, part: RowSpan, target: Target) -> None:
        """Read rows that are to be scattered, or swapped, and put them to their places."""
        hot = scratch_rows(self._layout, part.stop - part.start)
        self._read_rows(part.start, part.stop, hot, target.counters)
        began = time.perf_counter()
        place(target.rows, part.dest_index, hot if part.row_index is None else hot[part.row_index])
        target.counters.add(
            copied_bytes=part.rows * self._layout.row_nbytes, gather_s=time.perf_counter() - began
        )

    def _lone_job(self, span: RowSpan, target: Target) -> Job:
        """Reads rows that lie far apart, each by a call of its own: as little as can be is done a row."""

        def read() -> None:
            wanted = np.arange(span.stop - span.start) if span.row_index is None else span.row_index
            row_nbytes = self._layout.row_nbytes
            step = hot_rows(self._layout)
            began = time.perf_counter()
            calls = 0
            for lo in range(0, span.rows, step):
                rows = span.start + wanted[lo : lo + step]
                hot = scratch_rows(self._layout, len(rows))
                calls += self._read_lone(rows, hot)
                dest_index = span.dest_index
                if isinstance(dest_index, slice):
                    dest_index = slice(dest_index.start + lo, dest_index.start + lo + len(rows))
                else:
                    dest_index = dest_index[lo : lo + step]
                place(target.rows, dest_index, hot)
            nbytes = span.rows * row_nbytes
            target.counters.add(
                read_calls=calls,
                read_bytes=calls * row_nbytes,
                read_s=time.perf_counter() - began,
                copied_bytes=nbytes,
            )

        return read

    def _read_lone(self, rows: np.ndarray, hot: np.ndarray) -> int:
        """Stored rows (int64, ascending) to those of `hot`; how many of them are stored."""
        layout = self._layout
        chunks = rows // layout.chunk_shape[0]
        held = (layout.stored[chunks] != layout.chunk_nbytes) & (layout.file[chunks] >= 0)
        if held.any():
            self._runs.of(int(rows[held][0]), int(rows[held][0]) + 1)  # raises
        with error_context(layout, (int(rows[0]), int(rows[-1]) + 1)):
            return read_lone(layout, self._files, rows, hot)

    def _read_rows(self, start: int, stop: int, rows: np.ndarray, counters: Counters) -> None:
        layout = self._layout
        began = time.perf_counter()
        calls = total = 0
        flat = rows.reshape(-1).view(np.uint8)
        with error_context(layout, (start, stop)):
            for run in self._runs.of(start, stop):
                if run.file < 0:
                    n = run.nbytes // max(1, layout.row_nbytes)
                    rows[run.at : run.at + n] = layout.fill
                    continue
                begin = run.at * layout.row_nbytes
                calls += self._files.read_at(run.file, run.offset, flat[begin : begin + run.nbytes])
                total += run.nbytes
        counters.add(read_calls=calls, read_bytes=total, read_s=time.perf_counter() - began)
