"""Memory of a GPU by NVIDIA's library, of which a fake stands here."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from oocloader.tfdata import gpu_memory

GIB = 1 << 30


class Fake(types.ModuleType):
    """`pynvml` as far as it is used: `totals` by index, `uuids`, `slices` of GPUs that are cut."""

    NVML_DEVICE_MIG_ENABLE = 1

    class NVMLError(Exception):
        pass

    def __init__(self, totals: list[int], *, broken: bool = False) -> None:
        super().__init__("pynvml")
        self.totals = totals
        self.uuids = {f"GPU-{i}": i for i in range(len(totals))}
        self.slices: dict[int, list[int | None]] = {}
        self.broken = broken
        self.open = 0

    def nvmlInit(self) -> None:  # noqa: N802  # the library's own name
        if self.broken:
            raise self.NVMLError("driver not loaded")
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802  # the library's own name
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802  # the library's own name
        return len(self.totals)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:  # noqa: N802  # the library's own name
        return ("gpu", index)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:  # noqa: N802  # the library's own name
        if uuid not in self.uuids:
            raise self.NVMLError("not found")
        return ("gpu", self.uuids[uuid])

    def nvmlDeviceGetMigMode(self, handle: Any) -> list[int]:  # noqa: N802  # the library's own name
        if handle[0] == "slice" or not self.slices:
            raise self.NVMLError("not supported")
        return [int(handle[1] in self.slices), 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int:  # noqa: N802  # the library's own name
        return len(self.slices[handle[1]])

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, number: int) -> Any:  # noqa: N802  # its name
        total = self.slices[handle[1]][number]
        if total is None:
            raise self.NVMLError("not found")
        return ("slice", total)

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:  # noqa: N802  # the library's own name
        kind, number = handle
        return types.SimpleNamespace(total=number if kind == "slice" else self.totals[number], free=1, used=2)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)


def install(monkeypatch: pytest.MonkeyPatch, fake: Fake) -> Fake:
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


@pytest.mark.parametrize(
    ("totals", "environment", "index", "expected"),
    [
        ([24 * GIB], {}, 0, 24 * GIB),
        ([24 * GIB], {}, 1, None),
        ([], {}, 0, None),
        # CUDA puts the fastest first, the library goes by slot: the smallest may be meant.
        ([80 * GIB, 16 * GIB], {}, 0, 16 * GIB),
        ([80 * GIB, 16 * GIB], {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, 0, 80 * GIB),
        ([80 * GIB, 16 * GIB], {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, 1, 16 * GIB),
        ([80, 16, 24], {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "2, 0"}, 0, 24),
        ([80, 16, 24], {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "2,0"}, 1, 80),
        ([80, 16, 24], {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1,9,0"}, 1, None),
        ([80, 16, 24], {"CUDA_VISIBLE_DEVICES": "-1"}, 0, None),
        ([80, 16, 24], {"CUDA_VISIBLE_DEVICES": ""}, 0, None),
        ([80, 16, 24], {"CUDA_VISIBLE_DEVICES": "GPU-2,GPU-0"}, 0, 24),
        ([80, 16, 24], {"CUDA_VISIBLE_DEVICES": "GPU-nowhere"}, 0, None),
    ],
)
def test_total(
    monkeypatch: pytest.MonkeyPatch,
    totals: list[int],
    environment: dict[str, str],
    index: int,
    expected: int | None,
) -> None:
    fake = install(monkeypatch, Fake(totals))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert gpu_memory.total_nbytes(index) == expected
    assert fake.open == 0


@pytest.mark.parametrize(("slices", "expected"), [([None, 5, 10], 5), ([None, None], 80), ([], 80)])
def test_a_gpu_that_is_cut(monkeypatch: pytest.MonkeyPatch, slices: list[int | None], expected: int) -> None:
    fake = install(monkeypatch, Fake([80]))
    fake.slices = {0: slices}
    assert gpu_memory.total_nbytes(0) == expected


def test_nobody_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Fake([80], broken=True))
    assert gpu_memory.total_nbytes(0) is None
    monkeypatch.setitem(sys.modules, "pynvml", None)  # as if it were not installed
    assert gpu_memory.total_nbytes(0) is None
