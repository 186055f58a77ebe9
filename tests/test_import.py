"""`import oocloader` is quick and brings nothing heavy; what it offers is what is documented."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

import oocloader as ooc

DOCUMENTED = {
    "ArrayInfo",
    "ArrayNotFoundError",
    "ChangedError",
    "ClosedError",
    "ConvertReport",
    "CorruptChunkError",
    "DataError",
    "DataSpec",
    "Loader",
    "OocloaderError",
    "Plan",
    "Report",
    "SettingError",
    "StateError",
    "Store",
    "StoreError",
    "StoredArray",
    "TracingError",
    "UnsupportedArrayError",
    "__version__",
    "convert",
    "open_store",
}
HEAVY = (
    "tensorflow",
    "keras",
    "h5py",
    "zarr",
    "numcodecs",
    "imagecodecs",
    "typer",
    "tqdm",
    "msgspec",
    "numpy",
)


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.strip()


def test_names() -> None:
    assert set(ooc.__all__) == DOCUMENTED
    assert list(ooc.__all__) == sorted(ooc.__all__)
    assert dir(ooc) == sorted(ooc.__all__)


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
def test_each_name_loads(name: str) -> None:
    value = getattr(ooc, name)
    assert value is getattr(ooc, name)
    if name != "__version__":
        assert value.__name__ == name
        assert value.__doc__


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="module 'oocloader' has no attribute 'Reader'"):
        _ = ooc.Reader


def test_import_brings_nothing_heavy() -> None:
    loaded = run("import sys, oocloader; print(*sys.modules)").split()
    assert [name for name in HEAVY if name in loaded] == []


def test_all_names_load_without_tensorflow() -> None:
    loaded = run("import sys; from oocloader import *; print(*sys.modules)").split()
    assert "oocloader.loader" in loaded
    assert [name for name in ("tensorflow", "keras", "typer") if name in loaded] == []


def seconds(code: str) -> float:
    """The least of five, since others use the machine too."""
    took = []
    for _ in range(5):
        began = time.perf_counter()
        run(code)
        took.append(time.perf_counter() - began)
    return min(took)


def test_import_is_quick() -> None:
    assert seconds("import oocloader") - seconds("pass") < 0.3


def test_the_package_says_that_it_is_typed() -> None:
    assert Path(ooc.__file__).with_name("py.typed").exists()
