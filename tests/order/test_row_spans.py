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
from oocloader.order.row_spans import Piece, _items, apart, cut, place, shared_out, split, within

BUFFER = 300


def brought(pieces: Sequence[Piece]) -> np.ndarray:
    """A buffer that starts as -1, with the number of the stored row at every place that pieces fill."""
    buffer = np.full(BUFFER, -1, np.int64)
    for piece in pieces:
        rows = np.arange(piece.start, piece.stop)
        buffer[piece.dest] = rows if piece.pick is None else rows[piece.pick]
    return buffer


@st.composite
def some_pieces(draw: st.DrawFn) -> Piece:
    start = draw(st.integers(0, 1000))
    span = draw(st.integers(1, 100))
    pick = None
    if draw(st.booleans()):
        chosen = draw(st.sets(st.integers(0, span - 1), min_size=1))
        pick = np.array(sorted(chosen), np.int64)
        start, span, pick = start + int(pick[0]), int(pick[-1] - pick[0]) + 1, pick - pick[0]
    rows = span if pick is None else len(pick)
    if draw(st.booleans()):
        at = draw(st.integers(0, BUFFER - rows))
        return Piece(start, start + span, pick, slice(at, at + rows))
    dest = draw(st.permutations(range(BUFFER)))[:rows]
    return Piece(start, start + span, pick, np.array(dest, np.int64))


def well_formed(piece: Piece) -> bool:
    if piece.pick is not None:
        inside = piece.pick[0] >= 0 and piece.pick[-1] < piece.stop - piece.start
        if not inside or len(piece.pick) == piece.stop - piece.start:
            return False
    to = piece.dest
    return piece.rows == (to.stop - to.start if isinstance(to, slice) else len(to)) > 0


@given(piece=some_pieces(), rows=st.integers(1, 120))
def test_cut(piece: Piece, rows: int) -> None:
    parts = cut(piece, rows)
    assert np.array_equal(brought(parts), brought([piece]))
    assert all(part.stop - part.start <= rows for part in parts)
    assert len(parts) == 1 or all(map(well_formed, parts))
    assert sum(part.rows for part in parts) == piece.rows


@given(piece=some_pieces(), gap=st.integers(0, 30))
def test_apart(piece: Piece, gap: int) -> None:
    parts = apart(piece, gap)
    assert np.array_equal(brought(parts), brought([piece]))
    for part in parts:
        assert part.pick is None or int(np.diff(part.pick).max(initial=1)) <= gap + 1
    for before, behind in itertools.pairwise(parts):
        assert behind.start - before.stop > gap


@given(piece=some_pieces(), lo=st.integers(0, 1100), rows=st.integers(0, 200))
def test_within(piece: Piece, lo: int, rows: int) -> None:
    buffer = brought([piece])
    expected = np.where((buffer >= lo) & (buffer < lo + rows), buffer, -1)
    part = within(piece, lo, lo + rows)
    assert np.array_equal(brought([] if part is None else [part]), expected)
    assert part is None or well_formed(part)


@given(piece=some_pieces(), by=st.integers(0, 50))
def test_shifted(piece: Piece, by: int) -> None:
    moved = piece.shifted(by)
    assert moved.rows == piece.rows
    at, before = (
        np.arange(to.start, to.stop) if isinstance(to, slice) else to for to in (moved.dest, piece.dest)
    )
    assert np.array_equal(at, before + by)
    assert (moved.start, moved.stop, moved.pick) == (piece.start, piece.stop, piece.pick)


@given(first=some_pieces(), gap=st.integers(0, 40), second=some_pieces(), band=st.integers(1, 150))
def test_split_by_band(first: Piece, gap: int, second: Piece, band: int) -> None:
    begin = first.stop + gap
    second = Piece(begin, begin + second.stop - second.start, second.pick, second.dest)
    bands = split([first, second], band)
    assert [number for number, _ in bands] == sorted({number for number, _ in bands})
    parts = [part for _, members in bands for part in members]
    assert np.array_equal(brought(parts), brought([first, second]))
    for number, members in bands:
        assert all(number * band <= part.start and part.stop <= (number + 1) * band for part in members)


@pytest.mark.parametrize(
    ("piece", "cuts"),
    [
        (Piece(10, 20, None, slice(0, 10)), [(10, 14), (14, 18), (18, 20)]),
        (Piece(10, 14, None, slice(0, 4)), [(10, 14)]),
        (Piece(10, 20, np.array([0, 9]), slice(0, 2)), [(10, 14), (18, 20)]),
    ],
)
def test_cut_lies_at_multiples_from_the_start(piece: Piece, cuts: list[tuple[int, int]]) -> None:
    assert [(part.start, part.stop) for part in cut(piece, 4)] == cuts


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float16", "<i4", ">i4", "complex64"])
@pytest.mark.parametrize("sample_shape", [(), (3,), (2, 3), (0,)])
@pytest.mark.parametrize("dest", [slice(2, 6), np.array([7, 0, 3, 2])], ids=["run", "scattered"])
@pytest.mark.parametrize("strided", [False, True])
def test_place(dtype: str, sample_shape: tuple[int, ...], dest: slice | np.ndarray, strided: bool) -> None:
    kept = np.arange(4 * max(1, int(np.prod(sample_shape)))).astype(dtype)
    rows = kept[: 4 * int(np.prod(sample_shape))].reshape(4, *sample_shape)
    if strided:
        rows = np.repeat(rows, 2, axis=0)[::2]
    out = np.zeros((9, *sample_shape), np.dtype(dtype).newbyteorder("="))
    expected = out.copy()
    expected[dest] = rows
    place(out, dest, rows)
    assert np.array_equal(out, expected)


def test_place_keeps_bits() -> None:
    """A NaN that says something, and minus zero."""
    rows = np.array([0x7FF8_0000_0000_1234, 1 << 63], np.uint64).view(np.float64)
    out = np.zeros(4)
    place(out, np.array([3, 1]), rows)
    assert out.view(np.uint64).tolist() == [0, 1 << 63, 0, 0x7FF8_0000_0000_1234]


@given(piece=some_pieces(), rows=st.integers(1, 60))
def test_shared_out(piece: Piece, rows: int) -> None:
    parts = shared_out(piece, rows)
    assert np.array_equal(brought(parts), brought([piece]))
    assert all(1 <= part.rows <= rows for part in parts)
    assert len(parts) == 1 or all(well_formed(part) for part in parts)
    assert len(parts) == -(-piece.rows // rows)


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
    dest: slice | np.ndarray = slice(2, 2 + rows)
    if data.draw(st.booleans()):
        dest = np.array(data.draw(st.permutations(range(8))), np.int64)[:rows]
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
        expected[(dest, *cuts)] = values
    # Also with fewer items than are worth it.
    with patch.object(row_spans, "_FEW_ITEMS", data.draw(st.sampled_from([0, 500]))):
        place(out[(slice(None), *cuts)], dest, values)
    assert out.tobytes() == expected.tobytes()
