"""The `tf.data.Dataset` of a Loader: device batches to whoever iterates it, a host pipeline to tf.data."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from oocloader import device as devices
from oocloader.border import Border
from oocloader.class_weights import ClassWeights
from oocloader.errors import ClosedError, DataError, OocloaderError, SettingError
from oocloader.passes import Feed, Pass
from oocloader.resident import HostRows, Resident, load, numbers_of
from oocloader.rest import Position
from oocloader.selection import Cast
from oocloader.transform import Seeds

logger = logging.getLogger("oocloader")
_NO_TABLE = (np.zeros(0, np.int64), np.zeros(0, np.float32))
_NO_SEED = np.zeros(2, np.int32)


@dataclass(frozen=True, slots=True)
class Element:
    """How the arrays of a batch become an element.

    The `structure` of array indices with each array's cast; then a weight by the class of each row; then the
    user's `transform` of the parts, which is given a seed where `seeded`.
    """

    structure: Any
    casts: tuple[Cast, ...]
    class_weights: ClassWeights | None = None
    transform: Callable[..., Any] | None = None
    seeded: bool = False

    @property
    def nothing(self) -> bool:
        """Whether arrays are delivered as stored."""
        return (
            self.class_weights is None and self.transform is None and all(cast.nothing for cast in self.casts)
        )

    def __call__(self, arrays: Sequence[Any]) -> Any:
        return _assembled(self.structure, arrays)


def _assembled(structure: Any, arrays: Sequence[Any]) -> Any:
    # Once a batch: tf.nest took 50 microseconds for it.
    if isinstance(structure, int):
        return arrays[structure]
    if isinstance(structure, tuple):
        return tuple([_assembled(part, arrays) for part in structure])
    return {key: arrays[index] for key, index in structure.items()}


class Finish:
    """Arrays of a batch to an element, by one function that is traced once and runs where it is called.

    `specs` are those of the arrays of a batch. `table` reads the labels, and gives classes and their weights;
    it is asked with the first batch. Raises `SettingError` where the transform cannot be traced.
    """

    def __init__(
        self,
        element: Element,
        specs: Sequence[tf.TensorSpec],
        table: Callable[[], tuple[np.ndarray, np.ndarray]] | None,
    ) -> None:
        self._element = element
        self._table = table
        self._constants: dict[str, tuple[tf.Tensor, tf.Tensor]] = {}
        self._reading = threading.Lock()
        self._traced: Any = None
        if element.nothing:
            self.element_spec = element(specs)
            return
        extra = [tf.TensorSpec((None,), tf.int64), tf.TensorSpec((None,), tf.float32)]
        signature = [*extra, tf.TensorSpec((2,), tf.int32), *specs]
        traced = tf.function(self._work, input_signature=signature, autograph=False)
        self._traced = traced.get_concrete_function()
        self.element_spec = tf.nest.map_structure(
            lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), self._traced.structured_outputs
        )

    def __call__(self, arrays: Sequence[tf.Tensor], seed: Any, device: str) -> Any:
        """The element on `device`; `seed` is int32 (2,)."""
        if self._traced is None:
            return self._element(arrays)
        classes, weights = self._weights(device)
        with tf.device(device):
            return self._traced(classes, weights, seed, *arrays)

    def prepare(self, device: str) -> None:
        """Count what has to be counted, outside of any graph."""
        if self._traced is not None:
            self._weights(device)

    def _weights(self, device: str) -> tuple[tf.Tensor, tf.Tensor]:
        """Classes and weights on `device`, counted when they are first needed."""
        with self._reading:
            if device not in self._constants:
                found = _NO_TABLE if self._table is None else self._table()
                with tf.init_scope(), tf.device(device):
                    self._constants[device] = (tf.constant(found[0]), tf.constant(found[1]))
            return self._constants[device]

    def _work(self, classes: tf.Tensor, weights: tf.Tensor, seed: tf.Tensor, *arrays: tf.Tensor) -> Any:
        element = self._element
        found = element(_cast(element.casts, arrays))
        if element.class_weights is not None:
            rows = _row_weights(arrays[element.class_weights.label], classes, weights)
            found = (*found[:2], rows if len(found) == 2 else _multiplied(rows, found[2]))
        return found if element.transform is None else _transformed(element, found, seed)


def _row_weights(labels: tf.Tensor, classes: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """The weight of each row, float32 (rows,). Every label is among `classes`: they have been checked."""
    labels = tf.cast(tf.reshape(labels, (-1,)), tf.int64)
    return tf.gather(weights, tf.searchsorted(classes, labels, out_type=tf.int64))


def _multiplied(rows: tf.Tensor, given: tf.Tensor) -> tf.Tensor:
    """Sample weights `(rows, ...)` times the weight of each row, in the dtype of floats, else float32."""
    if not given.dtype.is_floating:
        given = tf.cast(given, tf.float32)
    return given * tf.reshape(tf.cast(rows, given.dtype), (-1, *[1] * (given.shape.rank - 1)))


def _transformed(element: Element, found: Any, seed: tf.Tensor) -> Any:
    """What the user's function makes of an element."""
    given = element.transform
    assert given is not None
    parts = found if isinstance(found, tuple) else (found,)
    named = {"seed": seed} if element.seeded else {}
    # A function of its own, so that `if` and `for` over tensors work as they do in `Dataset.map`.
    converted = tf.function(lambda *parts: given(*parts, **named))
    try:
        with tf.name_scope("transform"):
            result = converted(*parts)
    except Exception as error:
        raise SettingError(f"transform= fails: {_one_line(error)}") from error
    _check_element(result)
    return result


def _check_element(result: Any) -> None:
    """Raise `SettingError` where no element can be made of what a transform returned."""
    for part in [result] if not isinstance(result, tuple) else [result, *result]:
        if part is None or isinstance(part, list) or (isinstance(part, (tuple, dict)) and not part):
            raise SettingError(
                f"transform= must return x, (x, y) or (x, y, weight), each a tensor or a dict of tensors; it "
                f"returned {'a list' if isinstance(part, list) else repr(part)}"
            )


# What AutoGraph and the runtime put around the name of a function.
_NOISE = re.compile(
    r"outer_factory\.<locals>\.inner_factory\.<locals>\.(?:tf__)?|\{\{function_node [^}]*\}\} ?"
)


def _one_line(error: BaseException) -> str:
    """What an error says, without the traceback that AutoGraph puts before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    said = lines[0]
    if said.startswith("in user code"):
        # Behind lines of files and code, which are indented further.
        said = next((line.strip() for line in str(error).splitlines() if _SAID.match(line)), lines[-1])
    elif said.startswith("Graph execution error"):
        # Between where a failed operation was made and where it is.
        said = next((line for line, below in itertools.pairwise(lines) if below.startswith("[[")), lines[-1])
    return _NOISE.sub("", said)


_SAID = re.compile(r"    \w+: ")


class Source:
    """The feed of one loader as seen by TensorFlow. Built once a loader: `from_generator` stays for ever.

    `table` gives classes and their weights, where rows are weighted by class. `resident`: all rows are kept
    on the device from the first pass on.
    """

    def __init__(
        self,
        feed: Feed,
        element: Element,
        *,
        device: str,
        next_position: Callable[[], Position],
        coming: Callable[[], Position | None] = lambda: None,
        table: Callable[[], tuple[np.ndarray, np.ndarray]] | None = None,
        resident: Resident | None = None,
    ) -> None:
        self.device = device
        self._stored = feed
        self._resident = resident
        self._kept: HostRows | devices.DeviceRows | None = None
        self._numbers: Feed | None = None
        if resident is not None and devices.is_host(device):
            self._kept = HostRows(feed)
            feed = self._kept.feed
        elif resident is not None:
            self._numbers = numbers_of(feed)
        self._filled = resident is None or (isinstance(self._kept, HostRows) and self._kept.complete)
        self.feed = feed
        self.last_pass: Pass | None = None
        self._next_position = next_position
        self._process = os.getpid()
        self._starting = threading.Lock()
        self._filling = threading.Lock()
        self._begun: Pass | None = None
        self._live: weakref.WeakSet[devices.Batches] = weakref.WeakSet()
        self._running: weakref.WeakSet[Pass] = weakref.WeakSet()
        self._closed = False
        self._said = False
        batch = feed.batch_size if feed.drop_remainder else None
        self._finish = Finish(element, _specs(feed, batch), table)
        self.seeded = element.seeded
        self._transforms = element.transform is not None
        self._drawn: tuple[int, Seeds] | None = None
        # The closures live as long as the process or the border, so they hold the source weakly.
        source = weakref.ref(self)

        def coming_pass() -> tuple[Feed, Position] | None:
            found, at = source(), coming()
            return None if found is None or at is None else (found._device_feed, at)

        self._border = Border(_pass_at, coming_pass)

        def windows(specs: tuple[tf.TensorSpec, ...], *, begun: bool) -> tf.data.Dataset:
            return tf.data.Dataset.from_generator(lambda: _windows(source, begun), output_signature=specs)

        with tf.device("/CPU:0"):
            crossing = windows(_specs(self._device_feed), begun=True)
            self._device_windows = devices.cross(crossing, device)
        self._host_windows = windows

    @property
    def element_spec(self) -> Any:
        return self._finish.element_spec

    @property
    def _device_feed(self) -> Feed:
        """What passes to the device read from."""
        return self._numbers or self.feed

    @property
    def crosses(self) -> bool:
        """Whether windows are copied to another device than the host."""
        return not devices.is_host(self.device)

    def take(self, feed: Feed) -> None:
        """Go on with `feed`: the same rows in other windows."""
        self._stored = feed
        kept = self._kept
        self.feed = (
            dataclasses.replace(feed, readers=kept.feed.readers) if isinstance(kept, HostRows) else feed
        )
        if self._numbers is not None:
            self._numbers = numbers_of(feed)

    def begin(self, *, to_device: bool = False) -> Pass:
        """The next pass, to the device or to a host pipeline."""
        self.refuse()
        at = self._next_position()
        if to_device:
            started = self._border.begin((self._device_feed, at))
        else:
            started = _pass_at((self.feed, at))
        self._running.add(started)
        self.last_pass = started
        if to_device or self._numbers is None:
            self._fill(started)
        return started

    def begun(self) -> Pass:
        """The pass that `begin_windows` has just begun, for its generator."""
        started, self._begun = self._begun, None
        assert started is not None
        return started

    def begin_windows(self) -> tuple[Pass, Iterator[Any]]:
        """The next pass and its windows on the device, the first of them fetched."""
        with self._starting:
            started = self._begun = self.begin(to_device=True)
            # The generator takes its pass when the first window is asked for, so the lock is held until then.
            return started, _Fetched(iter(self._device_windows))

    def _fill(self, started: Pass) -> None:
        """Bring all rows to where they are kept, before the first pass that needs them; it counts them."""
        with self._filling:
            if self._filled or self._resident is None:
                return
            began = time.perf_counter()
            kept = self._kept
            if kept is None:
                rows = len(self.feed.order.rows)
                shapes = [((rows, *reader.shape[1:]), reader.dtype) for reader in self.feed.readers]
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
                "Give dtype=, scale=, offset=, class_weight= or transform= to the Loader to keep that work "
                "on the device"
            )
        self._finish.prepare("/CPU:0")
        feed = self.feed
        specs = _specs(feed)
        if self.seeded:
            # Batches do not know their number here: every row brings the seed of its batch along.
            specs = (*specs, tf.TensorSpec((None,), tf.int64))
        with tf.device("/CPU:0"):
            dataset = self._host_windows(specs, begun=False)
            if feed.order.shard[1] == 1:
                dataset = dataset.rebatch(feed.batch_size, drop_remainder=feed.drop_remainder)
            else:
                # The last batch of a shard may have been halved: it must not be put together again.
                dataset = dataset.flat_map(
                    lambda *window: tf.data.Dataset.from_tensors(window).rebatch(
                        feed.batch_size, drop_remainder=feed.drop_remainder
                    )
                )
            mapped = tf.autograph.experimental.do_not_convert(lambda arrays, _: self._mapped(*arrays))
            # The name is how an error in it is told.
            name = "transform" if self._transforms else None
            dataset = _numbered(dataset, feed.batches).map(mapped, name=name)
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
        for feed in (self.feed, self._stored, self._numbers):
            for pool in feed.pools if feed is not None else ():
                pool.clear()
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def _finished(self, arrays: Sequence[tf.Tensor], running: Pass, number: int) -> Any:
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
                    f"transform= fails in batch {number} of pass {running.epoch}: {_one_line(error)}"
                ) from error
            raise

    def seed_rows(self, running: Pass, first: int, rows: int) -> np.ndarray:
        """The seed of its batch for each row of a pass from row `first` on, packed: int64 (rows,)."""
        begin, lengths = running.batches_of(first, rows)
        return np.repeat(self._seeds(running.epoch).packed(begin, begin + len(lengths)), lengths)

    def _seeds(self, epoch: int) -> Seeds:
        found = self._drawn
        if found is None or found[0] != epoch:
            found = self._drawn = (epoch, Seeds(self.feed.order.seed, epoch))
        return found[1]

    def _mapped(self, *arrays: tf.Tensor) -> Any:
        """The element of a batch in a host pipeline."""
        seed: Any = _NO_SEED
        if self.seeded:
            seed = tf.bitcast(arrays[-1][0], tf.int32)
            arrays = arrays[:-1]
        return self._finish(arrays, seed, "/CPU:0")


def _specs(feed: Feed, rows: int | None = None) -> tuple[tf.TensorSpec, ...]:
    return tuple(
        tf.TensorSpec((rows, *reader.shape[1:]), tf.dtypes.as_dtype(reader.dtype)) for reader in feed.readers
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


def _pass_at(at: tuple[Feed, Position], taken: Callable[[], None] | None = None) -> Pass:
    feed, position = at
    return Pass(feed, position.epoch, start=position.batches, history=position.history, taken=taken)


def _windows(source: weakref.ref[Source], begun: bool) -> Iterator[tuple[np.ndarray, ...]]:
    found = source()
    if found is None:
        raise ClosedError("the Loader of this dataset is gone; keep it for as long as the dataset is used")
    started = found.begun() if begun else _begun_on_host(found)
    if not begun:
        found.feed.progress.unseen = True
    crosses = begun and not devices.is_host(found.device)
    seeded = found.seeded and not begun
    row = started.first_row
    del found
    try:
        for arrays in started.windows():
            if crosses:
                started.counters.add(sent_bytes=sum(array.nbytes for array in arrays))
            if seeded:
                found = source()
                if found is None:
                    return
                seeds = found.seed_rows(started, row, len(arrays[0]))
                del found
                row += len(arrays[0])
                yield (*arrays, seeds)
            else:
                yield arrays
            del arrays
    except OocloaderError as error:
        if begun:
            raise
        # TensorFlow puts all that a traceback says behind the message.
        raise error.with_traceback(None) from None
    found = source()
    if found is not None:
        # Closed in the middle, the windows end early: that must not look like the end of the pass.
        found.refuse()


def _begun_on_host(source: Source) -> Pass:
    try:
        return source.begin()
    except OocloaderError as error:
        raise error.with_traceback(None) from None


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
