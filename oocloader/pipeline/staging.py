"""The windows of a stage into buffers: one of every array, and the jobs that fill them."""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from oocloader.metrics import Counters
from oocloader.order import Batching, RowSequence, RowSpan
from oocloader.pipeline.stage_plan import StagePlan, plan_stages
from oocloader.reading import Job, Pool, RowReader, SharedChunks, Target, gather_jobs

Gather = Literal["never", "freely", "bounded"]
"""Whether shuffled rows are copied straight from mapped files, which then count as resident; "bounded":
of which only what the threads work on counts."""


class Stage:
    """The buffers of one stage while jobs fill them.

    `jobs`, `pending`, `error`, `number` and `began_s` belong to whoever runs the jobs. `last`: no other of
    the pass comes after it.
    """

    def __init__(self, plan: StagePlan, arrays: list[np.ndarray], exact: list[bool], jobs: list[Job]) -> None:
        self.plan = plan
        self.jobs = jobs
        self.pending = len(jobs)
        self.error: BaseException | None = None
        self.number = 0
        self.began_s = 0.0
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
        self._row_sequence = row_sequence
        self._counters = counters
        self._mapping = mapping
        self._gather: Gather = gather if row_sequence.shuffle else "never"
        self._columns = [
            (reader, pool, SharedChunks(row_sequence.count))
            for reader, pool in zip(readers, pools, strict=True)
        ]
        # Labels that wait at the disk behind the features of several windows hold all of them up.
        self._smallest_first = sorted(range(len(readers)), key=lambda number: readers[number].row_nbytes)

    def stages(self, epoch: int, batching: Batching, *, start: int = 0) -> Iterator[Stage]:
        """The stages from batch `start` of the pass on, their jobs not run yet."""
        plans = plan_stages(self._row_sequence, epoch, batching, start=start)
        plan = next(plans, None)
        while plan is not None:
            stage = self._stage(epoch, plan)
            plan = next(plans, None)
            stage.last = plan is None
            yield stage

    def cancel(self) -> None:
        """Let go of memory and of threads that wait for a chunk."""
        for _, _, shared_chunks in self._columns:
            shared_chunks.cancel()

    def _stage(self, epoch: int, plan: StagePlan) -> Stage:
        jobs: list[Job] = []
        spans: list[RowSpan] = []
        at = plan.base
        for window in plan.windows:
            spans += [span.shifted(at) for span in window.spans]
            at += window.rows
        if len(plan.windows) > 1:
            spans.sort(key=lambda span: span.start)
        buffers = {number: self._buffer(number, plan, epoch, spans, jobs) for number in self._smallest_first}
        arrays, exact = zip(*(buffers[number] for number in range(len(buffers))), strict=True)
        return Stage(plan, list(arrays), list(exact), jobs)

    def _buffer(
        self, number: int, plan: StagePlan, epoch: int, spans: list[RowSpan], jobs: list[Job]
    ) -> tuple[np.ndarray, bool]:
        """The buffer of one array, whose jobs go to `jobs`; whether it holds just what is delivered."""
        reader, pool, shared_chunks = self._columns[number]
        # Rows that can be read alone are read as they are delivered; chunks are read whole, and what
        # a batch leaves over is carried on.
        exact = reader.row_access and self._row_sequence.shuffle != "window"
        delivered = (plan.first, plan.first + plan.delivered)
        if exact and self._mapping and plan.delivered:
            stored = self._row_sequence.stored(*delivered)
            mapped = None if stored is None else reader.map(*stored)
            if mapped is not None:
                self._counters.add(mapped_bytes=mapped.nbytes)
                return mapped, True
        if exact:
            spans = self._row_sequence.stretch(*delivered, epoch=epoch) if plan.delivered else []
        rows = plan.delivered if exact else plan.held
        array = pool.take()[: rows * reader.row_nbytes].view(reader.dtype).reshape(rows, *reader.shape[1:])
        if spans:
            jobs += self._jobs(reader, spans, array, shared_chunks)
        return array, exact

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
