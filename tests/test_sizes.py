"""Sizes as text and as numbers, in bytes and in rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oocloader.errors import SettingError
from oocloader.sizes import parse_nbytes


@pytest.mark.parametrize(
    ("value", "nbytes"),
    [
        (1, 1),
        (np.int64(10), 10),
        ("10", 10),
        ("10B", 10),
        ("10 b", 10),
        ("1kB", 1000),
        ("1K", 1000),
        ("1KiB", 1024),
        ("1Ki", 1024),
        ("64MiB", 64 << 20),
        ("64 mib", 64 << 20),
        (" 2GB ", 2 * 10**9),
        ("1.5GiB", 3 << 29),
        ("0.5k", 500),
        ("3TiB", 3 << 40),
    ],
)
def test_parse_nbytes(value: int | str, nbytes: int) -> None:
    assert parse_nbytes(value, "host_memory") == nbytes


@pytest.mark.parametrize(
    "value",
    ["", "MiB", "64 MiB MiB", "-1", "1e9", "64XB", "5iB", "1,000", "٣MB", 1.5, True, None, [1], b"1MiB"],
)
def test_parse_nbytes_refuses(value: Any) -> None:
    with pytest.raises(SettingError, match=r"^host_memory=.* is no size; write bytes or a text such as"):
        parse_nbytes(value, "host_memory")


@pytest.mark.parametrize("value", [0, -5, "0", "0.4B"])
def test_parse_nbytes_refuses_nothing(value: int | str) -> None:
    with pytest.raises(SettingError, match=r"host_memory=.* must be at least one byte"):
        parse_nbytes(value, "host_memory")
