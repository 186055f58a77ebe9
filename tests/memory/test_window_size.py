"""What window= and block= ask for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oocloader.errors import SettingError
from oocloader.memory.window_size import RequestedRows


@pytest.mark.parametrize(
    ("value", "row_nbytes", "rows"),
    [(1, 10, 1), (np.int32(7), 10, 7), ("1kB", 10, 100), ("1kB", 3000, 1), ("1kB", 0, 1000), ("999", 10, 99)],
)
def test_requested_rows(value: int | str, row_nbytes: int, rows: int) -> None:
    requested = RequestedRows.parse("window", value)
    assert requested is not None
    assert requested.rows_of(row_nbytes) == rows
    assert str(requested) == (repr(value) if isinstance(value, str) else str(rows))


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "many", "0MiB", [3]])
def test_requested_rows_refuse(value: Any) -> None:
    with pytest.raises(SettingError, match=r"^window="):
        RequestedRows.parse("window", value)


def test_nothing_is_requested() -> None:
    assert RequestedRows.parse("window", None) is None
