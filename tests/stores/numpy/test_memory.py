"""Arrays in memory as a store."""

from __future__ import annotations

import numpy as np
import pytest

import oocloader as ooc
from numbered import rows_array


class TestMemory:
    def test_views_and_byte_orders(self) -> None:
        x = rows_array(30, ">i4").transpose(0, 2, 1)[::-1]
        with ooc.open_store(x) as store:
            assert store.only_array() == "array"
            found = store["array"].read(3, 11)
        assert found.dtype == np.dtype("i4")
        assert np.array_equal(found, x[3:11])

    @pytest.mark.parametrize(
        ("array", "words"),
        [
            (np.array(1.5), "0-d"),
            (np.zeros((0, 4)), "empty"),
            (np.array([None, 1]), "object"),
            (np.array(["a"]), "string"),
            (np.zeros(3, [("a", "i4"), ("b", "f4")]), "compound, with fields a, b"),
        ],
    )
    def test_refused(self, array: np.ndarray, words: str) -> None:
        with ooc.open_store(array) as store, pytest.raises(ooc.UnsupportedArrayError, match=words):
            store.only_array()

    def test_masked(self) -> None:
        with pytest.raises(ooc.SettingError, match=r"masked.*\.filled"):
            ooc.open_store(np.ma.masked_array([1, 2], [True, False]))
