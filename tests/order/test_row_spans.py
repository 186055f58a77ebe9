"""Pieces cut, moved and picked apart bring the same rows to the same places."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocloader.order import row_spans
from oocloader.order.row_spans import RowSpan, _items, apart, cut, place, shared_out, split, within

BUFFER = 300


def brought(spans: Sequence[RowSpan]) -> np.ndarray:
    """A buffer that starts as -1, with the number of the stored row at every place that spans fill."""
    buffer = np.full(BUFFER, -1, np.int64)
    for span in spans:
        rows = np.arange(span.start, span.stop)
        buffer[span.dest_index] = rows if span.row_index is None else rows[span.row_index]
    return buffer


@st.composite
def some_spans(draw: st.DrawFn) -> RowSpan:
    start = draw(st.integers(0, 1000))
    width = draw(st.integers(1, 100))
    row_index = None
    if draw(st.booleans()):
        chosen = draw(st.sets(st.integers(0, width - 1), min_size=1))
        row_index = np.array(sorted(chosen), np.int64)
        start, width, row_index = (
            start + int(row_index[0]),
            int(row_index[-1] - row_index[0]) + 1,
            row_index - row_index[0],
        )
    rows = width if row_index is None else len(row_index)
    if draw(st.booleans()):
        at = draw(st.integers(0, BUFFER - rows))
        return RowSpan(start, start + width, row_index, slice(at, at + rows))
    dest_index = draw(st.permutations(range(BUFFER)))[:rows]
    return RowSpan(start, start + width, row_index, np.array(dest_index, np.int64))


def well_formed(span: RowSpan) -> bool:
    if span.row_index is not None:
        inside = span.row_index[0] >= 0 and span.row_index[-1] < span.stop - span.start
        if not inside or len(span.row_index) == span.stop - span.start:
            return False
    to = span.dest_index
    return span.rows == (to.stop - to.start if isinstance(to, slice) else len(to)) > 0


@given(span=some_spans(), rows=st.integers(1, 120))
def test_cut(span: RowSpan, rows: int) -> None:
    parts = cut(span, rows)
    assert np.array_equal(brought(parts), brought([span]))
    assert all(part.stop - part.start <= rows for part in parts)
    assert len(parts) == 1 or all(map(well_formed, parts))
    assert sum(part.rows for part in parts) == span.rows


@given(span=some_spans(), gap=st.integers(0, 30))
def test_apart(span: RowSpan, gap: int) -> None:
    parts = apart(span, gap)
    assert np.array_equal(brought(parts), brought([span]))
    for part in parts:
        assert part.row_index is None or int(np.diff(part.row_index).max(initial=1)) <= gap + 1
    for before, behind in itertools.pairwise(parts):
        assert behind.start - before.stop > gap


@given(span=some_spans(), lo=st.integers(0, 1100), rows=st.integers(0, 200))
def test_within(span: RowSpan, lo: int, rows: int) -> None:
    buffer = brought([span])
    expected = np.where((buffer >= lo) & (buffer < lo + rows), buffer, -1)
    part = within(span, lo, lo + rows)
    assert np.array_equal(brought([] if part is None else [part]), expected)
    assert part is None or well_formed(part)


@given(span=some_spans(), by=st.integers(0, 50))
def test_shifted(span: RowSpan, by: int) -> None:
    moved = span.shifted(by)
    assert moved.rows == span.rows
    at, before = (
        np.arange(to.start, to.stop) if isinstance(to, slice) else to
        for to in (moved.dest_index, span.dest_index)
    )
    assert np.array_equal(at, before + by)
    assert (moved.start, moved.stop, moved.row_index) == (span.start, span.stop, span.row_index)


@given(first=some_spans(), gap=st.integers(0, 40), second=some_spans(), band=st.integers(1, 150))
def test_split_by_band(first: RowSpan, gap: int, second: RowSpan, band: int) -> None:
    begin = first.stop + gap
    second = RowSpan(begin, begin + second.stop - second.start, second.row_index, second.dest_index)
    bands = split([first, second], band)
    assert [number for number, _ in bands] == sorted({number for number, _ in bands})
    parts = [part for _, members in bands for part in members]
    assert np.array_equal(brought(parts), brought([first, second]))
    for number, members in bands:
        assert all(number * band <= part.start and part.stop <= (number + 1) * band for part in members)


@pytest.mark.parametrize(
    ("span", "cuts"),
    [
        (RowSpan(10, 20, None, slice(0, 10)), [(10, 14), (14, 18), (18, 20)]),
        (RowSpan(10, 14, None, slice(0, 4)), [(10, 14)]),
        (RowSpan(10, 20, np.array([0, 9]), slice(0, 2)), [(10, 14), (18, 20)]),
    ],
)
def test_cut_lies_at_multiples_from_the_start(span: RowSpan, cuts: list[tuple[int, int]]) -> None:
    assert [(part.start, part.stop) for part in cut(span, 4)] == cuts


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float16", "<i4", ">i4", "complex64"])
@pytest.mark.parametrize("sample_shape", [(), (3,), (2, 3), (0,)])
@pytest.mark.parametrize("dest_index", [slice(2, 6), np.array([7, 0, 3, 2])], ids=["run", "scattered"])
@pytest.mark.parametrize("strided", [False, True])
def test_place(
    dtype: str, sample_shape: tuple[int, ...], dest_index: slice | np.ndarray, strided: bool
) -> None:
    kept = np.arange(4 * max(1, int(np.prod(sample_shape)))).astype(dtype)
    rows = kept[: 4 * int(np.prod(sample_shape))].reshape(4, *sample_shape)
    if strided:
        rows = np.repeat(rows, 2, axis=0)[::2]
    out = np.zeros((9, *sample_shape), np.dtype(dtype).newbyteorder("="))
    expected = out.copy()
    expected[dest_index] = rows
    place(out, dest_index, rows)
    assert np.array_equal(out, expected)


def test_place_keeps_bits() -> None:
    """A NaN that says something, and minus zero."""
    rows = np.array([0x7FF8_0000_0000_1234, 1 << 63], np.uint64).view(np.float64)
    out = np.zeros(4)
    place(out, np.array([3, 1]), rows)
    assert out.view(np.uint64).tolist() == [0, 1 << 63, 0, 0x7FF8_0000_0000_1234]


@given(span=some_spans(), rows=st.integers(1, 60))
def test_shared_out(span: RowSpan, rows: int) -> None:
    parts = shared_out(span, rows)
    assert np.array_equal(brought(parts), brought([span]))
    assert all(1 <= part.rows <= rows for part in parts)
    assert len(parts) == 1 or all(well_formed(part) for part in parts)
    assert len(parts) == -(-span.rows // rows)


def test_place_takes_what_lies_in_a_row_as_one_item() -> None:
    out, rows = np.zeros((4, 6, 5, 3), np.uint16), np.zeros((2, 6, 2, 3), np.uint16)
    found = _items(out[:, :, 1:3], rows)
    assert [array.shape for array in found] == [(4, 6), (2, 6)]
    assert [array.itemsize for array in found] == [12, 12]
    # Whole samples, and single values.
    assert [array.shape for array in _items(out, np.zeros((2, 6, 5, 3), np.uint16))] == [(4,), (2,)]
    assert _items(out[..., :1], rows[..., :1])[0].shape == (4, 6, 5, 1)
    # Copied as fast as they are.
    large = np.zeros((2, 4096), np.uint8)
    assert _items(large, large)[0] is large


@given(st.data())
def test_place_in_part_of_every_sample(data: st.DataObject) -> None:
    """As NumPy assigns it: of any part of the samples, of values in another order, of any dtype."""
    dtype = data.draw(st.sampled_from(["u1", "<u2", ">f4", "<c16", "S3", "M8[s]"]))
    sample_shape = tuple(data.draw(st.lists(st.integers(1, 5), max_size=3)))
    cuts = [slice(*sorted(data.draw(st.tuples(*[st.integers(0, n)] * 2)))) for n in sample_shape]
    rows = data.draw(st.integers(0, 6))
    dest_index: slice | np.ndarray = slice(2, 2 + rows)
    if data.draw(st.booleans()):
        dest_index = np.array(data.draw(st.permutations(range(8))), np.int64)[:rows]
    values_shape = (rows, *(part.stop - part.start for part in cuts))
    order = data.draw(st.permutations(range(len(values_shape))))
    every = np.frombuffer(np.random.default_rng(data.draw(st.integers(0, 9))).bytes(8 * 125 * 16), "u1")
    nbytes = int(np.prod(values_shape)) * np.dtype(dtype).itemsize
    stored = every[:nbytes].view(dtype).reshape([values_shape[axis] for axis in order])
    values = stored.transpose(np.argsort(order))
    assert values.shape == values_shape
    out = np.zeros((8, *sample_shape), dtype)
    expected = out.copy()
    if nbytes:
        expected[(dest_index, *cuts)] = values
    # Also with fewer items than are worth it.
    with patch.object(row_spans, "_FEW_ITEMS", data.draw(st.sampled_from([0, 500]))):
        place(out[(slice(None), *cuts)], dest_index, values)
    assert out.tobytes() == expected.tobytes()
