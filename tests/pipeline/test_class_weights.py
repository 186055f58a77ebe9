"""Weights by class: what is refused, and counting in bounded passes, with NumPy as the oracle."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from oocloader.errors import DataError, SettingError
from oocloader.order.order import RowSet
from oocloader.order.row_spans import RowSpan
from oocloader.order.selection import row_set
from oocloader.pipeline.class_weights import ClassWeights, class_weights
from oocloader.reading.jobs import Job
from oocloader.reading.memory_reader import MemoryReader
from oocloader.reading.row_reader import Target


def asked(value: Any, structure: Any = (0, 1), **changed: Any) -> ClassWeights | None:
    arrays: dict[str, Any] = {
        "names": ("x", "y", "w"),
        "shapes": ((10, 4), (10,), (10,)),
        "dtypes": (np.dtype("f4"), np.dtype("i8"), np.dtype("f4")),
        "stores": ("a.h5", "b.h5", "c.h5"),
    }
    return class_weights(value, structure, **{**arrays, **changed})


def test_what_is_asked() -> None:
    assert asked(None) is None
    assert asked("balanced") == ClassWeights(1, None, "y", "b.h5")
    assert asked({0: 1, np.int64(3): np.float32(0.5)}) == ClassWeights(1, {0: 1.0, 3: 0.5}, "y", "b.h5")
    assert asked({-1: 0.0}, (0, 1, 2)) is not None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("balance", r"class_weight='balance' must be a dict such as \{0: 1.0, 1: 5.0\}, or \"balanced\""),
        ({}, "must be a dict such as"),
        ([1.0, 2.0], "must be a dict such as"),
        ({"cat": 1.0}, "class 'cat'; classes are whole numbers"),
        ({1.5: 1.0}, "class 1.5; classes are whole numbers"),
        ({True: 1.0}, "class True; classes are whole numbers"),
        ({0: "heavy"}, r"class_weight\[0\]='heavy' must be a finite number of at least 0"),
        ({0: -1}, r"class_weight\[0\]=-1 must be a finite number"),
        ({0: float("nan")}, "must be a finite number"),
        ({2**63: 1.0}, "numbers of 64 bits"),
    ],
)
def test_values_that_mean_nothing(value: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        asked(value)


@pytest.mark.parametrize(
    ("structure", "changed", "message"),
    [
        (0, {}, "class_weight needs labels: name them with labels="),
        ((0, {"y": 1}), {}, "not a dict of them"),
        ((0, 1, {"w": 2}), {}, "not a dict of them"),
        (
            (0, 1),
            {"dtypes": (np.dtype("f4"), np.dtype("f8"), np.dtype("f4"))},
            "needs integer labels, one a row; array 'y' of b.h5 has dtype float64; store class numbers",
        ),
        ((0, 1), {"shapes": ((10, 4), (10, 3), (10,))}, r"array 'y' of b.h5 has samples of shape \(3,\)"),
        (
            (0, 1, 2),
            {"dtypes": (np.dtype("f4"), np.dtype("i8"), np.dtype("c8"))},
            "cannot multiply sample weights of dtype complex64",
        ),
    ],
)
def test_elements_without_classes(structure: Any, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        asked("balanced", structure, **changed)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "uint64"])
def test_every_kind_of_integer(dtype: str) -> None:
    found = asked("balanced", dtypes=(np.dtype("f4"), np.dtype(dtype), np.dtype("f4")))
    assert found is not None
    classes, weights = found.table(MemoryReader(np.array([0, 1, 1, 1], dtype)), RowSet(0, 4))
    assert classes.tolist() == [0, 1]
    np.testing.assert_allclose(weights, [2.0, 4 / 6])


class Recorded(MemoryReader):
    """Notes the most rows that were ever asked for at once, and each row asked for."""

    def __init__(self, array: np.ndarray, chunk_rows: int | None) -> None:
        super().__init__(array)
        self.chunk_rows = chunk_rows
        self.asked: list[tuple[int, int]] = []

    def jobs(self, pieces: Sequence[RowSpan], target: Target) -> list[Job]:
        self.asked += [(piece.start, piece.stop) for piece in pieces]
        return super().jobs(pieces, target)


@given(
    labels=hnp.arrays(
        st.sampled_from(["i1", "u2", "i4", "i8"]), st.integers(1, 300), elements=st.integers(0, 9)
    ),
    chunk_rows=st.one_of(st.none(), st.integers(1, 50)),
    data=st.data(),
)
def test_balanced_is_what_numpy_counts(
    labels: np.ndarray, chunk_rows: int | None, data: st.DataObject
) -> None:
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(labels), max_size=len(labels))))
    mask[0] = True
    rows = row_set(mask, len(labels))
    column = labels[:, np.newaxis]
    found, weights = ClassWeights(1, None, "y", "s").table(Recorded(column, chunk_rows), rows)
    classes, counts = np.unique(labels[mask], return_counts=True)
    assert found.dtype == np.int64
    assert weights.dtype == np.float32
    assert found.tolist() == classes.tolist()
    np.testing.assert_allclose(weights, mask.sum() / (len(classes) * counts), rtol=1e-6)


@pytest.mark.parametrize("spread", [1, 1 << 40])
def test_labels_are_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch, spread: int) -> None:
    """Whole chunks, each once, and what is left out entirely is not read; close and distant classes."""
    monkeypatch.setattr(sys.modules["oocloader.pipeline.class_weights"], "JOB_NBYTES", 8 * 250)
    labels = np.arange(1000) % 7 * spread
    reader = Recorded(labels, 100)
    picked = np.r_[np.arange(30, 450), np.arange(905, 1000)]
    classes, _ = ClassWeights(1, None, "y", "s").table(reader, row_set(picked, 1000))
    assert classes.tolist() == [value * spread for value in range(7)]
    assert reader.asked == [(30, 200), (200, 400), (400, 600), (800, 1000)]


@pytest.mark.parametrize(
    ("rows", "row"), [(None, 123), (slice(50, None), 123), (np.r_[np.arange(5), np.arange(100, 600)], 123)]
)
def test_a_class_without_weight(rows: Any, row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["oocloader.pipeline.class_weights"], "JOB_NBYTES", 8 * 60)
    labels = np.zeros(600, np.int64)
    labels[[row, 500]] = 7
    with pytest.raises(DataError) as caught:
        ClassWeights(1, {0: 1.0, 1: 2.0}, "y", "b.h5").table(MemoryReader(labels), row_set(rows, 600))
    assert str(caught.value) == (
        "b.h5: array 'y' has the class 7 (first in row 123), for which class_weight has no weight: it has "
        "weights for 0, 1; add 7: 1.0 to leave its rows as they are"
    )
    assert (caught.value.file, caught.value.array) == ("b.h5", "y")


def test_a_class_outside_the_rows_selected_needs_no_weight() -> None:
    labels = np.array([5, 0, 1, 5])
    classes, weights = ClassWeights(1, {1: 2.0, 0: 1.0}, "y", "s").table(MemoryReader(labels), RowSet(1, 3))
    assert (classes.tolist(), weights.tolist()) == ([0, 1], [1.0, 2.0])


def test_numbers_of_rows_are_no_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["oocloader.pipeline.class_weights"], "_MOST_CLASSES", 100)
    with pytest.raises(DataError, match="array 'y' has over 100 different labels: these are no classes"):
        ClassWeights(1, None, "y", "s").table(MemoryReader(np.arange(101)), RowSet(0, 101))
