"""States of a Loader: where its passes are; a Loader of the same data and settings goes on from there."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import oocloader as ooc
from numbered import Numbered
from recorded import ids_of
from resumed import batches_of, loader_of

pytestmark = pytest.mark.usefixtures("tf")


ROWS = 500


def test_before_the_first_pass_it_is_where_the_next_starts(make_store: Callable[..., Numbered]) -> None:
    with loader_of(make_store("memory", ROWS).source, shuffle=True) as loader:
        state = loader.state_dict()
        assert (state["epoch"], state["batches"]) == (0, 0)
        loader.epoch = 4
        assert loader.state_dict() == {**state, "epoch": 4} == loader.state_at(4, 0)
        batches = iter(loader)
        # What is read ahead, or only asked for, is not delivered.
        assert loader.state_dict() == {**state, "epoch": 4}
        next(batches)
        assert loader.state_dict() == {**state, "epoch": 4, "batches": 1}
        del batches
        # A pass that is given up is over: this one is the next.
        next(iter(loader))
        assert loader.state_dict() == {**state, "epoch": 5, "batches": 1}
        loader.epoch = 2
        assert loader.state_dict() == {**state, "epoch": 2}


def test_a_whole_pass_is_the_begin_of_the_next(make_store: Callable[..., Numbered]) -> None:
    with loader_of(make_store("memory", ROWS).source) as loader:
        for _ in loader:
            pass
        assert loader.state_dict() == loader.state_at(1, 0) == loader.state_at(0, len(loader))


def test_block_and_window_are_those_of_the_state(make_store: Callable[..., Numbered]) -> None:
    """Another budget chooses others for itself."""
    store = make_store("zarr", 2000, y_chunk_rows=64, sample_shape=(16, 16))
    free = {"block": None, "window": None, "shuffle": True}
    with loader_of(store.source, **free, host_memory="64MiB") as loader:
        whole = [batches_of(loader) for _ in range(2)]
        loader.epoch = 0
        list(itertools.islice(loader, 5))
        state = loader.state_dict()
    with loader_of(store.source, **free, host_memory="1.5MiB", threads=1) as loader:
        assert loader.sizes.window != state["window"]
        # Also where TensorFlow has been told of the loader.
        dataset = loader.dataset()
        loader.load_state_dict(state)
        assert (loader.sizes.block, loader.sizes.window) == (state["block"], state["window"])
        assert loader.sizes.host_nbytes <= 1.5 * 2**20
        assert batches_of(dataset) == whole[0][5:]
        assert batches_of(dataset) == whole[1]
        assert loader.state_dict()["window"] == state["window"]


def test_a_window_that_does_not_fit_names_what_would(make_store: Callable[..., Numbered]) -> None:
    store = make_store("zarr", 2000, y_chunk_rows=64, sample_shape=(16, 16))
    free = {"block": None, "window": None, "shuffle": True}
    with loader_of(store.source, **free, host_memory="64MiB") as loader:
        next(iter(loader))
        state = loader.state_dict()
    with loader_of(store.source, **free, host_memory="640KiB", threads=1) as loader:
        before = loader.sizes
        with pytest.raises(ooc.SettingError) as caught:
            loader.load_state_dict(state)
        said = str(caught.value)
        assert f"window={state['window']} and block={state['block']}" in said
        assert "a smaller window" not in said
        assert loader.sizes == before
        needed = int(said.partition("at least host_memory=")[2])
        ids_of(loader)
    with loader_of(store.source, **free, host_memory=needed, threads=1) as loader:
        loader.load_state_dict(state)
        assert loader.sizes.window == state["window"]
        assert loader.sizes.host_nbytes <= needed


def test_a_window_that_was_given_is_not_replaced(make_store: Callable[..., Numbered]) -> None:
    store = make_store("zarr", ROWS)
    with loader_of(store.source, shuffle=True) as loader:
        next(iter(loader))
        state = loader.state_dict()
    told = "window=120, this loader has window=100"
    with (
        loader_of(store.source, shuffle=True, window=100) as loader,
        pytest.raises(ooc.SettingError, match=told),
    ):
        loader.load_state_dict(state)
    with loader_of(store.source, shuffle=True, window=None, block=None) as loader:
        loader.load_state_dict(state)
        assert (loader.sizes.block, loader.sizes.window) == (8, 120)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"seed": 8}, "seed=7, this loader has seed=8"),
        ({"shuffle": False}, "shuffle='window', this loader has shuffle=False"),
        ({"batch_size": 16}, "batch_size=32, this loader has batch_size=16"),
        ({"drop_remainder": True}, "drop_remainder=False, this loader has drop_remainder=True"),
        ({"rows": slice(0, 400)}, "rows 0:500, this loader has rows 0:400"),
        ({"block": 10}, "block=8, this loader has block=10"),
    ],
    ids=str,
)
def test_other_settings_are_refused(
    make_store: Callable[..., Numbered], options: dict[str, Any], told: str
) -> None:
    store = make_store("memory", ROWS)
    with loader_of(store.source, shuffle=True) as loader:
        state = loader.state_at(0, 3)
    with loader_of(store.source, **{"shuffle": True, **options}) as loader:
        with pytest.raises(ValueError, match=told) as caught:
            loader.load_state_dict(state)
        assert isinstance(caught.value, ooc.OocloaderError)
        # It goes on as if nothing had happened.
        assert loader.state_dict()["batches"] == 0
        assert len(batches_of(loader)) == len(loader)


def test_another_store_is_refused_and_a_copy_is_not(make_store: Callable[..., Numbered]) -> None:
    with loader_of(make_store("h5", ROWS).source) as loader:
        state = loader.state_at(0, 3)
    other = loader_of(make_store("h5", ROWS, dtype="int16").source)
    with other as loader, pytest.raises(ooc.DataError, match=r"x uint8 500x4x4, .* x int16 500x4x4"):
        loader.load_state_dict(state)
    with loader_of(make_store("zarr", ROWS).source) as loader:
        loader.load_state_dict(state)
        assert loader.epoch == 0


@pytest.mark.parametrize("state", [None, {}, {"epoch": 0}, "state"])
def test_no_state(make_store: Callable[..., Numbered], state: Any) -> None:
    store = make_store("memory", ROWS)
    with loader_of(store.source) as loader, pytest.raises(ooc.SettingError, match="state"):
        loader.load_state_dict(state)


def test_more_batches_than_there_are(make_store: Callable[..., Numbered]) -> None:
    with loader_of(make_store("memory", ROWS).source) as loader:
        state = loader.state_at(0, 3)
        with pytest.raises(ooc.SettingError, match="batches=17: pass 0 has 16 batches"):
            loader.load_state_dict({**state, "batches": 17})
        for epoch, batches, told in (
            (0, 17, "batches=17: pass 0 has 16"),
            (-1, 0, "epoch"),
            (0, 1.5, "batches"),
        ):
            with pytest.raises(ooc.SettingError, match=told):
                loader.state_at(epoch, batches)  # type: ignore[arg-type]  # that is refused
