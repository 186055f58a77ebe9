"""The memory of a GPU, as NVIDIA's management library tells it: the only file that imports `pynvml`."""

import os
from typing import Any


def total_nbytes(index: int) -> int | None:
    """Bytes of memory of the GPU that CUDA numbers `index` in this process, None where nobody tells.

    Its whole memory, whatever is in use: TensorFlow takes nearly all that is free for itself, and a budget
    should not depend on the moment. Where CUDA's numbers cannot be matched to the library's, the smallest
    of the GPUs that may be meant.
    """
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        handles, matched = _visible(pynvml)
        if index >= len(handles):
            return None
        meant = [handles[index]] if matched else handles
        return min(int(pynvml.nvmlDeviceGetMemoryInfo(_slice(pynvml, handle)).total) for handle in meant)
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()


def _visible(nvml: Any) -> tuple[list[Any], bool]:
    """Handles of the GPUs that CUDA shows to this process, and whether they are in CUDA's order."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    in_order = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or nvml.nvmlDeviceGetCount() == 1
    if named is None:
        return [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())], in_order
    handles: list[Any] = []
    for name in filter(None, (part.strip() for part in named.split(","))):
        if name.lstrip("-").isdecimal():
            # As CUDA has it, the first that is not there ends the list.
            if not 0 <= int(name) < nvml.nvmlDeviceGetCount():
                break
            handles.append(nvml.nvmlDeviceGetHandleByIndex(int(name)))
        else:
            handles.append(nvml.nvmlDeviceGetHandleByUUID(name))
            in_order = True
    return handles, in_order


def _slice(nvml: Any, handle: Any) -> Any:
    """The first slice of a GPU that is cut into several (MIG), of which CUDA shows no more; else the GPU."""
    try:
        if nvml.nvmlDeviceGetMigMode(handle)[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return handle
        slices = range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle))
    except nvml.NVMLError:
        return handle  # it cannot be cut, or is a slice itself
    for number in slices:
        try:
            return nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except nvml.NVMLError:
            continue
    return handle
