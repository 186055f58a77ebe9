"""Sizes as users write them, in bytes or as text, as numbers of bytes or of rows."""

from __future__ import annotations

import operator
import re

from oocloader.errors import SettingError

MIB = 1 << 20


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


def parse_rows(value: int | str, option: str, row_nbytes: int) -> int:
    """Rows from a number of rows, or from a size as text: as many rows as fit, at least one."""
    if isinstance(value, str):
        return max(1, parse_nbytes(value, option) // max(1, row_nbytes))
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise SettingError(f'{option}={value!r} must be a number of rows or a size such as "64MiB"')
    if int(value) < 1:
        raise SettingError(f"{option}={value!r} must be at least 1 row")
    return int(value)
