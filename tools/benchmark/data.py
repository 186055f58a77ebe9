"""The rows that are loaded: images and a table, made up, as `.npy`."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

IMAGE_SHAPE = (64, 64, 3)
TABLE_SHAPE = (64,)
_PIECE_NBYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """Samples `(rows, *sample_shape)` and int64 labels `(rows,)` in `folder`; each label is its row's number.

    `checksum` is the sum of all bytes as uint64, modulo 2**64: every row once, in any order, has it.
    """

    folder: Path
    rows: int
    sample_shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    chunk_rows: int
    checksum: int

    @property
    def x_path(self) -> Path:
        return self.folder / "x.npy"

    @property
    def y_path(self) -> Path:
        return self.folder / "y.npy"

    @property
    def row_nbytes(self) -> int:
        """Bytes of a sample, without its label."""
        return math.prod(self.sample_shape) * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of samples and labels."""
        return self.rows * (self.row_nbytes + 8)

    def x(self) -> np.ndarray:
        """The samples, mapped."""
        mapped: np.ndarray = np.load(self.x_path, mmap_mode="r")
        return mapped

    def y(self) -> np.ndarray:
        """The labels, in memory."""
        return np.arange(self.rows, dtype=np.int64)


def byte_sum(array: np.ndarray) -> int:
    """Sum of the bytes as uint64, modulo 2**64; a whole number of them."""
    flat = array.reshape(-1).view(np.uint64)
    return int(np.add.reduce(flat, dtype=np.uint64))


def images(folder: Path, rows: int, *, chunk_rows: int = 256) -> Source:
    """uint8 `(rows, 64, 64, 3)`, which compress like photographs: zstd makes them about half as large."""
    return _source(folder, rows, IMAGE_SHAPE, np.dtype(np.uint8), chunk_rows, _draw_images)


def table(folder: Path, rows: int, *, chunk_rows: int = 16384) -> Source:
    """float32 `(rows, 64)`: a table of features."""
    return _source(folder, rows, TABLE_SHAPE, np.dtype(np.float32), chunk_rows, _draw_table)


def _draw_images(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Smooth gradients in steps, as sky and walls are, with texture from a random column on."""
    height, width, channels = IMAGE_SHAPE
    y = np.arange(height, dtype=np.float32)[:, None, None]
    x = np.arange(width, dtype=np.float32)[None, :, None]
    slopes = rng.uniform(-0.5, 0.5, (2, rows, 1, 1, channels)).astype(np.float32)
    level = rng.uniform(70, 160, (rows, 1, 1, channels)).astype(np.float32)
    smooth = (level + slopes[0] * y + slopes[1] * x).astype(np.uint8) & 0xF0
    texture = rng.integers(0, 32, (rows, *IMAGE_SHAPE), np.uint8)
    textured = x[None] >= rng.integers(0, width, (rows, 1, 1, 1))
    images: np.ndarray = smooth + texture * textured.astype(np.uint8)
    return images


def _draw_table(rng: np.random.Generator, rows: int) -> np.ndarray:
    return rng.standard_normal((rows, *TABLE_SHAPE), np.float32)


def _source(
    folder: Path,
    rows: int,
    sample_shape: tuple[int, ...],
    dtype: np.dtype[np.generic],
    chunk_rows: int,
    draw: Callable[[np.random.Generator, int], np.ndarray],
) -> Source:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "x.npy"
    if not path.exists():
        aside = path.with_suffix(".partial")
        out = np.lib.format.open_memmap(aside, mode="w+", dtype=dtype, shape=(rows, *sample_shape))
        step = max(1, _PIECE_NBYTES // (math.prod(sample_shape) * dtype.itemsize))

        def fill(start: int) -> None:
            piece = out[start : start + step]
            # A generator a piece: the data is the same whatever the number of threads.
            piece[:] = draw(np.random.default_rng([rows, start]), len(piece))

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(fill, range(0, rows, step)))
        out.flush()
        del out
        np.save(folder / "y.npy", np.arange(rows, dtype=np.int64))
        aside.rename(path)
    x: np.ndarray = np.load(path, mmap_mode="r")
    if x.shape != (rows, *sample_shape) or x.dtype != dtype:
        raise SystemExit(f"{path} holds {x.dtype} {x.shape}, not {dtype} {(rows, *sample_shape)}: delete it")
    checksum = (byte_sum(x) + byte_sum(np.arange(rows, dtype=np.int64))) % 2**64
    return Source(folder, rows, sample_shape, dtype, min(chunk_rows, rows), checksum)
