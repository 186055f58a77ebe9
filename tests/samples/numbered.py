"""Arrays whose every row carries its own number, and stores of them, so that a wrong row is seen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import zarr

SAMPLE_SHAPE = (4, 4)
DTYPES = ("bool", "uint8", "int16", "float16", "float32", "float64")
Kind = Literal["npy", "h5", "zarr", "memory"]
KINDS: tuple[Kind, ...] = ("npy", "h5", "zarr", "memory")

X_CHUNK_ROWS = 64
Y_CHUNK_ROWS = 100


def _digits(dtype: np.dtype[Any], samples: int) -> tuple[int, int]:
    """Base and count of the digits that a row's number is written with."""
    # 7 bits an element fit every dtype exactly: int8 ends at 127, float16 counts to 2048.
    return (2, min(samples, 16)) if dtype == np.bool_ else (128, min(samples, 3))


def _spread(numbers: np.ndarray, base: int, digits: int, samples: int) -> np.ndarray:
    powers = base ** (np.arange(samples) % digits)
    return numbers[:, np.newaxis] // powers % base


def rows_array(
    numbers: int | Iterable[int], dtype: Any = "uint8", *, sample_shape: tuple[int, ...] = SAMPLE_SHAPE
) -> np.ndarray:
    """Rows that carry `numbers` (an int: 0 up to it), `(rows, *sample_shape)` of `dtype`.

    The elements of a row in C order are the digits of its number, lowest first, over and over: three to
    the base 128, or 16 bits in bool. So 2,097,152 rows can be told apart (bool: 65,536).
    """
    wanted = np.arange(numbers) if isinstance(numbers, int) else np.fromiter(numbers, np.int64)
    dtype = np.dtype(dtype)
    samples = int(np.prod(sample_shape))
    base, digits = _digits(dtype, samples)
    if wanted.size and int(wanted.max()) >= base**digits:
        raise ValueError(f"{dtype} samples of shape {sample_shape} cannot carry {wanted.max()}")
    return _spread(wanted, base, digits, samples).astype(dtype).reshape(len(wanted), *sample_shape)


def numbers_of(rows: Any, *, stored: Any = None, scale: float = 1.0, offset: float = 0.0) -> list[int]:
    """The numbers that `rows`, `(rows, *sample_shape)`, carry; fails where a row is damaged.

    `stored` is the dtype in the store where the loader cast to another, `scale` and `offset` what it applied.
    """
    found = np.asarray(rows)
    flat = (found.reshape(len(found), -1).astype(np.float64) - offset) / scale
    values = np.rint(flat).astype(np.int64)
    samples = values.shape[1]
    base, digits = _digits(np.dtype(stored or found.dtype), samples)
    numbers = values[:, :digits] @ base ** np.arange(digits)
    assert np.allclose(flat, values, atol=1e-3)
    assert np.array_equal(_spread(numbers, base, digits, samples), values)
    return [int(number) for number in numbers]


def write_npz(folder: Path, rows: int = 5000) -> Path:
    """Features `x` and labels `y` in one `.npz`, whose path this is."""
    np.savez(folder / "data.npz", x=rows_array(rows), y=np.arange(rows))
    return folder / "data.npz"


@dataclass(frozen=True, slots=True)
class Numbered:
    """A store of features `x` and labels `y`: row i of `x` carries i, and `y[i] == i` (1-d).

    `source` is what a Loader is given, `x` and `y` are the same rows in memory.
    """

    source: Any
    x: np.ndarray
    y: np.ndarray

    @property
    def rows(self) -> int:
        return len(self.x)


def write_store(
    folder: Path,
    kind: Kind,
    rows: int = 1000,
    *,
    dtype: Any = "uint8",
    label_dtype: Any = "int64",
    x_chunk_rows: int = X_CHUNK_ROWS,
    y_chunk_rows: int = Y_CHUNK_ROWS,
    sample_shape: tuple[int, ...] = SAMPLE_SHAPE,
    separate: bool = False,
) -> Numbered:
    """Writes `x` and `y` into one store under `folder`, or into two if `separate` (npy: always two).

    Chunks hold whole rows: `x_chunk_rows` and `y_chunk_rows` of them, neither dividing the other.
    """
    x = rows_array(rows, dtype, sample_shape=sample_shape)
    y = np.arange(rows).astype(label_dtype)
    folder.mkdir(parents=True, exist_ok=True)
    chunk_rows = {"x": x_chunk_rows, "y": y_chunk_rows}
    arrays = {"x": x, "y": y}
    if kind == "memory":
        return Numbered(arrays, x, y)
    if kind == "npy":
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)
        return Numbered({name: str(folder / f"{name}.npy") for name in arrays}, x, y)
    stems = {name: name if separate else "data" for name in arrays}
    for name, array in arrays.items():
        chunk_shape = (min(chunk_rows[name], rows), *array.shape[1:])
        if kind == "h5":
            with h5py.File(folder / f"{stems[name]}.h5", "a") as file:
                file.create_dataset(name, data=array, chunks=chunk_shape)
        else:
            group = zarr.open_group(folder / f"{stems[name]}.zarr", mode="a")
            group.create_array(name, data=array, chunks=chunk_shape)
    if separate:
        return Numbered({name: f"{folder / name}.{kind}::{name}" for name in arrays}, x, y)
    return Numbered(str(folder / f"data.{kind}"), x, y)
