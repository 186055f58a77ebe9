"""The demo from beginning to end."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from tqdm import tqdm

from oocloader.cli.demo.digits import ROW_BYTES, load_digits, write_grown
from oocloader.cli.demo.report import DemoReport, save_plot
from oocloader.cli.demo.train import train_from
from oocloader.conversion import convert
from oocloader.errors import SettingError, StoreError
from oocloader.loader import DataSpec
from oocloader.sizes import MIB

DEVICE_MEMORY = 32 * MIB
# Three windows and two batches of float32 images must fit.
_LEAST_DEVICE_MEMORY = 4 * MIB
_SUFFIXES = (".zarr", ".h5")
# Beside this file in an installation, where it belongs in a checkout.
_SPECS = (Path(__file__).with_name("digits.toml"), Path(__file__).parents[3] / "data_specs" / "digits.toml")


def run(
    folder: Path,
    *,
    size_bytes: int = 256 * MIB,
    epochs: int = 1,
    say: Callable[[str], None] = lambda line: None,
    progress: bool = False,
) -> DemoReport:
    """Grow `size_bytes` of digits in `folder`, convert them to Zarr and HDF5, and train from both.

    The device budget is 32 MiB; for less data an eighth of it, but at least 4 MiB. `say` gets a line for
    each step that is done; `progress` draws bars. Files of an earlier run in `folder` are replaced.
    """
    if size_bytes < MIB:
        raise SettingError(f"size: {size_bytes} bytes are too few to train from; give at least 1MiB")
    if epochs < 1:
        raise SettingError(f"epochs: expected at least 1, got {epochs}")
    _make_room(folder, size_bytes)
    rows = -(-size_bytes // ROW_BYTES)
    device_memory = max(_LEAST_DEVICE_MEMORY, min(DEVICE_MEMORY, size_bytes // 8))
    spec = _spec(folder)
    assert spec.conversion is not None
    seed = spec.options["seed"]
    images, labels = (Path(spec.conversion["source"][name]) for name in ("images", "labels"))

    digits = load_digits(seed)
    with tqdm(total=rows, unit="rows", desc="growing", disable=not progress) as bar:
        for count in write_grown(digits, rows, images=images, labels=labels, seed=seed):
            bar.update(count)
    say(f"{images}: {rows:,} images grown from {len(digits.source_images):,} digits")

    trainings = []
    for suffix in _SUFFIXES:
        store = Path(spec.conversion["destination"]).with_suffix(suffix)
        converted = convert(**{**spec.conversion, "destination": store}, progress=progress)
        say(str(converted))
        source = spec.replace(source=str(store))
        training = train_from(source, digits, epochs=epochs, device_memory=device_memory, verbose=progress)
        say(f"{store}: trained in {training.seconds:.1f} s, accuracy {training.accuracy:.4f}")
        trainings.append(training)

    plot = folder / "digits.png"
    save_plot(plot, digits, np.load(images, mmap_mode="r")[:48], trainings)
    return DemoReport(
        rows=rows,
        data_bytes=rows * ROW_BYTES,
        device_memory=device_memory,
        held_out=len(digits.held_out_labels),
        trainings=tuple(trainings),
        folder=folder,
        plot=plot,
    )


def _make_room(folder: Path, size_bytes: int) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise StoreError(f"{folder}: cannot be made: {error.strerror}", file=str(folder)) from error
    # The .npy and the two stores; the digits hardly compress, since noise was added to them.
    needed = 3.1 * size_bytes
    if free < needed:
        what = f"{folder}: the demo needs {needed / MIB:,.0f} MiB there and {free / MIB:,.0f} MiB are free"
        raise StoreError(f"{what}; give a smaller --size or another --folder", file=str(folder))


def _spec(folder: Path) -> DataSpec:
    """The data spec of the digits, put into `folder`, where its paths are."""
    spec = next(path for path in _SPECS if path.exists())
    try:
        shutil.copyfile(spec, folder / spec.name)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written to: {error.strerror}", file=str(folder)) from error
    return DataSpec.load(folder / spec.name)
