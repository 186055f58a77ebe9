"""Decoded rows held for later passes: the same batches, read once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oocloader as ooc
from caches import batches_of, place, work
from numbered import Numbered
from recorded import eventually, ids_of, our_threads, storage_bytes

pytestmark = pytest.mark.usefixtures("tf")


ROWS = 1000


KEEPS = ("memory", "folder")


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert eventually(lambda: not our_threads())


OPTIONS: list[dict[str, Any]] = [
    {},
    {"shuffle": True},
    {"shuffle": True, "mmap": False},
    {"shuffle": True, "batch_size": 7, "drop_remainder": True},
    {"batch_size": 64, "drop_remainder": True},
    {"shuffle": True, "batch_size": 300, "window": 64, "block": 5, "threads": 4},
    {"rows": slice(100, 777), "shuffle": True},
    {"rows": np.arange(0, ROWS, 3), "batch_size": 50},
    {"rows": np.r_[np.arange(5, 300), np.arange(500, 999, 2)], "shuffle": True, "window": 100},
]


@pytest.mark.parametrize("options", OPTIONS, ids=[str(number) for number in range(len(OPTIONS))])
@pytest.mark.parametrize("kept", KEEPS)
@pytest.mark.parametrize("kind", ["npy", "h5", "zarr"])
def test_the_same_batches_with_and_without(
    make_store: Callable[..., Numbered], tmp_path: Path, kind: Any, kept: str, options: dict[str, Any]
) -> None:
    store = make_store(kind)
    merged = {"seed": 7, "window": 200, "block": 10, "batch_size": 90, **options}
    with ooc.Loader(store.source, "x", "y", **merged) as loader:
        expected = [batches_of(loader) for _ in range(4)]
    with ooc.Loader(store.source, "x", "y", cache=place(kept, tmp_path), **merged) as loader:
        assert [batches_of(loader) for _ in range(2)] == expected[:2]
        assert batches_of(loader.dataset().map(lambda x, y: (x, y))) == expected[2]
        assert batches_of(loader) == expected[3]
    if kept == "folder":
        # The next run begins with what is there.
        with ooc.Loader(store.source, "x", "y", cache=place(kept, tmp_path), **merged) as loader:
            assert [batches_of(loader) for _ in range(4)] == expected


@pytest.mark.parametrize("kept", KEEPS)
@pytest.mark.parametrize("shuffle", [False, True])
def test_the_second_pass_reads_nothing(
    make_store: Callable[..., Numbered], tmp_path: Path, kept: str, shuffle: bool
) -> None:
    rows = 4000
    store = make_store("zarr", rows)
    options: dict[str, Any] = {"shuffle": shuffle, "batch_size": 100, "cache": place(kept, tmp_path)}
    with ooc.Loader(store.source, "x", "y", **options) as loader:
        assert sorted(ids_of(loader)) == list(range(rows))
        chunks = -(-rows // 64) + rows // 100
        assert work(loader)[1] == chunks
        for _ in range(2):
            before = storage_bytes()
            assert sorted(ids_of(loader)) == list(range(rows))
            assert work(loader) == (0, 0, 0)
            # What is kept in a file is mapped.
            assert storage_bytes() - before < 5000
    with ooc.Loader(store.source, "x", "y", **options) as loader:
        assert sorted(ids_of(loader)) == list(range(rows))
        assert (work(loader)[1] == 0) is (kept == "folder")


@pytest.mark.parametrize("kept", KEEPS)
def test_what_passes_leave_out_is_fetched(
    make_store: Callable[..., Numbered], tmp_path: Path, kept: str
) -> None:
    """Rows behind the last whole batch are never delivered in stored order; others must not wait for them."""
    store = make_store("npy")
    with ooc.Loader(
        store.source, "x", "y", batch_size=300, drop_remainder=True, cache=place(kept, tmp_path), mmap=False
    ) as loader:
        read = []
        for _ in range(3):
            assert ids_of(loader) == list(range(900))
            assert loader.counters is not None
            read.append(loader.counters.read_bytes)
    # In a file that may not be mapped, rows are read from that.
    again = 900 * 24 if kept == "folder" else 0
    assert read == [900 * 24, 1000 * 24, again]


@pytest.mark.parametrize("kept", KEEPS)
def test_passes_that_were_given_up_and_side_by_side(
    make_store: Callable[..., Numbered], tmp_path: Path, kept: str
) -> None:
    store = make_store("h5", 5000)
    options: dict[str, Any] = {"shuffle": True, "window": 100, "block": 10, "batch_size": 50}
    with ooc.Loader(store.source, "x", "y", cache=place(kept, tmp_path), **options) as loader:
        for _ in range(3):
            batches = iter(loader)
            for _ in range(20):
                next(batches)
        del batches
        first, second = iter(loader), iter(loader)
        pairs = [(ids_of([next(first)]), ids_of([next(second)])) for _ in range(len(loader))]
        for side in zip(*pairs, strict=True):
            assert sorted(number for batch in side for number in batch) == list(range(5000))
        assert sorted(ids_of(loader)) == list(range(5000))
        assert work(loader) == (0, 0, 0)


@pytest.mark.parametrize("rows", [None, np.r_[np.arange(5, 300), np.arange(500, 999, 2)]])
@pytest.mark.parametrize("kind", KEEPS)
def test_a_shard_of_rows_in_order_keeps_its_own(
    make_store: Callable[..., Numbered], tmp_path: Path, kind: str, rows: Any
) -> None:
    """And reads those of others where it goes on with a pass that fewer shards began."""
    store = make_store("zarr", ROWS)
    members = np.arange(ROWS) if rows is None else rows
    options: dict[str, Any] = {"rows": rows, "batch_size": 16}
    with ooc.Loader(store.source, "x", "y", shard=(0, 2), **options) as former:
        batches = iter(former)
        done = [ids_of([next(batches)]) for _ in range(3)]
        state = former.state_dict()
    with ooc.Loader(store.source, "x", "y", shard=(1, 2), **options) as former:
        batches = iter(former)
        done += [ids_of([next(batches)]) for _ in range(3)]
    seen = [number for batch in done for number in batch]
    for index in range(3):
        with ooc.Loader(
            store.source, "x", "y", shard=(index, 3), cache=place(kind, tmp_path), **options
        ) as loader:
            own = members[index * len(members) // 3 : (index + 1) * len(members) // 3].tolist()
            assert ids_of(loader) == own
            assert work(loader)[1] > 0
            assert ids_of(loader) == own
            assert work(loader)[1] == 0
            loader.load_state_dict(state)
            seen += ids_of(loader)
            assert ids_of(loader) == own
            assert work(loader)[1] == 0
    assert sorted(seen) == members.tolist()


@pytest.mark.parametrize("device", ["/CPU:0", "/CPU:1"])
def test_a_folder_feeds_a_device_that_keeps_all(
    make_store: Callable[..., Numbered], tmp_path: Path, device: str
) -> None:
    store = make_store("zarr")
    options: dict[str, Any] = {"cache": str(tmp_path / "cache"), "residency": "device", "device": device}
    for run in range(2):
        with ooc.Loader(store.source, "x", "y", shuffle=True, **options) as loader:
            assert sorted(ids_of(loader)) == list(range(ROWS))
            assert (work(loader)[1] == 0) is (run == 1)


def test_closed_while_rows_are_being_kept(make_store: Callable[..., Numbered], tmp_path: Path) -> None:
    for kept in KEEPS:
        loader = ooc.Loader(make_store("h5", 5000).source, "x", cache=place(kept, tmp_path), window=64)
        batches = iter(loader)
        next(batches)
        closing = threading.Thread(target=loader.close)
        closing.start()
        closing.join(10)
        assert not closing.is_alive()
        with pytest.raises(ooc.ClosedError):
            list(batches)
