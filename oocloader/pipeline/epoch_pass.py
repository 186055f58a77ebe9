"""A pass: one run through an epoch by one iterator, as host windows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from oocloader.errors import StoreError
from oocloader.metrics import Counters, major_faults
from oocloader.order import Batching, History, Order, Position, RowSequence, row_sequence
from oocloader.pipeline.prefetch import Prefetcher
from oocloader.pipeline.staging import Gather, Staging, pool_nbytes, readable, stage_rows
from oocloader.reading import Pool, RowReader


class Progress:
    """Where the passes of a loader are. Shared by the feeds that a loader has one after the other.

    - `pending`: where the next pass starts, if not at the begin of its epoch; `resumed`: where one did.
    - `delivered`: epoch, batches and history of the pass that delivered last, None before the first.
    - `unseen`: the last pass was a host pipeline's, which reads ahead of what it delivers.
    """

    def __init__(self) -> None:
        self.pending: Position | None = None
        self.resumed: Position | None = None
        self.delivered: tuple[int, int, History] | None = None
        self.unseen = False


@dataclass(frozen=True, slots=True, eq=False)
class ReadConfig:
    """What every pass of a loader has in common: the arrays, their order, and how they are read.

    Raises `SettingError` where the order's shards cannot have the same number of batches.
    """

    readers: Sequence[RowReader]
    order: Order
    batch_size: int
    drop_remainder: bool
    threads: int
    prefetch_windows: int
    mapping: bool
    """Whether files may be mapped for windows in stored order."""
    gather: Gather = "never"
    progress: Progress = field(default_factory=Progress)
    pools: Sequence[Pool] = field(init=False)
    batches: int = field(init=False)
    """Batches of a whole pass."""

    def __post_init__(self) -> None:
        # One buffer more than can be on its way: the one the consumer is about to release.
        keep = self.prefetch_windows + 3
        pools = [Pool(pool_nbytes(reader, self.stage_rows), keep=keep) for reader in self.readers]
        object.__setattr__(self, "pools", pools)
        object.__setattr__(self, "batches", self.row_sequence(())[1].batches)

    @property
    def stage_rows(self) -> int:
        """The most rows of a host window."""
        return stage_rows(self.order, self.batch_size)

    def row_sequence(self, history: History) -> tuple[RowSequence, Batching]:
        """What a pass with this history goes through, and its batches."""
        return row_sequence(
            self.order, history, batch_size=self.batch_size, drop_remainder=self.drop_remainder
        )


class EpochPass:
    """Pass number `epoch`, from batch `start` on; with a `history`, of what other shards have left of it.

    `batches`: its batches, those before `start` included. `taken` is called once, from any thread, when the
    last window was taken: then this pass holds no memory for what is to come. `pauses`: whether windows go
    through threads of TensorFlow's. `start_reading` has the first windows read before they are asked for.
    """

    def __init__(
        self,
        read_config: ReadConfig,
        epoch: int,
        *,
        start: int = 0,
        history: History = (),
        taken: Callable[[], None] | None = None,
        pauses: bool = False,
    ) -> None:
        self.epoch = epoch
        self.start = start
        self.history = history
        self.counters = Counters()
        self.error: BaseException | None = None
        self._ended = False
        self._process = os.getpid()
        self._faults = major_faults()
        self._feed = read_config
        self._row_sequence, self._cut = read_config.row_sequence(history)
        self.batches = self._cut.batches
        self._staging = Staging(
            read_config.readers,
            read_config.pools,
            self._row_sequence,
            self.counters,
            mapping=read_config.mapping,
            gather=read_config.gather,
        )
        self._ahead = Prefetcher(
            self._staging.stages(epoch, self._cut, start=start),
            threads=read_config.threads,
            prefetch_windows=read_config.prefetch_windows,
            cancel=self._staging.cancel,
            taken=taken,
            counters=self.counters,
            pauses=pauses,
        )

    def start_reading(self) -> None:
        """Have as many windows read as are read ahead in the middle of a pass, and no more."""
        self._ahead.start()

    @property
    def first_row(self) -> int:
        """The row of the pass that it delivers first."""
        return self._cut.row(self.start)

    def batches_of(self, first: int, rows: int) -> tuple[int, list[int]]:
        """The number of the batch that begins with row `first` of the pass, and the rows of each from there
        on that the next `rows` rows make."""
        begin = min(first // self._cut.batch_size, self.batches - 1)
        while self._cut.row(begin + 1) <= first:
            begin += 1
        lengths, at, batch = [], first, begin
        while at < first + rows:
            end = self._cut.row(batch + 1)
            lengths.append(end - at)
            at, batch = end, batch + 1
        return begin, lengths

    @property
    def short(self) -> bool:
        """Whether it has fewer batches to deliver than a whole pass."""
        return self.batches - self.start < self._feed.batches

    def take_batches(self) -> bool:
        """Count a batch that the consumer gets now; whether it is the last."""
        self.counters.batches += 1
        done = self.start + self.counters.batches
        self._feed.progress.delivered = (self.epoch, done, self.history)
        self._feed.progress.unseen = False
        return done >= self.batches

    def windows(self) -> Iterator[tuple[np.ndarray, ...]]:
        """Rows of every array, window by window: (rows, *sample_shape) each, whole batches of them.

        Each array is aligned, and the caller's to write into. An error comes after every batch before it.
        It is kept as `error` too, since TensorFlow hands on only its text.
        """
        leftover: list[np.ndarray | None] = [None] * len(self._feed.readers)
        turns = self.counters.window_turns
        self._faults = major_faults()
        self.counters.started_s = time.perf_counter()
        turns.asked(self.counters.started_s)
        try:
            for stage in self._ahead:
                arrays, leftover = stage.take_batches(leftover)
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
                first = yield from self._readable()
                if first is not None and str(first) != str(error):
                    self.error = first
                    raise first from first.__cause__
            raise
        finally:
            self.close()

    def _readable(self) -> Generator[tuple[np.ndarray, ...], None, StoreError | None]:
        """The batches before the first row that cannot be read, and why it cannot."""
        read_config = self._feed
        found = readable(
            read_config.readers,
            self._row_sequence,
            self.epoch,
            self.counters,
            self._cut,
            position=self._cut.row(self.start) + self.counters.rows,
            most_rows=read_config.stage_rows,
        )
        while True:
            try:
                arrays = next(found)
            except StopIteration as over:
                failed: StoreError | None = over.value
                return failed
            nbytes = sum(array.nbytes for array in arrays)
            self.counters.add(windows=1, rows=len(arrays[0]), delivered_bytes=nbytes)
            yield arrays
            del arrays

    def forget(self) -> None:
        """Let go of the error: its traceback holds windows, and files that are still open."""
        self.error = None

    def close(self) -> None:
        """End the threads and let go of what was read ahead. Safe to call twice."""
        # A forked child has none of these threads, and what they had locked stays locked. It comes here where
        # its garbage collector ends `windows`.
        if os.getpid() != self._process:
            return
        self._ahead.close()
        if not self._ended:
            self._ended = True
            self.counters.major_faults = major_faults() - self._faults
            self.counters.starved_s = self._ahead.wait_s
            self.counters.wall_s = time.perf_counter() - self.counters.started_s
