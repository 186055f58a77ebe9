"""All rows on the device: read once, and gathered batch by batch by the number of each row."""

import dataclasses
import math
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from oocloader.errors import ClosedError
from oocloader.pipeline import EpochPass, HostRows, ReadConfig, Resident, read_all, with_row_numbers
from oocloader.tfdata.device import is_host
from oocloader.tfdata.slicing import CARRIERS, SLICING


class ResidentRows:
    """The rows of a loader on `device`, the host or another, from the first pass on that needs them.

    `host_config` is what a pipeline on the host reads, `device_config` what crosses to the device: where
    that is not the host, the number of each row.
    """

    def __init__(self, stored: ReadConfig, resident: Resident, device: str) -> None:
        self._resident = resident
        self._device = device
        self._filling = threading.Lock()
        self._device_rows: DeviceRows | None = None
        self._host_rows = HostRows(stored) if is_host(device) else None
        self._filled = self._host_rows is not None and self._host_rows.complete
        self.take(stored)

    def take(self, stored: ReadConfig) -> None:
        """Go on with the same rows in other windows."""
        self._stored = stored
        if self._host_rows is None:
            self.host_config, self.device_config = stored, with_row_numbers(stored)
        else:
            self.host_config = dataclasses.replace(stored, readers=self._host_rows.readers)
            self.device_config = self.host_config

    @property
    def on_host(self) -> bool:
        """Whether the host is the device."""
        return self._host_rows is not None

    def fill(
        self, started: EpochPass, *, on_start: Callable[[EpochPass], None], refuse: Callable[[], None]
    ) -> None:
        """Read all rows unless they are there, for pass `started`, which counts them.

        `on_start` is told the pass that reads them; `refuse` raises where it may have been closed.
        """
        with self._filling:
            if self._filled:
                return
            began = time.perf_counter()
            specs = [((self._stored.rows, *shape), dtype) for shape, dtype in self._stored.row_specs]
            rows = self._host_rows or DeviceRows(specs, self._device)
            try:
                counters = read_all(self._stored, self._resident, rows.put, on_start=on_start)
                refuse()
            except BaseException:
                started.close()
                raise
            self._filled = True
            if isinstance(rows, DeviceRows):
                self._device_rows = rows
                started.counters.add(sent_bytes=rows.nbytes)
            started.counters.include(counters)
            started.counters.add(wait_s=time.perf_counter() - began)

    def gather(self, arrays: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        """The rows of a batch of what crossed."""
        if self._host_rows is not None:
            return arrays
        rows = self._device_rows
        if rows is None:
            raise ClosedError("the Loader was closed before its pass was over; make another one")
        return rows.gather(arrays[0])

    def close(self) -> None:
        """Let go of the rows. Batches that were gathered have memory of their own."""
        rows, self._device_rows = self._host_rows or self._device_rows, None
        if rows is not None:
            rows.close()


class DeviceRows:
    """All rows of every array on `device`: put there window by window, gathered batch by batch.

    `specs` are each array's rows with their sample shape, and dtype.
    """

    def __init__(self, specs: Sequence[tuple[tuple[int, ...], np.dtype]], device: str) -> None:
        self._device = device
        self._stored = [tf.dtypes.as_dtype(dtype) for _, dtype in specs]
        self._carriers = [CARRIERS.get(stored, stored) for stored in self._stored]
        with tf.device(device):
            # Filled in place, so that there is never a second copy.
            self._rows = [
                tf.Variable(tf.zeros(shape, carrier), trainable=False)
                for (shape, _), carrier in zip(specs, self._carriers, strict=True)
            ]
        self._nbytes = sum(variable.dtype.size * math.prod(variable.shape) for variable in self._rows)

    @property
    def nbytes(self) -> int:
        """Memory of all rows on the device."""
        return int(self._nbytes)

    def put(self, first: int, arrays: Sequence[np.ndarray]) -> None:
        """Copy rows of every array to the device, the first of them to row `first`."""
        for variable, carrier, array in zip(self._rows, self._carriers, arrays, strict=True):
            if not array.size:
                continue
            with tf.device("/CPU:0"):
                value = tf.convert_to_tensor(array.view(carrier.as_numpy_dtype))
                begin, end, step = (tf.constant([at]) for at in (first, first + len(array), 1))
            with tf.device(self._device), SLICING:
                # The operation itself: `variable[a:b].assign` would copy all rows first.
                tf.raw_ops.ResourceStridedSliceAssign(
                    ref=variable.handle, begin=begin, end=end, strides=step, value=value
                )

    def close(self) -> None:
        """Let go of the rows. Batches that were gathered have memory of their own."""
        self._rows = []

    def gather(self, numbers: tf.Tensor) -> list[tf.Tensor]:
        """The rows of these numbers, int64, of every array."""
        if not self._rows:
            raise ClosedError("the Loader is closed; make another one")
        gathered = []
        with tf.device(self._device):
            for variable, carrier, stored in zip(self._rows, self._carriers, self._stored, strict=True):
                # A GPU gathers bytes from a variable only, not from a tensor.
                rows = tf.raw_ops.ResourceGather(resource=variable.handle, indices=numbers, dtype=carrier)
                gathered.append(rows if carrier == stored else tf.bitcast(rows, stored))
        return gathered
