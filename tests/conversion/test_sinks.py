"""What all formats have in common in where chunks go: work that was broken off is taken over or refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from oocloader.conversion.extents import Extent, Placement
from oocloader.conversion.sinks import Sink
from oocloader.errors import StoreError


class OneFile(Sink):
    """Chunks one behind the other in one file; behind chunk 5 it ends with a table."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = str(path)

    def path_of(self, chunk: int) -> str:
        return self._path

    def place(self, first_chunk: int, sizes: Sequence[int]) -> Placement:
        start = self.stored_nbytes
        self.stored_nbytes += sum(sizes)
        offsets = (start + np.cumsum([0, *sizes[:-1]])).tolist()
        ends = first_chunk + len(sizes) == 6
        return Placement(offsets, [Extent(self._path, start, sum(sizes), b"table" if ends else b"", ends)])


def test_chunks_are_taken_over_where_they_lie(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"0001122233455555 and what was broken off")
    sink = OneFile(path)
    sink.take_over(0, [0, 3, 5], [3, 2, 3])
    # In the middle of a file nothing is written.
    assert path.read_bytes().endswith(b"broken off")
    sink.take_over(3, [8, 10, 11], [2, 1, 5])
    assert path.read_bytes() == b"0001122233455555table"
    assert sink.stored_nbytes == 16


@pytest.mark.parametrize("offsets", [[1, 3, 5], [0, 3], [0, 3, 6]])
def test_chunks_that_lie_elsewhere_are_refused(tmp_path: Path, offsets: list[int]) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"00011222")
    with pytest.raises(StoreError, match=f"^{path}: chunks were put in other places before; begin anew"):
        OneFile(path).take_over(0, offsets, [3, 2, 3])
    assert path.read_bytes() == b"00011222"
