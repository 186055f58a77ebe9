from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oocloader as ooc
from numbered import numbers_of, rows_array
from oocloader import buffers
from oocloader.dataset.line import Intake, Line, Lines

ROWS, WINDOW, BATCH = 70, 20, 8


class Made:
    """Iterators that take from their intake, as TensorFlow's do: over after an error, or the end."""

    def __init__(self) -> None:
        self.count = 0
        self.alive: weakref.WeakSet[Any] = weakref.WeakSet()

    def iterate(self, intake: Intake) -> Iterator[Any]:
        self.count += 1
        found = _Through(intake)
        self.alive.add(found)
        return found


class _Through(Iterator[Any]):
    def __init__(self, intake: Intake) -> None:
        self.intake = intake

    def __next__(self) -> Any:
        return next(self.intake)


def test_a_line_serves_one_pass_after_another() -> None:
    made = Made()
    lines = Lines(made.iterate, again=True)
    for number in range(3):
        line = lines.start(iter([number, number + 10, number + 20]))
        assert [next(line), next(line)] == [number, number + 10]
        line.release()
    assert made.count == 1


def test_the_first_window_is_fetched_at_once() -> None:
    asked: list[int] = []

    def windows() -> Iterator[int]:
        for number in range(2):
            asked.append(number)
            yield number

    line = Lines(Made().iterate, again=True).start(windows())
    assert asked == [0]
    assert next(line) == 0
    assert asked == [0]
    assert next(line) == 1
    with pytest.raises(StopIteration):
        next(line)


def test_what_fetching_it_raised_comes_out_at_next() -> None:
    class Windows(Iterator[Any]):
        def __next__(self) -> Any:
            raise OSError("no")

    line = Lines(Made().iterate, again=True).start(Windows())
    with pytest.raises(OSError, match="no"):
        next(line)


def test_passes_at_the_same_time_have_lines_of_their_own() -> None:
    made = Made()
    lines = Lines(made.iterate, again=True)
    first, second = lines.start(iter("ab")), lines.start(iter("cd"))
    assert [next(first), next(second), next(first), next(second)] == ["a", "c", "b", "d"]
    first.release()
    second.release()
    del first, second
    # One is kept.
    assert len(made.alive) == 1
    third, fourth = lines.start(iter("e")), lines.start(iter("f"))
    assert (made.count, next(third), next(fourth)) == (3, "e", "f")


def test_a_released_line_holds_nothing_of_its_pass() -> None:
    lines = Lines(Made().iterate, again=True)

    class Windows(Iterator[Any]):
        def __next__(self) -> int:
            return 0

    windows = Windows()
    seen = weakref.ref(windows)
    line = lines.start(windows)
    line.release()
    del windows
    assert seen() is None


def test_lines_that_are_not_used_again() -> None:
    made = Made()
    lines = Lines(made.iterate, again=False)
    for _ in range(2):
        line = lines.start(iter("ab"))
        line.release()
        del line
        assert len(made.alive) == 0
    assert made.count == 2


def test_close_lets_go_of_lines() -> None:
    made = Made()
    lines = Lines(made.iterate, again=True)
    line = lines.start(iter("ab"))
    line.release()
    del line
    assert len(made.alive) == 1
    lines.close()
    assert len(made.alive) == 0


def test_a_line_outlives_its_lines() -> None:
    made = Made()
    line = Lines(made.iterate, again=True).start(iter("ab"))
    assert next(line) == "a"
    line.release()
    del line
    assert len(made.alive) == 0


# -- with TensorFlow


@pytest.fixture
def loader(tmp_path: Path) -> Iterator[ooc.Loader]:
    np.save(tmp_path / "x.npy", rows_array(ROWS, "int32"))
    with ooc.Loader(tmp_path / "x.npy", batch_size=BATCH, window=WINDOW, device="/CPU:0") as found:
        yield found


@pytest.fixture
def iterators(loader: ooc.Loader, monkeypatch: pytest.MonkeyPatch) -> list[Line]:
    """The lines that are made."""
    found: list[Line] = []
    init = Line.__init__

    def noting(self: Line, *args: Any) -> None:
        init(self, *args)
        found.append(self)

    monkeypatch.setattr(Line, "__init__", noting)
    return found


def test_passes_share_an_iterator(loader: ooc.Loader, iterators: list[Line]) -> None:
    for _ in range(3):
        assert [n for batch in loader for n in numbers_of(batch)] == list(range(ROWS))
    assert len(iterators) == 1


def test_after_a_pass_that_was_given_up(loader: ooc.Loader, iterators: list[Line]) -> None:
    for batches in (1, 3, 5):
        given_up = iter(loader)
        got = [n for _ in range(batches) for n in numbers_of(next(given_up))]
        assert got == list(range(batches * BATCH))
        del given_up
        assert [n for batch in loader for n in numbers_of(batch)] == list(range(ROWS))


def test_passes_in_turn(loader: ooc.Loader) -> None:
    both = [(numbers_of(a), numbers_of(b)) for a, b in zip(loader, loader, strict=True)]
    assert [n for a, _ in both for n in a] == list(range(ROWS))
    assert [n for _, b in both for n in b] == list(range(ROWS))
    assert [n for batch in loader for n in numbers_of(batch)] == list(range(ROWS))


def test_passes_in_threads(loader: ooc.Loader) -> None:
    found: list[list[int]] = []

    def work() -> None:
        for _ in range(5):
            got = [n for batch in loader for n in numbers_of(batch)]
            found.append(got)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [list(range(ROWS))] * 15


def test_buffers_do_not_stay_in_an_iterator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allocated: list[int] = []
    allocate = buffers.allocate

    def allocating(nbytes: int) -> np.ndarray:
        allocated.append(nbytes)
        return allocate(nbytes)

    monkeypatch.setattr(buffers, "allocate", allocating)
    np.save(tmp_path / "x.npy", rows_array(ROWS, "int32"))
    with ooc.Loader(tmp_path / "x.npy", batch_size=BATCH, window=WINDOW, mmap=False) as loader:
        for _ in range(10):
            assert [n for batch in loader for n in numbers_of(batch)] == list(range(ROWS))
        # Those that may be on their way, also across the border of two passes.
        assert 0 < len(allocated) <= loader._feed.ahead + 3
