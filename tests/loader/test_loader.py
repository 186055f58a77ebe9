"""The Loader: every row once, features with their labels, in an order that only its settings decide."""

from __future__ import annotations

import gc
import hashlib
import itertools
import os
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oocloader as ooc
from left_over import leaving_nothing
from numbered import DTYPES, KINDS, Numbered, rows_array, write_store
from recorded import device_of, finished, ids_of, started

pytestmark = pytest.mark.usefixtures("tf")

ROWS = 1000


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    with leaving_nothing():
        yield


# -- every row once

READ: dict[str, Callable[[Any], list[int]]] = {
    "for": lambda loader: ids_of(loader),
    "dataset": lambda loader: ids_of(loader.dataset()),
    "map": lambda loader: ids_of(loader.dataset().map(lambda x, y: (x, y))),
}

SETTINGS: list[dict[str, Any]] = [
    {},
    {"batch_size": 7, "window": 64},  # windows of whole chunks, batches across them
    {"batch_size": 100, "window": 30},  # windows smaller than a batch
    {"batch_size": 5000},  # larger than the data
    {"batch_size": 1000, "window": 1},
    {"batch_size": 1, "window": 333},
    {"batch_size": 32, "window": "2KiB", "block": 5},
    {"batch_size": 64, "window": 130, "block": 130, "threads": 1},
    {"batch_size": 33, "window": 200, "block": 1, "threads": 5},
]


SHUFFLES = (False, True, "window")


def combined() -> Iterator[Any]:
    """Every way of reading with every setting and order; those that repeat no pair run by default."""
    for at, options in enumerate(SETTINGS):
        for read_at, read in enumerate(READ):
            for shuffle_at, shuffle in enumerate(SHUFFLES):
                usual = read_at == at % 3 and shuffle_at == (at // 3 + at) % 3
                marks = [] if usual else [pytest.mark.exhaustive]
                yield pytest.param(read, options, shuffle, marks=marks, id=f"{read}-{options}-{shuffle}")


@pytest.mark.parametrize(("read", "options", "shuffle"), list(combined()))
def test_every_row_once(any_store: Numbered, read: str, options: dict[str, Any], shuffle: Any) -> None:
    """Labels and features of the same row, in batches of `batch_size`, pass after pass."""
    with ooc.Loader(any_store.source, "x", "y", shuffle=shuffle, **options) as loader:
        batch_size = options.get("batch_size", 32)
        assert len(loader) == -(-ROWS // batch_size)
        for _ in range(2):
            ids = READ[read](loader)
            assert (ids if not shuffle else sorted(ids)) == list(range(ROWS))
            assert loader.counters is not None
            assert loader.counters.rows == ROWS


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_dtypes(make_store: Callable[..., Numbered], kind: Any, dtype: str) -> None:
    """1001 rows: not a multiple of the batch, the window or a chunk."""
    store = make_store(kind, 1001, dtype=dtype, label_dtype="int32")
    with ooc.Loader(store.source, "x", "y", window=150, shuffle=True) as loader:
        assert loader.element_spec[0].dtype == dtype
        for read in (READ["for"], READ["map"]):
            assert sorted(read(loader)) == list(range(1001))


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("kind", ["npy", "h5", "zarr"])
def test_features_and_labels_in_files_of_their_own(
    make_store: Callable[..., Numbered], kind: Any, shuffle: bool
) -> None:
    store = make_store(kind, separate=True)
    with ooc.Loader(store.source, "x", "y", shuffle=shuffle, device="/CPU:1") as loader:
        assert sorted(ids_of(loader)) == list(range(ROWS))


@pytest.mark.parametrize("features", ["npy", "h5", "zarr", "memory"])
def test_features_and_labels_of_different_kinds(tmp_path: Path, features: Any) -> None:
    first = write_store(tmp_path / "first", features, separate=True)
    other: Any = {"npy": "h5", "h5": "zarr", "zarr": "memory", "memory": "npy"}[features]
    second = write_store(tmp_path / "second", other, separate=True)
    with ooc.Loader({"a": first.source["x"], "b": second.source["y"]}, "a", "b", shuffle=True) as loader:
        assert sorted(ids_of(loader)) == list(range(ROWS))


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("device", ["/CPU:0", "/CPU:1"])
def test_every_batch_lies_on_the_device(any_store: Numbered, device: str, shuffle: bool) -> None:
    with ooc.Loader(any_store.source, "x", "y", device=device, shuffle=shuffle, window=130) as loader:
        seen = list(loader.dataset())
        assert len(seen) == len(loader) == len(loader.dataset()) == 32
        assert {device_of(tensor) for batch in seen for tensor in batch} == {device}
        assert [len(y) for _, y in seen] == [32] * 31 + [8]


@pytest.mark.parametrize(
    ("rows", "batch_size", "batches"),
    [(1000, 32, 31), (1000, 1000, 1), (1000, 1001, 0), (99, 100, 0), (64, 32, 2)],
)
def test_drop_remainder(
    make_store: Callable[..., Numbered], rows: int, batch_size: int, batches: int
) -> None:
    store = make_store("h5", rows)
    with ooc.Loader(
        store.source, "x", "y", batch_size=batch_size, drop_remainder=True, shuffle=True, window=90
    ) as loader:
        assert len(loader) == len(loader.dataset()) == batches
        for elements in (list(loader), list(loader.dataset().map(lambda x, y: (x, y)))):
            assert [len(y) for _, y in elements] == [batch_size] * batches
            assert len(set(ids_of(elements))) == batches * batch_size
        # Another remainder is left out each time.
        if batches == 31:
            assert set(ids_of(loader)) != set(ids_of(loader))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(1, 150),
    batch_size=st.integers(1, 170),
    window=st.integers(1, 170),
    block=st.integers(1, 170),
    chunks=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    shuffle=st.booleans(),
    threads=st.integers(1, 3),
    kind=st.sampled_from(["h5", "zarr", "npy"]),
)
def test_every_row_once_for_any_sizes(
    tmp_path_factory: pytest.TempPathFactory,
    rows: int,
    batch_size: int,
    window: int,
    block: int,
    chunks: tuple[int, int],
    shuffle: bool,
    threads: int,
    kind: Any,
) -> None:
    folder = tmp_path_factory.mktemp("sizes")
    store = write_store(folder, kind, rows, x_chunk_rows=chunks[0], y_chunk_rows=chunks[1])
    with ooc.Loader(
        store.source,
        "x",
        "y",
        batch_size=batch_size,
        window=window,
        block=block,
        shuffle=shuffle,
        threads=threads,
    ) as loader:
        elements = list(loader)
        assert sorted(ids_of(elements)) == list(range(rows))
        assert [len(y) for _, y in elements[:-1]] == [batch_size] * (len(loader) - 1)


# -- order


def orders(store: Numbered, epochs: int = 3, **options: Any) -> list[list[int]]:
    merged = {"shuffle": True, "seed": 7, "window": 200, "block": 10, **options}
    with ooc.Loader(store.source, "x", "y", **merged) as loader:
        return [ids_of(loader) for _ in range(epochs)]


def test_the_same_seed_gives_the_same_order_and_every_pass_another(any_store: Numbered) -> None:
    first = orders(any_store)
    assert orders(any_store) == first
    assert len({tuple(order) for order in first}) == 3
    assert orders(any_store, seed=8)[0] != first[0]
    assert orders(any_store, shuffle=False) == [list(range(ROWS))] * 3


def test_stores_of_every_kind_have_one_order(make_store: Callable[..., Numbered]) -> None:
    found = [orders(make_store(kind)) for kind in KINDS]
    assert all(order == found[0] for order in found)


@pytest.mark.parametrize(
    "options",
    [
        {"threads": 1},
        {"threads": 6},
        {"batch_size": 7},
        {"batch_size": 1000},
        {"device": "/CPU:1"},
        {"host_memory": "64MiB"},
        {"device_memory": "64MiB"},
        {"host_memory": "1MiB", "device_memory": "1MiB", "threads": 1},
        {"dtype": "float32", "scale": 1.0},
    ],
    ids=str,
)
def test_nothing_else_changes_the_order(make_store: Callable[..., Numbered], options: dict[str, Any]) -> None:
    store = make_store("h5")
    merged = {"shuffle": True, "seed": 7, "window": 200, "block": 10, **options}
    with ooc.Loader(store.source, "x", "y", **merged) as loader:
        found = [[int(label) for _, y in loader for label in y.numpy()] for _ in range(3)]
    assert found == orders(store)


def test_another_process_has_the_same_order(make_store: Callable[..., Numbered]) -> None:
    store = make_store("zarr")
    program = started(
        """
        options = dict(shuffle=True, seed=7, window=200, block=10, threads=3)
        with ooc.Loader(sys.argv[1], "x", "y", **options) as loader:
            print([ids_of(loader) for _ in range(3)])
        """,
        store.source,
    )
    code, out, err = finished(program)
    assert (code, err) == (0, "")
    assert out.strip() == str(orders(store))


def test_order_is_what_it_was_in_earlier_versions(make_store: Callable[..., Numbered]) -> None:
    """A run that is resumed after an upgrade must go on in the order it began with."""
    found = orders(make_store("memory"))
    digest = hashlib.sha256(np.array(found, "<i8").tobytes()).hexdigest()
    assert digest[:16] == "af4350f800d460b0"
    assert orders(make_store("h5"), window=None, block=None)[0][:4] == [872, 347, 513, 313]


def test_epoch_may_be_set(make_store: Callable[..., Numbered]) -> None:
    store = make_store("memory")
    first, second, third = orders(store)
    with ooc.Loader(store.source, "x", "y", shuffle=True, seed=7, window=200, block=10) as loader:
        assert loader.epoch == 0
        loader.epoch = 2
        assert ids_of(loader) == third
        assert loader.epoch == 3
        loader.epoch = np.int64(1)  # type: ignore[assignment]  # any whole number
        assert ids_of(loader.dataset()) == second
        loader.epoch = 0
        assert ids_of(loader.dataset().map(lambda x, y: (x, y))) == first
        for bad in (-1, 1.5, "3", True, 2**32):
            with pytest.raises(ooc.SettingError, match=r"^epoch="):
                loader.epoch = bad  # type: ignore[assignment]  # that is refused
        assert loader.epoch == 1


def test_a_pass_takes_its_number_with_its_first_batch(make_store: Callable[..., Numbered]) -> None:
    store = make_store("memory")
    expected = orders(store, 4)
    with ooc.Loader(store.source, "x", "y", shuffle=True, seed=7, window=200, block=10) as loader:
        ds = loader.dataset()
        dropped, early, late = iter(ds), iter(ds), iter(ds)
        next(dropped)
        del dropped
        assert ids_of(late) == expected[1]
        assert ids_of(early) == expected[2]
        assert loader.epoch == 3


@pytest.mark.parametrize("epochs", [2, 3])
def test_passes_of_one_iterator(make_store: Callable[..., Numbered], epochs: int) -> None:
    store = make_store("h5")
    expected = orders(store, epochs + 1)
    with ooc.Loader(store.source, "x", "y", shuffle=True, seed=7, window=200, block=10) as loader:
        ds = loader.dataset(epochs=epochs)
        assert len(ds) == 32 * epochs
        elements = list(ds)
        # A pass ends with its own short batch; the next begins with a batch of its own.
        assert [len(y) for _, y in elements] == ([32] * 31 + [8]) * epochs
        assert ids_of(elements) == list(itertools.chain(*expected[:epochs]))
        assert ids_of(loader) == expected[epochs]


def test_passes_without_end(make_store: Callable[..., Numbered]) -> None:
    store = make_store("memory")
    with ooc.Loader(store.source, "x", "y", shuffle=True, seed=7, window=200, block=10) as loader:
        for ds in (loader.dataset(epochs=None), loader.dataset(epochs=None).map(lambda x, y: (x, y))):
            loader.epoch = 0
            batches = iter(ds)
            assert ids_of(next(batches) for _ in range(32 * 3)) == list(itertools.chain(*orders(store)))
            del batches


@pytest.mark.parametrize("bad", [0, -1, 1.5, "2", True])
def test_bad_epochs(make_store: Callable[..., Numbered], bad: Any) -> None:
    with (
        ooc.Loader(make_store("memory").source, "x") as loader,
        pytest.raises(ooc.SettingError, match=r"^epochs="),
    ):
        loader.dataset(epochs=bad)


def test_rows_of_all_classes_meet_in_a_batch(tmp_path: Path) -> None:
    """Stored class by class, as data often is, and much smaller than a window."""
    path = tmp_path / "sorted.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(5000, dtype="f4")[:, None], chunks=(250, 1))
        file.create_dataset("y", data=np.repeat(np.arange(10), 500), chunks=(250,))
    with ooc.Loader(path, "x", "y", batch_size=64, shuffle=True) as loader:
        passes = [list(loader) for _ in range(2)]
        for elements in passes:
            assert sorted(int(x) for rows, _ in elements for x in rows.numpy()[:, 0]) == list(range(5000))
            classes = [len(set(y.numpy().tolist())) for _, y in elements]
            assert sum(classes) / len(classes) > 9
        assert passes[0][0][0].numpy().tolist() != passes[1][0][0].numpy().tolist()
    # Windows of a fifth still draw from everywhere.
    with ooc.Loader(path, "x", "y", batch_size=64, shuffle=True, window=1000, block=25) as loader:
        classes = [len(set(y.numpy().tolist())) for _, y in loader]
        assert sum(classes) / len(classes) > 8


def test_every_epoch_is_another_whole_permutation(tmp_path: Path) -> None:
    path = tmp_path / "epochs.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(512, dtype="i4")[:, None], chunks=(32, 1))
        file.create_dataset("y", data=np.arange(512), chunks=(32,))

    def ten() -> list[list[int]]:
        with ooc.Loader(path, "x", "y", batch_size=50, shuffle=True, seed=3) as loader:
            return [[int(label) for _, y in loader.dataset() for label in y.numpy()] for _ in range(10)]

    first = ten()
    assert all(sorted(order) == list(range(512)) for order in first)
    assert len({tuple(order) for order in first}) == 10
    assert ten() == first


def test_pairs_stay_together_with_parallel_reading(tmp_path: Path) -> None:
    """Compressed features in chunks of 64, labels in chunks of 100, several passes."""
    path = tmp_path / "pairs.h5"
    with h5py.File(path, "w") as file:
        x = np.repeat(np.arange(3000, dtype="f4")[:, None], 16, 1)
        file.create_dataset("x", data=x, chunks=(64, 16), compression="gzip")
        file.create_dataset("y", data=np.arange(3000, dtype="i4"), chunks=(100,))
    for window in (None, 200):
        with ooc.Loader(
            path, "x", "y", shuffle=True, threads=4, window=window, block=window and 20
        ) as loader:
            for _ in range(3):
                seen = []
                for x, y in loader:
                    np.testing.assert_array_equal(x.numpy(), np.repeat(y.numpy()[:, None], 16, 1))
                    seen += y.numpy().tolist()
                assert sorted(seen) == list(range(3000))


# -- stores that are odd


def test_contiguous_datasets(tmp_path: Path) -> None:
    path = tmp_path / "contiguous.h5"
    x = (np.arange(3000 * 40) % 251).reshape(3000, 40).astype("f4")
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=x)
        file["y"] = np.arange(3000)
        assert file["x"].chunks is None
    for shuffle in (False, True):
        with ooc.Loader(path, "x", "y", shuffle=shuffle, window=256) as loader:
            assert loader.sizes.window == 256
            seen = []
            for rows, y in loader:
                np.testing.assert_array_equal(rows.numpy(), x[y.numpy()])
                seen += y.numpy().tolist()
            assert sorted(seen) == list(range(3000))


def test_what_cannot_be_loaded_is_named_and_the_rest_loads(tmp_path: Path) -> None:
    path = tmp_path / "links.h5"
    with h5py.File(path, "w") as file:
        file["ext"] = h5py.ExternalLink("gone.h5", "/d")
        file["soft"] = h5py.SoftLink("/nowhere")
        file["mean"] = np.float32(3.5)
        file["x"], file["y"] = rows_array(20), np.arange(20)
        file["alias"] = h5py.SoftLink("/x")
    with ooc.Loader(path, "x", "y") as loader:
        assert ids_of(loader) == list(range(20))
    for name, told in [("ext", ["gone.h5", "/d"]), ("soft", ["/nowhere"]), ("mean", ["0-d"])]:
        with pytest.raises(ooc.OocloaderError) as caught:
            ooc.Loader(path, name)
        for part in (str(path), repr(name), *told):
            assert part in str(caught.value)


def test_separators_of_chunk_keys(tmp_path: Path) -> None:
    rows = 1 + np.arange(40 * 6, dtype="i4").reshape(40, 6)
    keys: list[tuple[str, Any, Any]] = [
        ("nested", 2, {"name": "v2", "separator": "/"}),
        ("dotted3", 3, {"name": "v2", "separator": "."}),
    ]
    for name, version, encoding in keys:
        array = zarr.create_array(
            tmp_path / name,
            shape=rows.shape,
            chunks=(9, 4),
            dtype="i4",
            zarr_format=version,
            chunk_key_encoding=encoding,
        )
        array[:] = rows
        with ooc.Loader(tmp_path / name, batch_size=7) as loader:
            np.testing.assert_array_equal(np.concatenate([x.numpy() for x in loader]), rows)


def test_sharded_arrays(tmp_path: Path) -> None:
    """One shard is absent, one inner chunk is the fill value, the last shard is not full."""
    path = tmp_path / "sharded.zarr"
    array = zarr.create_array(path, shape=(50, 7), chunks=(1, 7), shards=(20, 7), dtype="f4", fill_value=-1.0)
    array[:20] = np.arange(140).reshape(20, 7)
    array[3] = -1
    array[40:] = 2
    assert sorted(os.listdir(path / "c")) == ["0", "2"]
    expected = np.asarray(zarr.open_array(path)[:])
    for shuffle in (False, True):
        with ooc.Loader(
            {"x": str(path), "n": np.arange(50)}, "x", "n", batch_size=8, shuffle=shuffle
        ) as loader:
            for x, n in loader:
                np.testing.assert_array_equal(x.numpy(), expected[n.numpy()])


# -- what cannot work is said before any work


@pytest.mark.parametrize(
    ("source", "kind", "told"),
    [
        ("missing.npy", FileNotFoundError, "missing.npy: no such file or folder"),
        ("missing/", OSError, "no such file or folder"),
        ("*.npy", OSError, "no file or folder matches"),
        ("notes.txt", OSError, "not a store"),
        ("empty", OSError, "no store"),
        ("objects.npy", TypeError, "object"),
        ("scalar.npy", TypeError, "0-d"),
        ("none.npy", TypeError, "empty|no rows"),
        ("https://example.org/x.zarr", OSError, "URLs are not supported"),
        ({}, ValueError, "empty"),
        (None, ValueError, "a source is a path"),
    ],
)
def test_bad_sources(tmp_path: Path, source: Any, kind: type[BaseException], told: str) -> None:
    (tmp_path / "notes.txt").write_text("remember the milk")
    (tmp_path / "empty").mkdir()
    np.save(tmp_path / "objects.npy", np.array([[1], None], dtype=object), allow_pickle=True)
    np.save(tmp_path / "scalar.npy", np.float32(3.5))
    np.save(tmp_path / "none.npy", np.zeros((0, 4)))
    if isinstance(source, str) and "://" not in source:
        source = str(tmp_path / source) if source != "*.npy" else str(tmp_path / "empty" / source)
    with pytest.raises(ooc.OocloaderError, match=told) as caught:
        ooc.Loader(source)
    assert isinstance(caught.value, kind if kind is not FileNotFoundError else OSError)
    assert "\n" not in str(caught.value)
    if isinstance(source, str):
        assert source.rstrip("/") in str(caught.value)


# -- its life


@pytest.mark.parametrize("shuffle", [False, True])
def test_iterators_side_by_side(any_store: Numbered, shuffle: bool) -> None:
    with ooc.Loader(any_store.source, "x", "y", shuffle=shuffle, window=150, device="/CPU:1") as loader:
        ds = loader.dataset()
        pairs = list(zip(ds, ds, loader, strict=True))
        for which in range(3):
            assert sorted(ids_of(pair[which] for pair in pairs)) == list(range(ROWS))
        assert loader.epoch == 3


@pytest.mark.parametrize("through", ["device", "pipeline"])
def test_iterators_in_threads_of_their_own(make_store: Callable[..., Numbered], through: str) -> None:
    store = make_store("h5")
    with ooc.Loader(store.source, "x", "y", shuffle=True, seed=7, window=200, block=10) as loader:
        ds = loader.dataset() if through == "device" else loader.dataset().map(lambda x, y: (x, y))
        found: list[list[int]] = []
        gate = threading.Barrier(4)

        def read() -> None:
            gate.wait()
            for _ in range(3):
                found.append(ids_of(ds))  # noqa: PERF401  # as each pass ends

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        # Every pass has its own number, whoever takes it.
        assert Counter(map(tuple, found)) == Counter(map(tuple, orders(store, 12)))
        assert loader.epoch == 12


# -- errors while reading


def damage(path: str, row: int) -> None:
    """Ruins the chunk of `x` that holds `row`."""
    with h5py.File(path) as file:
        chunk = file["x"].chunks
        info = file["x"].id.get_chunk_info_by_coord((row // chunk[0] * chunk[0], 0, 0))
    with open(path, "r+b") as stream:
        stream.seek(info.byte_offset)
        stream.write(b"\xff" * 16)


@pytest.fixture
def compressed(tmp_path: Path) -> Numbered:
    """1000 rows in gzip chunks of 64, labels in chunks of 100."""
    path = tmp_path / "compressed.h5"
    x, y = rows_array(ROWS), np.arange(ROWS)
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=x, chunks=(64, 4, 4), compression="gzip")
        file.create_dataset("y", data=y, chunks=(100,), compression="gzip")
    return Numbered(str(path), x, y)


@pytest.mark.parametrize("device", ["/CPU:0", "/CPU:1"])
@pytest.mark.parametrize("window", [None, 64, 150])
@pytest.mark.parametrize("row", [0, 320, 700, 999])
def test_a_damaged_chunk_comes_out_after_every_batch_before_it(
    compressed: Numbered, row: int, window: int | None, device: str
) -> None:
    damage(compressed.source, row)
    first = row // 64 * 64
    with ooc.Loader(compressed.source, "x", "y", batch_size=10, window=window, device=device) as loader:
        for read in (iter(loader), iter(loader.dataset())):
            seen: list[Any] = []
            with pytest.raises(ooc.CorruptChunkError) as caught:
                seen.extend(iter(read))
            assert ids_of(seen) == list(range(first // 10 * 10))
            error = caught.value
            assert isinstance(error, OSError)
            assert (error.file, error.array, error.rows) == (
                compressed.source,
                "x",
                (first, min(first + 64, ROWS)),
            )
            told = f"{compressed.source}: array 'x', chunk ({first // 64}, 0, 0), rows {first} to "
            assert str(error).startswith(told)
            assert "\n" not in str(error)
            # It is over; another iterator starts anew.
            with pytest.raises(StopIteration):
                next(read)


def test_a_damaged_chunk_of_labels(compressed: Numbered) -> None:
    with h5py.File(compressed.source) as file:
        offset = file["y"].id.get_chunk_info_by_coord((500,)).byte_offset
    with open(compressed.source, "r+b") as stream:
        stream.seek(offset)
        stream.write(b"\xff" * 16)
    with ooc.Loader(compressed.source, "x", "y", batch_size=16) as loader:
        seen: list[Any] = []
        with pytest.raises(ooc.CorruptChunkError, match=r"array 'y', chunk .5,., rows 500 to 599"):
            seen.extend(loader)
        assert ids_of(seen) == list(range(496))


def test_a_damaged_chunk_while_shuffling(compressed: Numbered) -> None:
    options: dict[str, Any] = {"shuffle": True, "window": 200, "block": 20, "batch_size": 8}
    with ooc.Loader(compressed.source, "x", "y", **options) as loader:
        whole = ids_of(loader)
    damage(compressed.source, 640)
    first = next(at for at, number in enumerate(whole) if 640 <= number < 704)
    with ooc.Loader(compressed.source, "x", "y", **options) as loader:
        seen: list[Any] = []
        with pytest.raises(ooc.CorruptChunkError, match="rows 640 to 703"):
            seen.extend(loader)
        assert ids_of(seen) == whole[: first // 8 * 8]


@pytest.mark.parametrize("kind", ["npy", "h5", "zarr"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_store_that_changes_in_the_middle_of_a_pass(
    make_store: Callable[..., Numbered], kind: Any, shuffle: bool
) -> None:
    """Rows of before and of after the change must not be mixed."""
    store = make_store(kind, 5000, label_dtype="uint8")
    source = store.source["x"] if kind == "npy" else store.source
    with ooc.Loader(source, "x", batch_size=10, window=20, shuffle=shuffle, threads=1) as loader:
        batches = iter(loader)
        for _ in range(5):
            next(batches)
        if kind == "zarr":
            for chunk in sorted((Path(source) / "x" / "c").rglob("0"))[10:]:
                if chunk.is_file():
                    os.truncate(chunk, chunk.stat().st_size // 2)
        else:
            os.truncate(source, os.path.getsize(source) - 100)
        with pytest.raises(ooc.StoreError) as caught:
            list(batches)
        error = caught.value
        assert error.array == "x"
        assert error.file is not None
        assert error.file.startswith(str(source))
        assert error.rows is not None
        assert f"rows {error.rows[0]} to {error.rows[1] - 1}" in str(error)


def test_a_file_that_is_gone_before_the_first_batch(make_store: Callable[..., Numbered]) -> None:
    source = make_store("npy").source
    with ooc.Loader(source, "x", "y") as loader:
        os.remove(source["y"])
        with pytest.raises(ooc.ChangedError, match="the file was removed") as caught:
            next(iter(loader))
        assert caught.value.file == source["y"]
        assert caught.value.array == "y"


def test_nothing_warns(any_store: Numbered) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with ooc.Loader(any_store.source, "x", "y", shuffle=True, dtype="float32") as loader:
            for _ in loader:
                pass
        gc.collect()
    assert [str(warning.message) for warning in caught] == []
