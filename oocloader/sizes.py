"""Sizes in bytes: of rows, as users write them, and as they are shown to people."""

import math
import operator
import re
from collections.abc import Sequence

import numpy as np

from oocloader.errors import SettingError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def nbytes_of_row(shape: Sequence[int], dtype: np.dtype) -> int:
    """Decoded bytes of one row of an array of `shape` (rows, *sample_shape).

    >>> nbytes_of_row((1000, 8, 8), np.dtype("float32"))
    256
    """
    return math.prod(shape[1:]) * dtype.itemsize


def rows_in(nbytes: int, row_nbytes: int) -> int:
    """How many rows of `row_nbytes` bytes are in `nbytes`, at least one.

    >>> rows_in(1000, 300), rows_in(1000, 2000), rows_in(1000, 0)
    (3, 1, 1000)
    """
    return max(1, nbytes // max(1, row_nbytes))


def nbytes_text(nbytes: float) -> str:
    """A size for people, in powers of 1024.

    >>> nbytes_text(512), nbytes_text(3 << 20)
    ('512 B', '3.0 MiB')
    """
    amount = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{int(nbytes)} B" if unit == "B" else f"{amount:,.1f} {unit}"
        amount /= 1024
    return f"{amount:,.1f} TiB"


def parse_nbytes(value: int | str, option: str) -> int:
    """Bytes from a number, or from text such as ``"64MiB"`` (powers of 1024) or ``"1.5GB"`` (of 1000).

    >>> parse_nbytes("64MiB", "host_memory"), parse_nbytes("2 GB", "host_memory"), parse_nbytes(10, "window")
    (67108864, 2000000000, 10)
    """
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?))?b?\s*", value, re.ASCII | re.IGNORECASE)
        if found is None:
            raise _no_size(value, option)
        base = 1024 if found[3] else 1000
        nbytes = int(float(found[1]) * base ** "_kmgt".index((found[2] or "_").lower()))
    else:
        try:
            nbytes = operator.index(value)
        except TypeError:
            raise _no_size(value, option) from None
        if isinstance(value, bool):
            raise _no_size(value, option)
    if nbytes < 1:
        raise SettingError(f"{option}={value!r} must be at least one byte")
    return nbytes


def _no_size(value: object, option: str) -> SettingError:
    return SettingError(f'{option}={value!r} is no size; write bytes or a text such as "64MiB" or "2GB"')
