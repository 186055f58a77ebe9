"""Where the passes of a Loader begin, and how far the last one came."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import oocloader as ooc
from numbered import Numbered
from oocloader.errors import StateError
from oocloader.loader.positions import Positions
from oocloader.order import Position
from resumed import loader_of

ROWS = 500


@pytest.mark.usefixtures("tf")
def test_deliveries_of_a_pipeline_cannot_be_counted(make_store: Callable[..., Numbered]) -> None:
    with loader_of(make_store("memory", ROWS).source) as loader:
        derived = loader.dataset().map(lambda x, y: (x, y))
        state = loader.state_dict()
        next(iter(derived))
        with pytest.raises(ooc.StateError, match=r"BackupAndRestore"):
            loader.state_dict()
        assert loader.state_at(1, 2)["batches"] == 2
        # The next pass is another matter, and so is a state that is loaded.
        next(iter(loader))
        assert loader.state_dict() == {**state, "epoch": 1, "batches": 1}
        next(iter(derived))
        loader.load_state_dict(state)
        assert loader.state_dict() == state


def progress_of(at: Positions) -> tuple[Position, Position]:
    return at.coming(), at.delivered()


def test_a_pass_takes_its_number_once() -> None:
    positions = Positions()
    assert progress_of(positions) == (Position(0), Position(0))
    assert positions.take() == Position(0)
    # Before its first batch it is where it began.
    assert progress_of(positions) == (Position(1), Position(0))
    positions.progress.delivered = (0, 3, ())
    assert positions.delivered() == Position(0, 3)
    assert positions.take() == Position(1)
    assert progress_of(positions) == (Position(2), Position(1))


@pytest.mark.parametrize(
    "at", [Position(4), Position(4, 7), Position(4, 0, ((3, 5),)), Position(4, 2, ((3, 5),))]
)
def test_going_to_a_position(at: Position) -> None:
    positions = Positions()
    positions.take()
    positions.progress.unseen = True
    positions.go_to(at, resumed=True)
    assert progress_of(positions) == (at, at)
    assert [positions.history(epoch) for epoch in (3, 4, 5)] == [(), at.history, ()]
    assert positions.take() == at
    # The pass behind it is a whole one.
    assert positions.coming() == Position(5)
    positions.go_to(Position(1))
    assert progress_of(positions) == (Position(1), Position(1))
    assert positions.history(4) == ()


def test_threads_take_every_number_once() -> None:
    positions = Positions()
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: positions.take().epoch, range(400)))
    assert sorted(taken) == list(range(400))


def test_what_cannot_be_seen_is_not_guessed() -> None:
    positions = Positions()
    positions.take()
    positions.progress.unseen = True
    with pytest.raises(StateError, match="state_at"):
        positions.delivered()
