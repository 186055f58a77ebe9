"""`tools/bench.py waiting`: how much of an epoch of `fit` is waiting for data, for models of several speeds.

As the loader's own report has it: the time between asking for a batch and getting it, casts of the loader
included. The first epoch of a process, which also builds the model's graph, is shown apart.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import oocloader as ooc
from benchmark import machine
from benchmark.data import images
from benchmark.stores import KINDS, files, loader_source, make

STORES = ("npy", "hdf5-raw", "hdf5-zstd", "zarr-zstd")
# Filters of the model's convolution: a step takes about 3, 6 and 12 milliseconds on two cores.
_FILTERS = (8, 24, 56)
_WANTED_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class Figure:
    """Training from one store: milliseconds of a step, and the share of an epoch that was waiting."""

    store: str
    step_ms: float
    share: float
    first_share: float
    epochs: int


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.py waiting", description=__doc__)
    add = parser.add_argument
    add("--rows", type=int, default=80_000, help="images of 64x64x3 bytes (80000)")
    add("--batch", type=int, default=128, help="rows of a batch (128)")
    add("--epochs", type=int, default=3, help="epochs of each fit, of which the first is shown apart (3)")
    add("--store", action="append", choices=STORES, metavar="STORE", help="this store; may be repeated")
    add("--folder", type=Path, help="keep the data there and use it again (a temporary folder)")
    add("--json", type=Path, metavar="FILE", help="write the results")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.epochs < 2:
        print("--epochs: must be at least 2, since the first is shown apart", file=sys.stderr)
        return 2
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
        figures = measure(options, options.folder)
    else:
        with tempfile.TemporaryDirectory(prefix="oocloader-bench-") as folder:
            figures = measure(options, Path(folder))
    print(f"{options.rows:,} rows in batches of {options.batch}; load {os.getloadavg()[0]:.1f}")
    print(table(figures))
    if options.json is not None:
        about = {"machine": machine.describe(), "rows": options.rows, "batch": options.batch}
        options.json.write_text(json.dumps({**about, "figures": [asdict(one) for one in figures]}, indent=2))
    return 0


def measure(options: argparse.Namespace, folder: Path) -> list[Figure]:
    """Train from each store with each model."""
    source = images(folder / f"images-{options.rows}", options.rows)
    figures = []
    for name in options.store or STORES:
        path = make(KINDS[name], source)
        machine.warm_cache(files(path))
        for filters in _FILTERS:
            with ooc.Loader(
                loader_source(KINDS[name], source, path),
                "x",
                "y",
                batch_size=options.batch,
                shuffle=True,
                device="/CPU:0",
            ) as loader:
                figures.append(_trained(name, loader, filters, options.epochs))
    return figures


def _trained(store: str, loader: ooc.Loader, filters: int, epochs: int) -> Figure:
    import keras

    steps: list[float] = []
    shares: list[float] = []

    class Note(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no type information
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            report = loader.report()
            steps.append(1000 * report.model_s / len(loader))
            shares.append(report.waiting_s / report.seconds)

    model = keras.Sequential(
        [
            keras.Input((64, 64, 3)),
            # In the model: what the loader casts counts as waiting.
            keras.layers.Rescaling(1 / 255),
            keras.layers.AveragePooling2D(2),
            keras.layers.Conv2D(filters, 5, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )
    model.compile("sgd", "mse")
    model.fit(loader.dataset(), epochs=epochs, verbose=0, shuffle=False, callbacks=[Note()])
    return Figure(store, statistics.median(steps[1:]), statistics.median(shares[1:]), shares[0], epochs)


def table(figures: list[Figure]) -> str:
    """The figures for people."""
    lines = [f"{'store':12} {'step':>8} {'waiting':>8} {'first epoch':>12}"]
    lines += [
        f"{one.store:12} {one.step_ms:5.1f} ms {one.share:8.2%} {one.first_share:12.2%}"
        + ("" if one.share < _WANTED_SHARE else f"  over {_WANTED_SHARE:.0%}")
        for one in figures
    ]
    return "\n".join(lines)
