"""Every array of a stage filled with the same rows, and its buffers used again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunked import Flip, write_layout
from numbered import rows_array
from oocloader.errors import ClosedError
from oocloader.metrics.counters import Counters
from oocloader.order.order import Order, RowSet
from oocloader.order.row_spans import RowSpan
from oocloader.order.shards import batching
from oocloader.pipeline.stage_plan import stage_rows
from oocloader.pipeline.staging import Staging
from oocloader.reading.buffers import Pool
from oocloader.reading.chunk_reader import ChunkReader
from oocloader.reading.jobs import Job
from oocloader.reading.library_reader import LibraryReader
from oocloader.reading.memory_reader import MemoryReader
from oocloader.reading.row_reader import RowReader, Target
from orders import pass_of

ROWS = 450


def order_of(
    rows: RowSet | int, window: int, *, block: int | None = None, shuffle: bool = False, seed: int = 4
) -> Order:
    chosen = RowSet(0, rows) if isinstance(rows, int) else rows
    return Order(chosen, shuffle=shuffle, seed=seed, block=block or max(1, window // 4), window=window)


class Record(LibraryReader):
    """A library reader of numbered rows that records the rows it reads."""

    def __init__(self, array: np.ndarray, chunk_rows: int) -> None:
        self.read: list[tuple[int, int]] = []

        def read_rows(start: int, stop: int, out: np.ndarray) -> None:
            self.read.append((start, stop))
            out[...] = array[start:stop]

        super().__init__(
            read_rows, shape=array.shape, dtype=array.dtype, chunk_rows=chunk_rows, store="s", array="x"
        )


def arrays() -> dict[str, np.ndarray]:
    """Features, labels and weights whose rows carry their numbers."""
    return {
        "x": rows_array(ROWS, sample_shape=(8, 8)),
        "y": np.arange(ROWS),
        "w": np.arange(ROWS, dtype=np.float32)[:, np.newaxis] / 2,
        "z": rows_array(ROWS, ">i2", sample_shape=(3, 2)),
        "m": np.arange(ROWS, dtype=np.float64),
    }


def readers(folder: Path) -> list[RowReader]:
    """A run of bytes that can be mapped, chunks of 64 and of 100 rows, a library, and memory."""
    stored = arrays()
    return [
        ChunkReader(write_layout(folder / "x", stored["x"])),
        ChunkReader(write_layout(folder / "y", stored["y"], (100,), step=Flip())),
        Record(stored["w"], 64),
        ChunkReader(write_layout(folder / "z", stored["z"], (64, 2, 2))),
        MemoryReader(stored["m"]),
    ]


def staging(
    made: Sequence[RowReader], order: Order, batch_size: int, *, mapping: bool = True
) -> tuple[Staging, Counters, list[Pool]]:
    rows, counters = stage_rows(order, batch_size), Counters()
    pools = [Pool(rows * reader.row_nbytes, keep=2) for reader in made]
    return Staging(made, pools, order, counters, mapping=mapping), counters, pools


def deliveries(
    made: Sequence[RowReader],
    order: Order,
    batch_size: int,
    *,
    epoch: int = 0,
    drop_remainder: bool = False,
    start: int = 0,
    mapping: bool = True,
    scribble: bool = False,
) -> list[tuple[np.ndarray, ...]]:
    """What the stages of a pass deliver, copied; `scribble` writes to each before the next is made."""
    stages, _, _ = staging(made, order, batch_size, mapping=mapping)
    leftover: list[np.ndarray | None] = [None] * len(made)
    found = []
    cut = batching(len(order.rows), order.shard, batch_size=batch_size, drop_remainder=drop_remainder)
    for stage in stages.stages(epoch, cut, start=start):
        for job in stage.jobs:
            job()
        delivered, leftover = stage.take_batches(leftover)
        found.append(tuple(array.copy() for array in delivered))
        if scribble:
            for array in delivered:
                array[...] = 77
    return found


def joined(found: list[tuple[np.ndarray, ...]]) -> list[np.ndarray]:
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("mapping", [False, True])
@pytest.mark.parametrize(
    ("rows", "window", "batch_size"),
    [
        (RowSet(0, ROWS), 100, 32),
        (RowSet(0, ROWS), 64, 64),
        (RowSet(0, ROWS), 10, 64),  # windows smaller than a batch
        (RowSet(0, ROWS), 1, 5),
        (RowSet(0, ROWS), 1000, 128),
        (RowSet(0, ROWS), 100, 1000),  # a batch larger than the data
        (RowSet(11, 402), 100, 32),
        (RowSet(1, ROWS, np.arange(1, ROWS, 4)), 30, 16),
    ],
)
def test_every_array_has_the_same_rows(
    tmp_path: Path, shuffle: bool, mapping: bool, rows: RowSet, window: int, batch_size: int
) -> None:
    order = order_of(rows, window, shuffle=shuffle)
    stored = list(arrays().values())
    made = readers(tmp_path)
    for epoch in range(2):
        found = deliveries(made, order, batch_size, epoch=epoch, mapping=mapping, scribble=True)
        numbers = pass_of(order, epoch)
        for array, expected in zip(joined(found), stored, strict=True):
            assert np.array_equal(array, expected[numbers])
        assert all(len({len(array) for array in stage}) == 1 for stage in found)


@settings(max_examples=40)
@given(
    window=st.integers(1, 200),
    batch_size=st.integers(1, 100),
    shuffle=st.booleans(),
    drop_remainder=st.booleans(),
    epoch=st.integers(0, 5),
    data=st.data(),
)
def test_a_pass_from_the_middle_is_the_tail_of_the_whole(
    window: int, batch_size: int, shuffle: bool, drop_remainder: bool, epoch: int, data: st.DataObject
) -> None:
    stored = arrays()
    made: list[RowReader] = [MemoryReader(stored["y"]), Record(stored["w"], 64), Record(stored["x"], 30)]
    order = order_of(ROWS, window, shuffle=shuffle)
    batches = ROWS // batch_size if drop_remainder else -(-ROWS // batch_size)
    start = data.draw(st.integers(0, max(0, batches - 1)))
    options: dict[str, Any] = {"epoch": epoch, "drop_remainder": drop_remainder}
    if batches == 0:
        assert deliveries(made, order, batch_size, **options) == []
        return
    whole = joined(deliveries(made, order, batch_size, **options))
    tail = joined(deliveries(made, order, batch_size, start=start, scribble=True, **options))
    for array, expected in zip(tail, whole, strict=True):
        assert np.array_equal(array, expected[start * batch_size :])


def test_nothing_is_read_for_rows_before_the_start() -> None:
    source = Record(np.arange(ROWS), 50)
    deliveries([source], order_of(ROWS, 50), 25, start=9)
    assert source.read == [(at, at + 50) for at in range(200, ROWS, 50)]


def test_nothing_is_read_behind_the_last_batch() -> None:
    source = Record(np.arange(ROWS), 50)
    deliveries([source], order_of(ROWS, 50), 400, drop_remainder=True)
    assert source.read == [(at, at + 50) for at in range(0, 400, 50)]


def test_rows_that_can_be_read_alone_are_read_as_they_are_delivered(tmp_path: Path) -> None:
    """No copy, and no byte twice: windows of 100 rows in batches of 32."""
    stored = arrays()["x"]
    reader = ChunkReader(write_layout(tmp_path, stored))
    order = order_of(ROWS, 100)
    for mapping in (False, True):
        stages, counters, _ = staging([reader], order, 32, mapping=mapping)
        for stage in stages.stages(0, batching(ROWS, (0, 1), batch_size=32, drop_remainder=False)):
            for job in stage.jobs:
                job()
            (delivered,), leftover = stage.take_batches([None])
            assert leftover == [None]
            assert delivered.ctypes.data % 64 == 0
        read, mapped = (0, stored.nbytes) if mapping else (stored.nbytes, 0)
        assert (counters.read_bytes, counters.mapped_bytes, counters.copied_bytes) == (read, mapped, 0)


@pytest.mark.parametrize("batch_size", [50, 32], ids=["", "rows carried on"])
def test_buffers_are_used_again_when_the_consumer_lets_go(tmp_path: Path, batch_size: int) -> None:
    order = order_of(ROWS, 50, shuffle=True)
    stages, _, _ = staging(readers(tmp_path), order, batch_size)
    places: list[set[int]] = [set() for _ in range(5)]
    leftover: list[np.ndarray | None] = [None] * 5
    for stage in stages.stages(0, batching(ROWS, (0, 1), batch_size=batch_size, drop_remainder=False)):
        for job in stage.jobs:
            job()
        delivered, leftover = stage.take_batches(leftover)
        for seen, array in zip(places, delivered, strict=True):
            seen.add(array.ctypes.data)
            assert array.ctypes.data % 64 == 0
        del stage, delivered, array
    assert all(len(seen) <= 2 for seen in places)


def test_a_consumer_that_keeps_everything_gets_memory_of_its_own(tmp_path: Path) -> None:
    order = order_of(ROWS, 50, shuffle=True)
    made = readers(tmp_path)
    stages, _, _ = staging(made, order, 50)
    kept = []
    leftover: list[np.ndarray | None] = [None] * 5
    for stage in stages.stages(0, batching(ROWS, (0, 1), batch_size=50, drop_remainder=False)):
        for job in stage.jobs:
            job()
        delivered, leftover = stage.take_batches(leftover)
        kept.append(delivered)
    numbers = pass_of(order, 0)
    for array, expected in zip(joined(kept), arrays().values(), strict=True):
        assert np.array_equal(array, expected[numbers])


@pytest.mark.parametrize("window", [3, 50])
def test_pieces_ascend_and_do_not_overlap(window: int) -> None:
    """As readers may expect, also where a stage takes several windows."""
    asked: list[list[tuple[int, int]]] = []

    class Watched(MemoryReader):
        def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
            asked.append([(span.start, span.stop) for span in spans])
            return super().jobs(spans, target)

    order = order_of(ROWS, window, shuffle=True, block=1)
    deliveries([Watched(arrays()["y"])], order, 32)
    assert sum(stop - start for spans in asked for start, stop in spans) == ROWS
    for spans in asked:
        edges = [edge for span in spans for edge in span]
        assert edges == sorted(edges)


def test_cancel_lets_go_of_chunks_and_ends_the_pass(tmp_path: Path) -> None:
    order = order_of(ROWS, 50, shuffle=True, block=10)
    stages, _, _ = staging(readers(tmp_path), order, 50)
    running = stages.stages(0, batching(ROWS, (0, 1), batch_size=50, drop_remainder=False))
    for job in next(running).jobs:
        job()
    stages.cancel()
    with pytest.raises(ClosedError, match="given up"):
        next(running)


@settings(max_examples=40)
@given(window=st.integers(1, 60), batch_size=st.integers(1, 60))
def test_batch_size_leaves_the_order_alone(window: int, batch_size: int) -> None:
    stored = arrays()["y"]
    order = order_of(ROWS, window, shuffle=True)
    (found,) = joined(deliveries([Record(stored, 64)], order, batch_size))
    assert np.array_equal(found, pass_of(order, 0))
