"""What one loader reads, as seen by TensorFlow: windows on the device, or an ordinary pipeline on the host.

`from_generator` carries windows from the host to another device, which gets them whole; on the host itself
they are in their place already. Batches are cut there.
"""

import contextlib
import dataclasses
import functools
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from oocloader.errors import ClosedError, DataError, OocloaderError, in_forked_child
from oocloader.order import Position
from oocloader.pipeline import EpochPass, NextEpoch, ReadConfig, Resident
from oocloader.tfdata.batches import Batches
from oocloader.tfdata.crossing import cross, on_host
from oocloader.tfdata.device import is_host
from oocloader.tfdata.device_rows import ResidentRows
from oocloader.tfdata.element import Element, ElementMaker, one_line
from oocloader.tfdata.host_pipeline import host_pipeline

logger = logging.getLogger("oocloader")
_NO_SEED = np.zeros(2, np.int32)


class LoaderPipeline:
    """The passes of one loader for TensorFlow. Built once a loader: `from_generator` stays for ever.

    `class_table` gives classes and their weights, where rows are weighted by class. `resident`: all rows are
    on the device from the first pass on.
    """

    def __init__(
        self,
        read_config: ReadConfig,
        element: Element,
        *,
        device: str,
        next_position: Callable[[], Position],
        coming: Callable[[], Position | None] = lambda: None,
        class_table: Callable[[], tuple[np.ndarray, np.ndarray]] | None = None,
        resident: Resident | None = None,
    ) -> None:
        self.device = device
        self.last_pass: EpochPass | None = None
        self._readers = read_config.readers
        self._resident = None if resident is None else ResidentRows(read_config, resident, device)
        self.take(read_config)
        self._next_position = next_position
        self._process = os.getpid()
        self._starting = threading.Lock()
        self._crossing_pass: EpochPass | None = None
        self._iterators: weakref.WeakSet[Batches] = weakref.WeakSet()
        self._passes: weakref.WeakSet[EpochPass] = weakref.WeakSet()
        self._closed = False
        self._warned = False
        batch = read_config.batch_size if read_config.drop_remainder else None
        self._element_maker = ElementMaker(element, _specs(read_config, batch), class_table)
        self.seeded = element.seeded
        self._transforms = element.transform is not None
        # What follows lives as long as the process or the next epoch, so it holds the pipeline weakly.
        this = weakref.ref(self)

        def coming_pass() -> tuple[ReadConfig, Position] | None:
            pipeline, at = this(), coming()
            return None if pipeline is None or at is None else (pipeline._device_config, at)

        self._next_epoch = NextEpoch(_pass_at, coming_pass)
        self._crossing: tf.data.Dataset | None = None
        if self.crosses:
            with tf.device("/CPU:0"):
                windows = _from_generator(_crossing_windows, this, _specs(self._device_config))
                self._crossing = cross(windows, device)

    @property
    def element_spec(self) -> Any:
        return self._element_maker.element_spec

    @property
    def crosses(self) -> bool:
        """Whether windows are copied to another device than the host."""
        return not is_host(self.device)

    def take(self, read_config: ReadConfig) -> None:
        """Go on with `read_config`: the same rows in other windows, from where they are read now."""
        if read_config.readers is not self._readers:
            read_config = dataclasses.replace(read_config, readers=self._readers)
        self.read_config = self._device_config = read_config
        if self._resident is not None:
            self._resident.take(read_config)
            self.read_config, self._device_config = self._resident.host_config, self._resident.device_config

    def begin_host_pass(self) -> EpochPass:
        """The next pass, for a pipeline of tf.data's."""
        self.refuse()
        started = _pass_at((self.read_config, self._next_position()))
        self._register(started, resident=self._resident is not None and self._resident.on_host)
        self.read_config.progress.unseen = True
        return started

    def begin_device_pass(self) -> tuple[EpochPass, Iterator[Any]]:
        """The next pass and its windows on the device."""
        self.refuse()
        started = self._next_epoch.begin((self._device_config, self._next_position()))
        self._register(started, resident=True)
        if self._crossing is None:
            return started, on_host(_device_windows(weakref.ref(self), started))
        self._crossing_pass = started
        return started, iter(self._crossing)

    def _register(self, started: EpochPass, *, resident: bool) -> None:
        self._passes.add(started)
        self.last_pass = started
        if resident and self._resident is not None:
            self._resident.fill(started, on_start=self._passes.add, refuse=self.refuse)

    def batches(self, passes: int | None, owner: object) -> Batches:
        """The batches of `passes` on the device; `owner` is kept alive until then."""
        self.refuse()
        iterator = Batches(
            self.begin_device_pass,
            self._device_element,
            owner=owner,
            passes=passes,
            batch_size=self.read_config.batch_size,
            device=self.device,
            element_spec=self.element_spec,
            # The generator takes its pass when the first window is asked for.
            starting=self._starting if self.crosses else contextlib.nullcontext(),
        )
        self._iterators.add(iterator)
        return iterator

    def host_pipeline(self, passes: int | None) -> tf.data.Dataset:
        """The same elements as an ordinary tf.data pipeline, on the host."""
        if not self._warned:
            self._warned = True
            logger.warning(
                "oocloader: this use of the dataset goes through tf.data's host pipeline (map, class_weight, "
                "a strategy, ...): the values are the same, but batches arrive on the host. "
                "Give dtype=, scale=, offset=, class_weight= or transform= to the Loader to keep that work "
                "on the device"
            )
        self._element_maker.prepare("/CPU:0")
        specs = _specs(self.read_config)
        if self.seeded:
            # Batches do not know their number here: every row brings the seed of its batch along.
            specs = (*specs, tf.TensorSpec((None,), tf.int64))
        name = "transform" if self._transforms else None
        with tf.device("/CPU:0"):
            windows = _from_generator(_host_windows, weakref.ref(self), specs)
            return host_pipeline(windows, self.read_config, self._host_element, passes=passes, name=name)

    def refuse(self) -> None:
        """Raise where this process must not use TensorFlow, or the loader is closed."""
        if self._closed:
            raise ClosedError("the Loader is closed; make another one")
        if os.getpid() != self._process:
            raise in_forked_child("a Loader cannot be used")

    def close(self) -> None:
        """Give up every pass."""
        self._closed = True
        for iterator in list(self._iterators):
            iterator.close()
        self._next_epoch.close()
        for started in list(self._passes):
            started.close()
            # Its traceback holds windows, and files that are still open.
            started.error = None
        for read_config in (self.read_config, self._device_config):
            for pool in read_config.pools:
                pool.clear()
        if self._resident is not None:
            self._resident.close()

    def _device_element(self, arrays: Sequence[tf.Tensor], running: EpochPass, number: int) -> Any:
        """The element of batch `number` of a pass, on the device."""
        if self._resident is not None:
            arrays = self._resident.gather(arrays)
        seed = running.seed(number) if self.seeded else _NO_SEED
        try:
            return self._element_maker(arrays, seed, self.device)
        except tf.errors.InvalidArgumentError as error:
            if self._transforms:
                raise DataError(
                    f"transform= fails in batch {number} of pass {running.epoch}: {one_line(error)}"
                ) from error
            raise

    def _host_element(self, *arrays: tf.Tensor) -> Any:
        """The element of a batch in a host pipeline."""
        seed: Any = _NO_SEED
        if self.seeded:
            seed = tf.bitcast(arrays[-1][0], tf.int32)
            arrays = arrays[:-1]
        return self._element_maker(arrays, seed, "/CPU:0")


def _specs(read_config: ReadConfig, rows: int | None = None) -> tuple[tf.TensorSpec, ...]:
    return tuple(
        tf.TensorSpec((rows, *sample_shape), tf.dtypes.as_dtype(dtype))
        for sample_shape, dtype in read_config.row_specs
    )


def _from_generator(
    generator: Callable[[weakref.ref[LoaderPipeline]], Iterator[Any]],
    this: weakref.ref[LoaderPipeline],
    specs: tuple[tf.TensorSpec, ...],
) -> tf.data.Dataset:
    return tf.data.Dataset.from_generator(functools.partial(generator, this), output_signature=specs)


def _pass_at(at: tuple[ReadConfig, Position], all_taken: Callable[[], None] = lambda: None) -> EpochPass:
    read_config, position = at
    return EpochPass(
        read_config, position.epoch, start=position.batches, history=position.history, all_taken=all_taken
    )


def _alive(this: weakref.ref[LoaderPipeline]) -> LoaderPipeline:
    pipeline = this()
    if pipeline is None:
        raise ClosedError("the Loader of this dataset is gone; keep it for as long as the dataset is used")
    return pipeline


def _device_windows(
    this: weakref.ref[LoaderPipeline], started: EpochPass
) -> Iterator[tuple[np.ndarray, ...]]:
    """The windows of a pass on their way to the device."""
    crosses = _alive(this).crosses
    for arrays in started.windows():
        if crosses:
            started.counters.add(sent_bytes=sum(array.nbytes for array in arrays))
        yield arrays
        del arrays
    _refuse_closed(this)


def _crossing_windows(this: weakref.ref[LoaderPipeline]) -> Iterator[tuple[np.ndarray, ...]]:
    """The windows of the pass that was begun just now."""
    pipeline = _alive(this)
    started, pipeline._crossing_pass = pipeline._crossing_pass, None
    assert started is not None
    return _device_windows(this, started)


def _host_windows(this: weakref.ref[LoaderPipeline]) -> Iterator[tuple[np.ndarray, ...]]:
    """The windows of the next pass, for a pipeline of tf.data's, with the seeds of their rows if need be."""
    pipeline = _alive(this)
    seeded = pipeline.seeded
    try:
        started = pipeline.begin_host_pass()
        del pipeline
        row = started.first_row
        for arrays in started.windows():
            rows = len(arrays[0])
            yield (*arrays, started.row_seeds(row, rows)) if seeded else arrays
            row += rows
            del arrays
    except OocloaderError as error:
        # TensorFlow puts all that a traceback says behind the message.
        raise error.with_traceback(None) from None
    _refuse_closed(this)


def _refuse_closed(this: weakref.ref[LoaderPipeline]) -> None:
    """Closed in the middle, windows end early: that must not look like the end of the pass."""
    pipeline = this()
    if pipeline is not None:
        pipeline.refuse()
