"""The subsets that go to the limits: very many chunks, and a cold page cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np

import oocloader as ooc
from benchmark import machine
from benchmark.data import Source, images
from benchmark.loading import Settings, codec, open_loader, timed_alone
from benchmark.measure import Case, Contestant, Mode, Row, Timing, WrongRowsError, run_case
from benchmark.stores import KINDS, files, loader_source, make, nbytes

MANY_CHUNKS = 1_000_000
CHUNK_NBYTES = 128
COLD_STORES = ("hdf5-aligned", "zarr-raw", "hdf5-zstd", "zarr-zstd")
# Share of pages in the cache that counts as none.
_LEFT = 0.01


def many_chunks(settings: Settings) -> Iterator[Row]:
    """Open an HDF5 array of a million chunks of 128 bytes and read all of it, against h5py."""
    chunks = MANY_CHUNKS // 50 if settings.quick else MANY_CHUNKS
    path = settings.folder / f"chunks-{chunks}.h5"
    settings.say(f"many-chunks: writing {chunks:,} chunks")
    rows = np.arange(chunks * CHUNK_NBYTES // 8, dtype=np.int64).view(np.uint8).reshape(chunks, CHUNK_NBYTES)
    if not path.exists():
        aside = path.with_suffix(".partial")
        with h5py.File(aside, "w") as file:
            dataset = file.create_dataset("x", rows.shape, rows.dtype, chunks=(1, CHUNK_NBYTES))
            for number in range(chunks):
                dataset.id.write_direct_chunk((number, 0), rows[number])
        aside.rename(path)
    machine.warm_cache([path])

    def ours() -> np.ndarray:
        with ooc.open_store(str(path)) as store:
            return store["x"].read(0, chunks)

    def h5py_reads() -> np.ndarray:
        with h5py.File(path, "r") as file:
            found: np.ndarray = file["x"][...]
            return found

    def timed(read: Callable[[], np.ndarray]) -> Callable[[Mode], Timing]:
        def run(mode: Mode) -> Timing:
            del mode
            began = time.perf_counter()
            found = read()
            seconds = time.perf_counter() - began
            if not np.array_equal(found, rows):
                raise WrongRowsError("other values than were written")
            return Timing(rows.nbytes / seconds / 1e9)

        return run

    settings.say("many-chunks: reading")
    contestants = [
        Contestant("oocloader, open and read", "oocloader", timed(ours), modes=("delivered",)),
        Contestant("h5py, open and read", "recipe", timed(h5py_reads), modes=("delivered",), most_passes=1),
    ]
    yield from run_case(
        Case("many-chunks", f"hdf5, {chunks:,} chunks", "in order", "", contestants), settings.repeats
    )


def cold(settings: Settings) -> Iterator[Row]:
    """Load from a cold page cache and read all, against reading the files in sequence. GB/s as stored."""
    source = images(settings.folder / f"images-{settings.rows}", settings.rows)
    for name in COLD_STORES:
        if not settings.wants_store(name):
            continue
        path = make(KINDS[name], source)
        machine.drop_cache(files(path))
        if machine.cached_share(files(path)) > _LEFT:
            settings.say(f"cold: not measured, the file system of {settings.folder} is memory itself")
            return
        settings.say(f"cold: {name}")
        yield from run_case(_cold_case(settings, source, name, path), min(3, settings.repeats))


def _cold_case(settings: Settings, source: Source, name: str, path: Path) -> Case:
    parts, stored = files(path), nbytes(path)
    open_loader(source, KINDS[name], path, "in order", settings.batch_size)[0].close()
    opened: list[Contestant] = []
    reader = machine.SequentialReader(parts, threads=1, buffer_mib=16)

    def close() -> None:
        while opened:
            opened.pop().close()

    def drop_and_open() -> None:
        # A new one for each pass: another would have read ahead into it, before the cache is dropped.
        drop()
        kind = KINDS[name]
        loader = ooc.Loader(
            loader_source(kind, source, path), "x", "y", batch_size=settings.batch_size, device="/CPU:0"
        )
        opened.append(timed_alone(loader, source))

    def drop() -> None:
        close()
        machine.drop_cache(parts)
        left = machine.cached_share(parts)
        if left > _LEFT:
            raise RuntimeError(f"{left:.0%} of {path} stays in the page cache: something keeps it mapped")

    def plain(mode: Mode) -> Timing:
        del mode
        amount = reader.run()
        return Timing(amount.nbytes / amount.seconds / 1e9)

    def stored_rate(run: Callable[[Mode], Timing]) -> Callable[[Mode], Timing]:
        return lambda mode: Timing(run(mode).gb_s * stored / source.nbytes)

    contestants = [
        # Read, since rows of a mapped file come from the disk when they are touched, not when delivered.
        Contestant(
            "oocloader",
            "oocloader",
            stored_rate(lambda mode: opened[0].run(mode)),
            prepare=drop_and_open,
            close=close,
            modes=("read",),
        ),
        Contestant("plain read", "machine", plain, prepare=drop, close=reader.close, modes=("delivered",)),
    ]
    if KINDS[name].codec != "none":
        # Where decoding is slower than the disk, it is the limit.
        contestants += [
            replace(found, run=stored_rate(found.run)) for found in codec(KINDS[name], source, path)
        ]
    return Case("cold", name, "in order", "plain read", contestants)
