"""The feed of a loader as seen by TensorFlow: windows on the device, or an ordinary pipeline on the host."""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from oocloader.errors import ClosedError, DataError, OocloaderError, in_forked_child
from oocloader.order import Position
from oocloader.pipeline import EpochPass, HostRows, NextEpoch, ReadConfig, Resident, Seeds, load, numbers_of
from oocloader.tfdata import device as devices
from oocloader.tfdata.element import Element, Finish, one_line

logger = logging.getLogger("oocloader")
_NO_SEED = np.zeros(2, np.int32)


class Source:
    """The feed of one loader as seen by TensorFlow. Built once a loader: `from_generator` stays for ever.

    `table` gives classes and their weights, where rows are weighted by class. `resident`: all rows are kept
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
        table: Callable[[], tuple[np.ndarray, np.ndarray]] | None = None,
        resident: Resident | None = None,
    ) -> None:
        self.device = device
        self._stored = read_config
        self._resident = resident
        self._kept: HostRows | devices.DeviceRows | None = None
        self._numbers: ReadConfig | None = None
        if resident is not None and devices.is_host(device):
            self._kept = HostRows(read_config)
            read_config = self._kept.read_config
        elif resident is not None:
            self._numbers = numbers_of(read_config)
        self._filled = resident is None or (isinstance(self._kept, HostRows) and self._kept.complete)
        self.read_config = read_config
        self.last_pass: EpochPass | None = None
        self._next_position = next_position
        self._process = os.getpid()
        self._starting = threading.Lock()
        self._filling = threading.Lock()
        self._begun: EpochPass | None = None
        self._live: weakref.WeakSet[devices.Batches] = weakref.WeakSet()
        self._running: weakref.WeakSet[EpochPass] = weakref.WeakSet()
        self._closed = False
        self._said = False
        batch = read_config.batch_size if read_config.drop_remainder else None
        self._finish = Finish(element, _specs(read_config, batch), table)
        self.seeded = element.seeded
        self._transforms = element.transform is not None
        self._drawn: tuple[int, Seeds] | None = None
        # The closures live as long as the process or the border, so they hold the source weakly.
        source = weakref.ref(self)

        def coming_pass() -> tuple[ReadConfig, Position] | None:
            found, at = source(), coming()
            return None if found is None or at is None else (found._device_config, at)

        self._next_epoch = NextEpoch(partial(_pass_at, pauses=self.crosses), coming_pass)

        def crossing() -> Iterator[tuple[np.ndarray, ...]]:
            return _device_windows(source, _alive(source).begun())

        def windows(specs: tuple[tf.TensorSpec, ...]) -> tf.data.Dataset:
            return tf.data.Dataset.from_generator(lambda: _host_windows(source), output_signature=specs)

        self._host_windows = windows
        self._crossing: tf.data.Dataset | None = None
        if self.crosses:
            with tf.device("/CPU:0"):
                found = tf.data.Dataset.from_generator(crossing, output_signature=_specs(self._device_config))
                self._crossing = devices.cross(found, device)

    @property
    def element_spec(self) -> Any:
        return self._finish.element_spec

    @property
    def _device_config(self) -> ReadConfig:
        """What passes to the device read from."""
        return self._numbers or self.read_config

    @property
    def crosses(self) -> bool:
        """Whether windows are copied to another device than the host."""
        return not devices.is_host(self.device)

    def take(self, read_config: ReadConfig) -> None:
        """Go on with `read_config`: the same rows in other windows, from where they are read now."""
        read_config = dataclasses.replace(read_config, readers=self._stored.readers)
        self._stored = read_config
        kept = self._kept
        self.read_config = (
            dataclasses.replace(read_config, readers=kept.read_config.readers)
            if isinstance(kept, HostRows)
            else read_config
        )
        if self._numbers is not None:
            self._numbers = numbers_of(read_config)

    def begin(self, *, to_device: bool = False) -> EpochPass:
        """The next pass, to the device or to a pipeline of tf.data's."""
        self.refuse()
        at = self._next_position()
        if to_device:
            started = self._next_epoch.begin((self._device_config, at))
        else:
            started = _pass_at((self.read_config, at), pauses=True)
        self._running.add(started)
        self.last_pass = started
        if to_device or self._numbers is None:
            self._fill(started)
        return started

    def begun(self) -> EpochPass:
        """The pass that `begin_windows` has just begun, for the generator that has it cross."""
        started, self._begun = self._begun, None
        assert started is not None
        return started

    def begin_windows(self) -> tuple[EpochPass, Iterator[Any]]:
        """The next pass and its windows on the device."""
        with self._starting:
            started = self.begin(to_device=True)
            if self._crossing is None:
                return started, devices.on_host(_device_windows(weakref.ref(self), started))
            self._begun = started
            # The generator takes its pass when the first window is asked for, so the lock is held until then.
            return started, _Fetched(iter(self._crossing))

    def _fill(self, started: EpochPass) -> None:
        """Bring all rows to where they are kept, before the first pass that needs them; it counts them."""
        with self._filling:
            if self._filled or self._resident is None:
                return
            began = time.perf_counter()
            kept = self._kept
            if kept is None:
                rows = len(self.read_config.order.rows)
                shapes = [((rows, *reader.shape[1:]), reader.dtype) for reader in self.read_config.readers]
                kept = devices.DeviceRows(shapes, self.device)
            try:
                read = load(self._stored, self._resident, kept.put, begun=self._running.add)
                self.refuse()
            except BaseException:
                started.close()
                raise
            self._kept = kept
            self._filled = True
            if isinstance(kept, devices.DeviceRows):
                started.counters.add(sent_bytes=kept.nbytes)
            started.counters.include(read)
            started.counters.add(wait_s=time.perf_counter() - began)

    def batches(self, passes: int | None, owner: object) -> devices.Batches:
        """The batches of `passes` on the device; `owner` is kept alive until then."""
        self.refuse()
        iterator = devices.Batches(
            self.begin_windows,
            self._finished,
            owner=owner,
            passes=passes,
            batch_size=self.read_config.batch_size,
            device=self.device,
            element_spec=self.element_spec,
        )
        self._live.add(iterator)
        return iterator

    def host_pipeline(self, passes: int | None) -> tf.data.Dataset:
        """The same elements as an ordinary tf.data pipeline, on the host."""
        if not self._said:
            self._said = True
            logger.warning(
                "oocloader: this use of the dataset goes through tf.data's host pipeline (map, class_weight, "
                "a strategy, ...): the values are the same, but batches arrive on the host. "
                "Give dtype=, scale=, offset=, class_weight= or transform= to the Loader to keep that work "
                "on the device"
            )
        self._finish.prepare("/CPU:0")
        read_config = self.read_config
        specs = _specs(read_config)
        if self.seeded:
            # Batches do not know their number here: every row brings the seed of its batch along.
            specs = (*specs, tf.TensorSpec((None,), tf.int64))
        with tf.device("/CPU:0"):
            dataset = self._host_windows(specs)
            if read_config.order.shard[1] == 1:
                dataset = dataset.rebatch(read_config.batch_size, drop_remainder=read_config.drop_remainder)
            else:
                # The last batch of a shard may have been halved: it must not be put together again.
                dataset = dataset.flat_map(
                    lambda *window: tf.data.Dataset.from_tensors(window).rebatch(
                        read_config.batch_size, drop_remainder=read_config.drop_remainder
                    )
                )
            mapped = tf.autograph.experimental.do_not_convert(lambda arrays, _: self._mapped(*arrays))
            # The name is how an error in it is told.
            name = "transform" if self._transforms else None
            dataset = _numbered(dataset, read_config.batches).map(mapped, name=name)
            if passes != 1:
                dataset = dataset.repeat(passes)
            return dataset.prefetch(1)

    def refuse(self) -> None:
        """Raise where this process must not use TensorFlow, or the loader is closed."""
        if self._closed:
            raise ClosedError("the Loader is closed; make another one")
        if os.getpid() != self._process:
            raise in_forked_child("a Loader cannot be used")

    def close(self) -> None:
        """Give up every pass."""
        self._closed = True
        for iterator in list(self._live):
            iterator.close()
        self._next_epoch.close()
        for started in list(self._running):
            started.close()
            started.forget()
        for read_config in (self.read_config, self._stored, self._numbers):
            for pool in read_config.pools if read_config is not None else ():
                pool.clear()
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def _finished(self, arrays: Sequence[tf.Tensor], running: EpochPass, number: int) -> Any:
        """The element of batch `number` of a pass, on the device."""
        if self._numbers is not None:
            kept = self._kept
            if not isinstance(kept, devices.DeviceRows):
                raise ClosedError("the Loader was closed before its pass was over; make another one")
            arrays = kept.gather(arrays[0])
        seed = _NO_SEED if not self.seeded else self._seeds(running.epoch).of(number)
        try:
            return self._finish(arrays, seed, self.device)
        except tf.errors.InvalidArgumentError as error:
            if self._transforms:
                raise DataError(
                    f"transform= fails in batch {number} of pass {running.epoch}: {one_line(error)}"
                ) from error
            raise

    def seed_rows(self, running: EpochPass, first: int, rows: int) -> np.ndarray:
        """The seed of its batch for each row of a pass from row `first` on, packed: int64 (rows,)."""
        begin, lengths = running.batches_of(first, rows)
        return np.repeat(self._seeds(running.epoch).packed(begin, begin + len(lengths)), lengths)

    def _seeds(self, epoch: int) -> Seeds:
        found = self._drawn
        if found is None or found[0] != epoch:
            found = self._drawn = (epoch, Seeds(self.read_config.order.seed, epoch))
        return found[1]

    def _mapped(self, *arrays: tf.Tensor) -> Any:
        """The element of a batch in a host pipeline."""
        seed: Any = _NO_SEED
        if self.seeded:
            seed = tf.bitcast(arrays[-1][0], tf.int32)
            arrays = arrays[:-1]
        return self._finish(arrays, seed, "/CPU:0")


def _specs(read_config: ReadConfig, rows: int | None = None) -> tuple[tf.TensorSpec, ...]:
    return tuple(
        tf.TensorSpec((rows, *reader.shape[1:]), tf.dtypes.as_dtype(reader.dtype))
        for reader in read_config.readers
    )


def _numbered(batches: tf.data.Dataset, count: int) -> tf.data.Dataset:
    """`batches` with their numbers, and a cardinality of `count`. It may end before.

    A pass that starts in the middle does, and an asserted cardinality would fail there.
    """
    # tf.data takes a choice to be without end where one of its datasets is, so that the length of a zip is
    # known. That one is never chosen, and starts nothing.
    first = tf.data.Dataset.from_tensors(tf.constant(0, tf.int64)).repeat()
    endless = tf.data.Dataset.choose_from_datasets(
        [batches, batches.repeat()], first, stop_on_empty_dataset=True
    )
    return tf.data.Dataset.zip(endless, tf.data.Dataset.range(count))


def _pass_at(
    at: tuple[ReadConfig, Position], taken: Callable[[], None] | None = None, *, pauses: bool
) -> EpochPass:
    read_config, position = at
    return EpochPass(
        read_config,
        position.epoch,
        start=position.batches,
        history=position.history,
        taken=taken,
        pauses=pauses,
    )


def _alive(source: weakref.ref[Source]) -> Source:
    found = source()
    if found is None:
        raise ClosedError("the Loader of this dataset is gone; keep it for as long as the dataset is used")
    return found


def _device_windows(source: weakref.ref[Source], started: EpochPass) -> Iterator[tuple[np.ndarray, ...]]:
    """The windows of a pass on their way to the device."""
    crosses = _alive(source).crosses
    for arrays in started.windows():
        if crosses:
            started.counters.add(sent_bytes=sum(array.nbytes for array in arrays))
        yield arrays
        del arrays
    _refuse(source)


def _host_windows(source: weakref.ref[Source]) -> Iterator[tuple[np.ndarray, ...]]:
    """The windows of the next pass, for a pipeline of tf.data's, with the seeds of their rows if need be."""
    found = _alive(source)
    try:
        started = found.begin()
    except OocloaderError as error:
        raise error.with_traceback(None) from None
    found.read_config.progress.unseen = True
    seeded = found.seeded
    row = started.first_row
    del found
    try:
        for arrays in started.windows():
            if not seeded:
                yield arrays
            else:
                still = source()
                if still is None:
                    return
                seeds = still.seed_rows(started, row, len(arrays[0]))
                del still
                row += len(arrays[0])
                yield (*arrays, seeds)
            del arrays
    except OocloaderError as error:
        # TensorFlow puts all that a traceback says behind the message.
        raise error.with_traceback(None) from None
    _refuse(source)


def _refuse(source: weakref.ref[Source]) -> None:
    """Closed in the middle, windows end early: that must not look like the end of the pass."""
    found = source()
    if found is not None:
        found.refuse()


class _Fetched(Iterator[Any]):
    """`windows`, the first of them fetched already, or what fetching it raised.

    No generator, whose end would let go of `windows` in whichever thread the garbage collector runs.
    """

    def __init__(self, windows: Iterator[Any]) -> None:
        self._windows = windows
        self._first: Any = None
        self._error: BaseException | None = None
        try:
            self._first = next(windows)
        except BaseException as error:
            self._error = error

    def __next__(self) -> Any:
        first, error = self._first, self._error
        self._first = self._error = None
        if error is not None:
            raise error
        return next(self._windows) if first is None else first
