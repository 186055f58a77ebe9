"""What a pass costs, counted from outside: by the kernel, by a recorded `preadv`, by a recorded decoder."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oocloader as ooc
from oocloader.codecs.chain import Chain
from oocloader.order import Shuffle

pytestmark = pytest.mark.usefixtures("tf")

ROWS, CHUNK = 4096, 128
ROW_NBYTES = 768


def values() -> np.ndarray:
    """Noise, which takes as many bytes compressed, and in the first four bytes of a row its number."""
    found = np.random.default_rng(1).integers(0, 256, (ROWS, ROW_NBYTES), np.uint8)
    found[:, :4] = np.arange(ROWS, dtype="<u4").view(np.uint8).reshape(ROWS, 4)
    return found


kernel_counts = pytest.mark.skipif(
    not os.path.exists("/proc/self/io"), reason="the kernel counts reads in /proc/self/io, on Linux"
)


@pytest.fixture(autouse=True)
def one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read ahead of the next pass would be counted with this one."""
    monkeypatch.setattr("oocloader.pipeline.next_epoch.NextEpoch.prefetch", lambda self: None)


def kernel_reads() -> tuple[int, int]:
    """Bytes that this process asked the kernel for so far, and calls it did so with."""
    with open("/proc/self/io", encoding="ascii") as counts:
        found = dict(line.split(": ") for line in counts)
    return int(found["rchar"]), int(found["syscr"])


@dataclass(frozen=True)
class Made:
    path: Path
    stored: int
    """Bytes of the chunks of x."""


@pytest.fixture
def make(tmp_path: Path) -> Callable[[str, str], Made]:
    def made(suffix: str, codec: str) -> Made:
        path = tmp_path / f"store{suffix}"
        if suffix == ".npy":
            np.save(path, values())
        else:
            ooc.convert({"x": values()}, path, codec=codec, chunk_rows=CHUNK)
        with ooc.open_store(path) as store:
            return Made(path, store.arrays[store.only_array()].stored_nbytes)

    return made


class Recorded:
    """Every read and every decoded chunk, whatever the program itself counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads: list[tuple[int, int]] = []
        self.decoded = 0
        preadv, decode = os.preadv, Chain.decode

        def recorded_read(fd: int, buffers: Sequence[Any], offset: int, flags: int = 0) -> int:
            got = preadv(fd, buffers, offset, flags)
            # Otherwise it is only asked whether a byte lies in the page cache.
            if not flags:
                self.reads.append((offset, got))
            return got

        def recorded_decode(chain: Chain, stored: np.ndarray, out: np.ndarray, mask: int) -> None:
            self.decoded += 1
            decode(chain, stored, out, mask)

        monkeypatch.setattr(os, "preadv", recorded_read)
        monkeypatch.setattr(Chain, "decode", recorded_decode)

    @property
    def nbytes(self) -> int:
        return sum(got for _, got in self.reads)


def a_pass(loader: ooc.Loader) -> list[int]:
    return [int(number) for x in loader for number in x.numpy()[:, :4].copy().view("<u4")[:, 0]]


@pytest.mark.parametrize("shuffle", [False, "window"])
@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_each_stored_byte_is_read_once_and_each_chunk_decoded_once(
    make: Callable[[str, str], Made], monkeypatch: pytest.MonkeyPatch, suffix: str, shuffle: Shuffle
) -> None:
    made = make(suffix, "zstd")
    with ooc.Loader(made.path, batch_size=100, shuffle=shuffle, window=1000) as loader:
        a_pass(loader)
        seen = Recorded(monkeypatch)
        assert sorted(a_pass(loader)) == list(range(ROWS))
        counters = loader.counters
    assert counters is not None
    assert seen.decoded == counters.chunks_decoded == ROWS // CHUNK
    assert seen.nbytes == counters.read_bytes
    assert made.stored <= seen.nbytes <= 1.06 * made.stored
    assert len(seen.reads) == counters.read_calls


@kernel_counts
@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_the_kernel_counts_the_same(make: Callable[[str, str], Made], suffix: str) -> None:
    made = make(suffix, "zstd")
    with ooc.Loader(made.path, batch_size=100, window=1000) as loader:
        a_pass(loader)
        before = kernel_reads()
        a_pass(loader)
        after = kernel_reads()
        counters = loader.counters
    assert counters is not None
    # What the interpreter itself reads, to wake TensorFlow for example, is a few bytes.
    assert made.stored <= after[0] - before[0] <= 1.06 * made.stored + 10_000
    assert counters.read_calls <= after[1] - before[1] <= counters.read_calls + 100


def test_chunks_that_lie_together_are_read_with_one_call(
    make: Callable[[str, str], Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(".h5", "zstd")
    with ooc.Loader(made.path, batch_size=128, window=ROWS) as loader:
        seen = Recorded(monkeypatch)
        a_pass(loader)
    # 32 chunks, in one run; a call reads a quarter of a mebibyte at most.
    assert seen.decoded == ROWS // CHUNK
    assert len(seen.reads) <= 2 + made.stored // (192 << 10)


@kernel_counts
def test_mapped_rows_are_not_read_at_all(make: Callable[[str, str], Made]) -> None:
    made = make(".npy", "none")
    with ooc.Loader(made.path, batch_size=128, window=1024) as loader:
        a_pass(loader)
        before = kernel_reads()
        assert a_pass(loader) == list(range(ROWS))
        nbytes = kernel_reads()[0] - before[0]
        counters = loader.counters
    assert counters is not None
    assert nbytes < ROW_NBYTES * ROWS / 10
    assert (counters.read_bytes, counters.copied_bytes) == (0, 0)
    assert counters.mapped_bytes == ROWS * ROW_NBYTES


def test_without_mappings_rows_are_read_straight_to_where_batches_lie(
    make: Callable[[str, str], Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(".npy", "none")
    with ooc.Loader(made.path, batch_size=128, window=1024, mmap=False) as loader:
        seen = Recorded(monkeypatch)
        a_pass(loader)
        counters = loader.counters
    assert counters is not None
    assert seen.nbytes == ROWS * ROW_NBYTES
    assert len(seen.reads) == ROWS // 1024
    assert (seen.decoded, counters.copied_bytes, counters.mapped_bytes) == (0, 0, 0)


@pytest.mark.parametrize("mmap", [None, False])
def test_shuffled_rows_are_copied_once(
    make: Callable[[str, str], Made], monkeypatch: pytest.MonkeyPatch, mmap: bool | None
) -> None:
    made = make(".npy", "none")
    with ooc.Loader(made.path, batch_size=128, shuffle=True, window=1024, block=64, mmap=mmap) as loader:
        seen = Recorded(monkeypatch)
        assert sorted(a_pass(loader)) == list(range(ROWS))
        counters = loader.counters
    assert counters is not None
    assert counters.copied_bytes == ROWS * ROW_NBYTES
    assert seen.nbytes == (0 if mmap is None else ROWS * ROW_NBYTES)


def test_only_the_chunks_of_wanted_rows_are_read(
    make: Callable[[str, str], Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(".zarr", "zstd")
    rows = np.array([5, 700, 701, 702, 4000])
    with ooc.Loader(made.path, batch_size=2, rows=rows) as loader:
        seen = Recorded(monkeypatch)
        assert a_pass(loader) == rows.tolist()
    assert seen.decoded == 3
    assert seen.nbytes < 4 / (ROWS / CHUNK) * made.stored
