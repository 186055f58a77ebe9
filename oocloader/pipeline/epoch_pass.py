"""A pass: one run through an epoch by one iterator, as host windows."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from oocloader.errors import StoreError
from oocloader.metrics import Counters, major_faults
from oocloader.order import Batching, History, Order, Position, RowSequence, row_sequence
from oocloader.pipeline.prefetch import Prefetcher
from oocloader.pipeline.readable_rows import readable_batches
from oocloader.pipeline.stage_plan import stage_rows
from oocloader.pipeline.staging import Gather, Staging
from oocloader.pipeline.transform_seeds import batch_seed, packed_seeds
from oocloader.reading import Pool, RowReader


class Progress:
    """Where the passes of a loader are. Shared by the `ReadConfig`s that a loader has one after the other.

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
        pools = [Pool(self.stage_rows * reader.row_nbytes, keep=keep) for reader in self.readers]
        object.__setattr__(self, "pools", pools)
        object.__setattr__(self, "batches", self.row_sequence(())[1].batches)

    @property
    def rows(self) -> int:
        """Rows that are selected, of all shards."""
        return len(self.order.rows)

    @property
    def shards(self) -> int:
        """Number of shards that share the rows."""
        return self.order.shard[1]

    @property
    def row_specs(self) -> list[tuple[tuple[int, ...], np.dtype]]:
        """Sample shape and dtype of each array."""
        return [(reader.shape[1:], reader.dtype) for reader in self.readers]

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

    `batches`: its batches, those before `start` included. `all_taken` is called once, when the last window
    was taken: then this pass holds no memory for what is to come. `start_reading` has the first windows read
    before they are asked for.
    """

    def __init__(
        self,
        read_config: ReadConfig,
        epoch: int,
        *,
        start: int = 0,
        history: History = (),
        all_taken: Callable[[], None] = lambda: None,
    ) -> None:
        self.epoch = epoch
        self.start = start
        self.history = history
        self.counters = Counters()
        self.error: BaseException | None = None
        self._ended = False
        self._process = os.getpid()
        self._faults = major_faults()
        self._config = read_config
        self._row_sequence, self._batching = read_config.row_sequence(history)
        self.batches = self._batching.batches
        self._staging = Staging(
            read_config.readers,
            read_config.pools,
            self._row_sequence,
            self.counters,
            mapping=read_config.mapping,
            gather=read_config.gather,
        )
        self._prefetcher = Prefetcher(
            self._staging.stages(epoch, self._batching, start=start),
            threads=read_config.threads,
            prefetch_windows=read_config.prefetch_windows,
            cancel=self._staging.cancel,
            all_taken=all_taken,
            counters=self.counters,
        )

    def start_reading(self) -> None:
        """Have as many windows read as are read ahead in the middle of a pass, and no more."""
        self._prefetcher.start()

    @property
    def first_row(self) -> int:
        """The row of the pass that it delivers first."""
        return self._batching.row(self.start)

    def seed(self, batch: int) -> np.ndarray:
        """The seed of batch number `batch` for a transform, int32 (2,)."""
        return batch_seed(self._config.order.seed, self.epoch, batch)

    def row_seeds(self, first: int, rows: int) -> np.ndarray:
        """The seed of its batch for each row from row `first` of the pass on, packed: int64 (rows,).

        `first` begins a batch, and so does the row behind these.
        """
        batch = min(first // self._batching.batch_size, self.batches - 1)
        while self._batching.row(batch + 1) <= first:
            batch += 1
        edges = [first]
        while edges[-1] < first + rows:
            edges.append(self._batching.row(batch + len(edges)))
        seeds = packed_seeds(self._config.order.seed, self.epoch, batch, batch + len(edges) - 1)
        return np.repeat(seeds, np.diff(edges))

    @property
    def short(self) -> bool:
        """Whether it has fewer batches to deliver than a whole pass."""
        return self.batches - self.start < self._config.batches

    def take_batches(self) -> bool:
        """Count a batch that the consumer gets now; whether it is the last."""
        self.counters.batches += 1
        done = self.start + self.counters.batches
        self._config.progress.delivered = (self.epoch, done, self.history)
        self._config.progress.unseen = False
        return done >= self.batches

    def windows(self) -> Iterator[tuple[np.ndarray, ...]]:
        """Rows of every array, window by window: (rows, *sample_shape) each, whole batches of them.

        Each array is aligned, and the caller's to write into. An error comes after every batch before it.
        It is kept as `error` too, since TensorFlow hands on only its text.
        """
        leftover: list[np.ndarray | None] = [None] * len(self._config.readers)
        turns = self.counters.window_turns
        self._faults = major_faults()
        self.counters.started_s = time.perf_counter()
        turns.asked(self.counters.started_s)
        try:
            for stage in self._prefetcher:
                arrays, leftover = stage.take_batches(leftover)
                del stage
                if len(arrays[0]) == 0:
                    continue
                nbytes = self._count_window(arrays)
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
                try:
                    yield from self._readable()
                except StoreError as first:
                    if str(first) != str(error):
                        self.error = first
                        raise first from first.__cause__
            raise
        finally:
            self.close()

    def _readable(self) -> Iterator[tuple[np.ndarray, ...]]:
        """The batches before the first row that cannot be read; raises why it cannot."""
        position = self.first_row + self.counters.rows
        batches = readable_batches(
            self._config.readers,
            self._row_sequence.windows(self.epoch, position=position),
            self._batching,
            self.counters,
            position=position,
            most_rows=self._config.stage_rows,
        )
        for arrays in batches:
            self._count_window(arrays)
            yield arrays
            del arrays

    def _count_window(self, arrays: Sequence[np.ndarray]) -> int:
        """Count a window that is delivered now; its bytes."""
        nbytes = sum(array.nbytes for array in arrays)
        self.counters.add(windows=1, rows=len(arrays[0]), delivered_bytes=nbytes)
        return nbytes

    def close(self) -> None:
        """End the threads and let go of what was read ahead. Safe to call twice."""
        # A forked child has none of these threads, and what they had locked stays locked. It comes here where
        # its garbage collector ends `windows`.
        if os.getpid() != self._process:
            return
        self._prefetcher.close()
        if not self._ended:
            self._ended = True
            self.counters.major_faults = major_faults() - self._faults
            self.counters.starved_s = self._prefetcher.wait_s
            self.counters.wall_s = time.perf_counter() - self.counters.started_s
