"""Chunks, shards, pieces and limits of a conversion: arithmetic alone."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocloader.conversion.chunking import default_chunk_rows
from oocloader.conversion.encode import Codec
from oocloader.conversion.options import ConvertOptions
from oocloader.conversion.read_back import sample
from oocloader.conversion.store_plan import (
    ReadPlan,
    StoredArrayPlan,
    check_rows,
    check_sources,
    make_plan,
)
from oocloader.errors import DataError, SettingError, UnsupportedArrayError
from oocloader.stores import ArrayInfo

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def planned(
    shape: tuple[int, ...],
    dtype: str = "u1",
    *,
    to: Any = "zarr",
    codec: str = "none",
    chunk_rows: int | None = None,
    reading: ReadPlan | None = None,
    cores: int = 64,
) -> StoredArrayPlan:
    source = (ArrayInfo("x", shape, np.dtype(dtype)), reading or ReadPlan())
    options = ConvertOptions(chunk_rows=chunk_rows)
    plan = make_plan({"x": source}, options, store_format=to, codec=Codec.parse(codec), cores=cores)
    return plan.arrays[0]


@pytest.mark.parametrize(
    ("rows", "row_nbytes", "chunk_rows"),
    [
        (10_000_000, 784, 9984),  # a thousandth of the rows, in whole pages
        (100_000_000, 784, 10496),  # 8 MiB, in whole pages
        (80_000, 12288, 80),
        (400_000, 16, 4096),  # 64 KiB
        (400_000, 17, 3856),  # 64 KiB and less than a row more
        (3, 56 * 64 * 256, 1),
        (1, 200_000, 1),
        (50_000, 4, 16384),
        (100, 4, 100),
        (5, GIB, 1),
        (10_000, 100 * MIB, 1),
        (1, 1, 1),
    ],
)
def test_default_chunk_rows(rows: int, row_nbytes: int, chunk_rows: int) -> None:
    assert default_chunk_rows(rows, row_nbytes) == chunk_rows


@given(rows=st.integers(1, 10**9), row_nbytes=st.integers(1, 10**9))
def test_default_chunk_rule(rows: int, row_nbytes: int) -> None:
    taken = default_chunk_rows(rows, row_nbytes)
    assert 1 <= taken <= rows
    assert taken * row_nbytes >= min(64 * KIB, rows * row_nbytes)
    assert taken <= max(-(-64 * KIB // row_nbytes), min(rows // 1000, 8 * MIB // row_nbytes))


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


def test_shards_only_where_there_would_be_many_files() -> None:
    assert planned((64, 100), chunk_rows=1).shard_rows is None
    assert planned((65, 100), chunk_rows=1).shard_rows == 3
    assert planned((400_000, 16)).shard_rows == 4 * 4096
    assert planned((400_000, 16), chunk_rows=1).shard_rows == 12_500
    assert planned((1 << 20, MIB), chunk_rows=8).shard_rows == 1024  # a gibibyte each
    assert planned((65, 100), chunk_rows=1, to="hdf5").shard_rows is None


def test_pieces_follow_large_source_chunks() -> None:
    assert planned((10**6, 1024)).piece_rows == 2000
    assert planned((10**6, 1024), reading=ReadPlan(scattered=True)).piece_rows == 16_000
    assert planned((10**6, 1024), reading=ReadPlan(5000)).piece_rows == 20_000


@pytest.mark.parametrize(
    ("shape", "to", "codec", "chunk_rows", "words"),
    [
        ((5, GIB), "hdf5", "none", 5, ("4 GiB", "at most 3 rows", "5,368,709,120")),
        ((5, GIB), "hdf5", "none", 4, ("4 GiB", "at most 3 rows")),
        ((2, 5 * GIB), "hdf5", "none", None, ("4 GiB", "a row alone takes 5,368,709,120", ".zarr")),
        ((5, GIB), "zarr", "lz4", 2, ("lz4", "2,113,929,216", "at most 1 rows")),
        ((5, GIB), "zarr", "blosc", 2, ("blosc", "2,147,483,631", "at most 1 rows")),
        ((2, 3 * GIB), "zarr", "blosc", None, ("blosc", "a row alone", "zstd")),
    ],
)
def test_chunks_over_a_limit_are_refused(
    shape: tuple[int, ...], to: str, codec: str, chunk_rows: int | None, words: tuple[str, ...]
) -> None:
    with pytest.raises(SettingError) as caught:
        planned(shape, to=to, codec=codec, chunk_rows=chunk_rows)
    assert all(word in str(caught.value) for word in (*words, "'x'"))
    assert "\n" not in str(caught.value)


def test_chunks_at_a_limit_are_taken() -> None:
    assert planned((5, GIB), to="hdf5", chunk_rows=3).chunk_nbytes == 3 * GIB
    assert planned((5, GIB), to="hdf5").chunk_rows == 1
    assert planned((5, GIB), to="zarr", chunk_rows=5).chunk_rows == 5
    assert planned((5, GIB), to="zarr", codec="lz4").chunk_rows == 1
    assert planned((3, 10), chunk_rows=100).chunk_rows == 3


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


def test_plan_sizes() -> None:
    plan = planned((10, 3, 2), "f4", chunk_rows=4)
    assert (plan.row_nbytes, plan.nbytes, plan.chunk_nbytes) == (24, 240, 96)
    assert (plan.chunks, plan.padded_nbytes, plan.chunk_shape) == (3, 288, (4, 3, 2))
    assert math.prod(plan.shape) * plan.dtype.itemsize == plan.nbytes
