"""`oocloader demo`."""

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from oocloader.errors import OocloaderError
from oocloader.sizes import parse_nbytes

_NEEDED = ("sklearn", "scipy", "matplotlib")


def demo(
    folder: Annotated[Path, typer.Option(help="Where data, stores and plot go.")] = Path("oocloader-demo"),
    size: Annotated[str, typer.Option(help="Bytes of images to train from, such as 1GiB.")] = "256MiB",
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the data, for each store.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Train from Zarr and from HDF5 on more data than the device may hold.

    Grows scikit-learn's handwritten digits, converts them to both stores, trains a small model from
    each within a device budget of 32 MiB, and judges it on digits held out. Exit code 1 where fewer than
    97 % of them are right.

    Example: oocloader demo --folder /tmp/demo --size 1GiB
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        what = f"the demo needs {', '.join(missing)}, not installed here"
        raise OocloaderError(f"{what}: pip install 'oocloader[demo]'")
    size_bytes = parse_nbytes(size, "--size")  # at once: what comes next takes seconds
    # TensorFlow says on every start, as an error, that a machine without a GPU has none.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    from oocloader.cli.demo.run import run

    report = run(
        folder,
        size_bytes=size_bytes,
        epochs=epochs,
        say=lambda line: typer.echo(line, err=as_json),
        progress=sys.stdout.isatty() and sys.stderr.isatty() and not as_json,
    )
    typer.echo(json.dumps(report.as_dict(), indent=2) if as_json else f"\n{report}")
    if not report.passed:
        raise typer.Exit(1)
