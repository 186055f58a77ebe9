"""A pass: one run through an epoch by one iterator, as host windows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from oocloader.buffers import Pool
from oocloader.errors import StoreError
from oocloader.order import Order
from oocloader.read import RowReader
from oocloader.readahead import ReadAhead
from oocloader.staging import Staging, pool_nbytes, readable, stage_rows
from oocloader.timing import Counters, major_faults


@dataclass(frozen=True, slots=True)
class Feed:
    """What every pass of a loader has in common: the arrays, their order, and how they are read."""

    readers: Sequence[RowReader]
    order: Order
    batch_size: int
    drop_remainder: bool
    threads: int
    ahead: int
    mapping: bool
    """Whether files may be mapped for windows in stored order."""
    gather: bool = False
    """Whether shuffled rows may be gathered straight from mapped files, which then count as resident."""
    pools: Sequence[Pool] = field(init=False)

    def __post_init__(self) -> None:
        rows = stage_rows(self.order, self.batch_size)
        # One buffer more than can be on its way: the one the consumer is about to release.
        keep = self.ahead + 3
        pools = [Pool(pool_nbytes(reader, rows), keep=keep) for reader in self.readers]
        object.__setattr__(self, "pools", pools)

    @property
    def batches(self) -> int:
        """Batches of a whole pass."""
        whole, rest = divmod(len(self.order.rows), self.batch_size)
        return whole + (1 if rest and not self.drop_remainder else 0)


class Pass:
    """Pass number `epoch`, from batch `start` on.

    `taken` is called once, from any thread, when the last window was taken: then this pass holds no memory
    for what is to come. `start_reading` has the first windows read before they are asked for.
    """

    def __init__(
        self, feed: Feed, epoch: int, *, start: int = 0, taken: Callable[[], None] | None = None
    ) -> None:
        self.epoch = epoch
        self.start = start
        self.counters = Counters()
        self.error: BaseException | None = None
        self._ended = False
        self._faults = major_faults()
        self._feed = feed
        self._staging = Staging(
            feed.readers,
            feed.pools,
            feed.order,
            self.counters,
            mapping=feed.mapping,
            gather=feed.gather,
        )
        self._ahead = ReadAhead(
            self._staging.stages(
                epoch,
                batch_size=feed.batch_size,
                drop_remainder=feed.drop_remainder,
                position=start * feed.batch_size,
            ),
            threads=feed.threads,
            ahead=feed.ahead,
            cancel=self._staging.cancel,
            taken=taken,
            counters=self.counters,
        )

    def start_reading(self) -> None:
        """Have as many windows read as are read ahead in the middle of a pass, and no more."""
        self._ahead.start()

    def windows(self) -> Iterator[tuple[np.ndarray, ...]]:
        """Rows of every array, window by window: (rows, *sample_shape) each, whole batches of them.

        Each array is aligned, and the caller's to write into. An error comes after every batch before it.
        It is kept as `error` too, since TensorFlow hands on only its text.
        """
        tails: list[np.ndarray | None] = [None] * len(self._feed.readers)
        turns = self.counters.window_turns
        self._faults = major_faults()
        self.counters.started_s = time.perf_counter()
        turns.asked(self.counters.started_s)
        try:
            for stage in self._ahead:
                arrays, tails = stage.deliver(tails)
                del stage
                if len(arrays[0]) == 0:
                    continue
                nbytes = sum(array.nbytes for array in arrays)
                self.counters.add(windows=1, rows=len(arrays[0]), delivered_bytes=nbytes)
                handed = time.perf_counter()
                turns.answered(handed)
                yield arrays
                del arrays
                now = time.perf_counter()
                self.counters.crossed(nbytes, now - handed)
                turns.asked(now)
            turns.over()
            self.counters.complete = True
        except GeneratorExit:
            raise
        except BaseException as error:
            self.error = error
            if isinstance(error, StoreError):
                yield from self._readable()
            raise
        finally:
            self.close()

    def _readable(self) -> Iterator[tuple[np.ndarray, ...]]:
        feed = self._feed
        position = self.start * feed.batch_size + self.counters.rows
        for arrays in readable(
            feed.readers, feed.order, self.epoch, self.counters, batch_size=feed.batch_size, position=position
        ):
            nbytes = sum(array.nbytes for array in arrays)
            self.counters.add(windows=1, rows=len(arrays[0]), delivered_bytes=nbytes)
            yield arrays

    def close(self) -> None:
        """End the threads and let go of what was read ahead. Safe to call twice."""
        self._ahead.close()
        if not self._ended:
            self._ended = True
            self.counters.major_faults = major_faults() - self._faults
            self.counters.starved_s = self._ahead.wait_s
            self.counters.wall_s = time.perf_counter() - self.counters.started_s
