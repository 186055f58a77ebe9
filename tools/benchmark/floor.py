"""The subset `floor`: every kind of store in several chunk shapes, against the library that made it."""

from __future__ import annotations

import math
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import zarr
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

import oocloader as ooc
from benchmark import machine
from benchmark.data import images
from benchmark.loading import Settings
from benchmark.measure import Case, Contestant, Mode, Row, Timing, WrongRowsError, run_case
from benchmark.peers import load, missing
from benchmark.stores import files, pieces

ROWS = 4096
QUICK_ROWS = 512
PIECE_NBYTES = 16 << 20
# uint16, so that byte shuffling has something to do.
SAMPLE_SHAPE = (64, 32, 3)
# Whole rows many and few, sample axes cut, and a channel to a chunk.
CHUNKS = ((256, 64, 32, 3), (16, 64, 32, 3), (128, 32, 16, 3), (256, 64, 32, 1))
# Of 49 and 25 kB: what is done for each counts.
SMALL_CHUNKS = ((4, 64, 32, 3), (16, 16, 16, 3))


@dataclass(frozen=True, slots=True)
class Written:
    """A kind of store: the library that writes it, with these options; `filter` names one of hdf5plugin's."""

    name: str
    library: Literal["numpy", "h5py", "zarr-python"]
    options: dict[str, Any] = field(default_factory=dict)
    filter: str = ""
    chunks: tuple[tuple[int, ...] | None, ...] = CHUNKS[:2]


_BLOSC_2: dict[str, Any] = {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}
WRITTEN: tuple[Written, ...] = (
    Written("npy", "numpy", chunks=(None,)),
    Written("hdf5 contiguous", "h5py", chunks=(None,)),
    Written("hdf5 raw", "h5py", chunks=CHUNKS + SMALL_CHUNKS),
    Written("hdf5 fletcher32", "h5py", {"fletcher32": True}, chunks=CHUNKS[:2] + SMALL_CHUNKS),
    Written("hdf5 gzip", "h5py", {"compression": "gzip", "compression_opts": 1}, chunks=CHUNKS),
    Written("hdf5 shuffle gzip", "h5py", {"shuffle": True, "compression": "gzip", "compression_opts": 1}),
    Written("hdf5 lzf", "h5py", {"compression": "lzf"}),
    Written("hdf5 zstd", "h5py", filter="Zstd"),
    Written("hdf5 lz4", "h5py", filter="LZ4", chunks=CHUNKS[:2] + SMALL_CHUNKS),
    Written("hdf5 blosc", "h5py", filter="Blosc"),
    Written("hdf5 bitshuffle", "h5py", filter="Bitshuffle"),
    Written("zarr 3 raw", "zarr-python", {"compressors": None}, chunks=CHUNKS),
    Written("zarr 3 zstd", "zarr-python", {"compressors": [ZstdCodec(level=1)]}, chunks=CHUNKS),
    Written("zarr 3 gzip", "zarr-python", {"compressors": [GzipCodec(level=1)]}),
    Written("zarr 3 blosc", "zarr-python", {"compressors": [BloscCodec()]}),
    Written("zarr 3 zstd, sharded", "zarr-python", {"compressors": [ZstdCodec(level=1)], "shards": ()}),
    Written("zarr 2 raw", "zarr-python", {"zarr_format": 2, "compressors": None}),
    Written("zarr 2 blosc", "zarr-python", {"zarr_format": 2, "compressors": _BLOSC_2}),
)


def floor(settings: Settings) -> Iterator[Row]:
    """Read stores of every kind and chunk shape, in pieces into one buffer, against h5py and zarr-python."""
    rows = QUICK_ROWS if settings.quick else ROWS
    source = images(settings.folder / f"images-{rows}", rows)
    x = source.x().reshape(-1).view(np.uint16).reshape(rows, *SAMPLE_SHAPE)
    folder = settings.folder / "floor"
    folder.mkdir(exist_ok=True)
    for kind in WRITTEN:
        if not settings.wants_store(kind.name) or (kind.filter and missing(["hdf5plugin"])):
            continue
        settings.say(f"floor: {kind.name}")
        for chunks in kind.chunks[: 1 if settings.quick else None]:
            path = folder / f"store{_SUFFIXES[kind.library]}"
            try:
                _write(kind, path, x, chunks)
                machine.warm_cache(files(path))
                yield from run_case(_case(kind, path, x, chunks), min(3, settings.repeats))
            finally:
                # Many files, and quickly written again.
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


_SUFFIXES = {"numpy": ".npy", "h5py": ".h5", "zarr-python": ".zarr"}


def _write(kind: Written, path: Path, x: np.ndarray, chunks: tuple[int, ...] | None) -> None:
    if kind.library == "numpy":
        np.save(path, x)
        return
    if kind.library == "h5py":
        options = {**kind.options, **(getattr(load("hdf5plugin"), kind.filter)() if kind.filter else {})}
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=x, chunks=chunks, **options)
        return
    assert chunks is not None
    options = dict(kind.options)
    step = chunks[0]
    if "shards" in options:
        step = chunks[0] * 4
        whole = tuple(
            -(-length // chunk) * chunk for length, chunk in zip(x.shape[1:], chunks[1:], strict=True)
        )
        options["shards"] = (step, *whole)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array: Any = zarr.create_array(path, shape=x.shape, dtype=x.dtype, chunks=chunks, **options)
        for start, piece in pieces(x, step):
            array[start : start + len(piece)] = piece


def _case(kind: Written, path: Path, x: np.ndarray, chunks: tuple[int, ...] | None) -> Case:
    row_nbytes = math.prod(x.shape[1:]) * x.itemsize
    chunk_rows = 1 if chunks is None else chunks[0]
    step = max(1, PIECE_NBYTES // row_nbytes // chunk_rows) * chunk_rows
    out = np.zeros((step, *x.shape[1:]), x.dtype)

    def timed(read: Callable[[int, int, np.ndarray], Any]) -> Callable[[Mode], Timing]:
        for start, piece in pieces(x, step):
            read(start, start + len(piece), out[: len(piece)])
            if not np.array_equal(out[: len(piece)], piece):
                raise WrongRowsError(f"{kind.name} {chunks}: other rows than were written")

        def run(mode: Mode) -> Timing:
            del mode
            began = time.perf_counter()
            for start in range(0, len(x), step):
                stop = min(start + step, len(x))
                read(start, stop, out[: stop - start])
            return Timing(x.nbytes / (time.perf_counter() - began) / 1e9)

        return run

    store = ooc.open_store(str(path))
    ours = store[next(iter(store.arrays))]
    loader = ooc.Loader(store, ours.info.name, batch_size=min(128, len(x)), device="/CPU:0")

    def load_pass(mode: Mode) -> Timing:
        del mode
        # Right behind another: see `loader_contestant`.
        for _ in loader:
            pass
        began = time.perf_counter()
        rows = sum(batch.shape[0] for batch in loader)
        seconds = time.perf_counter() - began
        if rows != len(x):
            raise WrongRowsError(f"{kind.name} {chunks}: {rows} rows, expected {len(x)}")
        return Timing(x.nbytes / seconds / 1e9)

    def close_ours() -> None:
        loader.close()
        store.close()

    their_read, their_close = _library(kind, path)
    load_pass("delivered")  # the first builds the pipeline
    contestants = [
        Contestant("oocloader, read", "oocloader", timed(_into(ours)), modes=("delivered",)),
        Contestant("oocloader, loader", "oocloader", load_pass, modes=("delivered",), close=close_ours),
        Contestant(kind.library, "recipe", timed(their_read), modes=("delivered",), close=their_close),
    ]
    shape = "" if chunks is None else " " + "x".join(map(str, chunks))
    return Case("floor", kind.name + shape, "in order", "", contestants)


def _into(array: ooc.StoredArray) -> Callable[[int, int, np.ndarray], Any]:
    return lambda start, stop, out: array.read(start, stop, out=out)


def _library(kind: Written, path: Path) -> tuple[Callable[[int, int, np.ndarray], Any], Callable[[], None]]:
    """How the library that wrote the store reads rows into `out`."""
    if kind.library == "numpy":
        mapped: np.ndarray = np.load(path, mmap_mode="r")
        return lambda start, stop, out: np.copyto(out, mapped[start:stop]), lambda: None
    if kind.library == "h5py":
        # With the chunk cache as it is: pieces are whole chunks, so there is nothing to read twice.
        file = h5py.File(path, "r")
        dataset = file["x"]
        return lambda start, stop, out: dataset.read_direct(out, np.s_[start:stop]), file.close
    array: Any = zarr.open_array(path, mode="r")

    def read(start: int, stop: int, out: np.ndarray) -> None:
        out[:] = array[start:stop]

    return read, lambda: None
