"""What rows are made of, as text: another where they may have changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

import oocloader as ooc
from numbered import Kind, Numbered, rows_array
from oocloader.pipeline.origin import name_in_store, origin_of, paths_of
from oocloader.reading.joined_reader import JoinedReader
from oocloader.stores import open_store
from recorded import eventually, ids_of, our_threads

pytestmark = pytest.mark.usefixtures("tf")


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert eventually(lambda: not our_threads())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "cache").iterdir())


def test_a_store_that_changed_is_read_again_and_the_old_file_goes(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    kept: list[list[str]] = []
    for shift in (0, 1000):
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=rows_array(range(shift, shift + 1000)), chunks=(100, 4, 4))
            file["y"] = np.arange(shift, shift + 1000)
        os.utime(path, ns=(shift, shift))
        for _ in range(2):
            with ooc.Loader(path, "x", "y", cache=tmp_path / "cache") as loader:
                assert ids_of(loader) == list(range(shift, shift + 1000))
        kept.append(names(tmp_path))
    assert [len(found) for found in kept] == [2, 2]
    assert not set(kept[0]) & set(kept[1])


def test_other_rows_other_arrays_and_other_stores_have_other_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            for at, key in enumerate(("one", "two")):
                file.create_dataset(key, data=np.full((40, 2), at + 10 * (name == "b")), chunks=(10, 2))
    sources = [{"x": f"{tmp_path}/{name}.h5::{key}"} for name in ("a", "b") for key in ("one", "two")]
    for _ in range(2):
        for value, source in zip((0, 1, 10, 11), sources, strict=True):
            for rows in (None, slice(0, 20), np.arange(0, 40, 2)):
                with ooc.Loader(source, cache=tmp_path / "cache", rows=rows) as loader:
                    assert {int(number) for x in loader for number in x.numpy().ravel()} == {value}
    assert len(names(tmp_path)) == 4 * 3


def test_a_store_that_changes_while_it_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What zarr-python or h5py read for us is not watched by anybody else. It may be a mixture: it goes."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(4000).reshape(1000, 4), chunks=(100, 4), scaleoffset=0)
    with ooc.Loader(path, cache=tmp_path / "cache", window=100, batch_size=100, threads=1) as loader:
        assert loader._assembly.data.arrays[0].info.reader == "library"
        batches = iter(loader)
        next(batches)
        os.utime(path, ns=(1, 1))
        assert len(list(batches)) == 9
        (message,) = caplog.messages
        assert f"{path}: array 'x' changed while its rows were read for cache=" in message
        assert len(list(loader)) == 10
        assert len(caplog.messages) == 1
    assert names(tmp_path) == []


def test_a_virtual_dataset(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "part.h5", "w") as file:
        file["x"] = rows_array(50)
    layout = h5py.VirtualLayout(shape=(50, 4, 4), dtype="u1")
    layout[:] = h5py.VirtualSource(tmp_path / "part.h5", "x", shape=(50, 4, 4))
    with h5py.File(tmp_path / "all.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
    with pytest.raises(ooc.SettingError, match=r"array 'x' of .*all\.h5 cannot be kept in a folder: it is"):
        ooc.Loader(tmp_path / "all.h5", cache=tmp_path / "cache")
    with ooc.Loader(tmp_path / "all.h5", cache="memory") as loader:
        assert sum(len(x) for x in loader) == 50


@pytest.mark.parametrize("kind", ["npy", "h5", "zarr"])
def test_the_text_stays_until_a_file_changes(make_store: Callable[..., Numbered], kind: Kind) -> None:
    store = make_store(kind, 300)

    def origins() -> list[str | None]:
        with open_store(store.source) as opened:
            return [origin_of(opened[name]) for name in ("x", "y")]

    first = origins()
    assert origins() == first
    # Two arrays of one store are told apart.
    assert None not in first
    assert first[0] != first[1]
    path = Path(store.source["x"] if kind == "npy" else store.source)
    file = path if path.is_file() else max(path.rglob("c/0/0/0"))
    os.utime(file, ns=(1, 1))
    assert origins()[0] != first[0]
    assert (origins()[1] == first[1]) == (kind == "npy")


def test_a_chunk_more_in_a_folder_is_another_text(make_store: Callable[..., Numbered]) -> None:
    store = make_store("zarr", 300)
    with open_store(store.source) as opened:
        first = origin_of(opened["x"])
        (Path(store.source) / "x" / "c" / "9").write_bytes(b"")
        assert origin_of(opened["x"]) != first


def test_nothing_is_known_of_rows_in_memory() -> None:
    with open_store({"x": rows_array(10)}) as opened:
        assert origin_of(opened["x"]) is None


def test_parts_of_a_joined_array(make_store: Callable[..., Numbered]) -> None:
    paths = [make_store("npy", rows).source["x"] for rows in (30, 50)]
    with open_store({"x": paths}) as opened, open_store({"x": paths[:1]}) as one:
        assert paths_of(opened["x"]) == tuple(paths)
        told = origin_of(opened["x"])
        assert told is not None
        assert all(path in told for path in paths)
        assert origin_of(one["x"]) != told
        reader = opened["x"].reader
        assert isinstance(reader, JoinedReader)
        assert name_in_store(reader) == [name_in_store(part) for _, part in reader.parts]
