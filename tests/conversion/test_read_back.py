"""New stores are read back: damage is found before they have their name."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numbered import rows_array
from oocloader.conversion import convert, read_back, run
from oocloader.conversion.read_back import sample
from oocloader.errors import StoreError
from plans import planned
from stored import reference, same_bits


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.parametrize("damage", ["values", "truncated"])
def test_damage_is_found_before_the_store_has_its_name(
    tmp_path: Path, suffix: str, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = rows_array(100, "float32")
    convert(x + 1, tmp_path / f"out{suffix}")
    before = reference(tmp_path / f"out{suffix}")
    check_store = read_back.check_store

    def check_damaged(path: str, *args: Any, **options: Any) -> None:
        if os.path.isdir(path):
            path_of_data = os.path.join(path, "c.0.0.0")
        else:
            path_of_data = path
        with open(path_of_data, "r+b") as file:
            if damage == "truncated":
                file.truncate(os.path.getsize(path_of_data) - 9)
            else:
                content = file.read()
                file.seek(content.rindex(np.float32(99).tobytes()))
                file.write(np.float32(98).tobytes())
        check_store(path, *args, **options)

    monkeypatch.setattr(run, "check_store", check_damaged)
    with pytest.raises(StoreError, match=rf"out\{suffix}: the new store was read back and is wrong"):
        convert(x, tmp_path / f"out{suffix}", overwrite=True)
    assert same_bits(reference(tmp_path / f"out{suffix}"), before)
    assert os.listdir(tmp_path) == [f"out{suffix}"]


KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@given(rows=st.integers(1, 5000), row_nbytes=st.integers(1, 3 * MIB), chunk_rows=st.integers(1, 5000))
def test_sample_spans_the_array(rows: int, row_nbytes: int, chunk_rows: int) -> None:
    plan = planned((rows, row_nbytes), chunk_rows=chunk_rows)
    runs = list(sample(plan))
    assert 1 <= len(runs) <= 8
    assert runs[-1][1] == rows
    assert all(0 <= start < stop <= rows for start, stop in runs)
    assert all(before[0] < after[0] for before, after in itertools.pairwise(runs))
    assert max((stop - start) * row_nbytes for start, stop in runs) <= max(MIB, row_nbytes)
    if plan.chunks > 1:
        assert runs[0][0] == 0
