"""What cache= may be, and what memory and arrays it concerns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import oocloader as ooc
from caches import place
from numbered import Numbered, rows_array
from oocloader.pipeline import cached_reader
from recorded import eventually, our_threads

pytestmark = pytest.mark.usefixtures("tf")


ROWS = 1000


KEEPS = ("memory", "folder")


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert eventually(lambda: not our_threads())


@pytest.mark.parametrize("bad", [3, True, b"memory", "", ["memory"]])
def test_other_values(bad: Any) -> None:
    with pytest.raises(ooc.SettingError, match='must be None, "memory" or a folder'):
        ooc.Loader(rows_array(10), cache=bad)


def test_a_file_is_no_folder(make_store: Callable[..., Numbered], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ooc.SettingError, match="is a file; name a folder"):
        ooc.Loader(make_store("h5").source, "x", cache=tmp_path / "file")
    with pytest.raises(ooc.StoreError, match=r"^cache='.*file/sub' cannot be used: Not a directory$"):
        ooc.Loader(make_store("h5").source, "x", cache=tmp_path / "file" / "sub")


def test_arrays_in_memory_are_not_kept_twice(tmp_path: Path) -> None:
    for kept in KEEPS:
        with ooc.Loader(rows_array(100), cache=place(kept, tmp_path)) as loader:
            readers = loader._assembly.decisions.read_config.readers
            assert not any(isinstance(reader, cached_reader.CachedReader) for reader in readers)
    assert list((tmp_path / "cache").iterdir()) == []


def test_memory_is_bounded_by_the_budget(make_store: Callable[..., Numbered]) -> None:
    store = make_store("h5", 20_000)
    with pytest.raises(ooc.SettingError, match="host_memory=600000 is too small") as caught:
        ooc.Loader(store.source, "x", "y", cache="memory", host_memory=600_000)
    needed = int(str(caught.value).partition("give at least host_memory=")[2].partition(",")[0])
    assert needed > 20_000 * 24
    with pytest.raises(ooc.SettingError):
        ooc.Loader(store.source, "x", "y", cache="memory", host_memory=needed - 1)
    with ooc.Loader(store.source, "x", "y", cache="memory", host_memory=needed) as loader:
        assert loader.sizes.host_nbytes <= needed


def test_memory_without_a_written_budget(
    make_store: Callable[..., Numbered], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store("h5", 20_000)
    monkeypatch.setattr("oocloader.loader.assembly.available_host_memory", lambda: 4 * 700_000)
    with pytest.raises(
        ooc.SettingError, match="that are taken unasked: give at least host_memory="
    ) as caught:
        ooc.Loader(store.source, "x", "y", cache="memory")
    needed = int(str(caught.value).partition("give at least host_memory=")[2].partition(",")[0])
    with ooc.Loader(store.source, "x", "y", cache="memory", host_memory=needed):
        pass
