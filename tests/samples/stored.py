"""Arrays of random bits, and stores as other libraries read them."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import zarr

assert hdf5plugin.FILTERS  # imported so that h5py, the reference here, decodes what it cannot by itself


def reference(path: Path, name: str = "") -> np.ndarray:
    """An array of a store as h5py or zarr-python reads it; the only one where no name is given."""
    if path.suffix == ".h5":
        with h5py.File(path) as file:
            return np.asarray(file[name or next(iter(file))][...])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Numcodecs codecs are not in the Zarr version 3")
        found: Any = zarr.open(path, mode="r")
        return np.asarray(found[name][...] if name else found[...])


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def bits(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Random bits as values: NaNs of any payload, infinities, -0.0."""
    rng = np.random.default_rng(seed)
    if dtype == "?":
        return rng.integers(0, 2, shape).astype(bool)
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(rng.bytes(nbytes), dtype).reshape(shape).copy()


def files_of(folder: Path) -> list[str]:
    return sorted(
        os.path.relpath(os.path.join(parent, name), folder)
        for parent, _, names in os.walk(folder)
        for name in names
    )


def opened(path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Numcodecs codecs are not in the Zarr version 3")
        return zarr.open(path, mode="r")
