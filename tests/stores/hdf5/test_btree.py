"""The chunk index as read here against what HDF5 itself lists."""

from __future__ import annotations

import contextlib
import random
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from oocloader import OocloaderError, open_store
from oocloader.stores.hdf5 import chunks as hdf5_chunks
from oocloader.stores.hdf5.btree import ChunkTable, chunk_table
from oocloader.stores.hdf5.file import user_block_left_out


def listed(dataset: h5py.Dataset, base: int) -> list[tuple[Any, ...]]:
    """Chunks as HDF5 lists them: corner, offset in the file, stored bytes, filter mask."""
    found: list[Any] = []
    dataset.id.chunk_iter(found.append)
    return sorted(
        (chunk.chunk_offset, chunk.byte_offset + base, chunk.size, chunk.filter_mask) for chunk in found
    )


def rows_of(table: ChunkTable) -> list[tuple[Any, ...]]:
    columns = (table.offset.tolist(), table.stored.tolist(), table.mask.tolist())
    return sorted(zip(map(tuple, table.corner.tolist()), *columns, strict=True))


def read(path: Path, name: str) -> tuple[ChunkTable | None, list[tuple[Any, ...]]]:
    with h5py.File(path, "r") as file:
        dataset, base = file[name], int(file.userblock_size)
        header = h5py.h5o.get_info(dataset.id).addr
        left_out = user_block_left_out()[0]
        return (
            chunk_table(str(path), header, dataset.ndim, base=base),
            listed(dataset, base if left_out else 0),
        )


@pytest.mark.parametrize("userblock", [0, 512, 4096])
@pytest.mark.parametrize("libver", ["earliest", "v108"])
@pytest.mark.parametrize(
    ("shape", "chunks"), [((7000,), (3,)), ((300, 40), (7, 4)), ((20, 9, 30), (1, 4, 3)), ((5,), (8,))]
)
def test_as_the_library_lists_them(
    tmp_path: Path, shape: tuple[int, ...], chunks: tuple[int, ...], libver: str, userblock: int
) -> None:
    path = tmp_path / "x.h5"
    values = np.arange(np.prod(shape), dtype="<i4").reshape(shape)
    with h5py.File(path, "w", libver=("earliest", "v108"), userblock_size=userblock) as file:
        group = file.create_group("a")
        # Attributes push messages of the header to other blocks.
        dataset = group.create_dataset("x", shape, "<i4", chunks=chunks, maxshape=(None, *shape[1:]))
        for number in range(30):
            dataset.attrs[f"attribute {number}"] = "text " * number
        dataset[...] = values
    table, expected = read(path, "a/x")
    assert table is not None
    assert rows_of(table) == expected
    assert len(expected) == np.prod([-(-n // c) for n, c in zip(shape, chunks, strict=True)])


def test_a_header_of_the_second_version(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", track_order=True) as file:
        dataset = file.create_dataset("x", (5000, 2), "<f4", chunks=(2, 2), track_order=True)
        for number in range(30):
            dataset.attrs[f"attribute {number}"] = np.arange(number)
        dataset[...] = 1
    with h5py.File(path, "r") as file:
        header = h5py.h5o.get_info(file["x"].id).addr
    assert path.read_bytes()[header : header + 4] == b"OHDR"
    table, expected = read(path, "x")
    assert table is not None
    assert rows_of(table) == expected


def test_chunks_left_out_and_filters_skipped(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", (900, 8), "<i2", chunks=(3, 8), compression="gzip", shuffle=True)
        for row in range(0, 900, 9):
            dataset[row : row + 3] = row
        dataset.id.write_direct_chunk((3, 0), bytes(48), filter_mask=3)
    table, expected = read(path, "x")
    assert table is not None
    assert rows_of(table) == expected
    assert sorted(set(table.mask.tolist())) == [0, 3]
    assert len(table.offset) == 101


@pytest.mark.parametrize("make", ["latest", "empty", "contiguous"])
def test_other_kinds_are_left_to_the_library(tmp_path: Path, make: str) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="latest" if make == "latest" else None) as file:
        dataset = file.create_dataset("x", (500,), "<i4", chunks=None if make == "contiguous" else (2,))
        if make != "empty":
            dataset[...] = 1
    with h5py.File(path, "r") as file:
        header = h5py.h5o.get_info(file["x"].id).addr
    assert chunk_table(str(path), header, 1, base=0) is None


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_rows_of_a_large_index(tmp_path: Path, libver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(9001 * 3, dtype=">u4").reshape(9001, 3)
    with h5py.File(tmp_path / "x.h5", "w", libver=libver) as file:
        file.create_dataset("x", data=values, chunks=(2, 3))
    calls: list[int] = []
    with open_store(tmp_path / "x.h5") as store:
        assert np.array_equal(store["x"].read(0, 9001), values)
        monkeypatch.setattr(hdf5_chunks, "_read_index", lambda dataset: calls.append(1))
    with open_store(tmp_path / "x.h5") as store:
        assert np.array_equal(store["x"].read(17, 8999), values[17:8999])
    assert calls == [1]


def test_damage_ends_in_an_error_or_in_what_the_library_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hdf5_chunks, "_MANY", 1)
    values = np.arange(600 * 2, dtype="<u2").reshape(600, 2)
    good, bad = tmp_path / "good.h5", tmp_path / "bad.h5"
    with h5py.File(good, "w") as file:
        file.create_dataset("x", data=values, chunks=(3, 2))
    with h5py.File(good, "r") as file:
        header = h5py.h5o.get_info(file["x"].id).addr
    whole = good.read_bytes()
    nodes = [at for at in range(len(whole) - 4) if whole[at : at + 4] == b"TREE" and whole[at + 4] == 1]
    assert len(nodes) > 3
    rng = random.Random(5)
    survived = 0
    for _ in range(150):
        damaged = bytearray(whole)
        node = rng.choice(nodes)
        for _ in range(rng.choice([1, 1, 4])):
            # The header of a node, and its first entries: sizes, corners and addresses.
            damaged[node + rng.randrange(24 + 8 * 40)] ^= 1 << rng.randrange(8)
        bad.write_bytes(damaged)
        table = chunk_table(str(bad), header, 2, base=0)
        survived += table is not None
        if table is None:
            # The library itself may fail over such an index, which other tests look at.
            continue
        with contextlib.suppress(OocloaderError), open_store(bad) as store:
            store["x"].read(0, 600)
    assert 0 < survived < 150


def test_reached_by_a_soft_link(tmp_path: Path) -> None:
    values = np.arange(9001, dtype="<u4")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("deep/é", data=values, chunks=(2,))
        file["a"] = h5py.SoftLink("/deep/é")
    with open_store(tmp_path / "x.h5") as store:
        for name in store.arrays:
            assert np.array_equal(store[name].read(0, 9001), values)


def test_a_short_file(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(5000), chunks=(2,))
    with h5py.File(path, "r") as file:
        header = h5py.h5o.get_info(file["x"].id).addr
    for nbytes in (0, 20, header + 8, path.stat().st_size // 2):
        short = tmp_path / "short.h5"
        shutil.copy(path, short)
        with open(short, "r+b") as target:
            target.truncate(nbytes)
        assert chunk_table(str(short), header, 1, base=0) is None
