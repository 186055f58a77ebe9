"""Between two passes: the next one is read while the last window of this one is used, and no other is."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oocloader as ooc
from numbered import rows_array
from oocloader.order.order import Order, RowSet
from oocloader.order.row_spans import RowSpan
from oocloader.pipeline.epoch_pass import EpochPass, ReadConfig
from oocloader.pipeline.next_epoch import NextEpoch
from oocloader.reading.files import FileReader
from oocloader.reading.jobs import Job
from oocloader.reading.memory_reader import MemoryReader
from oocloader.reading.row_reader import Target
from recorded import eventually, ids_of, our_threads

ROWS = 100
WINDOW = 10


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert eventually(lambda: our_threads() == [])


class Recorded(MemoryReader):
    """Rows in memory, and the first row of every span that was read."""

    def __init__(self, rows: int = ROWS) -> None:
        super().__init__(np.arange(rows))
        self.read: list[int] = []
        self.fails = False

    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        inner = super().jobs(spans, target)

        def job() -> None:
            if self.fails:
                raise OSError("no such luck")
            for step in inner:
                step()
            self.read.append(spans[0].start)

        return [job]


class Passes:
    """A border between passes over 100 rows in windows of 10, two read ahead; it foretells `coming`."""

    def __init__(self, rows: int = ROWS) -> None:
        self.reader = Recorded(rows)
        order = Order(RowSet(0, rows), shuffle=False, seed=0, block=WINDOW, window=WINDOW)
        read_config = ReadConfig(
            readers=[self.reader],
            order=order,
            batch_size=5,
            drop_remainder=False,
            threads=2,
            prefetch_windows=2,
            mapping=True,
        )
        self.made: list[EpochPass] = []
        self.coming: int | None = 0
        made = self.made

        def make(epoch: int, taken: Any) -> EpochPass:
            made.append(EpochPass(read_config, epoch, all_taken=taken))
            return made[-1]

        self.border: NextEpoch[int] = NextEpoch(make, lambda: self.coming)

    def begin(self, epoch: int) -> Iterator[list[int]]:
        """Windows of pass `epoch`; the one after it is foretold from then on."""
        running = self.border.begin(epoch)
        self.coming = epoch + 1
        return ((window[0] if isinstance(window, tuple) else window).tolist() for window in running.windows())


def run(passes: Passes, epoch: int, windows: int = ROWS // WINDOW) -> Iterator[list[int]]:
    """Takes so many windows of a pass, and gives the rest."""
    taken = passes.begin(epoch)
    for number in range(windows):
        assert next(taken) == list(range(WINDOW * number, WINDOW * number + WINDOW))
    return taken


def test_the_next_pass_is_read_when_the_last_window_was_taken() -> None:
    passes = Passes()
    rest = run(passes, 0, 9)
    time.sleep(0.05)
    assert len(passes.made) == 1
    assert sorted(passes.reader.read) == list(range(0, 100, 10))
    next(rest)
    # The last window is still in use; two windows of the next pass are read, and no more.
    assert eventually(lambda: len(passes.reader.read) == 12)
    time.sleep(0.05)
    assert sorted(passes.reader.read[10:]) == [0, 10]
    assert [(made.epoch, made.counters.rows) for made in passes.made] == [(0, 100), (1, 0)]
    # Threads are gone, though the pass was not begun.
    del rest
    assert eventually(lambda: our_threads() == [])
    assert list(run(passes, 1)) == []
    assert len(passes.made) == 3
    assert passes.made[1].counters.windows == 10
    passes.border.close()


def test_nothing_is_read_twice() -> None:
    passes = Passes()
    for epoch in range(5):
        assert list(run(passes, epoch)) == []
    assert eventually(lambda: len(passes.reader.read) == 52)
    passes.border.close()


def test_a_pass_of_one_window() -> None:
    passes = Passes(WINDOW)
    for epoch in range(4):
        assert list(run(passes, epoch, 1)) == []
    assert eventually(lambda: len(passes.reader.read) == 5)
    passes.border.close()


@pytest.mark.parametrize("other", [0, 2, 7])
def test_what_was_read_is_dropped_where_another_pass_begins(other: int) -> None:
    passes = Passes()
    run(passes, 0)
    assert eventually(lambda: len(passes.reader.read) == 12)
    wanted = passes.border.begin(other)
    assert wanted.epoch == other
    assert wanted is not passes.made[1]
    assert list(passes.made[1].windows()) == []
    wanted.close()
    passes.border.close()


def test_a_pass_given_up_reads_nothing_ahead() -> None:
    passes = Passes()
    rest = run(passes, 0, 5)
    assert eventually(lambda: len(passes.reader.read) == 7)
    passes.made[0].close()
    assert list(rest) == []
    time.sleep(0.05)
    assert len(passes.made) == 1
    passes.border.close()


def test_where_nobody_can_tell_nothing_is_read() -> None:
    passes = Passes()
    taken = passes.border.begin(0).windows()
    passes.coming = None
    assert len(list(taken)) == 10
    assert len(passes.made) == 1


def test_two_passes_at_once_read_one_ahead() -> None:
    passes = Passes()
    one, two = run(passes, 0, 9), run(passes, 1, 9)
    next(one), next(two)
    assert eventually(lambda: len(passes.reader.read) == 22)
    time.sleep(0.05)
    assert [made.epoch for made in passes.made] == [0, 1, 2]
    assert list(run(passes, 2)) == []
    passes.border.close()


def test_the_number_of_the_next_pass_was_changed_meanwhile() -> None:
    passes = Passes()
    run(passes, 0)
    passes.coming = 5
    passes.border.prefetch()
    assert [made.epoch for made in passes.made] == [0, 1, 5]
    assert list(passes.made[1].windows()) == []
    assert passes.border.begin(5) is passes.made[2]
    passes.made[2].close()
    passes.border.close()


def test_an_error_ahead_comes_in_the_pass_it_belongs_to() -> None:
    passes = Passes()
    rest = run(passes, 0, 9)
    assert eventually(lambda: 90 in passes.reader.read)
    passes.reader.fails = True
    assert next(rest) == list(range(90, 100))
    assert list(rest) == []
    with pytest.raises(OSError, match="no such luck"):
        next(passes.begin(1))
    # What failed is not read ahead of.
    assert len(passes.made) == 2
    passes.border.close()


def test_close_ends_what_is_read() -> None:
    passes = Passes()
    go_on = threading.Event()
    inner = passes.reader.jobs
    rest = run(passes, 0, 9)
    assert eventually(lambda: len(passes.reader.read) == 10)

    def slow(spans: Sequence[RowSpan], target: Target) -> list[Job]:
        def wait() -> None:
            go_on.wait(10)

        return [wait, *inner(spans, target)]

    passes.reader.jobs = slow  # type: ignore[method-assign]
    next(rest)
    # The threads of this pass are gone, so that all there are read the next.
    assert list(rest) == []
    assert eventually(lambda: len(our_threads()) > 0)
    go_on.set()
    passes.border.close()
    assert our_threads() == []
    passes.border.close()
    passes.border.prefetch()
    assert [made.epoch for made in passes.made] == [0, 1]


def test_with_the_border_goes_what_it_read() -> None:
    passes = Passes()
    run(passes, 0)
    assert eventually(lambda: len(passes.reader.read) == 12)
    prefetch_windows = passes.made[1]
    del passes.border
    gc.collect()
    assert list(prefetch_windows.windows()) == []


# -- a Loader


@pytest.fixture
def loader(tf: Any, tmp_path: Path) -> Iterator[ooc.Loader]:
    np.save(tmp_path / "x.npy", rows_array(1000))
    np.save(tmp_path / "y.npy", np.arange(1000))
    source = {"x": tmp_path / "x.npy", "y": tmp_path / "y.npy"}
    with ooc.Loader(source, "x", "y", shuffle=True, window=100, mmap=False) as loader:
        yield loader


def test_a_loader_reads_ahead(loader: ooc.Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [0]
    inner = FileReader.read

    def count(*args: Any) -> int:
        calls[0] += 1
        return inner(*args)

    monkeypatch.setattr(FileReader, "read", count)
    assert sorted(ids_of(loader)) == list(range(1000))
    of_one = loader.report().read_calls
    assert eventually(lambda: calls[0] > of_one)
    assert eventually(lambda: our_threads() == [])
    held = calls[0]
    # Keras makes iterators that it drops.
    for _ in range(5):
        iter(loader.dataset())
    assert sorted(ids_of(loader)) == list(range(1000))
    # What was read between the passes belongs to the second.
    of_two = loader.report().read_calls
    assert held - of_one < of_two
    assert eventually(lambda: our_threads() == [])
    assert 0 < calls[0] - of_one - of_two < of_two
    assert loader.epoch == 2


def test_the_order_is_that_of_the_pass(loader: ooc.Loader) -> None:
    orders = [ids_of(loader) for _ in range(3)]
    assert len({tuple(order) for order in orders}) == 3
    # What was read ahead is of pass 3.
    loader.epoch = 1
    assert [ids_of(loader) for _ in range(2)] == orders[1:]
    again = iter(loader.dataset(epochs=2))
    loader.epoch = 0
    assert ids_of(again) == orders[0] + orders[1]


def test_the_host_pipeline_reads_ahead_too(loader: ooc.Loader) -> None:
    orders = [ids_of(loader) for _ in range(2)]
    loader.epoch = 0
    kept = loader.dataset().map(lambda x, y: (x, y))
    assert [ids_of(kept) for _ in range(2)] == orders


def test_a_closed_loader_reads_nothing(loader: ooc.Loader) -> None:
    ids_of(loader)
    loader.close()
    assert our_threads() == []


def test_a_loader_that_goes_takes_along_what_it_read(tf: Any) -> None:
    arrays = {"x": rows_array(1000), "y": np.arange(1000)}
    for _ in range(3):
        ids_of(ooc.Loader(arrays, "x", "y", window=100))
    gc.collect()
    assert eventually(lambda: our_threads() == [])
