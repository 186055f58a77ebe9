"""Resident memory follows the budget, whatever the size of the store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr

from recorded import finished, started

MIB = 1 << 20
METER = """
def now(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) // 1024

warm = ooc.Loader(np.zeros((100, 4), "f4"), batch_size=10)
for _ in range(2):
    list(warm)
"""


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
    program = started(
        METER
        + """
before = now("VmRSS")
shuffle = sys.argv[2] if sys.argv[2] != "False" else False
with ooc.Loader(sys.argv[1], batch_size=128, shuffle=shuffle, host_memory=sys.argv[3] + "MiB") as loader:
    built = now("VmHWM") - before
    rows = sum(int(x.shape[0]) + int(np.frombuffer(memoryview(x), np.uint8)[::4096].sum()) for x in loader)
    print(rows, now("VmHWM") - before, loader.sizes.host_nbytes, built)
""",
        path,
        shuffle,
        mebibytes,
    )
    code, out, err = finished(program)
    assert code == 0, err
    seen, grown, planned, built = map(int, out.split())
    assert seen == rows
    assert planned <= mebibytes * MIB
    assert built < 32
    assert grown < mebibytes + 272


def test_epochs_do_not_add_up(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "small.zarr", mode="w")
    rows = np.arange(8000, dtype="f4")[:, np.newaxis] * np.ones(256, "f4")
    group.create_array("x", data=rows, chunks=(500, 256))
    group.create_array("y", data=np.arange(8000) % 10, chunks=(500,))
    program = started(
        METER
        + """
with ooc.Loader(sys.argv[1], "x", "y", batch_size=64, shuffle=True, window=2000) as loader:
    dataset = loader.dataset()
    for epoch in range(20):
        assert sum(int(y.shape[0]) for _, y in dataset) == 8000
        if epoch == 2:
            before = now("VmRSS")
    print(now("VmRSS") - before)
""",
        tmp_path / "small.zarr",
    )
    code, out, err = finished(program)
    assert code == 0, err
    assert int(out) < 50
