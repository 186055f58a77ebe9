"""An array of a megabyte in stores of every kind, and treated as one of a terabyte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from oocloader.conversion import shuffling, transposing

SHAPE = (500, 6, 7, 3)


X = np.arange(np.prod(SHAPE), dtype="i4").reshape(SHAPE)


def use_small_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have arrays of a megabyte treated as those of a terabyte: spread, in many boxes and blocks."""
    monkeypatch.setattr("oocloader.conversion.new_array.BOX_NBYTES", 0)
    monkeypatch.setattr("oocloader.conversion.new_array._LEAST_RUN_NBYTES", 1 << 40)
    monkeypatch.setattr("oocloader.conversion.new_array._MOST_BAND_NBYTES", 0)
    monkeypatch.setattr(transposing, "BOX_NBYTES", 5000)
    monkeypatch.setattr(transposing, "_TILE_ROWS", 100)
    monkeypatch.setattr(transposing, "_TILE_COLUMNS", 5)
    monkeypatch.setattr(shuffling, "BLOCK_NBYTES", 20_000)


def written(folder: Path, kind: str) -> Any:
    """X in a store of that kind."""
    path = folder / "x"
    match kind:
        case "npy":
            np.save(path, X.astype(">i4"))
            return f"{path}.npy"
        case "fortran":
            np.save(path, np.asfortranarray(X))
            return f"{path}.npy"
        case "big-endian fortran":
            np.save(path, np.asfortranarray(X.astype(">i4")))
            return f"{path}.npy"
        case "npz fortran":
            np.savez_compressed(path, x=np.asfortranarray(X))
            return f"{path}.npz"
        case "parts":
            path.mkdir()
            for number, (start, stop) in enumerate([(0, 9), (9, 300), (300, 500)]):
                part = X[start:stop] if number % 2 else np.asfortranarray(X[start:stop])
                np.save(path / f"part{number * 7}.npy", part)
            return path
        case "memory":
            return X
    with h5py.File(f"{path}.h5", "w") as file:
        chunks = {"chunks": (64, 6, 7, 3), "across": (500, 2, 7, 1), "tiles": (64, 4, 4, 2)}[kind]
        file.create_dataset("x", data=X, chunks=chunks, compression="gzip")
    return f"{path}.h5"
