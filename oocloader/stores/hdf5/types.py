"""What an HDF5 dataset holds, and whether its stored bytes are NumPy's bytes."""

from typing import Any

import h5py
import numpy as np

from oocloader.stores.base import STRING_REMEDY


def type_refusal(dataset: h5py.Dataset) -> str:
    """Why no rows come of this type or dataspace, as far as HDF5 alone has such; empty where they may."""
    try:
        dtype = dataset.dtype
    except TypeError as error:
        return f"its datatype has no NumPy equivalent ({error})"
    if dataset.shape is None:
        return "it is an empty (null) dataset: it has a type and no values"
    string = h5py.check_string_dtype(dtype)
    if string is not None:
        length = "variable-length" if string.length is None else f"{string.length}-byte"
        return f"its dtype is string ({length} {string.encoding}): {STRING_REMEDY}"
    vlen = h5py.check_vlen_dtype(dtype)
    if vlen is not None:
        return f"its dtype is vlen (rows of {vlen} of varying length): pad the rows to one length"
    if h5py.check_ref_dtype(dtype) is not None:
        return "its dtype is reference (it points to other objects of the file)"
    return ""


def plain_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """`dtype` without the metadata that h5py puts on enums."""
    return np.dtype(dtype.str) if dtype.names is None and dtype.subdtype is None else dtype


def stored_otherwise(dataset: h5py.Dataset) -> str:
    """Why the stored bytes are not those of `dataset.dtype`, empty where they are."""
    stored, dtype = dataset.id.get_type(), plain_dtype(dataset.dtype)
    if isinstance(stored, h5py.h5t.TypeArrayID):
        return "its datatype is an array type"
    if dtype.kind == "b":
        same = isinstance(stored, h5py.h5t.TypeEnumID) and stored.get_size() == 1
    elif dtype.kind == "c" and isinstance(stored, h5py.h5t.TypeCompoundID):
        same = _is_pair(stored, dtype)
    elif isinstance(stored, h5py.h5t.TypeEnumID):
        same = stored.get_super().equal(h5py.h5t.py_create(dtype))
    else:
        same = stored.equal(h5py.h5t.py_create(dtype))
    return "" if same else "its numbers are stored in an unusual form, which HDF5 converts"


def _is_pair(stored: h5py.h5t.TypeCompoundID, dtype: np.dtype[Any]) -> bool:
    """Whether a compound is two floats without a gap, as NumPy keeps complex numbers."""
    part = np.dtype(f"{dtype.str[0]}f{dtype.itemsize // 2}")
    return bool(
        stored.get_size() == dtype.itemsize
        and [stored.get_member_offset(i) for i in (0, 1)] == [0, part.itemsize]
        and all(stored.get_member_type(i).equal(h5py.h5t.py_create(part)) for i in (0, 1))
    )
