"""What tells one conversion from another: in what two differ, in words, and whether files changed."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oocloader.conversion.identity import SourceFiles, difference, digest, identity_of
from oocloader.errors import ChangedError
from oocloader.stores import open_store
from plans import planned_store


def identified(source: Any, **planning: Any) -> Any:
    """The identity of a conversion of `source`, one array of 100 rows of 4 bytes."""
    plan = planned_store((100, 4), **planning)
    with open_store({"x": source}) as store:
        arrays = {"x": store["x"]}
        options = {"codec": "none", "chunk_rows": None}
        return identity_of(SourceFiles.of(arrays.values()), arrays, plan, options)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", np.zeros((100, 4), "u1"))
    return tmp_path / "x.npy"


def test_the_same_conversion_is_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = identified(path)
    # As it is read from a journal; by another way to the same file.
    monkeypatch.chdir(path.parent)
    (path.parent / "link.npy").symlink_to("x.npy")
    for now in (json.loads(json.dumps(before)), identified("x.npy"), identified("link.npy")):
        assert difference(before, now) == ""
        assert digest(now) == digest(before) != ""
    # How many threads there are is no part of it.
    assert "threads" not in before["plan"]["arrays"][0]


def test_memory_has_no_identity(path: Path) -> None:
    assert identified(np.zeros((100, 4), "u1")) is None
    assert digest(None) == ""
    assert difference({}, identified(path)) == "it was of arrays in memory"


@pytest.mark.parametrize(
    ("keys", "value", "words"),
    [
        (("options", "codec"), "zstd:1", "codec was 'none' and is 'zstd:1' now"),
        (("options", "shuffle"), 5, "shuffle was None and is 5 now"),
        (("arrays", "x"), "y", "the arrays were {'x': 'x'} and are {'x': 'y'} now"),
        (("codec",), "lz4", "the codec was 'none' and is 'lz4' now"),
        (("plan", "zarr_format"), 2, "chunks or pieces are cut otherwise"),
        (("plan", "arrays", 0, "chunk_rows"), 7, "chunks or pieces are cut otherwise"),
        (("files", "*", 0), 999, "x.npy had 528 bytes and has 999 now"),
        (("files", "*", 1), 5, "x.npy was modified since"),
        (("files", "/other.npy"), [1, 2], "/other.npy was not part of the source"),
    ],
)
def test_the_first_difference_is_named(path: Path, keys: tuple[Any, ...], value: Any, words: str) -> None:
    before = identified(path)
    now = copy.deepcopy(before)
    place = now
    for key in keys[:-1]:
        place = place[str(path) if key == "*" else key]
    place[keys[-1]] = value
    assert words in difference(before, now)
    # Which codec is best is measured, and may come out otherwise where it is left open.
    assert (digest(now) == digest(before)) == (keys == ("codec",))


def test_a_file_that_was_part_of_it(path: Path) -> None:
    before = identified(path)
    np.save(path.parent / "z.npy", np.zeros((100, 4), "u1"))
    assert difference(before, identified(path.parent / "z.npy")) == f"{path} was part of the source"


def test_another_plan_is_another_conversion(path: Path) -> None:
    before = identified(path)
    now = identified(path, chunk_rows=7)
    assert "cut otherwise" in difference(before, now)
    assert digest(before) != digest(now)


def test_files_that_change_are_named(tmp_path: Path) -> None:
    for name in ("a.npy", "b.npy"):
        np.save(tmp_path / name, np.arange(10))
    with open_store([tmp_path / "a.npy", tmp_path / "b.npy"]) as store:
        files = SourceFiles.of([store[store.only_array()]])
    assert files is not None
    assert sorted(files.states) == [str(tmp_path / "a.npy"), str(tmp_path / "b.npy")]
    assert files.few
    files.check()
    size = (tmp_path / "b.npy").stat().st_size
    changes: list[tuple[Callable[[], None], str]] = [
        (lambda: os.utime(tmp_path / "b.npy", ns=(1, 1)), "it was modified; convert it again"),
        (lambda: os.truncate(tmp_path / "b.npy", 50), f"it had {size} bytes, and 50 now"),
        (lambda: os.unlink(tmp_path / "b.npy"), "was removed while it was converted; restore it"),
    ]
    for change, words in changes:
        change()
        with pytest.raises(ChangedError, match=rf"b\.npy: the file .*{words}"):
            files.check()


def test_all_files_of_a_folder_count(tmp_path: Path) -> None:
    for number in range(70):
        folder = tmp_path / "x" / str(number % 7)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(number)).write_bytes(bytes(number))

    class InFolder:
        parts = ()
        store = str(tmp_path / "x")

    files = SourceFiles.of([InFolder()])  # type: ignore[list-item] # no more than this is looked at
    assert files is not None
    assert len(files.states) == 70
    assert not files.few
    assert {int(os.path.basename(path)): state.nbytes for path, state in files.states.items()} == {
        number: number for number in range(70)
    }
