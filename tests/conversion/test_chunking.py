"""Rows of chunks and of shards, and their limits: arithmetic alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocloader.conversion.chunking import default_chunk_rows
from oocloader.errors import SettingError
from plans import planned

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


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


def test_shards_only_where_there_would_be_many_files() -> None:
    assert planned((64, 100), chunk_rows=1).shard_rows is None
    assert planned((65, 100), chunk_rows=1).shard_rows == 3
    assert planned((400_000, 16)).shard_rows == 4 * 4096
    assert planned((400_000, 16), chunk_rows=1).shard_rows == 12_500
    assert planned((1 << 20, MIB), chunk_rows=8).shard_rows == 1024  # a gibibyte each
    assert planned((65, 100), chunk_rows=1, to="hdf5").shard_rows is None


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


KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("for_memory", "expected"),
    [(None, 8 * MIB), (8 * GIB, 8 * MIB), (GIB, MIB), (80 * GIB, 32 * MIB), (MIB, 64 * KIB)],
)
def test_chunks_for_the_memory_of_a_device(for_memory: int | None, expected: int) -> None:
    assert default_chunk_rows(10**9, 1024, for_memory=for_memory) * 1024 == expected


@given(rows=st.integers(1, 10**9), row_nbytes=st.integers(1, 10**8), most=st.integers(1, 1000))
def test_few_chunks_where_each_is_a_file(rows: int, row_nbytes: int, most: int) -> None:
    taken = default_chunk_rows(rows, row_nbytes, most_chunks=most)
    assert 1 <= taken <= rows
    assert -(-rows // taken) <= most or (taken + 1) * row_nbytes > 64 * MIB
