"""Values that differ bit by bit: how many, and which is the first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from damaged import only
from oocloader.conversion import convert
from oocloader.conversion.verification import verify
from oocloader.conversion.verification.compare import described, differing, same_bits


def test_bits_count_and_not_values(tmp_path: Path) -> None:
    x = np.array([np.nan, 0.0, 1.0], "f4")
    convert(x, tmp_path / "x.zarr")
    assert verify(tmp_path / "x.zarr", x.copy()).ok
    other = x.copy()
    other.view("u4")[0] ^= 1
    other[1] = -0.0
    found = only(verify(tmp_path / "x.zarr", other))
    assert found.differences == 2
    assert found.first is not None
    assert (found.first.found, found.first.expected) == ("nan (7fc00000)", "nan (7fc00001)")


@given(st.data())
def test_places_of_differences(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(["?", "i1", "u2", "f4", "f8", "c8", "c16"]))
    shape = data.draw(st.tuples(st.integers(1, 20), st.integers(1, 4)))
    x = np.zeros(shape, dtype)
    places = sorted(data.draw(st.sets(st.integers(0, x.size - 1))))
    other = x.copy()
    other.reshape(-1)[places] = 1
    assert differing(x, other).tolist() == places
    assert same_bits(x, other) == (not places)
    for place in places[:1]:
        first = described(100, place, x, other)
        assert (first.row - 100, *first.index) == np.unravel_index(place, shape)
