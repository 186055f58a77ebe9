"""Resident memory follows the budget, whatever the size of the store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from recorded import finished, started

MIB = 1 << 20
# Peak memory is counted from here, where nothing but the libraries is there.
METER = """
def now(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) // 1024

before = now("VmRSS")

def rows_of(loader):
    '''Rows of a pass, each window of which is touched everywhere.'''
    return sum(int(x.shape[0]) + 0 * int(np.frombuffer(memoryview(x), "u1")[::65536].sum()) for x in loader)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shuffle", "mebibytes"),
    [
        (False, 128),
        ("window", 128),
        ("global", 128),  # a call a row
        ("global", 512),  # copied from mappings that threads make and let go of
    ],
)
def test_a_large_file(tmp_path: Path, shuffle: bool | str, mebibytes: int) -> None:
    """Far more than the budget, sparse on the disk."""
    path = tmp_path / "large.npy"
    rows = 3 << 14 if shuffle == "global" else 1 << 17
    np.lib.format.open_memmap(path, mode="w+", dtype="u1", shape=(rows, 1 << 14)).flush()
    program = """
before = now("VmRSS")
shuffle = sys.argv[2] if sys.argv[2] != "False" else False
with ooc.Loader(sys.argv[1], batch_size=128, shuffle=shuffle, host_memory=sys.argv[3] + "MiB") as loader:
    built = now("VmHWM") - before
    rows = sum(int(x.shape[0]) + int(np.frombuffer(memoryview(x), np.uint8)[::4096].sum()) for x in loader)
    print(rows, now("VmHWM") - before, loader.sizes.host_nbytes >> 20, built)
"""
    seen, grown, planned, built = measured(program, path, shuffle, mebibytes)
    assert seen == rows
    assert planned <= mebibytes
    assert built < 32
    assert grown < mebibytes + 272


def measured(code: str, *arguments: object) -> list[int]:
    returned, out, err = finished(started(METER + code, *arguments), timeout_s=300)
    assert returned == 0, err
    return [int(number) for number in out.split()]


def linked(path: Path, rows: int, chunk_shape: tuple[int, ...], name: str, group: Any) -> None:
    """An array of equal chunks of random digits, which are one file with many names: (rows, 16384) uint8."""
    array = group.create_array(name, shape=(rows, 16384), chunks=chunk_shape, dtype="u1")
    array[: chunk_shape[0]] = np.random.default_rng(0).integers(1, 5, (chunk_shape[0], 16384), "u1")
    first = path / name / "c" / "0"
    for index in range(1, rows // chunk_shape[0]):
        (path / name / "c" / str(index)).mkdir()
        for chunk in first.iterdir():
            os.link(chunk, path / name / "c" / str(index) / chunk.name)


@pytest.mark.slow
def test_stores_far_larger_than_the_budget(tmp_path: Path) -> None:
    """8 GiB each, sparse on the disk: raw and compressed, in order and shuffled, under 128 MiB."""
    rows = 1 << 19
    np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype="u1", shape=(rows, 16384)).flush()
    linked(tmp_path / "x.zarr", rows, (256, 16384), "x", zarr.open_group(tmp_path / "x.zarr", mode="w"))
    program = """
for name in ("x.npy", "x.zarr"):
    for shuffle in (False, True):
        path = os.path.join(sys.argv[1], name)
        options = {"batch_size": 128, "host_memory": "128MiB", "shuffle": shuffle}
        with ooc.Loader(path, **options) as loader:
            assert loader.plan().host_nbytes <= 128 << 20
            assert rows_of(loader) == 1 << 19
        print(now("VmHWM") - before)
"""
    grown = measured(program, tmp_path)
    assert len(grown) == 4
    assert max(grown) < 128 + 150


@pytest.mark.slow
@pytest.mark.parametrize("shuffle", [False, True])
def test_compressed_chunks_that_windows_cut(tmp_path: Path, shuffle: bool) -> None:
    """Two arrays of unlike chunks, neither of which windows or blocks keep whole: decoded rows, kept rows
    and windows stay within what the plan says, and the window that the last batch holds."""
    group = zarr.open_group(tmp_path / "x.zarr", mode="w")
    rows = 3000 if shuffle else 24_000
    linked(tmp_path / "x.zarr", rows, (250, 16384), "x", group)
    linked(tmp_path / "x.zarr", rows, (120, 4096), "mask", group)
    program = """
options = {"batch_size": 50, "window": 310, "block": 70, "threads": 4, "shuffle": sys.argv[2] == "True"}
budget = "192MiB" if options["shuffle"] else "64MiB"
with ooc.Loader(sys.argv[1], ["x", "mask"], host_memory=budget, **options) as loader:
    next(iter(loader))  # TensorFlow's own memory
    before = now("VmRSS")
    plan = loader.plan()
    total = sum(int(batch["x"].shape[0]) for _ in range(2) for batch in loader)
    print(total, plan.host_nbytes >> 20, plan.window_nbytes >> 20, now("VmHWM") - before)
"""
    total, planned, window, grown = measured(program, tmp_path / "x.zarr", shuffle)
    assert total == 2 * rows
    assert planned <= (192 if shuffle else 64)
    assert grown < planned + window + 16


@pytest.mark.slow
def test_epochs_do_not_add_up(tmp_path: Path) -> None:
    """Fifty epochs, in loops on either kind of device and in fit: what the third ends with stays."""
    group = zarr.open_group(tmp_path / "small.zarr", mode="w")
    rows = np.arange(8000, dtype="f4")[:, np.newaxis] * np.ones(256, "f4")
    group.create_array("x", data=rows, chunks=(500, 256))
    group.create_array("y", data=np.arange(8000) % 10, chunks=(500,))
    program = """
import keras

options = {"batch_size": 64, "shuffle": True, "window": 2000}
for device in ("/CPU:0", "/CPU:1"):
    with ooc.Loader(sys.argv[1], "x", "y", device=device, **options) as loader:
        dataset = loader.dataset()
        for epoch in range(50):
            assert sum(int(y.shape[0]) for _, y in dataset) == 8000
            if epoch == 2:
                before = now("VmRSS")
        print(now("VmRSS") - before)

class Memory(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 2:
            self.before = now("VmRSS")
        self.grown = now("VmRSS") - getattr(self, "before", 0)

memory = Memory()
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
with ooc.Loader(sys.argv[1], "x", "y", **options) as loader:
    model.fit(loader.dataset(), epochs=50, verbose=0, callbacks=[memory])
print(memory.grown)
"""
    grown = measured(program, tmp_path / "small.zarr")
    assert len(grown) == 3
    assert max(grown) < 20
