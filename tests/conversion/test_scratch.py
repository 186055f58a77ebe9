"""Rows laid aside in a file without a name."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numbered import rows_array
from oocloader.conversion import convert, shuffling, transposing
from oocloader.conversion.scratch import Scratch, SpooledRows, TwoBuffers
from oocloader.errors import ChangedError, ClosedError, StoreError


@pytest.mark.parametrize("options", [{"shuffle": 1}, {"axis": 1}])
def test_a_source_that_shrinks_in_the_first_pass(tmp_path: Path, options: Any) -> None:
    np.save(tmp_path / "x.npy", rows_array(100, "uint8", sample_shape=(300, 300)))
    original = Scratch.write

    def cutting(self: Scratch, data: np.ndarray, offset: int) -> None:
        os.truncate(tmp_path / "x.npy", 1000)
        original(self, data, offset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scratch, "write", cutting)
        patch.setattr(transposing, "BOX_NBYTES", 1_000_000)
        patch.setattr(shuffling, "BLOCK_NBYTES", 1_000_000)
        with pytest.raises(ChangedError, match=r"x\.npy"):
            convert(tmp_path / "x.npy", tmp_path / "out.zarr", **options)
    assert os.listdir(tmp_path) == ["x.npy"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("oocloader")]


@given(writes=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 80)), min_size=1, max_size=20))
def test_bytes_are_where_they_were_put(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[int, int]]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    before = sorted(os.listdir(folder))
    expected = np.zeros(400, np.uint16)
    scratch = Scratch(str(folder))
    # It has no name, so that nothing is left of it however the process ends.
    assert sorted(os.listdir(folder)) == before
    for number, (at, length) in enumerate(writes, 1):
        expected[at : at + length] = number
        scratch.write(np.full(length, number, np.uint16), 2 * at)
    end = max(at + length for at, length in writes)
    found = np.empty((end, 1), np.uint16)
    scratch.read(found, 0)
    assert np.array_equal(found[:, 0], expected[:end])
    with pytest.raises(StoreError, match=f"ends at byte {2 * end}; check the disk"):
        scratch.read(np.empty(2, np.uint16), 2 * end - 2)
    scratch.close()
    scratch.close()
    for use in (scratch.write, scratch.read):
        with pytest.raises(ClosedError):
            use(found, 0)


class Squares(SpooledRows[int]):
    """Squares of numbers, ten a part."""

    def __init__(self, folder: str, *, fails_at: int = -1) -> None:
        super().__init__(folder, dtype=np.dtype(np.int64), threads=3)
        self.laid: list[int] = []
        self._fails_at = fails_at

    def _parts(self) -> Iterable[int]:
        return range(0, 200, 10)

    def _buffer_shape(self) -> tuple[int, ...]:
        return (10,)

    def _lay_aside(self, part: int, memory: TwoBuffers) -> int:
        if part == self._fails_at:
            raise OSError("no space")
        self.laid.append(part)
        memory.first[:] = np.arange(part, part + 10)
        np.square(memory.first, out=memory.second)
        self._scratch.write(memory.second, 8 * part)
        return memory.second.nbytes

    def all_rows(self) -> np.ndarray:
        found = np.empty(200, np.int64)
        self._scratch.read(found, 0)
        return found


def test_the_source_is_laid_aside_once(tmp_path: Path) -> None:
    rows = Squares(str(tmp_path))
    advanced: list[int] = []
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: rows.prepare(advanced.append), range(8)))
    assert sorted(rows.laid) == list(range(0, 200, 10))
    assert advanced == [80] * 20
    # The memory of each thread is its own.
    assert np.array_equal(rows.all_rows(), np.arange(200) ** 2)
    rows.close()


def test_a_first_pass_that_fails_is_made_again(tmp_path: Path) -> None:
    rows = Squares(str(tmp_path), fails_at=100)
    for _ in range(2):
        with pytest.raises(OSError, match="no space"):
            rows.prepare(lambda nbytes: None)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("oocloader")]
    rows.close()
