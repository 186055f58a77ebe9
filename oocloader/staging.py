"""One window of every array into buffers, and how windows are cut into whole batches.

A stage is what crosses to the device in one piece: whole batches (and at the end of a pass the last,
shorter one). Rows that do not fill a batch come first in the next stage.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from oocloader.bands import Bands
from oocloader.buffers import Pool
from oocloader.order import Order, Window
from oocloader.pieces import Piece, split
from oocloader.read import Job, RowReader, Target, gather_jobs
from oocloader.timing import Counters


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Windows read into one stage. Its buffer holds `carried` rows of the stage before, then the windows'.

    The first `skipped` rows are not delivered (a pass that starts in the middle), the next `delivered` are,
    the remaining ones are carried on. Only a stage that skips rows may deliver none. `first` is the
    position in the pass of the first row delivered.
    """

    windows: tuple[Window, ...]
    carried: int
    skipped: int
    delivered: int
    first: int

    @property
    def held(self) -> int:
        """Rows in the buffer."""
        return self.carried + sum(window.rows for window in self.windows)


def plan_stages(
    order: Order, epoch: int, *, batch_size: int, drop_remainder: bool, position: int = 0
) -> Iterator[StagePlan]:
    """The stages of a pass from row `position` of it on."""
    total = len(order.rows)
    end = total // batch_size * batch_size if drop_remainder else total
    group: list[Window] = []
    carried = skipped = held = 0
    for window in order.windows(epoch, position=position):
        if position >= end:
            return
        if not group:
            held = carried
            skipped = max(0, position - window.first) if not carried else 0
        group.append(window)
        held += window.rows
        ready = held - skipped
        last = position + ready >= end
        delivered = end - position if last else ready // batch_size * batch_size
        # What a skipped start leaves of a window may fill no batch; with another window it might not fit.
        if delivered or skipped:
            yield StagePlan(tuple(group), carried, skipped, delivered, position)
            position += delivered
            carried = held - skipped - delivered
            group = []


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

    def deliver(
        self, tails: Sequence[np.ndarray | None]
    ) -> tuple[tuple[np.ndarray, ...], list[np.ndarray | None]]:
        """The delivered rows of every array, and the rows to carry on.

        `tails` are the rows carried here. What is carried on is copied, so that nothing but its consumer
        keeps a buffer from being used again.
        """
        plan = self.plan
        delivered: list[np.ndarray] = []
        carried_on: list[np.ndarray | None] = []
        for array, exact, tail in zip(self._arrays, self._exact, tails, strict=True):
            if exact:
                delivered.append(array)
                carried_on.append(None)
                continue
            if plan.carried and tail is not None:
                array[: plan.carried] = tail
            stop = plan.skipped + plan.delivered
            carried_on.append(array[stop:].copy() if stop < len(array) else None)
            delivered.append(array[plan.skipped : stop])
        return tuple(delivered), carried_on


class Staging:
    """Makes the stages of one pass over `readers`, one array each."""

    def __init__(
        self,
        readers: Sequence[RowReader],
        pools: Sequence[Pool],
        order: Order,
        counters: Counters,
        *,
        mapping: bool,
        gather: bool = False,
    ) -> None:
        self._readers = readers
        self._pools = pools
        self._order = order
        self._counters = counters
        self._mapping = mapping
        self._gather = gather and order.shuffle
        self._bands = [Bands(order.rows.count) for _ in readers]

    def stages(
        self, epoch: int, *, batch_size: int, drop_remainder: bool, position: int = 0
    ) -> Iterator[Stage]:
        """The stages from row `position` of the pass on, their jobs not run yet."""
        plans = plan_stages(
            self._order, epoch, batch_size=batch_size, drop_remainder=drop_remainder, position=position
        )
        plan = next(plans, None)
        while plan is not None:
            stage = self._stage(plan)
            plan = next(plans, None)
            stage.last = plan is None
            yield stage

    def cancel(self) -> None:
        """Let go of memory and of threads that wait for a chunk."""
        for bands in self._bands:
            bands.cancel()

    def _stage(self, plan: StagePlan) -> Stage:
        arrays: list[np.ndarray] = []
        exactly: list[bool] = []
        jobs: list[Job] = []
        pieces: list[Piece] = []
        at = plan.carried
        for window in plan.windows:
            pieces += [piece.shifted(at) for piece in window.pieces]
            at += window.rows
        if len(plan.windows) > 1:
            pieces.sort(key=lambda piece: piece.start)
        for reader, pool, bands in zip(self._readers, self._pools, self._bands, strict=True):
            # Rows that can be read alone are read as they are delivered; chunks are read whole, and what
            # a batch leaves over is carried on.
            exact = reader.row_access and not self._order.shuffle
            array = self._map(reader, plan) if exact and self._mapping else None
            if array is not None:
                self._counters.add(mapped_bytes=array.nbytes)
            elif exact:
                array = _rows(pool.take(), plan.delivered, reader)
                wanted = self._order.stretch(plan.first, plan.first + plan.delivered)
                jobs += reader.jobs(wanted, Target(array, bands, self._counters))
            else:
                array = _rows(pool.take(), plan.held, reader)
                gather = self._gather and (self._mapping or not reader.gathered_nbytes)
                view = reader.view(pieces) if gather else None
                if view is None:
                    jobs += reader.jobs(pieces, Target(array, bands, self._counters))
                else:
                    jobs += gather_jobs(view, pieces, array, self._counters)
            exactly.append(exact)
            arrays.append(array)
        return Stage(plan, arrays, exactly, jobs)

    def _map(self, reader: RowReader, plan: StagePlan) -> np.ndarray | None:
        if not plan.delivered:
            return None
        stored = self._order.rows.stored(plan.first, plan.first + plan.delivered)
        return reader.map(*stored) if isinstance(stored, tuple) else None


def readable(
    readers: Sequence[RowReader],
    order: Order,
    epoch: int,
    counters: Counters,
    *,
    batch_size: int,
    position: int,
) -> Iterator[tuple[np.ndarray, ...]]:
    """The whole batches from row `position` of a pass up to the first row that cannot be read.

    What is left to deliver where reading a stage has failed: its windows are read again, chunk by chunk.
    """
    # Beyond that lies nothing that had been asked for together with what failed.
    end = position + stage_rows(order, batch_size)
    tails = [np.empty((0, *reader.shape[1:]), reader.dtype) for reader in readers]
    for window in order.windows(epoch, position=position):
        found = [_readable(reader, window, batch_size, counters) for reader in readers]
        good = min(rows for _, rows in found)
        begin = max(0, position - window.first)
        held = [
            np.concatenate([tail, array[begin:good]]) for tail, (array, _) in zip(tails, found, strict=True)
        ]
        whole = len(held[0]) // batch_size * batch_size
        if whole:
            yield tuple(array[:whole] for array in held)
        tails = [array[whole:] for array in held]
        if good < window.rows or window.first + window.rows >= end:
            return


def _readable(
    reader: RowReader, window: Window, batch_size: int, counters: Counters
) -> tuple[np.ndarray, int]:
    """The rows of a window, and how many of them come before the first that cannot be read."""
    array = np.empty((window.rows, *reader.shape[1:]), reader.dtype)
    target = Target(array, Bands(lambda lo, hi: 0), counters)
    good = window.rows
    at_once = batch_size if reader.row_access or reader.chunk_rows is None else reader.chunk_rows
    for _, pieces in split(window.pieces, at_once):
        try:
            for job in reader.jobs(pieces, target):
                job()
        except Exception:
            dests = [piece.dest for piece in pieces]
            first = min(int(dest.start if isinstance(dest, slice) else dest.min()) for dest in dests)
            good = min(good, first)
    return array, good


def pool_nbytes(reader: RowReader, rows: int) -> int:
    """Bytes of a buffer for `rows` rows."""
    return rows * math.prod(reader.shape[1:]) * reader.dtype.itemsize


def _rows(buffer: np.ndarray, rows: int, reader: RowReader) -> np.ndarray:
    nbytes = pool_nbytes(reader, rows)
    return buffer[:nbytes].view(reader.dtype).reshape(rows, *reader.shape[1:])
