"""Rows by way of boxes: each is read once, and turned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oocloader.conversion.transposing import TransposedRows, turn
from oocloader.reading.boxes import Box
from oocloader.stores import open_store
from spread import SHAPE, X, use_small_boxes, written


def test_turning_a_matrix() -> None:
    values = np.arange(700 * 500, dtype="u2").reshape(500, 700).T
    for turned in (values, values[::2], values.reshape(700, 50, 10), values.reshape(70, 10, 500)):
        out = np.zeros(turned.shape, "u2")
        turn(turned, out)
        assert np.array_equal(out, turned)


@pytest.fixture
def small_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_boxes(monkeypatch)


@pytest.mark.usefixtures("small_boxes")
@pytest.mark.parametrize("kind", ["fortran", "across", "npy"])
def test_the_source_is_read_once(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = np.zeros(SHAPE, int)
    with open_store(written(tmp_path, kind)) as store:
        reader: Any = store[store.only_array()].reader
        original = type(reader).read_box

        def counting(self: Any, box: Box, out: np.ndarray) -> None:
            counts[box] += 1
            original(self, box, out)

        monkeypatch.setattr(type(reader), "read_box", counting)
        rows = TransposedRows(reader, axis=0, start=0, shape=SHAPE, folder=str(tmp_path), threads=2)
        told: list[int] = []
        rows.prepare(told.append)
        for start in (0, 100, 100, 37):
            out = np.empty((50, *SHAPE[1:]), "i4")
            rows.read(start, start + 50, out)
            assert np.array_equal(out, X[start : start + 50])
        rows.close()
    assert (counts == 1).all()
    assert sum(told) == X.nbytes
