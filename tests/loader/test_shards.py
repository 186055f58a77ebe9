"""Shards, splits and global order of a Loader: which rows come out, in how many batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import pytest
import zarr

import oocloader as ooc
from numbered import KINDS, Numbered
from recorded import ids_of, keras, recorder

pytestmark = pytest.mark.usefixtures("tf")

ROWS = 1000
EVERY = list(range(ROWS))


def lengths(elements: Any) -> list[int]:
    return [len(y) for _, y in elements]


# -- shards


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_row_in_one_shard(any_store: Numbered, shuffle: bool, count: int) -> None:
    loaders = [
        ooc.Loader(
            any_store.source, "x", "y", shard=(index, count), shuffle=shuffle, window=200, batch_size=16
        )
        for index in range(count)
    ]
    for _ in range(2):
        parts = [ids_of(loader) for loader in loaders]
        assert sorted(itertools.chain(*parts)) == EVERY
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert len({len(loader) for loader in loaders}) == 1
    for loader in loaders:
        assert len(lengths(loader)) == len(loader) == len(loader.dataset())
        loader.close()


@pytest.mark.parametrize("through", ["for", "dataset", "pipeline"])
@pytest.mark.parametrize(
    ("rows", "count", "batch_size", "expected"),
    [(7, 2, 3, [[2, 1], [3, 1]]), (129, 2, 32, [[32, 16, 16], [32, 32, 1]])],
)
def test_the_last_batch_of_a_shorter_shard_is_halved(
    make_store: Callable[..., Numbered],
    through: str,
    rows: int,
    count: int,
    batch_size: int,
    expected: list[list[int]],
) -> None:
    store = make_store("h5", rows)
    for index, sizes in enumerate(expected):
        for shuffle in (False, True):
            with ooc.Loader(
                store.source, "x", "y", shard=(index, count), batch_size=batch_size, shuffle=shuffle
            ) as loader:
                dataset = loader.dataset()
                elements = {"for": loader, "dataset": dataset, "pipeline": dataset.map(lambda x, y: (x, y))}
                found = lengths(elements[through])
                assert found == sizes
                assert len(loader) == len(sizes)


def test_full_batches_alone(make_store: Callable[..., Numbered]) -> None:
    store = make_store("zarr")
    left: list[frozenset[int]] = []
    loaders = [
        ooc.Loader(
            store.source,
            "x",
            "y",
            shard=(index, 3),
            drop_remainder=True,
            shuffle=True,
            window=100,
            batch_size=32,
        )
        for index in range(3)
    ]
    for _ in range(3):
        found = [lengths_and_ids(loader) for loader in loaders]
        assert all(sizes == [32] * 10 for sizes, _ in found)
        seen = [row for _, rows in found for row in rows]
        assert len(set(seen)) == 960
        left.append(frozenset(EVERY) - frozenset(seen))
    assert len(set(left)) == 3
    for loader in loaders:
        loader.close()


def lengths_and_ids(loader: ooc.Loader) -> tuple[list[int], list[int]]:
    batches = list(loader)
    return lengths(batches), ids_of(batches)


def test_unshuffled_shards_are_stretches(make_store: Callable[..., Numbered]) -> None:
    store = make_store("npy")
    for index, (lo, hi) in enumerate([(0, 333), (333, 666), (666, 1000)]):
        with ooc.Loader(store.source, "x", "y", shard=(index, 3)) as loader:
            assert ids_of(loader) == EVERY[lo:hi]


@pytest.mark.parametrize("shuffle", [False, True])
def test_shards_read_what_they_deliver(tmp_path: Path, shuffle: bool) -> None:
    """A shard of four decodes a quarter of the chunks; a block at a cut is read by both sides."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.arange(64 * 40), chunks=(64,), compression="gzip")
    decoded = []
    for index in range(4):
        with ooc.Loader(
            str(tmp_path / "a.h5"), shard=(index, 4), shuffle=shuffle, window=640, block=64, batch_size=50
        ) as loader:
            for _ in loader:
                pass
            assert loader.counters is not None
            decoded.append(loader.counters.chunks_decoded)
    assert all(10 <= chunks <= 12 for chunks in decoded)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"shard": (2, 2)}, "shard index=2 must be a whole number, from 0 to 1"),
        ({"shard": 2}, "shard=2 must be (index, count)"),
        ({"shard": (0, 1001)}, "1000 rows are too few for 1001 shards"),
        ({"shard": (0, 3), "batch_size": 1}, "batches of one"),
        ({"shard": (0, 1001), "drop_remainder": True}, "1000 rows are too few for 1001 shards"),
    ],
    ids=str,
)
def test_bad_shards(make_store: Callable[..., Numbered], options: dict[str, Any], told: str) -> None:
    store = make_store("memory")
    with pytest.raises(ooc.SettingError) as caught:
        ooc.Loader(store.source, "x", "y", **options)
    assert told in str(caught.value)


def test_fit_on_a_shard(make_store: Callable[..., Numbered]) -> None:
    store = make_store("h5", 129)
    model = recorder()
    with ooc.Loader(store.source, "x", "y", shard=(0, 2), shuffle=True) as loader:
        history = model.fit(loader.dataset(), epochs=2, verbose=0)
    assert len(history.history["loss"]) == 2
    assert len(model.trained) == 128
    assert keras() is not None


# -- splits


@pytest.mark.parametrize("by", ["row", "block"])
@pytest.mark.parametrize("fraction", [0.001, 0.2, 0.999])
def test_split(tmp_path: Path, fraction: float, by: Literal["row", "block"]) -> None:
    """Disjoint, all rows together, the same in every epoch though training is shuffled."""
    with h5py.File(tmp_path / "split.h5", "w") as file:
        file.create_dataset("x", data=np.arange(1000, dtype="f4")[:, None], chunks=(64, 1))
        file["y"] = np.arange(1000)
    with ooc.Loader(str(tmp_path / "split.h5"), "x", "y", shuffle=True, seed=4) as loader:
        train, val = loader.split(fraction, by=by)
        expected = None
        for _ in range(2):
            found = [[int(label) for _, y in part for label in y.numpy()] for part in (train, val)]
            assert sorted(found[0] + found[1]) == EVERY
            assert found[1] == sorted(found[1])
            assert found[0] != sorted(found[0]) or len(found[0]) < 3
            sets = tuple(map(frozenset, found))
            assert expected in (None, sets)
            expected = sets
        if by == "row":
            assert len(found[1]) == round(fraction * 1000)
        else:
            chunks = {row // 64 for row in found[1]}
            assert len(found[1]) == sum(min(64, 1000 - 64 * chunk) for chunk in chunks)


@pytest.mark.parametrize("by", ["row", "block"])
def test_neither_seed_nor_shard_nor_budget_decide_a_split(
    make_store: Callable[..., Numbered], by: Literal["row", "block"]
) -> None:
    store = make_store("h5")
    found = set()
    for options in (
        {},
        {"seed": 5, "shuffle": True},
        {"shuffle": "window", "window": 100, "block": 7, "batch_size": 3},
        {"host_memory": "2MiB", "threads": 1},
    ):
        with ooc.Loader(store.source, "x", "y", **options) as loader:
            found.add(tuple(ids_of(loader.split(0.2, by=by, seed=3)[1])))
    held = []
    for index in range(2):
        with ooc.Loader(store.source, "x", "y", shard=(index, 2)) as loader:
            held += ids_of(loader.split(0.2, by=by, seed=3)[1])
    found.add(tuple(held))
    assert len(found) == 1
    with ooc.Loader(store.source, "x", "y") as loader:
        assert tuple(ids_of(loader.split(0.2, by=by, seed=4)[1])) not in found


def test_a_split_of_a_split(make_store: Callable[..., Numbered]) -> None:
    store = make_store("zarr")
    with ooc.Loader(store.source, "x", "y", rows=slice(100, 900), shuffle=True) as loader:
        rest, test = loader.split(0.25)
        train, val = rest.split(0.5, seed=1)
        parts = [ids_of(part) for part in (train, val, test)]
    assert [len(part) for part in parts] == [300, 300, 200]
    assert sorted(itertools.chain(*parts)) == EVERY[100:900]


def test_parts_have_the_settings_of_the_whole(make_store: Callable[..., Numbered]) -> None:
    store = make_store("npy")
    with ooc.Loader(
        store.source, "x", "y", shuffle=True, block=5, window=50, batch_size=10, dtype="float32", scale=2.0
    ) as loader:
        train, val = loader.split(0.3)
        assert (train.sizes.block, train.sizes.window) == (5, 50)
        assert train.element_spec == val.element_spec == loader.element_spec
        assert len(val) == 30
        x, y = next(iter(val))
        assert np.array_equal(x.numpy(), store.x[y.numpy()] * np.float32(2))


@pytest.mark.parametrize("kind", KINDS)
def test_classes_keep_their_share(tmp_path: Path, kind: str) -> None:
    """Of ten rows of one class, fifty of another and 140 of a third a tenth each."""
    labels = np.repeat([7, -1, 3], [10, 50, 140])
    arrays = {"x": np.arange(200), "y": labels}
    source: Any = arrays
    if kind == "npy":
        for name, array in arrays.items():
            np.save(tmp_path / f"{name}.npy", array)
        source = {name: str(tmp_path / f"{name}.npy") for name in arrays}
    elif kind == "h5":
        source = str(tmp_path / "a.h5")
        with h5py.File(source, "w") as file:
            for name, array in arrays.items():
                file.create_dataset(name, data=array, chunks=(30,), compression="gzip")
    elif kind == "zarr":
        source = str(tmp_path / "a.zarr")
        group = zarr.open_group(source, mode="w")
        for name, array in arrays.items():
            group.create_array(name, data=array, chunks=(30,))
    with ooc.Loader(source, "x", "y", shuffle=True) as loader:
        train, val = loader.split(0.1, stratify="y")
        held = [int(row) for x, _ in val for row in x.numpy()]
        rest = [int(row) for x, _ in train for row in x.numpy()]
    assert sorted(held + rest) == list(range(200))
    assert np.bincount(labels[held] + 1).tolist() == [5, 0, 0, 0, 14, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"fraction": 0}, "split(0): the fraction held out must lie between 0 and 1"),
        ({"fraction": 1.0}, "split(1.0): the fraction held out must lie between 0 and 1"),
        ({"fraction": 0.0001}, "no row would be held out"),
        ({"fraction": 0.1, "by": "chunk"}, 'by=\'chunk\' must be "row" or "block"'),
        ({"fraction": 0.1, "seed": -1}, "seed=-1"),
        ({"fraction": 0.1, "stratify": "x"}, "stratify='x': classes are told by one whole number a row"),
        ({"fraction": 0.1, "by": "block", "stratify": "y"}, "stratify='y' holds out single rows"),
    ],
    ids=str,
)
def test_bad_splits(make_store: Callable[..., Numbered], arguments: dict[str, Any], told: str) -> None:
    store = make_store("h5")
    with ooc.Loader(store.source, "x", "y") as loader:
        with pytest.raises(ooc.SettingError) as caught:
            loader.split(**arguments)
        assert told in str(caught.value)
        with pytest.raises(ooc.ArrayNotFoundError):
            loader.split(0.1, stratify="z")
    with pytest.raises(ooc.ClosedError):
        loader.split(0.1)


# -- global order


@pytest.mark.parametrize("kind", ["npy", "memory", "h5"])
@pytest.mark.parametrize("options", [{}, {"mmap": False}, {"host_memory": "2MiB", "threads": 1}], ids=str)
def test_global(make_store: Callable[..., Numbered], kind: Any, options: dict[str, Any]) -> None:
    """Rows come in one order however they are read; the chunks of h5 are raw."""
    store = make_store(kind)
    with ooc.Loader(store.source, "x", "y", shuffle="global", seed=7, batch_size=48, **options) as loader:
        first, second = ids_of(loader), ids_of(loader.dataset())
        loader.epoch = 0
        assert ids_of(loader.dataset().map(lambda x, y: (x, y))) == first
    assert sorted(first) == sorted(second) == EVERY
    assert first != second
    assert first[:4] == GOLDEN_GLOBAL


GOLDEN_GLOBAL = [125, 7, 282, 70]


def test_global_over_raw_chunks(tmp_path: Path) -> None:
    path = str(tmp_path / "raw.zarr")
    group = zarr.open_group(path, mode="w")
    numbers = np.arange(3000)
    group.create_array("x", data=numbers[:, None] * np.ones(500, "i4"), chunks=(64, 500), compressors=None)
    group.create_array("y", data=numbers, chunks=(100,))  # compressed, small: kept decoded
    with ooc.Loader(path, "x", "y", shuffle="global", batch_size=100) as loader:
        batches = list(loader)
        assert loader.counters is not None
        assert loader.counters.chunks_decoded == 30
    found = np.concatenate([y.numpy() for _, y in batches])
    assert np.array_equal(np.sort(found), numbers)
    assert all(np.array_equal(x.numpy(), y.numpy()[:, None] * np.ones(500)) for x, y in batches)


def test_global_is_refused_where_rows_cost_chunks(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.zeros((1000, 50), "f4"), chunks=(64, 50), compression="gzip")
    with pytest.raises(ooc.SettingError) as caught:
        ooc.Loader(str(tmp_path / "a.h5"), shuffle="global")
    assert "each row would cost 64 rows (12,800 bytes)" in str(caught.value)
    assert 'shuffle="window"' in str(caught.value)


def test_global_takes_no_block(make_store: Callable[..., Numbered]) -> None:
    store = make_store("memory")
    with pytest.raises(ooc.SettingError, match='block=5 means nothing with shuffle="global"'):
        ooc.Loader(store.source, "x", "y", shuffle="global", block=5)
