"""Scatter reads: runs of raw rows to places all over a buffer, as blocks of a shuffled window need.

Large rows are read straight to their places, each run with one call. Small ones pass through a buffer that
stays in the processor's cache: to tell the system the place of each takes longer than to copy it.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from oocloader.codecs import scratch
from oocloader.order import RowSpan, cut, grouped, place
from oocloader.reading.byte_ranges import RowRun, RowRuns, near_each_other
from oocloader.reading.files import FileReader, can_scatter, scatter_vectors
from oocloader.reading.layout import Layout
from oocloader.reading.read_errors import error_context
from oocloader.reading.row_reader import JOB_NBYTES, Job, Target

# The buffer that rows pass through on their way to other places.
SCRATCH_NBYTES = 1 << 20
# Rows of 2 KiB are read to their places 1.5 times as fast as they pass through, those of 12 KiB 1.1 times,
# those of 512 bytes 1.1 times and those of 256 bytes 0.9 times.
_SCATTER_NBYTES = 1024
# A job has no more rows than if they had this size: it works with the place of each.
_LEAST_NBYTES = 64
# The place of a row, and its address and size for the system.
_PLACE_NBYTES = 24


def hot_rows(layout: Layout) -> int:
    """How many rows of an array pass through at once."""
    return max(1, SCRATCH_NBYTES // max(1, layout.row_nbytes))


def scratch_rows(layout: Layout, rows: int) -> np.ndarray:
    """This thread's buffer of so many stored rows."""
    hot = scratch("rows", rows * layout.row_nbytes).view(layout.dtype)
    return hot.reshape(rows, *layout.shape[1:])


def job_rows(layout: Layout) -> int:
    """The most rows of a job, unless a run that is not cut has more."""
    return max(1, JOB_NBYTES // max(_LEAST_NBYTES, layout.row_nbytes))


def scratch_nbytes(layout: Layout) -> int:
    """Memory that a thread needs, bytes."""
    rows = layout.shape[0]
    hot = max(min(SCRATCH_NBYTES, layout.row_nbytes * rows), layout.row_nbytes)
    return hot + _PLACE_NBYTES * min(job_rows(layout), rows)


def scatter_jobs(
    layout: Layout, files: FileReader, row_runs: RowRuns, spans: Sequence[RowSpan], target: Target
) -> list[Job]:
    """What brings `spans` of raw chunks of whole rows to their places, all rows of each and no slices."""
    if not spans:
        return []
    scatter = layout.row_nbytes >= _SCATTER_NBYTES and layout.dtype.isnative and can_scatter()
    # What passes through does so whole.
    most = job_rows(layout) if scatter else min(job_rows(layout), hot_rows(layout))
    parts = [part for span in spans for part in cut(span, most)]
    runs = row_runs.of_all([(part.start, part.stop) for part in parts])
    for file, ranges in near_each_other(runs):
        files.will_need(file, ranges)
    bring = _scatter if scatter else _pass_through
    jobs: list[Job] = []
    at = [run.at for run in runs]
    first = 0
    for group in grouped(parts, job_rows(layout)):
        stop = first + sum(part.rows for part in group)
        own = runs[bisect.bisect_left(at, first) : bisect.bisect_left(at, stop)]
        jobs.append(functools.partial(_read, bring, layout, files, group, own, target))
        first = stop
    return jobs


# Brings the rows of runs to their places (int64, one a row): system calls, and seconds spent on copying.
_Bring = Callable[[Layout, FileReader, Sequence[RowRun], Target, np.ndarray], tuple[int, float]]


def _read(
    bring: _Bring,
    layout: Layout,
    files: FileReader,
    parts: Sequence[RowSpan],
    runs: Sequence[RowRun],
    target: Target,
) -> None:
    """The job for `parts`, which lie in files as `runs`."""
    began = time.perf_counter()
    dest_index = np.concatenate([part.dest_index for part in parts])
    calls, copying = bring(layout, files, runs, target, dest_index)
    nbytes = sum(run.nbytes for run in runs if run.file >= 0)
    target.counters.add(
        read_calls=calls, read_bytes=nbytes, read_s=time.perf_counter() - began - copying, gather_s=copying
    )


def _scatter(
    layout: Layout, files: FileReader, runs: Sequence[RowRun], target: Target, dest_index: np.ndarray
) -> tuple[int, float]:
    first, row_nbytes = runs[0].at, layout.row_nbytes
    rows = target.rows.reshape(len(target.rows), -1).view(np.uint8)
    vectors = scatter_vectors(rows, dest_index)

    def read(fd: int, run: RowRun) -> int:
        own = slice(run.at - first, run.at - first + run.nbytes // row_nbytes)
        return files.read_scattered(fd, run.file, run.offset, rows, dest_index[own], vectors[own])

    for run in runs:
        if run.file < 0:
            target.rows[dest_index[run.at - first : run.at - first + run.nbytes // row_nbytes]] = layout.fill
    return _each(layout, files, runs, read), 0.0


def _pass_through(
    layout: Layout, files: FileReader, runs: Sequence[RowRun], target: Target, dest_index: np.ndarray
) -> tuple[int, float]:
    row_nbytes = max(1, layout.row_nbytes)
    calls, copying = 0, 0.0
    first = runs[0].at
    for near in _at_once(runs, hot_rows(layout) * row_nbytes):
        at = near[0].at
        hot = scratch_rows(layout, sum(run.nbytes for run in near) // row_nbytes)
        flat = hot.reshape(-1).view(np.uint8)

        def read(fd: int, run: RowRun, flat: np.ndarray = flat, at: int = at) -> int:
            begin = (run.at - at) * row_nbytes
            return files.read(fd, run.file, run.offset, flat[begin : begin + run.nbytes])

        for run in near:
            if run.file < 0:
                hot[run.at - at : run.at - at + run.nbytes // row_nbytes] = layout.fill
        calls += _each(layout, files, near, read)
        began = time.perf_counter()
        place(target.rows, dest_index[at - first : at - first + len(hot)], hot)
        copying += time.perf_counter() - began
        target.counters.add(copied_bytes=hot.nbytes)
    return calls, copying


def _at_once(runs: Sequence[RowRun], nbytes: int) -> Iterator[list[RowRun]]:
    """Runs that pass through together: at most so many bytes, or one run."""
    near: list[RowRun] = []
    held = 0
    for run in runs:
        if near and held + run.nbytes > nbytes:
            yield near
            near, held = [], 0
        near.append(run)
        held += run.nbytes
    yield near


def _each(
    layout: Layout, files: FileReader, runs: Sequence[RowRun], read: Callable[[int, RowRun], int]
) -> int:
    """Call `read` with the descriptor of each run that is stored: the sum of what it gives."""
    calls = 0
    for file, group in itertools.groupby(runs, key=lambda run: run.file):
        if file < 0:
            continue
        near = list(group)
        with _named(layout, near[0]), files.opened(file) as fd:
            for run in near:
                with _named(layout, run):
                    calls += read(fd, run)
    return calls


def _named(layout: Layout, run: RowRun) -> error_context:
    return error_context(layout, (run.row, run.row + run.nbytes // max(1, layout.row_nbytes)))
