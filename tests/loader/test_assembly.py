"""What a Loader is made of: decided by its budgets, closed with it, gone with it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import oocloader as ooc
from left_over import leaving_nothing, open_files
from numbered import Numbered, numbers_of
from recorded import ids_of, our_threads

pytestmark = pytest.mark.usefixtures("tf")


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    with leaving_nothing():
        yield


ROWS = 1000


def test_a_budget_that_is_named_works(make_store: Callable[..., Numbered]) -> None:
    store = make_store("h5")
    for option in ("host_memory", "device_memory"):
        small: dict[str, Any] = {option: 100}
        with pytest.raises(ooc.SettingError, match=f"at least {option}=[0-9]+") as caught:
            ooc.Loader(store.source, "x", "y", **small)
        needed = int(str(caught.value).partition(f"at least {option}=")[2].partition(",")[0])
        named: dict[str, Any] = {option: needed}
        with ooc.Loader(store.source, "x", "y", **named) as loader:
            assert ids_of(loader) == list(range(ROWS))


def test_closed(any_store: Numbered) -> None:
    with ooc.Loader(any_store.source, "x", "y", batch_size=10, window=10) as loader:
        ds = loader.dataset()
        batches, unused = iter(ds), iter(loader)
        next(batches)
    loader.close()
    for use in (
        lambda: next(batches),
        lambda: next(unused),
        lambda: iter(ds),
        lambda: iter(loader),
        loader.dataset,
        lambda: loader.element_spec,
    ):
        with pytest.raises(ooc.ClosedError):
            use()
    assert our_threads() == []
    assert open_files() == []
    assert len(loader) == len(ds) == 100


def test_an_open_store_is_left_open(any_store: Numbered) -> None:
    with ooc.open_store(any_store.source) as store:
        with ooc.Loader(store, "x", "y") as one, ooc.Loader(store, "x", "y", shuffle=True) as other:
            assert ids_of(one) == list(range(ROWS))
            assert sorted(ids_of(other)) == list(range(ROWS))
        with pytest.raises(ooc.SettingError, match="batch_size"):
            ooc.Loader(store, "x", batch_size=0)
        with pytest.raises(ooc.ArrayNotFoundError):
            ooc.Loader(store, "z")
        assert numbers_of(store["x"].read(10, 20)) == list(range(10, 20))
        loader = ooc.Loader(store, "x", "y", batch_size=10, window=10)
        batches = iter(loader)
        next(batches)
    # Whoever closes the store under a loader is told so.
    if not isinstance(any_store.source, dict) or isinstance(any_store.source["x"], str):
        with pytest.raises(ooc.ClosedError, match="closed"):
            ids_of([*loader, *loader])
    loader.close()


def test_nobody_has_to_keep_the_loader(make_store: Callable[..., Numbered]) -> None:
    source = make_store("h5").source
    seen = []
    for x, y in ooc.Loader(source, "x", "y", window=64):
        gc.collect()
        seen += ids_of([(x, y)])
    assert seen == list(range(ROWS))
    ds = ooc.Loader(source, "x", "y").dataset()
    gc.collect()
    assert ids_of(ds) == list(range(ROWS))
    batches = iter(ds)
    del ds
    gc.collect()
    assert ids_of(batches) == list(range(ROWS))


def test_a_loader_that_is_gone_leaves_nothing_open(make_store: Callable[..., Numbered]) -> None:
    source = make_store("h5").source
    loader = ooc.Loader(source, "x", "y")
    ids_of(loader)
    assert open_files() != []
    del loader
    gc.collect()
    assert open_files() == []
