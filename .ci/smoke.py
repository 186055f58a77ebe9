"""What an installed oocloader must do under every Python: convert, and one epoch through fit."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import oocloader as ooc

ROWS = 1000


def main() -> None:
    if "tensorflow" in sys.modules:
        raise SystemExit("importing oocloader imported TensorFlow")
    import keras

    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        np.save(folder / "x.npy", np.arange(ROWS * 8, dtype=np.float32).reshape(ROWS, 8))
        np.save(folder / "y.npy", np.arange(ROWS, dtype=np.int64))
        for name in ("data.h5", "data.zarr"):
            source = {"x": str(folder / "x.npy"), "y": str(folder / "y.npy")}
            ooc.convert(source, folder / name, chunk_rows=64)
            with ooc.Loader(str(folder / name), "x", "y", batch_size=48, shuffle=True) as loader:
                seen = np.sort(np.concatenate([y.numpy() for _, y in loader]))
                if not np.array_equal(seen, np.arange(ROWS)):
                    raise SystemExit(f"{name}: not every row came once")
                model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
                model.compile("sgd", "mse")
                model.fit(loader.dataset(), epochs=1, shuffle=False, verbose=0)
    sys.stdout.write(f"oocloader from {Path(ooc.__file__).parent}: converted and trained\n")


if __name__ == "__main__":
    main()
