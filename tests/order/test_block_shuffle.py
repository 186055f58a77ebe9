"""Windows of blocks: between chunks, full, and mixed nearly as well as by a full shuffle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from oocloader.memory.alignment import Column
from oocloader.memory.budget import choose
from oocloader.memory.window_size import RequestedRows, SizingInputs
from oocloader.order.block_shuffle import BlockShuffle
from oocloader.order.order import Order, RowSet
from oocloader.order.permutation import permutation
from orders import delivered, members, pass_of


@pytest.mark.parametrize("rows", [RowSet(0, 1000), RowSet(37, 911), RowSet(1, 1000, np.arange(1, 1000, 3))])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("chunk_origins", [(0,), (0, 130, 131, 700)])
def test_cuts_lie_between_chunks(rows: RowSet, shuffle: bool, chunk_origins: Sequence[int]) -> None:
    order = Order(rows, shuffle=shuffle, seed=0, block=16, window=64, chunk_origins=chunk_origins)
    chunk = 8
    owner: dict[tuple[int, int], int] = {}
    for window in order.windows(0):
        for row in delivered(order, window).tolist():
            part = max(start for start in chunk_origins if start <= row)
            assert owner.setdefault((part, (row - part) // chunk), window.index) == window.index


@pytest.mark.parametrize("shuffle", [False, True])
def test_windows_of_sparse_rows_are_full(shuffle: bool) -> None:
    """One row in fifty of a store still makes windows of about the rows asked for, not a fiftieth of it."""
    picked = np.arange(0, 100_000, 50)
    order = Order(RowSet(0, 99_951, picked), shuffle=shuffle, seed=0, block=16, window=200)
    rows = [window.rows for window in order.windows(0)]
    assert max(rows) <= 200
    assert len(rows) <= 2 * 2000 // 200


@pytest.mark.parametrize("shuffle", [False, True])
def test_windows_of_small_parts_are_full(shuffle: bool) -> None:
    order = Order(
        RowSet(0, 2000), shuffle=shuffle, seed=0, block=16, window=200, chunk_origins=tuple(range(0, 2000, 5))
    )
    rows = [window.rows for window in order.windows(0)]
    assert max(rows) <= 200
    assert len(rows) <= 2 * 2000 // 200


def _entropy(order: np.ndarray, labels: np.ndarray) -> float:
    """Mean entropy of the labels of batches of 128, in nats."""
    batches = labels[order[: len(order) // 128 * 128]].reshape(-1, 128)
    counts = np.stack([np.bincount(batch, minlength=10) for batch in batches]) / 128
    return float(np.mean(-np.sum(counts * np.log(np.where(counts > 0, counts, 1)), axis=1)))


@pytest.mark.parametrize("rows", [RowSet(0, 100_000), RowSet(1_000, 97_000)], ids=["all", "slice"])
def test_windows_of_a_tenth_mix_classes_nearly_as_a_full_shuffle(rows: RowSet) -> None:
    labels = np.arange(100_000) // 10_000
    sizes = choose(
        SizingInputs(
            rows=len(rows),
            columns=(Column("x", 3072, 3072, 256, 1 << 20, row_access=False),),
            batch_size=128,
            shuffle=True,
            window=RequestedRows(len(rows) // 10),
            threads=2,
            free_host_memory=1 << 30,
        )
    )
    order = Order(rows, shuffle=True, seed=0, block=sizes.block, window=sizes.window)
    shuffled = members(rows)[permutation(0, 0, 0, len(rows))]
    for epoch in range(3):
        assert _entropy(pass_of(order, epoch), labels) >= 0.98 * _entropy(shuffled, labels)
    assert _entropy(members(rows), labels) < 0.1


@pytest.mark.parametrize(("count", "least"), [(8, 0.985), (16, 0.97), (24, 0.96)])
def test_a_part_of_a_window_mixes_classes_too(count: int, least: float) -> None:
    """Ten windows of ten thousand rows stored by class, of which a shard gets a part."""
    labels = np.arange(100_000) // 10_000
    order = Order(RowSet(0, 100_000), shuffle=True, seed=0, block=64, window=10_000)
    full = _entropy(permutation(0, 0, 0, 100_000), labels)
    for index in range(count):
        assert _entropy(pass_of(order.of_shard((index, count)), 0), labels) > least * full


def test_global_rows_go_anywhere() -> None:
    order = Order(RowSet(0, 100_000), shuffle="global", seed=1, block=1, window=1000)
    labels = np.arange(100_000) // 10_000
    full = _entropy(permutation(0, 0, 0, 100_000), labels)
    assert _entropy(pass_of(order, 0), labels) > 0.995 * full
    assert not np.array_equal(pass_of(order, 0), pass_of(order, 1))


def test_blocks_have_no_stretches() -> None:
    with pytest.raises(TypeError):
        Order(RowSet(0, 10), shuffle=True, seed=1, block=1, window=5).stretch(0, 2)


def test_passes_side_by_side_draw_each_epoch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    draw = BlockShuffle._draw

    def counted(self: BlockShuffle, epoch: int) -> object:
        made.append(epoch)
        return draw(self, epoch)

    monkeypatch.setattr(BlockShuffle, "_draw", counted)
    order = Order(RowSet(0, 1000), shuffle=True, seed=1, block=10, window=100)
    for _ in zip(*(order.windows(epoch) for epoch in range(6)), strict=True):
        pass
    assert sorted(made) == [0, 1, 2, 3, 4, 5]
