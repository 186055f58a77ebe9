"""Which device batches are delivered to, and its memory."""

import tensorflow as tf

from oocloader.errors import SettingError
from oocloader.tfdata import gpu_memory


def is_host(device: str) -> bool:
    """Whether batches stay where the windows are."""
    return device == "/CPU:0"


def resolve(device: str | None) -> str:
    """The device to deliver to, such as ``/GPU:0``; None: the first GPU where TensorFlow sees one.

    Raises `SettingError`, listing the devices there are.
    """
    if device is None:
        return "/GPU:0" if tf.config.list_logical_devices("GPU") else "/CPU:0"
    known = [logical.name.removeprefix("/device:") for logical in tf.config.list_logical_devices()]
    wanted = None
    if isinstance(device, str):
        try:
            spec = tf.DeviceSpec.from_string(device if device.startswith("/") else f"/{device}")
            here = spec.job in (None, "localhost") and not spec.task and not spec.replica
            wanted = f"{spec.device_type}:{spec.device_index or 0}" if spec.device_type and here else None
        except ValueError:
            pass
    if wanted not in known:
        listed = ", ".join(f"/{name}" for name in known)
        raise SettingError(f"device={device!r} is not there; TensorFlow sees {listed}")
    return f"/{wanted}"


def expected(device: str | None) -> str:
    """What `resolve` will give for a device that was checked, without taking hold of a GPU."""
    if device is not None:
        return device
    return "/GPU:0" if tf.config.get_visible_devices("GPU") else "/CPU:0"


def memory_nbytes(device: str) -> int | None:
    """Bytes of memory that there are on a GPU, None where nobody tells.

    As limited by `tf.config.set_logical_device_configuration`, or the whole of it. Takes hold of no GPU.
    """
    logical: list[tuple[int, float | None]] = []
    for physical in tf.config.get_visible_devices("GPU"):
        number = int(physical.name.rpartition(":")[2])
        parts = tf.config.get_logical_device_configuration(physical) or [None]
        logical += [(number, None if part is None else part.memory_limit) for part in parts]
    at = int(device.rpartition(":")[2])
    number, limit_mib = logical[at] if at < len(logical) else (at, None)
    total = gpu_memory.total_nbytes(number)
    if limit_mib is None:
        return total
    limit = int(limit_mib * 2**20)
    return limit if total is None else min(limit, total)
