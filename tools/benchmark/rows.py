"""Rows of a store as the libraries give them, for the recipes."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

import h5py
import numpy as np
import zarr

from benchmark.data import Source
from benchmark.peers import load


class Rows(Protocol):
    """The samples of a store. Thread-safe."""

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop`."""

    def start(self, start: int, stop: int) -> Callable[[], np.ndarray]:
        """Begin to read rows where the library can; the result waits for them."""

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The rows with these numbers, in this order."""

    def close(self) -> None: ...


class _Sync:
    """What reads when it is asked."""

    def read(self, start: int, stop: int) -> np.ndarray:
        raise NotImplementedError

    def start(self, start: int, stop: int) -> Callable[[], np.ndarray]:
        return lambda: self.read(start, stop)

    def close(self) -> None:
        """Nothing to close."""


class MappedRows(_Sync):
    """`.npy`, mapped."""

    def __init__(self, path: Path, source: Source) -> None:
        del source
        self._x = np.load(path, mmap_mode="r")

    def read(self, start: int, stop: int) -> np.ndarray:
        rows: np.ndarray = self._x[start:stop]
        return rows

    def take(self, rows: np.ndarray) -> np.ndarray:
        taken: np.ndarray = self._x[rows]
        return taken


class H5pyRows(_Sync):
    """HDF5, with a chunk cache that holds the chunks being read, as h5py's documentation advises."""

    def __init__(self, path: Path, source: Source) -> None:
        chunk_nbytes = source.chunk_rows * source.row_nbytes
        self._file = h5py.File(path, "r", rdcc_nbytes=max(1 << 20, 4 * chunk_nbytes))
        self._x = self._file["x"]

    def read(self, start: int, stop: int) -> np.ndarray:
        rows: np.ndarray = self._x[start:stop]
        return rows

    def take(self, rows: np.ndarray) -> np.ndarray:
        # h5py wants increasing row numbers.
        order = np.argsort(rows)
        taken = np.empty((len(rows), *self._x.shape[1:]), self._x.dtype)
        taken[order] = self._x[rows[order]]
        return taken

    def close(self) -> None:
        self._file.close()


class ZarrRows(_Sync):
    """Zarr by zarr-python."""

    pipeline = "zarr.core.codec_pipeline.BatchedCodecPipeline"

    def __init__(self, path: Path, source: Source) -> None:
        del source
        # The array takes its pipeline when it is opened.
        with zarr.config.set({"codec_pipeline.path": self.pipeline, "threading.max_workers": os.cpu_count()}):
            self._x: Any = zarr.open_group(path, mode="r")["x"]

    def read(self, start: int, stop: int) -> np.ndarray:
        rows: np.ndarray = self._x[start:stop]
        return rows

    def take(self, rows: np.ndarray) -> np.ndarray:
        taken: np.ndarray = self._x.oindex[rows]
        return taken


class ZarrsRows(ZarrRows):
    """Zarr by zarr-python with the codec pipeline of zarrs."""

    pipeline = "zarrs.ZarrsCodecPipeline"


class TensorstoreRows:
    """Zarr by tensorstore, which reads in the background."""

    def __init__(self, path: Path, source: Source) -> None:
        del source
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path / "x")}}
        self._x: Any = load("tensorstore").open(spec, open=True, read=True).result()

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.start(start, stop)()

    def start(self, start: int, stop: int) -> Callable[[], np.ndarray]:
        future: Future[np.ndarray] = self._x[start:stop].read()
        return future.result

    def take(self, rows: np.ndarray) -> np.ndarray:
        taken: np.ndarray = self._x[rows].read().result()
        return taken

    def close(self) -> None:
        """Nothing to close."""
