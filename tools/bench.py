"""Measures the loader against what the machine can do and against what people use, all in one run.

Makes its own data. Each contestant loads the same rows, in the same order and in the same batches; passes
are taken in turn, and medians compared. "delivered": the consumer does not touch the bytes; "read": it
sums every byte through a view of the tensor.

    python tools/bench.py                                      # everything, about eight minutes
    python tools/bench.py --quick                              # small data, under a minute
    python tools/bench.py --only load --store hdf5-zstd --json zstd.json --plot zstd.png
    python tools/bench.py convert                              # the converter, some minutes
    python tools/bench.py waiting                              # what training waits for, some minutes
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import tensorflow as tf

from benchmark import conversions, machine, report, waiting
from benchmark.floor import WRITTEN, floor
from benchmark.limits import cold, many_chunks
from benchmark.loading import Settings, load, small_rows
from benchmark.measure import Row, WrongRowsError
from benchmark.peers import missing
from benchmark.recipes import RECIPES
from benchmark.resident import resident
from benchmark.stores import KINDS

SUBSETS: dict[str, Callable[[Settings], Iterator[Row]]] = {
    "load": load,
    "small-rows": small_rows,
    "resident": resident,
    "many-chunks": many_chunks,
    "cold": cold,
    "floor": floor,
}
QUICK_ROWS = 2048
_BEGAN_S = time.perf_counter()


def parse(arguments: list[str] | None) -> argparse.Namespace:
    about = "\n".join(f"  {name:12} {(subset.__doc__ or '').strip()}" for name, subset in SUBSETS.items())
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"subsets:\n{about}\n\nstores: {', '.join(KINDS)}\n\n"
        f"stores of floor: {', '.join(kind.name for kind in WRITTEN)}\n\n"
        f"recipes: {', '.join(recipe.name for recipe in RECIPES)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    stores = [*KINDS, *(kind.name for kind in WRITTEN if kind.name not in KINDS)]
    add = parser.add_argument
    add(
        "--only",
        action="append",
        choices=list(SUBSETS),
        metavar="SUBSET",
        help="this subset; may be repeated",
    )
    add("--store", action="append", choices=stores, metavar="STORE", help="this store; may be repeated")
    add(
        "--recipe",
        action="append",
        metavar="TEXT",
        help="recipes with this text in their name; may be repeated",
    )
    add("--rows", type=_count, help="images of 64x64x3 bytes (80000); the table has 15 times as many rows")
    add("--batch", type=_count, default=128, help="rows of a batch of images (128)")
    add("--repeats", type=_count, help="passes of each contestant, of which the median counts (5)")
    add(
        "--seconds",
        type=float,
        help="cut a recipe's pass after so long; 0: never (0.25). The loader's passes are always whole",
    )
    add("--folder", type=Path, help="keep the data there and use it again (a temporary folder)")
    add("--quick", action="store_true", help="small data, one pass: to try the tool, not to compare")
    add("--json", type=Path, metavar="FILE", help="write the results, with every pass")
    add("--plot", type=Path, metavar="FILE.png", help="write a plot")
    return parser.parse_args(arguments)


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def settings_from(options: argparse.Namespace, folder: Path) -> Settings:
    quick: bool = options.quick
    seconds = options.seconds if options.seconds is not None else 0.1 if quick else 0.25
    return Settings(
        folder=folder,
        rows=options.rows or (QUICK_ROWS if quick else 80_000),
        batch_size=options.batch,
        repeats=options.repeats or (1 if quick else 5),
        most_s=seconds or None,
        quick=quick,
        stores=tuple(options.store or ()),
        recipes=tuple(options.recipe or ()),
        say=lambda text: print(
            f"{time.perf_counter() - _BEGAN_S:4.0f} s  {text}", file=sys.stderr, flush=True
        ),
    )


def run(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], list[Row]]:
    """What was run where, and the results."""
    settings = settings_from(options, folder)
    absent = missing()
    began = time.perf_counter()
    about: dict[str, Any] = {"machine": machine.describe(), "not_installed": absent}
    rows = [
        row
        for name, subset in SUBSETS.items()
        if not options.only or name in options.only
        for row in subset(settings)
    ]
    about["machine"]["load_after"] = list(os.getloadavg())
    about["settings"] = {
        "rows": settings.rows,
        "batch": settings.batch_size,
        "repeats": settings.repeats,
        "seconds": settings.most_s,
        "quick": settings.quick,
        "subsets": options.only or list(SUBSETS),
        "stores": settings.stores,
        "recipes": settings.recipes,
    }
    about["seconds"] = time.perf_counter() - began
    return about, rows


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["convert"]:
        return conversions.main(arguments[1:])
    # The target is the CPU, also where there is a GPU.
    tf.config.set_visible_devices([], "GPU")
    if arguments[:1] == ["waiting"]:
        return waiting.main(arguments[1:])
    options = parse(arguments)
    for output in (options.json, options.plot):
        if output is not None and not output.absolute().parent.is_dir():
            print(f"{output}: there is no such folder", file=sys.stderr)
            return 2
    try:
        if options.folder is not None:
            options.folder.mkdir(parents=True, exist_ok=True)
            about, rows = run(options, options.folder)
        else:
            with tempfile.TemporaryDirectory(prefix="oocloader-bench-") as folder:
                about, rows = run(options, Path(folder))
    except WrongRowsError as error:
        print(error, file=sys.stderr)
        return 1
    found = about["machine"]
    load_before, load_after = found["load"][0], found["load_after"][0]
    print(f"{found['processor']}, {found['cores']} cores, {found['memory']}")
    print(f"load average {load_before:.1f} before, {load_after:.1f} after; {about['seconds']:.0f} s\n")
    print(report.table(rows))
    print(f"\noocloader, share of the yardstick in brackets\n{report.summary(rows)}")
    if about["not_installed"]:
        names = ", ".join(about["not_installed"])
        print(f"\nnot installed, so not compared with: {names} (pip install 'oocloader[bench]')")
    if options.json is not None:
        report.write_json(options.json, about, rows)
    if options.plot is not None:
        report.plot(options.plot, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
