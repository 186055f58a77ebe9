"""Rows to train on and rows held out: disjoint, complete, and as asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocloader.errors import SettingError
from oocloader.loader.splitting import block_of, by_block, by_row, held_rows, labels_of, stratified
from oocloader.memory.alignment import Column
from oocloader.order.order import RowSet
from oocloader.stores import open_store
from orders import members, row_sets

SEEDS = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize(
    ("fraction", "rows", "held"),
    [(0.1, 1000, 100), (0.001, 1000, 1), (0.999, 1000, 999), (0.5, 3, 2), (np.float32(0.25), 8, 2)],
)
def test_held_rows(fraction: Any, rows: int, held: int) -> None:
    assert held_rows(fraction, rows) == held


@pytest.mark.parametrize(
    ("fraction", "rows", "words"),
    [
        (0, 1000, "must lie between 0 and 1"),
        (1, 1000, "must lie between 0 and 1"),
        (1.5, 1000, "must lie between 0 and 1"),
        (-0.1, 1000, "must lie between 0 and 1"),
        (float("nan"), 1000, "must lie between 0 and 1"),
        (True, 1000, "must lie between 0 and 1"),
        ("0.1", 1000, "must lie between 0 and 1"),
        (None, 1000, "must lie between 0 and 1"),
        (0.0001, 1000, "no row would be held out"),
        (0.9999, 1000, "no row would be left to train on"),
        (0.5, 1, "no row would be held out"),
    ],
)
def test_held_rows_refuses(fraction: Any, rows: int, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        held_rows(fraction, rows)


def check_parts(rows: RowSet, train: RowSet, val: RowSet) -> None:
    both = np.concatenate([members(train), members(val)])
    assert np.array_equal(np.sort(both), members(rows))
    for part in (train, val):
        assert len(part) > 0
        assert part.picked is None or np.all(np.diff(part.picked) > 0)


@given(rows=row_sets().filter(lambda rows: len(rows) > 1), seed=SEEDS, data=st.data())
def test_by_row(rows: RowSet, seed: int, data: st.DataObject) -> None:
    held = data.draw(st.integers(1, len(rows) - 1))
    train, val = by_row(rows, held, seed=seed, total=500)
    check_parts(rows, train, val)
    assert len(val) == held
    again = by_row(rows, held, seed=seed, total=500)
    assert np.array_equal(members(again[1]), members(val))


def test_by_row_takes_from_everywhere_and_the_seed_decides() -> None:
    rows = RowSet(0, 10_000)
    vals = [members(by_row(rows, 1000, seed=seed, total=10_000)[1]) for seed in range(3)]
    for val in vals:
        assert np.bincount(val // 1000, minlength=10).min() > 60
    assert not np.array_equal(vals[0], vals[1])


def test_the_same_rows_are_held_out_in_every_release() -> None:
    """Models that were trained on the others rely on these very numbers."""
    assert members(by_row(RowSet(0, 30), 6, seed=0, total=30)[1]).tolist() == GOLDEN_ROWS
    _, val = by_block(RowSet(0, 30), 6, seed=0, total=30, block=4, chunk_origins=(0,))
    assert members(val).tolist() == GOLDEN_BLOCKS


GOLDEN_ROWS = [0, 8, 13, 18, 23, 26]
GOLDEN_BLOCKS = [0, 1, 2, 3, 28, 29]


@given(
    rows=row_sets(),
    seed=SEEDS,
    block=st.integers(1, 100),
    chunk_origins=st.sets(st.integers(1, 400), max_size=3).map(lambda found: (0, *sorted(found))),
    fraction=st.floats(0.05, 0.95),
)
def test_by_block(
    rows: RowSet, seed: int, block: int, chunk_origins: tuple[int, ...], fraction: float
) -> None:
    held = max(1, round(fraction * len(rows)))
    stored = members(rows)
    part = np.searchsorted(chunk_origins, stored, side="right") - 1
    cells = list(
        zip(part.tolist(), ((stored - np.array(chunk_origins)[part]) // block).tolist(), strict=True)
    )
    if len(set(cells)) < 2:
        with pytest.raises(SettingError, match="one block"):
            by_block(rows, held, seed=seed, total=500, block=block, chunk_origins=chunk_origins)
        return
    train, val = by_block(rows, held, seed=seed, total=500, block=block, chunk_origins=chunk_origins)
    check_parts(rows, train, val)
    inside = set(members(val).tolist())
    for cell in set(cells):
        kept = {row in inside for row, own in zip(stored.tolist(), cells, strict=True) if own == cell}
        assert len(kept) == 1
    if len(set(cells)) > 2:
        assert abs(len(val) - held) <= block


@given(rows=row_sets(), seed=SEEDS, classes=st.integers(1, 12), data=st.data())
def test_stratified(rows: RowSet, seed: int, classes: int, data: st.DataObject) -> None:
    if len(rows) < 2:
        return
    labels = np.array(data.draw(st.lists(st.integers(-3, classes), min_size=len(rows), max_size=len(rows))))
    held = data.draw(st.integers(1, len(rows) - 1))
    train, val = stratified(rows, held, labels, seed=seed, total=500)
    check_parts(rows, train, val)
    assert len(val) == held
    of_row = dict(zip(members(rows).tolist(), labels.tolist(), strict=True))
    found = np.array([of_row[row] for row in members(val).tolist()])
    for value in set(labels.tolist()):
        exact = np.count_nonzero(labels == value) * held / len(rows)
        assert abs(np.count_nonzero(found == value) - exact) < 1


@pytest.mark.parametrize("dtype", ["uint8", "int64", "bool"])
@pytest.mark.parametrize("shape", [(400,), (400, 1)])
@pytest.mark.parametrize(
    "rows",
    [RowSet(0, 400), RowSet(33, 350), RowSet(3, 398, np.arange(3, 398, 5))],
    ids=["all", "slice", "picked"],
)
def test_labels_are_those_of_the_rows(
    rows: RowSet, shape: tuple[int, ...], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oocloader.loader.splitting.BLOCK", 96)  # several spans
    labels = (np.arange(400) * 7 % 11).astype(dtype).reshape(shape)
    with open_store(labels) as store:
        found = labels_of(store["array"], rows)
    assert np.array_equal(found, labels.reshape(-1)[members(rows)])
    assert found.dtype == dtype


@pytest.mark.parametrize("labels", [np.zeros((10, 2), np.int64), np.zeros(10, np.float32)])
def test_labels_must_be_one_whole_number_a_row(labels: np.ndarray) -> None:
    with (
        open_store(labels) as store,
        pytest.raises(SettingError, match=r"stratify='array': classes are told by"),
    ):
        labels_of(store["array"], RowSet(0, 10))


def made(name: str, row_nbytes: int, chunk_rows: int | None, *, row_access: bool = False) -> Column:
    return Column(name, row_nbytes, row_nbytes, chunk_rows, 1000, row_access, chunk_origins=(0, row_nbytes))


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([made("x", 3072, 64), made("y", 8, 100)], (64, (0, 3072))),
        ([made("y", 8, 100), made("x", 3072, 64)], (64, (0, 3072))),
        ([made("x", 3072, 64, row_access=True), made("y", 8, 100)], (100, (0, 8))),
        ([made("x", 3072, 64, row_access=True), made("y", 8, 100, row_access=True)], (64, (0, 3072))),
        ([made("x", 3072, None, row_access=True), made("y", 8, 100)], (100, (0, 8))),
        ([made("x", 3072, None), made("y", 1024, None)], (256, (0,))),
        ([made("x", 10**9, None)], (1, (0,))),
    ],
)
def test_block_of(columns: list[Column], expected: tuple[int, tuple[int, ...]]) -> None:
    assert block_of(columns) == expected
