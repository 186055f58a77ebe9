"""The `tf.data.Dataset` of a Loader: device batches to whoever iterates it, a host pipeline to tf.data."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from oocloader import device as devices
from oocloader.border import Border
from oocloader.errors import ClosedError, OocloaderError
from oocloader.passes import Feed, Pass
from oocloader.rest import Position
from oocloader.selection import Cast

logger = logging.getLogger("oocloader")


@dataclass(frozen=True, slots=True)
class Element:
    """How the arrays of a batch become an element: the structure of array indices, and each array's cast."""

    structure: Any
    casts: tuple[Cast, ...]

    def __call__(self, arrays: Sequence[Any]) -> Any:
        return _assembled(self.structure, arrays)


def _assembled(structure: Any, arrays: Sequence[Any]) -> Any:
    # Once a batch: tf.nest took 50 microseconds for it.
    if isinstance(structure, int):
        return arrays[structure]
    if isinstance(structure, tuple):
        return tuple([_assembled(part, arrays) for part in structure])
    return {key: arrays[index] for key, index in structure.items()}


class Source:
    """The feed of one loader as seen by TensorFlow. Built once a loader: `from_generator` stays for ever."""

    def __init__(
        self,
        feed: Feed,
        element: Element,
        *,
        device: str,
        next_position: Callable[[], Position],
        coming: Callable[[], tuple[Feed, Position] | None] = lambda: None,
    ) -> None:
        self.feed = feed
        self.element = element
        self.device = device
        self.last_pass: Pass | None = None
        self._next_position = next_position
        self._border = Border(_pass_at, coming)
        self._process = os.getpid()
        self._starting = threading.Lock()
        self._begun: Pass | None = None
        self._live: weakref.WeakSet[devices.Batches] = weakref.WeakSet()
        self._running: weakref.WeakSet[Pass] = weakref.WeakSet()
        self._closed = False
        self._said = False
        specs = tuple(
            tf.TensorSpec((None, *reader.shape[1:]), tf.dtypes.as_dtype(reader.dtype))
            for reader in feed.readers
        )
        # The closure lives as long as the process, so it holds the source weakly.
        source = weakref.ref(self)

        def windows(*, begun: bool) -> tf.data.Dataset:
            return tf.data.Dataset.from_generator(lambda: _windows(source, begun), output_signature=specs)

        with tf.device("/CPU:0"):
            self._device_windows = devices.cross(windows(begun=True), device)
        self._host_windows = windows
        self._finish = self._finisher(specs)

    @property
    def element_spec(self) -> Any:
        batch = self.feed.batch_size if self.feed.drop_remainder else None
        specs = [
            tf.TensorSpec((batch, *reader.shape[1:]), tf.dtypes.as_dtype(cast.delivered(reader.dtype)))
            for reader, cast in zip(self.feed.readers, self.element.casts, strict=True)
        ]
        return self.element(specs)

    @property
    def crosses(self) -> bool:
        """Whether windows are copied to another device than the host."""
        return not devices.is_host(self.device)

    def begin(self) -> Pass:
        """The next pass."""
        self.refuse()
        started = self._border.begin((self.feed, self._next_position()))
        self._running.add(started)
        self.last_pass = started
        return started

    def begun(self) -> Pass:
        """The pass that `begin_windows` has just begun, for its generator."""
        started, self._begun = self._begun, None
        assert started is not None
        return started

    def begin_windows(self) -> tuple[Pass, Iterator[Any]]:
        """The next pass and its windows on the device, the first of them fetched."""
        with self._starting:
            started = self._begun = self.begin()
            # The generator takes its pass when the first window is asked for, so the lock is held until then.
            return started, _Fetched(iter(self._device_windows))

    def batches(self, passes: int | None, owner: object) -> devices.Batches:
        """The batches of `passes` on the device; `owner` is kept alive until then."""
        self.refuse()
        iterator = devices.Batches(
            self.begin_windows,
            self._finish,
            owner=owner,
            passes=passes,
            batch_size=self.feed.batch_size,
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
                "Give dtype=, scale= or offset= to the Loader to keep that work on the device"
            )
        feed = self.feed
        with tf.device("/CPU:0"):
            dataset = self._host_windows(begun=False)
            if feed.order.shard[1] == 1:
                dataset = dataset.rebatch(feed.batch_size, drop_remainder=feed.drop_remainder)
            else:
                # The last batch of a shard may have been halved: it must not be put together again.
                dataset = dataset.flat_map(
                    lambda *window: tf.data.Dataset.from_tensors(window).rebatch(
                        feed.batch_size, drop_remainder=feed.drop_remainder
                    )
                )
            dataset = _numbered(dataset, feed.batches).map(lambda arrays, _: self._element(arrays))
            if passes != 1:
                dataset = dataset.repeat(passes)
            return dataset.prefetch(1)

    def refuse(self) -> None:
        """Raise where this process must not use TensorFlow, or the loader is closed."""
        if self._closed:
            raise ClosedError("the Loader is closed; make another one")
        if os.getpid() != self._process:
            raise ClosedError(
                "a Loader cannot be used in a forked child: TensorFlow does not survive a fork; "
                'start the process with multiprocessing.get_context("spawn")'
            )

    def close(self) -> None:
        """Give up every pass."""
        self._closed = True
        for iterator in list(self._live):
            iterator.close()
        self._border.close()
        for started in list(self._running):
            started.close()
        for pool in self.feed.pools:
            pool.clear()

    def _element(self, arrays: Sequence[tf.Tensor]) -> Any:
        return self.element(_cast(self.element.casts, arrays))

    def _finisher(self, specs: tuple[tf.TensorSpec, ...]) -> Callable[[Sequence[tf.Tensor]], Any]:
        element = self.element
        if all(cast.nothing for cast in element.casts):
            return element
        casts = element.casts

        def work(*arrays: tf.Tensor) -> list[tf.Tensor]:
            return _cast(casts, arrays)

        traced = tf.function(work, input_signature=specs, autograph=False)
        device = self.device

        def finish(arrays: Sequence[tf.Tensor]) -> Any:
            with tf.device(device):
                return element(traced(*arrays))

        return finish


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


def _cast(casts: Sequence[Cast], arrays: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Each array cast, scaled and offset."""
    results = []
    for cast, tensor in zip(casts, arrays, strict=True):
        target = tf.dtypes.as_dtype(cast.delivered(np.dtype(tensor.dtype.as_numpy_dtype)))
        if tensor.dtype != target:
            tensor = tf.cast(tensor, target)
        if cast.scale is not None:
            tensor = tensor * tf.constant(cast.scale, target)
        if cast.offset is not None:
            tensor = tensor + tf.constant(cast.offset, target)
        results.append(tensor)
    return results


def _pass_at(at: tuple[Feed, Position], taken: Callable[[], None]) -> Pass:
    feed, position = at
    return Pass(feed, position.epoch, start=position.batches, history=position.history, taken=taken)


def _windows(source: weakref.ref[Source], begun: bool) -> Iterator[tuple[np.ndarray, ...]]:
    found = source()
    if found is None:
        raise ClosedError("the Loader of this dataset is gone; keep it for as long as the dataset is used")
    started = found.begun() if begun else found.begin()
    if not begun:
        found.feed.progress.unseen = True
    del found
    try:
        yield from started.windows()
    except OocloaderError as error:
        if begun:
            raise
        # TensorFlow puts all that a traceback says behind the message.
        raise error.with_traceback(None) from None
    found = source()
    if found is not None:
        # Closed in the middle, the windows end early: that must not look like the end of the pass.
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


class LoaderDataset(tf.data.Dataset):  # type: ignore[misc]  # tensorflow has no type information
    """Batches of a Loader. Iterated, in a loop or by Keras, they lie on the loader's device.

    Whatever tf.data builds on top of it (`map`, `take`, a strategy) gets an ordinary host pipeline with the
    same values, built when it is first asked for.
    """

    def __init__(self, loader: object, source: Source, *, epochs: int | None) -> None:
        # The loader must live as long as its dataset.
        self._loader = loader
        self._source = source
        self._epochs = epochs
        self._pipeline: tf.data.Dataset | None = None
        self._spec = source.element_spec
        super().__init__(None)

    @property
    def _variant_tensor(self) -> tf.Tensor:
        self._source.refuse()
        if self._pipeline is None:
            with tf.init_scope():
                self._pipeline = self._source.host_pipeline(self._epochs)
        return self._pipeline._variant_tensor

    def _inputs(self) -> list[Any]:
        return []

    @property
    def element_spec(self) -> Any:
        return self._spec

    def __iter__(self) -> Any:
        if tf.executing_eagerly():
            return self._source.batches(self._epochs, self._loader)
        return super().__iter__()

    def __len__(self) -> int:
        if self._epochs is None:
            raise TypeError("The dataset is infinite.")
        return self._source.feed.batches * self._epochs

    def cardinality(self, name: str | None = None) -> tf.Tensor:
        del name
        size = tf.data.INFINITE_CARDINALITY if self._epochs is None else len(self)
        return tf.constant(size, tf.int64)

    def prefetch(self, buffer_size: int, name: str | None = None) -> LoaderDataset:
        """The dataset itself: it prefetches already."""
        del buffer_size, name
        return self
