"""Which dtypes and shapes load."""

from __future__ import annotations

import numpy as np
import pytest

from oocloader.stores.base.dtypes import LOADABLE, native, refusal


@pytest.mark.parametrize("dtype", sorted(LOADABLE, key=str))
def test_numbers_load_in_either_byte_order(dtype: np.dtype) -> None:
    for stored in (dtype, dtype.newbyteorder()):
        assert native(stored) == dtype
        assert refusal(stored, (3, 2)) == ""


@pytest.mark.parametrize(
    ("dtype", "shape", "words"),
    [
        ("O", (3,), "object"),
        ("U3", (3,), "integer codes"),
        ("M8[s]", (3,), "astype"),
        ("V4", (3,), "4 bytes without a meaning"),
        ([("a", "i4"), ("b", "f4")], (3,), "fields a, b"),
        ("longdouble", (3,), "TensorFlow does not have"),
        ("f4", (), "0-d"),
        ("f4", (3, 0), "empty"),
        ("O", (), "object"),
    ],
)
def test_what_does_not_load(dtype: object, shape: tuple[int, ...], words: str) -> None:
    assert words in refusal(np.dtype(dtype), shape)  # type: ignore[call-overload] # any description of one
