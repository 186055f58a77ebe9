"""Whatever takes a path takes `~`, and refuses a URL before it makes a folder of that name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import oocloader as ooc
from numbered import rows_array
from oocloader.metrics.trace import write_trace
from oocloader.paths import is_url, local_path


def _cached(path: str) -> None:
    np.save("in.npy", rows_array(20))
    with ooc.Loader("in.npy", cache=path + "rows"):
        pass


def _converted(path: str) -> None:
    ooc.convert(rows_array(20), path + "out.zarr")


def _opened(path: str) -> None:
    np.save(os.path.expanduser("~/x.npy"), rows_array(20))
    with ooc.open_store(path + "x.npy") as store:
        assert len(store["x"].read(0, 20)) == 20


def _raw(path: str) -> None:
    rows_array(20).tofile(os.path.expanduser("~/x.bin"))
    ooc.convert(path + "x.bin", "out.zarr", shape=(-1,), dtype="uint8")


def _spec(path: str) -> None:
    Path("~/x.toml").expanduser().write_text('source = "x.npy"\n')
    ooc.DataSpec.load(path + "x.toml")


USES: dict[str, Callable[[str], None]] = {
    "open_store": _opened,
    "convert, to": _converted,
    "convert, from raw values": _raw,
    "cache": _cached,
    "trace": lambda path: write_trace(path + "trace.json", [], dropped=0),
    "spec": _spec,
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home; the working directory is another one."""
    found = tmp_path / "home"
    found.mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(found))
    monkeypatch.chdir(tmp_path / "work")
    return found


@pytest.mark.parametrize("url", ["https://host/", "s3://bucket/folder/", "gs://bucket/"])
@pytest.mark.parametrize("use", USES)
def test_a_url_is_refused_and_nothing_is_made(home: Path, use: str, url: str) -> None:
    with pytest.raises(ooc.StoreError, match=rf"^(cache=')?{url}.*: URLs are not supported; \w+ ") as caught:
        USES[use](url)
    assert caught.value.file is not None
    assert caught.value.file.startswith(url)
    assert os.listdir() in ([], ["in.npy"])


@pytest.mark.parametrize("use", USES)
def test_home(home: Path, use: str) -> None:
    USES[use]("~/")
    assert os.listdir(home)
    assert "~" not in os.listdir()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://host", True),
        ("zarr+s3://bucket", True),
        ("file:///x.h5", True),
        ("x.h5::http://", False),
        ("/data/a://b", False),
        ("C:/x.npy", False),
        ("x.zarr::a/b", False),
    ],
)
def test_is_url(text: str, expected: bool) -> None:
    assert is_url(text) is expected


@pytest.mark.parametrize("path", [b"~/x", "~/x", Path("~/x")])
def test_local_path(home: Path, path: bytes | str | Path) -> None:
    assert local_path(path, remedy="") == str(home / "x")
