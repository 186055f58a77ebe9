"""Runs of rows whose rows go to places all over a buffer, as blocks of a shuffled window do.

Large rows are read straight to their places, each run with one call. Small ones pass through memory that
stays in the processor's cache: to tell the system the place of each takes longer than to copy it.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from oocloader.codecs.chain import scratch
from oocloader.damage import RowsNamed
from oocloader.files import FileReader, io_vectors, reads_apart
from oocloader.layout import Layout
from oocloader.pieces import Piece, cut, place
from oocloader.read import JOB_NBYTES, Job, Target
from oocloader.runs import RowRun, RowRuns, near_each_other

# Rows on their way to other places pass through so much.
HOT_NBYTES = 1 << 20
# Rows of 2 KiB are read to their places 1.5 times as fast as they pass through, those of 12 KiB 1.1 times,
# those of 512 bytes 1.1 times and those of 256 bytes 0.9 times.
_APART_NBYTES = 1024


def hot_rows(layout: Layout) -> int:
    """How many rows of an array pass through at once."""
    return max(1, HOT_NBYTES // max(1, layout.row_nbytes))


def hot_buffer(layout: Layout, rows: int) -> np.ndarray:
    """This thread's buffer of so many stored rows."""
    hot = scratch("rows", rows * layout.row_nbytes).view(layout.dtype)
    return hot.reshape(rows, *layout.shape[1:])


def strewn_jobs(
    layout: Layout, files: FileReader, row_runs: RowRuns, pieces: Sequence[Piece], target: Target
) -> list[Job]:
    """What brings `pieces` of raw chunks of whole rows to their places, all rows of each and no slices."""
    if not pieces:
        return []
    row_nbytes = max(1, layout.row_nbytes)
    apart = row_nbytes >= _APART_NBYTES and layout.dtype.isnative and reads_apart()
    # A run passes through as a whole.
    most = max(1, JOB_NBYTES // row_nbytes) if apart else hot_rows(layout)
    parts = [part for piece in pieces for part in cut(piece, most)]
    starts, stops = (np.array([getattr(part, edge) for part in parts]) for edge in ("start", "stop"))
    runs = row_runs.of_all(starts, stops)
    for file, ranges in near_each_other(runs):
        files.will_need(file, ranges)
    read = _read_apart if apart else _read_through
    jobs: list[Job] = []
    at = [run.at for run in runs]
    first = 0
    for group in _shared_out(parts, max(1, JOB_NBYTES // row_nbytes)):
        behind = first + sum(part.rows for part in group)
        own = runs[bisect.bisect_left(at, first) : bisect.bisect_left(at, behind)]
        jobs.append(functools.partial(_read, read, layout, files, group, own, target))
        first = behind
    return jobs


def _shared_out(parts: Sequence[Piece], rows: int) -> list[list[Piece]]:
    """Parts in groups of at most so many rows, or of one."""
    groups: list[list[Piece]] = []
    left = 0
    for part in parts:
        if not groups or part.rows > left:
            groups.append([])
            left = rows
        groups[-1].append(part)
        left -= part.rows
    return groups


# What reads runs of rows to their places (int64, of each row of the runs): the number of calls.
_Read = Callable[[Layout, FileReader, Sequence[RowRun], Target, np.ndarray], int]


def _read(
    read: _Read,
    layout: Layout,
    files: FileReader,
    parts: Sequence[Piece],
    runs: Sequence[RowRun],
    target: Target,
) -> None:
    """Read `parts`, which lie in files as `runs`."""
    began = time.perf_counter()
    dest = np.concatenate([part.dest for part in parts])
    calls = read(layout, files, runs, target, dest)
    nbytes = sum(run.nbytes for run in runs if run.file >= 0)
    target.counters.add(read_calls=calls, read_bytes=nbytes, read_s=time.perf_counter() - began)


def _read_apart(
    layout: Layout, files: FileReader, runs: Sequence[RowRun], target: Target, dest: np.ndarray
) -> int:
    first, row_nbytes = runs[0].at, layout.row_nbytes
    flat = target.rows.reshape(len(target.rows), -1).view(np.uint8)
    vectors = io_vectors(flat, dest)

    def read(fd: int, run: RowRun) -> int:
        own = slice(run.at - first, run.at - first + run.nbytes // row_nbytes)
        return files.read_apart(fd, run.file, run.offset, flat, dest[own], vectors[own])

    for run in runs:
        if run.file < 0:
            target.rows[dest[run.at - first : run.at - first + run.nbytes // row_nbytes]] = layout.fill
    return _each(layout, files, runs, read)


def _read_through(
    layout: Layout, files: FileReader, runs: Sequence[RowRun], target: Target, dest: np.ndarray
) -> int:
    row_nbytes = max(1, layout.row_nbytes)
    calls = 0
    first = runs[0].at
    for near in _passing(runs, hot_rows(layout) * row_nbytes):
        at = near[0].at
        hot = hot_buffer(layout, sum(run.nbytes for run in near) // row_nbytes)
        flat = hot.reshape(-1).view(np.uint8)

        def read(fd: int, run: RowRun, flat: np.ndarray = flat, at: int = at) -> int:
            begin = (run.at - at) * row_nbytes
            return files.read(fd, run.file, run.offset, flat[begin : begin + run.nbytes])

        for run in near:
            if run.file < 0:
                hot[run.at - at : run.at - at + run.nbytes // row_nbytes] = layout.fill
        calls += _each(layout, files, near, read)
        place(target.rows, dest[at - first : at - first + len(hot)], hot)
        target.counters.add(copied_bytes=hot.nbytes)
    return calls


def _passing(runs: Sequence[RowRun], nbytes: int) -> Iterator[list[RowRun]]:
    """Runs that pass through together: of at most so many bytes, or one."""
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


def _named(layout: Layout, run: RowRun) -> RowsNamed:
    return RowsNamed(layout, (run.row, run.row + run.nbytes // max(1, layout.row_nbytes)))
