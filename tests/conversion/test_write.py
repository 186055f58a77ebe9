"""Chunks are written by many threads: what fails in one ends all, and leaves nothing."""

from __future__ import annotations

import os
import resource
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numbered import rows_array
from oocloader.conversion import convert, write
from oocloader.conversion.copying import copy_array
from oocloader.conversion.encode import encoder
from oocloader.errors import ChangedError, StoreError
from stored import bits


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_source_that_shrinks_on_the_way(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "in.npy", rows_array(3000, "float32", sample_shape=(64, 64)))

    def copy_shrinking(source: Any, sink: Any, plan: Any, **options: Any) -> None:
        os.truncate(tmp_path / "in.npy", os.path.getsize(tmp_path / "in.npy") // 2)
        copy_array(source, sink, plan, **options)

    monkeypatch.setattr(write, "copy_array", copy_shrinking)
    with pytest.raises(ChangedError, match=r"in\.npy: the file changed while it was converted: .* again"):
        convert(tmp_path / "in.npy", tmp_path / f"out{suffix}")
    assert os.listdir(tmp_path) == ["in.npy"]


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.parametrize("chunk", [0, 5, 99])
def test_a_thread_that_fails_ends_the_conversion(
    tmp_path: Path, suffix: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing_encoder(*args: Any) -> Any:
        encode, seen = encoder(*args), iter(range(1000))

        def failing(raw: np.ndarray, out: np.ndarray) -> np.ndarray:
            if next(seen) == chunk:
                raise MemoryError
            assert encode is not None
            return encode(raw, out)

        return failing

    monkeypatch.setattr(write, "encoder", failing_encoder)
    threads = threading.active_count()
    with pytest.raises(MemoryError):
        convert(rows_array(100, "uint8"), tmp_path / f"out{suffix}", codec="zstd", chunk_rows=1)
    assert os.listdir(tmp_path) == []
    assert threading.active_count() == threads


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_limit_on_file_size(tmp_path: Path, suffix: str, codec: str) -> None:
    x = bits((3000, 8000), "u1")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, before[1]))
    try:
        with pytest.raises(StoreError, match=rf"out\{suffix}: no space: .*ulimit"):
            convert(x, tmp_path / f"out{suffix}", codec=codec)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(tmp_path) == []
