"""Pieces, threads, buffers, files and sizes of a conversion, and what cannot be planned: arithmetic alone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocloader.conversion import convert, store_plan
from oocloader.conversion.encode import Codec
from oocloader.conversion.options import ConvertOptions
from oocloader.conversion.store_plan import (
    ReadPlan,
    check_rows,
    check_sources,
    make_plan,
)
from oocloader.errors import DataError, SettingError, UnsupportedArrayError
from oocloader.stores import ArrayInfo
from plans import planned, planned_store

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@given(
    rows=st.integers(1, 10**6),
    row_nbytes=st.integers(1, 10**6),
    chunk_rows=st.none() | st.integers(1, 10**6),
    source_rows=st.none() | st.integers(1, 10**6),
)
def test_pieces_and_shards_are_whole_chunks(
    rows: int, row_nbytes: int, chunk_rows: int | None, source_rows: int | None
) -> None:
    plan = planned((rows, row_nbytes), chunk_rows=chunk_rows, reading=ReadPlan(source_rows))
    assert plan.chunk_rows <= rows
    assert plan.piece_rows % plan.chunk_rows == 0
    assert (plan.pieces - 1) * plan.piece_rows < rows <= plan.pieces * plan.piece_rows
    assert plan.piece_rows * row_nbytes <= max(32 * MIB, plan.chunk_nbytes)
    if plan.shard_rows is None:
        assert plan.chunks <= 64 or 2 * plan.chunk_nbytes > GIB
    else:
        assert plan.shard_rows % plan.chunk_rows == 0
        assert plan.shard_rows * row_nbytes <= GIB
        assert -(-rows // plan.shard_rows) <= 32 or plan.shard_rows * row_nbytes > GIB // 2


def test_pieces_follow_large_source_chunks() -> None:
    assert planned((10**6, 1024)).piece_rows == 2000
    assert planned((10**6, 1024), reading=ReadPlan(scattered=True)).piece_rows == 16_000
    assert planned((10**6, 1024), reading=ReadPlan(5000)).piece_rows == 20_000


def test_threads_fit_into_memory() -> None:
    assert planned((10**6, 10_000), cores=2).threads == 2
    assert planned((10**6, 10_000)).threads == 20
    assert planned((10**6, 10_000), codec="zstd").threads == 10
    assert planned((100, 32 * MIB), codec="zstd").threads == 2
    assert planned((100, 32 * MIB), reading=ReadPlan(None, 30 * MIB)).threads == 2
    assert planned((100, 32 * MIB), codec="zstd", reading=ReadPlan(copies=1)).threads == 1
    assert planned((100, GIB)).threads == 1
    assert planned((10, 10)).threads == 1  # no more than pieces


def test_buffers_fit_into_memory() -> None:
    assert planned((10**6, 10_000), cores=2).buffers == 4
    assert planned((10**6, 10_000)).buffers == 20
    assert planned((100, 32 * MIB), cores=1, codec="zstd").buffers == 2
    assert planned((100, 32 * MIB), codec="zstd", cores=2).buffers == 2
    assert planned((100, GIB)).buffers == 1
    assert planned((3, 32 * MIB), cores=2).buffers == 3  # no more than pieces


def test_arrays_must_agree_and_be_loadable() -> None:
    x = ArrayInfo("x", (10, 3), np.dtype("f4"))
    bad = ArrayInfo("t", (10,), np.dtype("M8[ns]"), reader="none", reason="its dtype is datetime64[ns]: no")
    check_sources([x, x], where="in")
    check_rows({"x": 10, "y": 10}, where="in")
    with pytest.raises(DataError, match=r"in: the arrays .*'x' has 10, 'y' has 9"):
        check_rows({"x": 10, "y": 9}, where="in")
    with pytest.raises(UnsupportedArrayError, match=r"in: array 't' .*datetime64\[ns\]") as caught:
        check_sources([x, bad], where="in")
    assert (caught.value.file, caught.value.array) == ("in", "t")


def test_needed_room_is_known_where_nothing_is_compressed() -> None:
    source = (ArrayInfo("x", (10, 100), np.dtype("f4")), ReadPlan())
    for codec, needed in (("none", 12 * 400), ("zstd", 0)):
        options = ConvertOptions(chunk_rows=4)
        plan = make_plan({"x": source}, options, store_format="hdf5", codec=Codec.parse(codec), cores=1)
        assert plan.needed_nbytes == needed
        assert (plan.nbytes, plan.rows) == (4000, 10)


def test_plan_sizes() -> None:
    plan = planned((10, 3, 2), "f4", chunk_rows=4)
    assert (plan.row_nbytes, plan.nbytes, plan.chunk_nbytes) == (24, 240, 96)
    assert (plan.chunks, plan.padded_nbytes, plan.chunk_shape) == (3, 288, (4, 3, 2))
    assert math.prod(plan.shape) * plan.dtype.itemsize == plan.nbytes


KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shards": 7, "chunk_rows": 2}, ("7 rows", "chunks of 2", "a multiple")),
        ({"shards": 10, "zarr_format": 2}, ("shards", "Zarr format 2")),
        ({"shards": 10, "store_format": "hdf5"}, ("shards", "HDF5")),
        ({"zarr_format": 2, "store_format": "hdf5"}, ("zarr_format", "HDF5")),
    ],
)
def test_what_a_format_has_not(options: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(SettingError) as caught:
        planned_store((100, 4), **options)
    assert all(word in str(caught.value) for word in words)


def test_no_flood_of_files() -> None:
    rows = 400_000
    assert planned_store((rows, 16)).arrays[0].files <= 36
    assert planned_store((rows, 16), zarr_format=2).arrays[0].files <= 256
    assert planned_store((rows, 16), shards="none").arrays[0].files <= 256
    # Beyond chunks of 64 MiB they may be more.
    large = planned_store((1 << 20, MIB), zarr_format=2).arrays[0]
    assert large.chunk_nbytes == 64 * MIB
    for options in ({"shards": "none"}, {"zarr_format": 2}):
        flood = planned_store((rows, 16), chunk_rows=1, **options)
        assert "400,000 files" in flood.warning
        assert ("--shards" in flood.warning) == ("shards" in options)
    assert planned_store((rows, 16), chunk_rows=1).warning == ""
    assert planned_store((rows, 16), chunk_rows=1, store_format="hdf5").warning == ""


def test_a_flood_that_was_asked_for_is_warned_of_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_plan, "_FILE_FLOOD", 100)
    convert(np.zeros((100, 1), "u1"), tmp_path / "few.zarr", chunk_rows=1, shards="none")
    with pytest.warns(UserWarning, match=r"o\.zarr: .* 101 files"):
        convert(np.zeros((101, 1), "u1"), tmp_path / "o.zarr", chunk_rows=1, shards="none")
