"""Three arrays of numbered rows in files, each stored in another way, and passes over them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from chunked import Flip, write_layout
from numbered import rows_array
from oocloader.order.order import Order, RowSet, Shuffle
from oocloader.order.resharding import History
from oocloader.order.shards import Shard
from oocloader.pipeline.epoch_pass import EpochPass, ReadConfig
from oocloader.pipeline.staging import Gather
from oocloader.reading.chunk_reader import ChunkReader
from oocloader.reading.row_reader import RowReader

ROWS = 1000


def our_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("oocloader-read")]


class Stored:
    """Features in chunks of 64 rows, cut across, labels in chunks of 100, weights in one run of bytes."""

    def __init__(self, folder: Path) -> None:
        self.x = rows_array(ROWS, sample_shape=(6, 4))
        self.y = np.arange(ROWS)
        self.w = np.arange(ROWS, dtype=np.float32)[:, np.newaxis] * np.ones(16, np.float32)
        self.flips = (Flip(), Flip())
        self.layouts = (
            write_layout(folder / "x", self.x, (64, 2, 4), step=self.flips[0]),
            write_layout(folder / "y", self.y, (100,), step=self.flips[1]),
            write_layout(folder / "w", self.w),
        )
        self.readers: list[RowReader] = [ChunkReader(layout) for layout in self.layouts]

    def read_config(
        self,
        *,
        rows: RowSet | None = None,
        shuffle: bool | Shuffle = True,
        seed: int = 3,
        block: int = 64,
        window: int = 256,
        batch_size: int = 32,
        drop_remainder: bool = False,
        threads: int = 2,
        prefetch_windows: int = 2,
        mapping: bool = True,
        gather: Gather = "freely",
        shard: Shard = (0, 1),
    ) -> ReadConfig:
        order = Order(
            rows or RowSet(0, ROWS), shuffle=shuffle, seed=seed, block=block, window=window, shard=shard
        )
        return ReadConfig(
            readers=self.readers,
            order=order,
            batch_size=batch_size,
            drop_remainder=drop_remainder,
            threads=threads,
            prefetch_windows=prefetch_windows,
            mapping=mapping,
            gather=gather if mapping else "never",
        )


def rows_of(
    read_config: ReadConfig,
    epoch: int = 0,
    *,
    start: int = 0,
    history: History = (),
    batches: list[int] | None = None,
) -> np.ndarray:
    """The stored rows of a pass in order; every array of a window must have the same ones.

    `batches` gets the lengths of the batches that a window is cut into.
    """
    found = [np.empty(0, np.int64)]
    for x, y, w in EpochPass(read_config, epoch, start=start, history=history).windows():
        if batches is not None:
            size = read_config.batch_size
            batches += [min(size, len(y) - at) for at in range(0, len(y), size)]
        assert len(y) > 0
        numbers = y.copy()
        assert np.array_equal(x, rows_array(numbers.tolist(), sample_shape=(6, 4)))
        assert np.array_equal(w, numbers[:, np.newaxis] * np.ones(16, np.float32))
        # The consumer may write to what it was given.
        x[...], y[...], w[...] = 77, -1, -1
        found.append(numbers)
    return np.concatenate(found)


def labels(running: EpochPass) -> Iterator[int]:
    for _, y, _ in running.windows():
        yield from y.tolist()
