"""The arrays that a Loader reads, and which of their rows; those that do not fit are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import oocloader as ooc
from left_over import leaving_nothing
from numbered import Numbered, numbers_of, rows_array
from recorded import ids_of

pytestmark = pytest.mark.usefixtures("tf")


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    with leaving_nothing():
        yield


ROWS = 1000


CHOSEN = [
    (slice(None), range(ROWS)),
    (slice(100, 350), range(100, 350)),
    (slice(-10, None), range(990, 1000)),
    (slice(3, 900, 7), range(3, 900, 7)),
    (slice(0, 5000), range(ROWS)),
    (np.array([0, 1, 63, 64, 500, 999]), [0, 1, 63, 64, 500, 999]),
    (np.arange(10, 20, dtype="u2"), range(10, 20)),
    ([5], [5]),
    (np.arange(ROWS) % 3 == 0, range(0, ROWS, 3)),
    ((np.arange(ROWS) < 70).tolist(), range(70)),
]


@pytest.mark.parametrize(("rows", "expected"), CHOSEN, ids=range(len(CHOSEN)))
def test_rows(any_store: Numbered, rows: Any, expected: Any) -> None:
    shuffle = len(expected) % 3 == 0
    with ooc.Loader(
        any_store.source, "x", "y", rows=rows, shuffle=shuffle, batch_size=20, window=90
    ) as loader:
        assert len(loader) == -(-len(expected) // 20)
        for elements in (loader, loader.dataset().map(lambda x, y: (x, y))):
            ids = ids_of(elements)
            assert (sorted(ids) if shuffle else ids) == list(expected)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (slice(None, None, -1), "must go upwards"),
        (slice(5, 5), "selects no row"),
        ([], "selects no row"),
        (np.zeros(ROWS, bool), "selects no row"),
        (np.ones(ROWS - 1, bool), "a mask of 999 values, but the arrays have 1000 rows"),
        ([3, 3], r"sorted and unique: rows\[0\] is 3"),
        ([5, 4], "sorted and unique"),
        ([0, 1000], "rows 0 to 999"),
        ([-1, 5], "rows 0 to 999"),
        ([1.5], "must be integers"),
        (np.zeros((2, 2), int), "one-dimensional"),
        ("abc", "one-dimensional|must be integers"),
        (7, "one-dimensional"),
    ],
)
def test_bad_rows(make_store: Callable[..., Numbered], rows: Any, told: str) -> None:
    with pytest.raises(ooc.OocloaderError, match=told) as caught:
        ooc.Loader(make_store("h5").source, "x", rows=rows)
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)


def test_lengths_that_differ(tmp_path: Path) -> None:
    path = tmp_path / "mismatch.h5"
    with h5py.File(path, "w") as file:
        file["x"], file["y"] = np.zeros((1000, 5), "f4"), np.arange(999)
    for options in ({"features": "x", "labels": "y"}, {"features": ["x", "y"]}):
        with pytest.raises(ooc.DataError) as caught:
            ooc.Loader(path, **options)
        message = str(caught.value)
        assert f"'x' of {path} has 1000 rows, 'y' of {path} has 999" in message
        assert "\n" not in message
        assert len(message) < 400


def test_an_unknown_array_lists_those_there_are(any_store: Numbered) -> None:
    for options in ({"features": "z"}, {"features": "x", "labels": "z"}, {"features": ["x", "z"]}):
        with pytest.raises(ooc.ArrayNotFoundError) as caught:
            ooc.Loader(any_store.source, **options)
        assert isinstance(caught.value, KeyError)
        assert "has no array 'z'; it has 'x', 'y'" in str(caught.value)


def test_without_features_there_must_be_one_array(make_store: Callable[..., Numbered]) -> None:
    with pytest.raises(ooc.DataError, match="has several arrays: 'x', 'y'; name the one to load"):
        ooc.Loader(make_store("h5").source)
    with ooc.Loader(make_store("npy").source["x"]) as loader:
        assert [n for x in loader for n in numbers_of(x)] == list(range(ROWS))
    with ooc.Loader(rows_array(50)) as loader:
        assert [n for x in loader for n in numbers_of(x)] == list(range(50))


def test_fields_of_arrays_side_by_side(make_store: Callable[..., Numbered]) -> None:
    """Features, labels and weights as dicts, from one store."""
    store = make_store("zarr")
    with ooc.Loader(
        store.source,
        {"image": "x", "again": "x"},
        {"class": "y"},
        sample_weight="y",
        shuffle=True,
        window=200,
    ) as loader:
        seen = []
        for features, labels, weight in loader:
            assert list(features) == ["image", "again"]
            np.testing.assert_array_equal(features["image"], features["again"])
            np.testing.assert_array_equal(labels["class"], weight)
            seen += ids_of([(features["image"], labels["class"])])
        assert sorted(seen) == list(range(ROWS))
