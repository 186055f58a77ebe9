"""HDF5 datasets of all kinds, and stores against what h5py reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np

import oocloader as ooc

DTYPES = ("?", "u1", ">i2", "<i4", "<f2", ">f4", "<f8", "<c8", ">c16")


PLUGINS = {
    "blosc": hdf5plugin.Blosc(cname="lz4", shuffle=1),
    "blosc, bits": hdf5plugin.Blosc(cname="zstd", shuffle=2),
    "blosc2": hdf5plugin.Blosc2(cname="zstd"),
    "lz4": hdf5plugin.LZ4(),
    "zstd": hdf5plugin.Zstd(clevel=1),
    "bitshuffle": hdf5plugin.Bitshuffle(cname="none"),
    "bitshuffle, lz4": hdf5plugin.Bitshuffle(cname="lz4"),
    "bitshuffle, zstd": hdf5plugin.Bitshuffle(cname="zstd"),
}


FILTERS: dict[str, dict[str, Any]] = {
    "raw": {},
    "gzip": {"compression": "gzip"},
    "shuffle, gzip": {"compression": "gzip", "shuffle": True},
    "shuffle": {"shuffle": True},
    "lzf": {"compression": "lzf"},
    "fletcher32": {"fletcher32": True},
    "shuffle, lzf, fletcher32": {"compression": "lzf", "shuffle": True, "fletcher32": True},
    "szip": {"compression": "szip"},
    **{name: dict(options) for name, options in PLUGINS.items()},
}


SHAPE = (23, 9, 4)


CHUNKS = ((23, 9, 4), (5, 9, 4), (8, 4, 3))


def szip_takes(dtype: str) -> bool:
    return np.dtype(dtype).kind in "iuf"


def check_equal(store: ooc.Store, name: str, expected: np.ndarray) -> None:
    """The whole and ranges that cut chunks, bit by bit."""
    array = store[name]
    wanted = np.ascontiguousarray(expected, expected.dtype.newbyteorder("="))
    assert array.info.shape == wanted.shape
    assert array.info.dtype == wanted.dtype
    rows = len(wanted)
    for start, stop in {(0, rows), (0, 1), (rows - 1, rows), (rows // 3, 2 * rows // 3), (rows // 2, rows)}:
        assert array.read(start, stop).tobytes() == wanted[start:stop].tobytes()


def check_against_h5py(path: Path, *, reader: str | None = None) -> None:
    """Every array that loads, against what h5py reads."""
    with h5py.File(path) as file, ooc.open_store(path) as store:
        for name, info in store.arrays.items():
            if reader is not None:
                assert (name, info.reader) == (name, reader), info.reason
            if info.reader != "none":
                check_equal(store, name, file[name][()])
