"""Attributes as plain values, and what they say of the values stored."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from oocloader.stores.base.attributes import packed_notice, plain

NAN = base64.b64encode(np.array(np.nan, "<f4").tobytes()).decode()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.array([[1, 2]]), [[1, 2]]),
        (b"caf\xc3\xa9", "café"),
        (np.array([b"a", b"b"]), ["a", "b"]),
        (np.longdouble(2), 2.0),
        (None, None),
    ],
)
def test_plain(value: Any, expected: Any) -> None:
    assert plain(value) == expected


@pytest.mark.parametrize(
    ("attrs", "dtype", "names"),
    [
        ({}, "u1", ""),
        ({"scale_factor": [2.0]}, "u1", "scale_factor"),
        ({"add_offset": 0}, "u1", ""),
        ({"_FillValue": 255, "scale_factor": 2}, "u1", "scale_factor, _FillValue"),
        ({"_FillValue": "NaN", "missing_value": float("nan")}, "f4", ""),
        ({"_FillValue": NAN}, "f4", ""),
        ({"_FillValue": "no base64"}, "f4", "_FillValue"),
    ],
)
def test_notice(attrs: dict[str, Any], dtype: str, names: str) -> None:
    notice = packed_notice(attrs, np.dtype(dtype))
    assert bool(notice) == bool(names)
    assert names in notice
