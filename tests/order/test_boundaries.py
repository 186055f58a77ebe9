"""Where rows are cut: worked out, the same as listed one by one."""

from __future__ import annotations

import bisect
import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocloader.order.boundaries import of_neighbours, of_picked


def listed(start: int, stop: int, size: int, chunk_origins: list[int]) -> list[int]:
    """Every cut of every part, then the fewest that leave no gap over `size`."""
    cuts = [
        row
        for part in itertools.pairwise([*chunk_origins, max(stop, chunk_origins[-1])])
        for row in range(*part, size)
    ]
    edges = [0, *(cut - start for cut in cuts if start < cut < stop), stop - start]
    if len(chunk_origins) == 1:
        return edges
    kept = [0]
    while kept[-1] < edges[-1]:
        kept.append(edges[bisect.bisect_right(edges, kept[-1] + size) - 1])
    return kept


STARTS = st.sets(st.integers(1, 300), max_size=8).map(lambda found: [0, *sorted(found)])


@given(start=st.integers(0, 250), rows=st.integers(1, 250), size=st.integers(1, 60), chunk_origins=STARTS)
def test_worked_out_as_listed(start: int, rows: int, size: int, chunk_origins: list[int]) -> None:
    edges = of_neighbours(start, start + rows, size, chunk_origins)
    expected = listed(start, start + rows, size, chunk_origins)
    assert len(edges) == len(expected)
    assert edges[np.arange(len(edges))].tolist() == expected
    assert [int(edges[np.array(index)]) for index in range(len(edges))] == expected


@given(start=st.integers(0, 250), rows=st.integers(1, 250), size=st.integers(1, 60), chunk_origins=STARTS)
def test_neighbours_picked_one_by_one_are_cut_alike(
    start: int, rows: int, size: int, chunk_origins: list[int]
) -> None:
    found = of_picked(np.arange(start, start + rows), size, chunk_origins)
    assert found[0] == 0
    assert found[-1] == rows
    assert np.diff(found).min() > 0
    assert np.diff(found).max() <= size
    assert set(found.tolist()) <= {0, rows, *listed(start, start + rows, 1, [0])}


@pytest.mark.parametrize("chunk_origins", [[0], [0, 10**8, 10**8 + 1, 7 * 10**8]])
def test_memory_does_not_grow_with_rows(chunk_origins: list[int]) -> None:
    tracemalloc.start()
    edges = of_neighbours(3, 10**9, 100, chunk_origins)
    assert len(edges) == pytest.approx(10**7, abs=5)
    assert int(edges[np.array(len(edges) - 1)]) == 10**9 - 3
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()
