"""`oocloader inspect`: what is shown, and the advice that goes with it."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from oocloader import open_store
from oocloader.stores import ArrayInfo
from oocloader.stores.inspection import advice, inspect_store


def _info(shape: tuple[int, ...], chunks: tuple[int, ...] | None, dtype: str = "f4") -> ArrayInfo:
    return ArrayInfo("x", shape, np.dtype(dtype), chunk_shape=chunks)


@pytest.mark.parametrize(
    ("info", "words"),
    [
        (_info((1000, 16, 16), (64, 16, 16)), []),
        (_info((1000, 16, 16), None), []),
        (_info((64, 50, 30), (64, 16, 8)), ["cut the samples: a row needs 16 chunks"]),
        (_info((3000, 8), (1, 8)), ["3000 chunks of 32 B"]),
        (_info((100, 8), (1, 8)), []),  # too few to matter
        (_info((4000, 1 << 20), (400, 1 << 20), "u1"), ["at least 400.0 MiB (400 rows)"]),
        (
            _info((4000, 1 << 20), (4000, 1000), "u1"),
            ["a row needs 1049 chunks", "at least 3.9 GiB (4000 rows)"],
        ),
    ],
)
def test_advice(info: ArrayInfo, words: list[str]) -> None:
    found = advice(info)
    assert len(found) == len(words)
    for line, part in zip(found, words, strict=True):
        assert part in line
        assert "oocloader convert" in line


def test_unloadable_arrays_get_no_advice() -> None:
    assert advice(ArrayInfo("x", (), np.dtype("V"), reader="none", reason="a broken link")) == []


def test_library_reader_is_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.arange(100, dtype="i4"), chunks=(10,), scaleoffset=0)
    with open_store(tmp_path / "a.h5") as store:
        (report,) = inspect_store(store)
    assert report.info.reader == "library"
    assert "one thread at a time" in report.advice[0]
