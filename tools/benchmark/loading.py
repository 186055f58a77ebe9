"""The subsets that load batches: `load` (images) and `small-rows` (a table), each against the recipes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import oocloader as ooc
from benchmark import machine
from benchmark.data import Source, images, table
from benchmark.measure import (
    Case,
    Contestant,
    Mode,
    Role,
    Row,
    Timing,
    check_first_batch,
    run_case,
    time_pass,
)
from benchmark.peers import missing
from benchmark.recipes import IN_ORDER, SHUFFLED, Job, Order, Recipe, recipes_for
from benchmark.stores import (
    KINDS,
    TFRECORD,
    Family,
    Kind,
    files,
    loader_source,
    make,
    register_filters,
    stored_chunks,
)

SMALL_ROWS_BATCH = 1024
# Stores in which a row costs no more than its bytes: shuffling rows is common there.
SHUFFLED_STORES = ("npy", "hdf5-aligned", "zarr-raw", "hdf5-zstd", "zarr-zstd", "zarr-zstd-sharded")
SMALL_ROWS_STORES = ("npy", "hdf5-aligned", "zarr-raw")


@dataclass(frozen=True, slots=True)
class Settings:
    """What was asked for. `most_s`: how long a pass of a recipe takes at most; None: all of it."""

    folder: Path
    rows: int = 80_000
    batch_size: int = 128
    repeats: int = 5
    most_s: float | None = 0.25
    quick: bool = False
    stores: tuple[str, ...] = ()
    recipes: tuple[str, ...] = ()
    say: Callable[[str], None] = field(default=print)

    def wants_store(self, name: str) -> bool:
        return not self.stores or name in self.stores

    def wants_recipe(self, name: str) -> bool:
        return not self.recipes or any(part.lower() in name.lower() for part in self.recipes)


def load(settings: Settings) -> Iterator[Row]:
    """Images from every kind of store, as stored and shuffled, against the machine and the recipes."""
    source = images(settings.folder / f"images-{settings.rows}", settings.rows)
    yield from _cases(
        settings,
        source,
        subset="load",
        batch_size=settings.batch_size,
        stores=tuple(KINDS),
        shuffled_stores=SHUFFLED_STORES,
        choose=lambda recipe: True,
    )


def small_rows(settings: Settings) -> Iterator[Row]:
    """A float32 table of 64 columns, batches of 1024, against the recipes that work by batch."""
    rows = settings.rows * 15
    source = table(settings.folder / f"table-{rows}", rows)
    yield from _cases(
        settings,
        source,
        subset="small-rows",
        batch_size=SMALL_ROWS_BATCH,
        stores=SMALL_ROWS_STORES,
        shuffled_stores=SMALL_ROWS_STORES,
        choose=lambda recipe: recipe.by_batch,
    )


def _cases(
    settings: Settings,
    source: Source,
    *,
    subset: str,
    batch_size: int,
    stores: tuple[str, ...],
    shuffled_stores: tuple[str, ...],
    choose: Callable[[Recipe], bool],
) -> Iterator[Row]:
    for name in stores:
        if not settings.wants_store(name):
            continue
        kind = KINDS[name]
        settings.say(f"{subset}: writing {name}")
        path = make(kind, source)
        orders: tuple[Order, ...] = (*IN_ORDER, *(SHUFFLED if name in shuffled_stores else ()))
        for order in orders:
            settings.say(f"{subset}: {name}, {order}")
            contestants = _contestants(settings, source, kind, path, order, batch_size, choose)
            yardstick = "preadv" if kind.codec == "none" else "codec"
            yield from run_case(Case(subset, name, order, yardstick, contestants), settings.repeats)


def _contestants(
    settings: Settings,
    source: Source,
    kind: Kind,
    path: Path,
    order: Order,
    batch_size: int,
    choose: Callable[[Recipe], bool],
) -> list[Contestant]:
    needed = missing(kind.needs)
    if not needed:
        register_filters(kind)
    machine.warm_cache(files(path))
    loader, window_rows = open_loader(source, kind, path, order, batch_size)
    others = _others(kind, order)
    families: list[tuple[Family | Literal["memory"], Role]] = [(kind.family, "recipe")]
    families += [(family, "other data") for family in others]
    found = [loader]
    for family, role in families:
        for recipe in recipes_for(family, order, kind.codec):
            if missing(recipe.needs) or (needed and role == "recipe"):
                continue
            if not (choose(recipe) and settings.wants_recipe(recipe.name)):
                continue
            where = path
            if family == "tfrecord":
                where = make(TFRECORD, source)
                machine.warm_cache(files(where))
            job = Job(source, where, batch_size, order, window_rows)
            found.append(open_recipe(recipe, job, role, settings.most_s))
    if kind.codec == "none":
        return [*found, *preadv(source.x_path), _memory_copy()]
    return [*found, *codec(kind, source, path)]


def _others(kind: Kind, order: Order) -> tuple[Family | Literal["memory"], ...]:
    """Rows kept in another way, to compare with: all where the rows are an `.npy`, TFRecord where raw rows
    are shuffled."""
    if kind.family == "npy":
        return ("tfrecord", "memory")
    return ("tfrecord",) if kind.codec == "none" and order == "shuffled" else ()


def open_loader(
    source: Source, kind: Kind, path: Path, order: Order, batch_size: int
) -> tuple[Contestant, int]:
    """oocloader, its first batch checked, and the rows of its window."""
    shuffled = order == "shuffled"
    loader = ooc.Loader(
        loader_source(kind, source, path), "x", "y", batch_size=batch_size, shuffle=shuffled, device="/CPU:0"
    )
    check_first_batch(source, loader, batch_size, shuffled=shuffled)

    return loader_contestant(loader, source), loader.sizes.window


def loader_contestant(loader: ooc.Loader, source: Source) -> Contestant:
    """oocloader, each pass right behind another as in training.

    What is read ahead across the border of two must not have had the time of all other contestants for it.
    """
    alone = timed_alone(loader, source)

    def run(mode: Mode) -> Timing:
        for _ in loader:
            pass
        return alone.run(mode)

    return replace(alone, run=run)


def timed_alone(loader: ooc.Loader, source: Source) -> Contestant:
    """oocloader, as a contestant that closes it."""

    def run(mode: Mode) -> Timing:
        # Always a whole pass.
        return time_pass(loader, source, mode, most_s=None, unit_rows=loader.sizes.window)

    return Contestant("oocloader", "oocloader", run, close=loader.close)


def open_recipe(recipe: Recipe, job: Job, role: Role, most_s: float | None) -> Contestant:
    """A recipe, its first batch checked."""
    opened = recipe.open(job)
    check_first_batch(job.source, opened.batches(), job.batch_size, shuffled=job.shuffled)

    def run(mode: Mode) -> Timing:
        return time_pass(opened.batches(), job.source, mode, most_s=most_s, unit_rows=opened.unit_rows)

    return Contestant(recipe.name, role, run, close=opened.close, most_passes=recipe.most_passes)


def preadv(path: Path) -> list[Contestant]:
    """Reading the same bytes from the page cache, each way that may be the fastest."""
    found = []
    for threads in (1, 2):
        for mib in machine.BUFFER_MIB:
            reader = machine.SequentialReader([path], threads=threads, buffer_mib=mib)
            found.append(_measured(f"preadv, {threads} x {mib} MiB", reader.run, close=reader.close))
    return found


def codec(kind: Kind, source: Source, path: Path) -> list[Contestant]:
    """Decoding the same chunks in memory, each way that may be the fastest."""
    chunk_nbytes = source.chunk_rows * source.row_nbytes
    chunks = stored_chunks(kind, path, most=machine.codec_chunks(chunk_nbytes))
    return [
        _measured(f"codec, {name}", machine.decode(chunks, chunk_nbytes, decoder))
        for name, decoder in machine.decoders(kind.codec).items()
    ]


def _memory_copy() -> Contestant:
    return _measured("memory copy", machine.copy_memory())


def _measured(
    name: str, run: Callable[[], machine.Amount], close: Callable[[], None] = lambda: None
) -> Contestant:
    def timing(mode: Mode) -> Timing:
        del mode
        amount = run()
        return Timing(amount.nbytes / amount.seconds / 1e9)

    return Contestant(name, "machine", timing, modes=("delivered",), close=close)
