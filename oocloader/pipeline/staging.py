"""One window of every array into buffers, and how windows are cut into whole batches.

A stage is what crosses to the device in one span: whole batches (and at the end of a pass the last,
shorter one). Rows that do not fill a batch come first in the next stage.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from oocloader.errors import StoreError
from oocloader.metrics import Counters
from oocloader.order import Batching, Order, RowSequence, RowSpan, Window, split
from oocloader.reading import Job, Pool, RowReader, SharedChunks, Target, gather_jobs

Gather = Literal["never", "freely", "bounded"]
"""Whether shuffled rows are copied straight from mapped files, which then count as resident; "bounded":
of which only what the threads work on counts."""


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Windows read into one stage, one behind the other from row `base` of its buffer.

    From row `skipped` on lie `carried` rows of the stage before, then what the pass uses of the windows.
    Of these rows the first `delivered` are delivered, the next are carried on; the last `unused` rows of
    the buffer are not. Rows before `skipped` belong to a part of the pass that others deliver, or have
    delivered. `first` is the position in the pass of the first row delivered. A stage may deliver none, and
    one of the end may hold no window.
    """

    windows: tuple[Window, ...]
    carried: int
    skipped: int
    delivered: int
    first: int
    base: int = 0
    unused: int = 0

    @property
    def held(self) -> int:
        """Rows in the buffer."""
        return max(self.base + sum(window.rows for window in self.windows), self.skipped + self.carried)


def plan_stages(
    row_sequence: RowSequence, epoch: int, cut: Batching, *, start: int = 0
) -> Iterator[StagePlan]:
    """The stages of a pass from batch `start` of it on."""
    position = cut.row(start)
    plan: StagePlan | None = None
    carried = 0
    for window in row_sequence.windows(epoch, position=position):
        if position >= cut.end:
            return
        # Only the first window of a pass, or of a part of one that others began, begins in its middle.
        begin = window.begin + max(0, position + carried - window.first) if plan is None else window.begin
        if plan is not None and begin:
            yield plan
            plan = None
        if plan is None:
            base = max(0, carried - begin)
            plan = StagePlan((window,), carried, base + begin - carried, 0, position, base, window.unused)
        else:
            plan = replace(plan, windows=(*plan.windows, window), unused=window.unused)
        ready = plan.held - plan.skipped - plan.unused
        stop = cut.whole(position, position + ready)
        carried = ready - (stop - position)
        # What a start in the middle leaves of a window may fill no batch; with another it might not fit in.
        if stop > position or plan.skipped or plan.unused:
            yield replace(plan, delivered=stop - position)
            plan = None
            position = stop
        while plan is None and carried and (stop := cut.whole(position, position + carried)) > position:
            # A batch shorter than the others ends its stage.
            yield StagePlan((), carried, 0, stop - position, position, carried)
            carried -= stop - position
            position = stop


def stage_rows(order: Order, batch_size: int) -> int:
    """The most rows that a stage's buffer ever holds."""
    return min(order.window, len(order.rows)) + batch_size


class Stage:
    """The buffers of one stage while jobs fill them.

    `jobs`, `pending` and `error` belong to whoever runs the jobs. `last`: the pass has no other after it.
    """

    def __init__(self, plan: StagePlan, arrays: list[np.ndarray], exact: list[bool], jobs: list[Job]) -> None:
        self.plan = plan
        self.jobs = jobs
        self.pending = len(jobs)
        self.error: BaseException | None = None
        self.last = False
        self._arrays = arrays
        self._exact = exact

    def take_batches(
        self, leftover: Sequence[np.ndarray | None]
    ) -> tuple[tuple[np.ndarray, ...], list[np.ndarray | None]]:
        """The delivered rows of every array, and the rows to carry on.

        `leftover` are the rows carried here. What is carried on is copied, so that nothing but its consumer
        keeps a buffer from being used again.
        """
        plan = self.plan
        delivered: list[np.ndarray] = []
        carried_on: list[np.ndarray | None] = []
        for array, exact, tail in zip(self._arrays, self._exact, leftover, strict=True):
            if exact:
                delivered.append(array)
                carried_on.append(None)
                continue
            if plan.carried and tail is not None:
                array[plan.skipped : plan.skipped + plan.carried] = tail
            stop, end = plan.skipped + plan.delivered, len(array) - plan.unused
            carried_on.append(array[stop:end].copy() if stop < end else None)
            delivered.append(array[plan.skipped : stop])
        return tuple(delivered), carried_on


class Staging:
    """Makes the stages of one pass over `readers`, one array each."""

    def __init__(
        self,
        readers: Sequence[RowReader],
        pools: Sequence[Pool],
        row_sequence: RowSequence,
        counters: Counters,
        *,
        mapping: bool,
        gather: Gather = "never",
    ) -> None:
        self._readers = readers
        self._pools = pools
        self._row_sequence = row_sequence
        self._counters = counters
        self._mapping = mapping
        self._gather: Gather = gather if row_sequence.shuffle else "never"
        self._shared_chunks = [SharedChunks(row_sequence.count) for _ in readers]
        # Labels that wait at the disk behind the features of several windows hold all of them up.
        self._smallest_first = sorted(range(len(readers)), key=lambda number: pool_nbytes(readers[number], 1))

    def stages(self, epoch: int, cut: Batching, *, start: int = 0) -> Iterator[Stage]:
        """The stages from batch `start` of the pass on, their jobs not run yet."""
        plans = plan_stages(self._row_sequence, epoch, cut, start=start)
        plan = next(plans, None)
        while plan is not None:
            stage = self._stage(epoch, plan)
            plan = next(plans, None)
            stage.last = plan is None
            yield stage

    def cancel(self) -> None:
        """Let go of memory and of threads that wait for a chunk."""
        for shared_chunks in self._shared_chunks:
            shared_chunks.cancel()

    def _stage(self, epoch: int, plan: StagePlan) -> Stage:
        arrays: dict[int, np.ndarray] = {}
        exactly: dict[int, bool] = {}
        jobs: list[Job] = []
        spans: list[RowSpan] = []
        at = plan.base
        for window in plan.windows:
            spans += [span.shifted(at) for span in window.spans]
            at += window.rows
        if len(plan.windows) > 1:
            spans.sort(key=lambda span: span.start)
        for number in self._smallest_first:
            reader, pool, shared_chunks = (
                self._readers[number],
                self._pools[number],
                self._shared_chunks[number],
            )
            # Rows that can be read alone are read as they are delivered; chunks are read whole, and what
            # a batch leaves over is carried on.
            exact = reader.row_access and self._row_sequence.shuffle != "window"
            array = self._map(reader, plan) if exact and self._mapping else None
            if array is not None:
                self._counters.add(mapped_bytes=array.nbytes)
            elif exact:
                array = _rows(pool.take(), plan.delivered, reader)
                if plan.delivered:
                    wanted = self._row_sequence.stretch(plan.first, plan.first + plan.delivered, epoch=epoch)
                    jobs += self._jobs(reader, wanted, array, shared_chunks)
            else:
                array = _rows(pool.take(), plan.held, reader)
                if spans:
                    jobs += self._jobs(reader, spans, array, shared_chunks)
            exactly[number], arrays[number] = exact, array
        numbers = range(len(self._readers))
        return Stage(plan, [arrays[n] for n in numbers], [exactly[n] for n in numbers], jobs)

    def _jobs(
        self, reader: RowReader, spans: Sequence[RowSpan], out: np.ndarray, shared_chunks: SharedChunks
    ) -> list[Job]:
        # What takes no mapping to gather from is in memory.
        gather = self._gather != "never" and (self._mapping or not reader.mapped_nbytes)
        view = reader.view(spans) if gather else None
        if view is None:
            return reader.jobs(spans, Target(out, shared_chunks, self._counters))
        bounded = self._gather == "bounded" and reader.mapped_nbytes > 0
        fresh_view = reader.fresh_view if bounded else None
        return gather_jobs(view, spans, out, self._counters, fresh_view=fresh_view)

    def _map(self, reader: RowReader, plan: StagePlan) -> np.ndarray | None:
        if not plan.delivered:
            return None
        stored = self._row_sequence.stored(plan.first, plan.first + plan.delivered)
        return reader.map(*stored) if stored is not None else None


def readable(
    readers: Sequence[RowReader],
    row_sequence: RowSequence,
    epoch: int,
    counters: Counters,
    cut: Batching,
    *,
    position: int,
    most_rows: int,
) -> Generator[tuple[np.ndarray, ...], None, StoreError | None]:
    """The whole batches from row `position` of a pass up to the first row that cannot be read; why, at last.

    What is left to deliver where reading a stage has failed: its windows are read again, chunk by chunk.
    What failed first need not come first. None where all of it can be read now.
    """
    # Beyond that lies nothing that had been asked for together with what failed.
    end = position + most_rows
    leftover = [np.empty((0, *reader.shape[1:]), reader.dtype) for reader in readers]
    for window in row_sequence.windows(epoch, position=position):
        found = [_readable(reader, window, cut.batch_size, counters) for reader in readers]
        used = window.rows - window.unused
        good, failed = min(((rows, error) for _, rows, error in found), key=lambda one: one[0])
        good = min(used, good)
        begin = window.begin + max(0, position + len(leftover[0]) - window.first)
        held = [
            np.concatenate([tail, array[begin:good]])
            for tail, (array, _, _) in zip(leftover, found, strict=True)
        ]
        while (stop := cut.whole(position, position + len(held[0]))) > position:
            yield tuple(array[: stop - position] for array in held)
            held = [array[stop - position :] for array in held]
            position = stop
        leftover = held
        if good < used or window.first + used - window.begin >= end:
            return failed if good < used else None
    return None


def _readable(
    reader: RowReader, window: Window, batch_size: int, counters: Counters
) -> tuple[np.ndarray, int, StoreError | None]:
    """The rows of a window, how many of them come before the first that cannot be read, and why not."""
    array = np.empty((window.rows, *reader.shape[1:]), reader.dtype)
    target = Target(array, SharedChunks(lambda lo, hi: 0), counters)
    good = window.rows
    failed: StoreError | None = None
    at_once = batch_size if reader.row_access or reader.chunk_rows is None else reader.chunk_rows
    for _, spans in split(window.spans, at_once):
        try:
            for job in reader.jobs(spans, target):
                job()
        except Exception as error:
            first = min(int(span.dest_rows().min()) for span in spans)
            if first < good:
                good, failed = first, error if isinstance(error, StoreError) else None
    return array, good, failed


def pool_nbytes(reader: RowReader, rows: int) -> int:
    """Bytes of a buffer for `rows` rows."""
    return rows * reader.row_nbytes


def _rows(buffer: np.ndarray, rows: int, reader: RowReader) -> np.ndarray:
    nbytes = pool_nbytes(reader, rows)
    return buffer[:nbytes].view(reader.dtype).reshape(rows, *reader.shape[1:])
