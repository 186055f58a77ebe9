"""Attributes as plain Python values, and what they say about the values stored."""

import base64
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

# netCDF and CF conventions: the value meant is stored * scale_factor + add_offset, and some mean "missing".
_NEUTRAL = {"scale_factor": 1, "add_offset": 0}
_MISSING = ("_FillValue", "missing_value")


def plain(value: Any) -> Any:
    """`value` of an attribute as str, numbers, None and lists of these."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, np.longdouble | np.clongdouble):
        # The only numbers that Python has no type for.
        value = float(value) if isinstance(value, np.longdouble) else complex(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def packed_notice(attrs: Mapping[str, Any], dtype: np.dtype[Any]) -> str:
    """What to tell of values of `dtype` that are stored packed or masked, empty where they are as they stand.

    >>> packed_notice({"scale_factor": 0.5, "add_offset": 0.0}, np.dtype("u1"))
    'its values are delivered as stored; scale_factor of its attributes is not applied'
    """
    applied = [name for name, neutral in _NEUTRAL.items() if _single(attrs.get(name, neutral)) != neutral]
    # Missing values that are NaN are NaN in the rows as well.
    applied += [name for name in _MISSING if name in attrs and not _is_nan(_single(attrs[name]), dtype)]
    if not applied:
        return ""
    verb = "is" if len(applied) == 1 else "are"
    return f"its values are delivered as stored; {', '.join(applied)} of its attributes {verb} not applied"


def _single(value: Any) -> Any:
    # netCDF-4 writes single numbers as arrays of one.
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _is_nan(value: Any, dtype: np.dtype[Any]) -> bool:
    if dtype.kind not in "fc":
        return False
    if isinstance(value, str) and value.lower() != "nan":
        # xarray writes it to Zarr 3 as base64 of its little-endian bytes.
        try:
            value = float(np.frombuffer(base64.b64decode(value, validate=True), f"<f{dtype.itemsize}")[0])
        except (ValueError, IndexError, TypeError):
            return False
    return value in ("NaN", "nan") or (isinstance(value, float) and math.isnan(value))
