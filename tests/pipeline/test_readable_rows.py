"""Where rows cannot be read: every whole batch before the first of them is delivered."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from chunked import Flip, write_layout
from oocloader.errors import CorruptChunkError
from oocloader.metrics.counters import Counters
from oocloader.order.order import Order, RowSet
from oocloader.order.row_spans import RowSpan
from oocloader.order.shards import batching
from oocloader.pipeline.epoch_pass import EpochPass
from oocloader.pipeline.readable_rows import readable_batches
from oocloader.reading.chunk_reader import ChunkReader
from oocloader.reading.jobs import Job
from oocloader.reading.memory_reader import MemoryReader
from oocloader.reading.row_reader import RowReader, Target
from orders import pass_of
from three_arrays import ROWS, Stored, labels, our_threads, rows_of


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert our_threads() == []


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path)


def test_an_error_comes_after_every_row_before_it(stored: Stored) -> None:
    """In stored order the rows of chunks before the damaged one all come, as whole batches."""
    stored.flips[0].damaged.add((~stored.x[640:704, :2]).tobytes())
    running = EpochPass(stored.read_config(shuffle=False, window=64, block=64, batch_size=10), 0)
    found: list[int] = []
    with pytest.raises(CorruptChunkError, match=r"chunk \(10, 0, 0\), rows 640 to 703: damaged") as caught:
        found.extend(labels(running))
    assert found == list(range(640))
    assert running.error is caught.value
    assert our_threads() == []


@pytest.mark.parametrize("shuffle", [False, True])
def test_of_several_errors_the_first_to_be_delivered_is_told(stored: Stored, shuffle: bool) -> None:
    """Several chunks are damaged, and a later one is found first, by whichever thread."""
    read_config = stored.read_config(shuffle=shuffle, window=ROWS, block=64, batch_size=10, threads=3)
    order = rows_of(read_config).tolist()
    for first in (192, 448, 832):
        stored.flips[0].damaged.add((~stored.x[first : first + 64, 2:4]).tobytes())
    for first in (200, 800):
        stored.flips[1].damaged.add((~stored.y[first : first + 100].view(np.uint8)).tobytes())
    damaged = {"x": {*range(192, 256), *range(448, 512), *range(832, 896)}}
    damaged["y"] = {*range(200, 300), *range(800, 900)}
    at = next(at for at, row in enumerate(order) if any(row in rows for rows in damaged.values()))
    running = EpochPass(read_config, 0)
    found: list[int] = []
    with pytest.raises(CorruptChunkError) as caught:
        found.extend(labels(running))
    assert found == order[: at // 10 * 10]
    assert running.error is caught.value
    told = caught.value.rows
    assert told is not None
    assert told[0] <= order[at] < told[1]
    assert order[at] in damaged["x" if told[1] - told[0] == 64 else "y"]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("which", [0, 1])
def test_errors_with_shared_chunks_end_the_pass(
    stored: Stored, shuffle: bool, threads: int, which: int
) -> None:
    """Blocks cut the chunks of both arrays; one of these is damaged."""
    chunk = stored.x[320:384, 2:4] if which == 0 else stored.y[300:400].view(np.uint8)
    stored.flips[which].damaged.add((~chunk).tobytes())
    read_config = stored.read_config(
        shuffle=shuffle, block=7, window=30, threads=threads, prefetch_windows=3, batch_size=10
    )
    damaged = set(range(320, 384) if which == 0 else range(300, 400))
    found: list[int] = []
    began = time.monotonic()
    with pytest.raises(CorruptChunkError):
        found.extend(labels(EpochPass(read_config, 0)))
    assert time.monotonic() - began < 10
    # Every whole batch before the first row of the chunk comes.
    stored.flips[which].damaged.clear()
    whole = rows_of(read_config)
    first = next(at for at, row in enumerate(whole.tolist()) if row in damaged)
    assert found == whole[: first // 10 * 10].tolist()


READ = 96


def readers(folder: Path, damaged: Sequence[int] = ()) -> list[RowReader]:
    """Numbers in chunks of 16 rows, of which some are damaged, and the same numbers in memory."""
    flip, numbers = Flip(), np.arange(READ)
    layout = write_layout(folder, numbers, (16,), step=flip)
    flip.damaged.update((~numbers[at : at + 16].view(np.uint8)).tobytes() for at in damaged)
    return [ChunkReader(layout), MemoryReader(numbers)]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("position", [0, 20, 70])
@pytest.mark.parametrize("damaged", [(0,), (48,), (64, 32), (80,)])
def test_whole_batches_before_the_first_row_that_cannot_be_read(
    tmp_path: Path, shuffle: bool, position: int, damaged: tuple[int, ...]
) -> None:
    order = Order(RowSet(0, READ), shuffle=shuffle, seed=2, block=8, window=40)
    cut = batching(READ, (0, 1), batch_size=10, drop_remainder=False)
    rows = pass_of(order).tolist()
    lost = {row for at in damaged for row in range(at, at + 16)}
    # The window that holds the position is read whole.
    begin = max(window.first for window in order.windows(0) if window.first <= position)
    first = next((at for at in range(begin, READ) if rows[at] in lost), None)
    found: list[int] = []
    batches = readable_batches(
        readers(tmp_path, damaged),
        order.windows(0, position=position),
        cut,
        Counters(),
        position=position,
        most_rows=READ,
    )
    with contextlib.nullcontext() if first is None else pytest.raises(CorruptChunkError) as caught:
        for x, y in batches:
            assert np.array_equal(x, y)
            assert len(x) % 10 == 0 or x[-1] == rows[-1]
            found += x.tolist()
    stop = READ if first is None else max(position, first // 10 * 10)
    assert found == rows[position:stop]
    if caught is not None:
        told = caught.value.rows
        assert told is not None
        assert first is not None
        assert told[0] <= rows[first] < told[1]


def test_nothing_is_read_beyond_what_was_asked_for(tmp_path: Path) -> None:
    order = Order(RowSet(0, READ), shuffle=False, seed=0, block=8, window=32)
    cut = batching(READ, (0, 1), batch_size=16, drop_remainder=False)
    counters = Counters()
    batches = readable_batches(
        readers(tmp_path, (64,)), order.windows(0), cut, counters, position=0, most_rows=30
    )
    assert [x.tolist() for x, _ in batches] == [list(range(32))]
    assert counters.chunks_decoded == 2


def test_an_error_that_is_not_of_the_store_ends_it_quietly(tmp_path: Path) -> None:
    """Whoever tried first raises it."""

    class Failing(MemoryReader):
        def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
            if spans[0].start >= 30:
                raise MemoryError
            return super().jobs(spans, target)

    order = Order(RowSet(0, READ), shuffle=False, seed=0, block=8, window=32)
    cut = batching(READ, (0, 1), batch_size=10, drop_remainder=False)
    batches = readable_batches(
        [Failing(np.arange(READ))], order.windows(0), cut, Counters(), position=0, most_rows=READ
    )
    assert [x.tolist() for (x,) in batches] == [list(range(30))]
