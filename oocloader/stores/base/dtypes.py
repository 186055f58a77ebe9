"""Which dtypes and shapes have rows that TensorFlow can hold, and what to say of the others."""

from typing import Any

import numpy as np

STRING_REMEDY = "write the labels as integer codes, such as those of np.unique(labels, return_inverse=True)"
_CODES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
LOADABLE = frozenset(map(np.dtype, _CODES))


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """`dtype` in this machine's byte order and without metadata, where it is a plain number.

    >>> native(np.dtype(">i4")) == np.dtype("i4")
    True
    """
    if dtype.names is None and dtype.subdtype is None and dtype.kind in "biufc":
        return np.dtype(dtype.str).newbyteorder("=")
    return dtype


def refusal(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    """Why an array of this dtype and shape cannot be loaded, empty where it can.

    >>> refusal(np.dtype("f4"), (10, 3))
    ''
    >>> refusal(np.dtype("f4"), (0, 3))
    'it is empty: shape (0, 3)'
    """
    if reason := _dtype_refusal(dtype):
        return reason
    if not shape:
        return "it is 0-d: a single value, no axis of rows"
    return f"it is empty: shape {shape}" if 0 in shape else ""


def _dtype_refusal(dtype: np.dtype[Any]) -> str:
    if dtype.names is not None:
        fields = ", ".join(dtype.names)
        return f"its dtype is compound, with fields {fields}: write the field you want as an array of its own"
    if native(dtype) in LOADABLE:
        return ""
    if dtype.kind == "O":
        return "its dtype is object: Python objects of any kind and size, not numbers"
    if dtype.kind in "SUT":
        return f"its dtype is string ({dtype}): {STRING_REMEDY}"
    if dtype.kind in "mM":
        return f"its dtype is {dtype}: write it as integers (.astype('int64')) or as floats"
    if dtype.kind == "V":
        return f"its dtype is opaque ({dtype.itemsize} bytes without a meaning)"
    return f"its dtype is {dtype}, which TensorFlow does not have: write it as float64 or complex128"
