"""A Loader that is stopped and goes on: the same batches to the bit, or a line that says why not."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oocloader as ooc
from numbered import Numbered, rows_array
from recorded import finished, ids_of, recorder, started
from resumed import batches_of, loader_of

pytestmark = pytest.mark.usefixtures("tf")

ROWS = 500
OPTIONS: dict[str, Any] = {"batch_size": 32, "seed": 7, "window": 120, "block": 8}


def through_json(state: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(state)
    assert len(text) < 1000
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize("drop_remainder", [False, True])
@pytest.mark.parametrize("shuffle", [False, "window", "global"])
@pytest.mark.parametrize("kind", ["npy", "h5"])
def test_going_on_at_every_batch(
    make_store: Callable[..., Numbered], kind: Any, shuffle: Any, drop_remainder: bool
) -> None:
    store = make_store(kind, ROWS)
    options = {"shuffle": shuffle, "drop_remainder": drop_remainder}
    if shuffle == "global":
        options["block"] = None
    with loader_of(store.source, **options) as loader:
        whole = [batches_of(loader) for _ in range(3)]
    count = ROWS // 32 + (not drop_remainder)
    assert [len(epoch) for epoch in whole] == [count] * 3
    with loader_of(store.source, **options) as stopped:
        stopped.epoch = 1
        batches = iter(stopped.dataset(epochs=1))
        for done in range(1, count + 1):
            next(batches)
            state = through_json(stopped.state_dict())
            assert state == stopped.state_at(1, done)
            # Read by another number of threads, and never mapped.
            other = {"threads": 1 + done % 3, **({"mmap": False} if done % 2 else {})}
            with loader_of(store.source, **options, **other) as loader:
                loader.load_state_dict(state)
                assert loader.state_dict() == state
                assert len(loader) == len(loader.dataset()) == count
                if done < count:
                    assert loader.epoch == 1
                    assert batches_of(loader) == whole[1][done:]
                assert loader.epoch == 2
                if done in (1, count - 1, count):
                    assert batches_of(loader.dataset()) == whole[2]


@pytest.mark.parametrize("device", ["/CPU:0", "/CPU:1"])
@pytest.mark.parametrize("through", ["for", "dataset", "pipeline"])
def test_elsewhere(make_store: Callable[..., Numbered], device: str, through: str) -> None:
    store = make_store("zarr", ROWS)
    with loader_of(store.source, shuffle=True) as loader:
        whole = [batches_of(loader) for _ in range(2)]
        loader.epoch = 0
        list(itertools.islice(loader, 5))
        state = through_json(loader.state_dict())
    with loader_of(store.source, shuffle=True, device=device) as loader:
        loader.load_state_dict(state)
        dataset = loader.dataset()
        elements = {"for": loader, "dataset": dataset, "pipeline": dataset.map(lambda x, y: (x, y))}
        assert batches_of(elements[through]) == whole[0][5:]
        if through == "pipeline":
            dataset = loader.dataset()
            assert batches_of(dataset.map(lambda x, y: (x, y))) == whole[1]
        else:
            assert batches_of(elements[through]) == whole[1]


def test_the_pass_that_delivered_last(make_store: Callable[..., Numbered]) -> None:
    with loader_of(make_store("memory", ROWS).source, shuffle=True) as loader:
        one, other = iter(loader), iter(loader)
        for batches, epoch, done in ((one, 0, 1), (other, 1, 1), (other, 1, 2), (one, 0, 2)):
            next(batches)
            state = loader.state_dict()
            assert (state["epoch"], state["batches"]) == (epoch, done)


def test_an_iterator_over_many_passes(make_store: Callable[..., Numbered]) -> None:
    store = make_store("memory", ROWS)
    with loader_of(store.source, shuffle=True) as loader:
        whole = [batch for _ in range(4) for batch in batches_of(loader)]
        loader.epoch = 0
        batches = iter(loader.dataset(epochs=None))
        for _ in range(25):
            next(batches)
        state = loader.state_dict()
        assert (state["epoch"], state["batches"]) == (1, 9)
        loader.load_state_dict(state)
        assert batches_of(itertools.islice(loader.dataset(epochs=None), 39)) == whole[25:]


def test_another_process_goes_on(make_store: Callable[..., Numbered]) -> None:
    store = make_store("zarr", ROWS)
    options = {**OPTIONS, "shuffle": True}
    with loader_of(store.source, shuffle=True) as loader:
        whole = ids_of(loader)
        loader.epoch = 0
        list(itertools.islice(loader, 7))
        state = loader.state_dict()
    program = started(
        """
        import json
        options, state = json.loads(sys.argv[2])
        with ooc.Loader(sys.argv[1], "x", "y", **options) as loader:
            loader.load_state_dict(state)
            print(ids_of(loader))
        """,
        store.source,
        json.dumps([options, state]),
    )
    code, out, err = finished(program)
    assert (code, err) == (0, "")
    assert out.strip() == str(whole[7 * 32 :])


def test_777_rows_of_a_public_bug_report(tmp_path: Any) -> None:
    """State after 7 batches of a shuffled pass: what is left is what was not seen, in the same order."""
    path = str(tmp_path / "resume.zarr")
    zarr.create_array(path, shape=(777, 1), chunks=(50, 1), dtype="i4")[:] = np.arange(777)[:, None]

    def rows(batches: Any) -> list[int]:
        return [int(row) for batch in batches for row in batch.numpy()[:, 0]]

    with ooc.Loader(path, shuffle=True) as loader:
        whole = rows(loader)
        loader.epoch = 0
        seen = rows(itertools.islice(loader, 7))
        state = loader.state_dict()
    with ooc.Loader(path, shuffle=True) as loader:
        loader.load_state_dict(state)
        left = rows(loader)
    assert seen + left == whole
    assert sorted(whole) == list(range(777))


# -- another number of shards


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(
    shuffle=st.sampled_from([False, "window", "global"]),
    counts=st.lists(st.integers(1, 4), min_size=2, max_size=3),
    batch_size=st.integers(5, 40),
    data=st.data(),
)
def test_every_row_once_with_other_numbers_of_shards(
    any_rows: Numbered, shuffle: Any, counts: list[int], batch_size: int, data: st.DataObject
) -> None:
    """Each time some batches are taken, and states go through JSON to the next number of loaders."""
    block = None if shuffle == "global" else 8
    options = {"shuffle": shuffle, "batch_size": batch_size, "block": block}
    seen: list[int] = []
    state: dict[str, Any] | None = None
    for turn, count in enumerate(counts):
        loaders = [loader_of(any_rows.source, shard=(index, count), **options) for index in range(count)]
        states = []
        most = None if turn == len(counts) - 1 else data.draw(st.integers(1, 3))
        delivered = set()
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(state)
                loader.load_state_dict(through_json(loader.state_dict()))
            found = list(itertools.islice(loader, most))
            delivered.add(len(found))
            seen += ids_of(found)
            states.append(through_json(loader.state_dict()))
            loader.close()
        assert len(delivered) == 1
        assert all(other == states[0] for other in states)
        state = states[0]
        if state["epoch"] == 1:
            break  # the pass is over: the next batches would be those of another
    assert sorted(seen) == list(range(ROWS))
    assert state is not None
    assert (state["epoch"], state["batches"], state["history"]) == (1, 0, [])


@pytest.fixture(scope="module")
def any_rows() -> Numbered:
    return Numbered({"x": rows_array(ROWS), "y": np.arange(ROWS)}, rows_array(ROWS), np.arange(ROWS))


def test_counted_from_the_restart(any_rows: Numbered) -> None:
    with loader_of(any_rows.source, shard=(0, 2), shuffle=True) as loader:
        list(itertools.islice(loader, 3))
        state = loader.state_dict()
    with loader_of(any_rows.source, shuffle=True) as loader:
        loader.load_state_dict(state)
        batches = iter(loader)
        next(batches)
        next(batches)
        assert loader.state_dict()["history"] == [[2, 3]]
        assert loader.state_at(0, 2) == loader.state_dict()
        assert loader.state_at(1, 2)["history"] == []
        # 500 - 2 * 3 * 32 rows are left.
        assert len(list(batches)) == 308 // 32 + 1 - 2
        with pytest.raises(ooc.SettingError, match="batches=11: pass 0 has 10 batches"):
            loader.state_at(0, 11)


def test_fewer_rows_left_than_shards(any_rows: Numbered) -> None:
    with loader_of(any_rows.source, batch_size=498) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with loader_of(any_rows.source, batch_size=498, shard=(0, 4)) as loader:
        with pytest.raises(ooc.SettingError, match="2 rows are too few for 4 shards"):
            loader.load_state_dict(state)
        assert loader.state_dict() == loader.state_at(0, 0)


def test_a_pipeline_of_before_ends_early(make_store: Callable[..., Numbered]) -> None:
    """Its number of batches was announced before the position was known."""
    with loader_of(make_store("memory", ROWS).source) as loader:
        derived = loader.dataset().map(lambda x, y: (x, y))
        assert int(derived.cardinality()) == 16
        loader.load_state_dict(loader.state_at(0, 14))
        assert [ids_of([batch])[0] for batch in derived] == [448, 480]
        assert len(list(derived)) == 16
        loader.load_state_dict(loader.state_at(0, 14))
        assert len(list(loader.dataset().map(lambda x, y: (x, y)))) == 2


# -- Keras


def test_fit_goes_on_in_the_middle(make_store: Callable[..., Numbered]) -> None:
    """The first epoch is short; Keras says that it ran out of data unless told to stop there."""
    store = make_store("h5", 330)
    with loader_of(store.source, shuffle=True) as loader:
        whole = [ids_of(loader) for _ in range(3)]
        state = loader.state_at(0, 4)
    model = recorder()
    with loader_of(store.source, shuffle=True, device="/CPU:1") as loader:
        loader.load_state_dict(state)
        with pytest.warns(UserWarning, match="ran out of data"):
            model.fit(loader.dataset(), epochs=3, verbose=0)
        assert loader.epoch == 3
    assert model.trained == whole[0][4 * 32 :] + whole[1] + whole[2]


@pytest.mark.parametrize("compiled", [{"steps_per_execution": 4}, {"run_eagerly": True}], ids=str)
def test_fit_goes_on_in_other_ways(make_store: Callable[..., Numbered], compiled: dict[str, Any]) -> None:
    store = make_store("h5", 330)
    with loader_of(store.source, shuffle=True) as loader:
        whole = [ids_of(loader) for _ in range(2)]
        state = loader.state_at(0, 4)
    model = recorder(**compiled)
    with loader_of(store.source, shuffle=True) as loader:
        loader.load_state_dict(state)
        with pytest.warns(UserWarning, match="ran out of data"):
            model.fit(loader.dataset(), epochs=2, verbose=0)
    assert model.trained == whole[0][4 * 32 :] + whole[1]


def test_fit_with_class_weight_goes_on(make_store: Callable[..., Numbered]) -> None:
    """Through a pipeline that is derived after the state was loaded."""
    store = make_store("h5", 330)
    with loader_of(store.source, shuffle=True) as loader:
        whole = [ids_of(loader) for _ in range(1)]
        state = loader.state_at(0, 4)
    model = recorder()
    with loader_of(store.source, shuffle=True) as loader:
        loader.load_state_dict(state)
        model.fit(loader.dataset(), verbose=0, class_weight=dict.fromkeys(range(330), 1.0), steps_per_epoch=7)
    assert model.trained == whole[0][4 * 32 :]


def test_states_while_batches_are_taken(any_rows: Numbered) -> None:
    """From another thread, as a watchdog does it: always a whole one."""
    with loader_of(any_rows.source, shuffle=True) as loader:
        states: list[dict[str, Any]] = []
        stop = threading.Event()

        def watch() -> None:
            while not stop.is_set():
                states.append(loader.state_dict())

        watcher = threading.Thread(target=watch)
        watcher.start()
        for _ in range(5):
            for _ in loader:
                pass
        stop.set()
        watcher.join()
    places = [(state["epoch"], state["batches"]) for state in states]
    assert places == sorted(places)
    assert all(batches < 16 for _, batches in places)
