"""What people use to load such stores with TensorFlow, written as the documentation of each advises."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from benchmark.data import Source
from benchmark.rows import H5pyRows, MappedRows, Rows, TensorstoreRows, ZarrRows, ZarrsRows
from benchmark.stores import Family

Order = Literal["in order", "shuffled"]
IN_ORDER: tuple[Order, ...] = ("in order",)
SHUFFLED: tuple[Order, ...] = ("shuffled",)
# Chunks asked for at once, which lets a library decode them side by side: of 1 to 32, 16 was the fastest
# for shards and raw chunks, and made no difference elsewhere.
RUN_CHUNKS = 16
AUTOTUNE = tf.data.AUTOTUNE


@dataclass(frozen=True, slots=True)
class Job:
    """What to load and how. `window_rows`: what a shuffle buffer, or a window that is shuffled, may hold."""

    source: Source
    path: Path
    batch_size: int
    order: Order
    window_rows: int

    @property
    def shuffled(self) -> bool:
        return self.order == "shuffled"


@dataclass(frozen=True, slots=True)
class Opened:
    """A recipe at work: `batches()` is one pass; it makes `unit_rows` rows at once."""

    batches: Callable[[], Iterable[Any]]
    unit_rows: int
    close: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Recipe:
    """A way to load.

    - `by_batch`: it reads batch by batch.
    - `raw_only`: it reads chunks more than once, hopeless where they are compressed.
    - `most_passes`: fewer than the others, since it takes seconds for a few batches.
    """

    name: str
    family: Family | Literal["memory"]
    orders: tuple[Order, ...]
    open: Callable[[Job], Opened]
    needs: tuple[str, ...] = ()
    by_batch: bool = False
    raw_only: bool = False
    most_passes: int | None = None


Batches = Iterator[tuple[np.ndarray, np.ndarray]]
OpenRows = Callable[[Path, Source], Rows]


def _from_generator(source: Source, batches: Callable[[], Batches]) -> tf.data.Dataset:
    spec = (
        tf.TensorSpec((None, *source.sample_shape), tf.as_dtype(source.dtype)),
        tf.TensorSpec((None,), tf.int64),
    )
    return tf.data.Dataset.from_generator(batches, output_signature=spec)


def _by_batch(open_rows: OpenRows) -> Callable[[Job], Opened]:
    """from_generator yields batches."""

    def open_recipe(job: Job) -> Opened:
        rows, labels, size = open_rows(job.path, job.source), job.source.y(), job.batch_size

        def batches() -> Batches:
            for start in range(0, job.source.rows, size):
                yield rows.read(start, start + size), labels[start : start + size]

        dataset = _from_generator(job.source, batches).prefetch(AUTOTUNE)
        # The chunk is what costs, and lasts for several batches.
        return Opened(lambda: dataset, max(size, job.source.chunk_rows), rows.close)

    return open_recipe


def _by_chunk(open_rows: OpenRows, *, run: int = 1, ahead: int = 0) -> Callable[[Job], Opened]:
    """from_generator yields runs of whole chunks, `ahead` of them begun before, and tf.data cuts batches."""

    def open_recipe(job: Job) -> Opened:
        rows, labels = open_rows(job.path, job.source), job.source.y()
        step = run * job.source.chunk_rows

        def runs() -> Batches:
            begun: deque[tuple[int, int, Callable[[], np.ndarray]]] = deque()
            for start in range(0, job.source.rows, step):
                stop = min(start + step, job.source.rows)
                begun.append((start, stop, rows.start(start, stop)))
                if len(begun) > ahead:
                    first, last, result = begun.popleft()
                    yield result(), labels[first:last]
            for first, last, result in begun:
                yield result(), labels[first:last]

        dataset = _from_generator(job.source, runs).rebatch(job.batch_size).prefetch(AUTOTUNE)
        return Opened(lambda: dataset, step, rows.close)

    return open_recipe


def _by_index(open_rows: OpenRows) -> Callable[[Job], Opened]:
    """from_generator yields batches of rows drawn from anywhere."""

    def open_recipe(job: Job) -> Opened:
        rows, size = open_rows(job.path, job.source), job.batch_size
        rng = np.random.default_rng(0)

        def batches() -> Batches:
            order = rng.permutation(job.source.rows)
            for start in range(0, len(order), size):
                chosen = order[start : start + size]
                yield rows.take(chosen), chosen

        dataset = _from_generator(job.source, batches).prefetch(AUTOTUNE)
        return Opened(lambda: dataset, size, rows.close)

    return open_recipe


def _chunk_starts(job: Job, rng: np.random.Generator) -> list[int]:
    chunk_origins: list[int] = rng.permutation(np.arange(0, job.source.rows, job.source.chunk_rows)).tolist()
    return chunk_origins


def _by_window(open_rows: OpenRows) -> Callable[[Job], Opened]:
    """from_generator yields batches of a window of random chunks, read side by side and mixed by NumPy."""

    def open_recipe(job: Job) -> Opened:
        rows, size, chunk = open_rows(job.path, job.source), job.batch_size, job.source.chunk_rows
        rng = np.random.default_rng(0)
        per_window = max(1, job.window_rows // chunk)
        pool = ThreadPoolExecutor(os.cpu_count())

        def batches() -> Batches:
            # One window, filled again and again; a batch is a copy.
            x = np.empty((size + per_window * chunk, *job.source.sample_shape), job.source.dtype)
            numbers = np.empty(len(x), np.int64)
            chunk_origins = _chunk_starts(job, rng)
            left = 0
            for at in range(0, len(chunk_origins), per_window):
                jobs, filled = [], left
                for start in chunk_origins[at : at + per_window]:
                    stop = min(start + chunk, job.source.rows)
                    jobs.append((filled, start, stop))
                    filled += stop - start

                def fill(place: int, start: int, stop: int) -> None:
                    x[place : place + stop - start] = rows.read(start, stop)
                    numbers[place : place + stop - start] = np.arange(start, stop)

                list(pool.map(fill, *zip(*jobs, strict=True)))
                # What was left over from the window before comes first.
                order = np.concatenate([np.arange(left), left + rng.permutation(filled - left)])
                last = at + per_window >= len(chunk_origins)
                whole = filled if last else filled // size * size
                for start in range(0, whole, size):
                    chosen = order[start : min(start + size, whole)]
                    yield x[chosen], numbers[chosen]
                left = filled - whole
                x[:left], numbers[:left] = x[order[whole:]], numbers[order[whole:]]

        def close() -> None:
            pool.shutdown()
            rows.close()

        dataset = _from_generator(job.source, batches).prefetch(AUTOTUNE)
        return Opened(lambda: dataset, per_window * chunk, close)

    return open_recipe


def _chunks_shuffled_by_tf(open_rows: OpenRows) -> Callable[[Job], Opened]:
    """from_generator yields chunks in random order, tf.data takes them apart and shuffles the rows."""

    def open_recipe(job: Job) -> Opened:
        rows, labels = open_rows(job.path, job.source), job.source.y()
        rng = np.random.default_rng(0)
        chunk = job.source.chunk_rows

        def chunks() -> Batches:
            for start in _chunk_starts(job, rng):
                stop = min(start + chunk, job.source.rows)
                yield rows.read(start, stop), labels[start:stop]

        dataset = _from_generator(job.source, chunks).prefetch(AUTOTUNE).unbatch()
        dataset = dataset.shuffle(job.window_rows).batch(job.batch_size).prefetch(AUTOTUNE)
        return Opened(lambda: dataset, chunk, rows.close)

    return open_recipe


class _PyDataset(keras.utils.PyDataset):  # type: ignore[misc]  # keras has no type information
    """Batches in order, or of rows drawn from anywhere."""

    def __init__(self, job: Job, rows: Rows, workers: int) -> None:
        super().__init__(workers=workers)
        self._job = job
        self._rows = rows
        self._labels = job.source.y()
        self._rng = np.random.default_rng(0)
        self._order = np.arange(job.source.rows)
        self.on_epoch_end()

    def __len__(self) -> int:
        return -(-self._job.source.rows // self._job.batch_size)

    def __getitem__(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        start = number * self._job.batch_size
        stop = min(start + self._job.batch_size, self._job.source.rows)
        if self._job.shuffled:
            chosen = self._order[start:stop]
            return self._rows.take(chosen), chosen
        return self._rows.read(start, stop), self._labels[start:stop]

    def on_epoch_end(self) -> None:
        if self._job.shuffled:
            self._rng.shuffle(self._order)


def _py_dataset(open_rows: OpenRows) -> Callable[[Job], Opened]:
    """A Keras PyDataset, iterated as `fit` does."""

    def open_recipe(job: Job) -> Opened:
        # fit has no public way to the tf.data pipeline that it makes of a PyDataset.
        from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

        rows = open_rows(job.path, job.source)
        adapter = PyDatasetAdapter(_PyDataset(job, rows, workers=1))
        dataset = adapter.get_tf_dataset()

        def batches() -> Iterator[Any]:
            adapter.on_epoch_begin()
            try:
                yield from dataset
            finally:
                adapter.on_epoch_end()

        return Opened(batches, max(job.batch_size, job.source.chunk_rows), rows.close)

    return open_recipe


def _tfrecord(job: Job) -> Opened:
    """TFRecord of `tf.train.Example`; parsed batch by batch, which is the fast way."""
    source = job.source
    names = sorted(str(found) for found in job.path.iterdir())
    if job.shuffled:
        dataset = tf.data.Dataset.from_tensor_slices(names).shuffle(len(names))
        dataset = dataset.interleave(
            tf.data.TFRecordDataset, cycle_length=len(names), num_parallel_calls=AUTOTUNE, deterministic=False
        )
        dataset = dataset.shuffle(job.window_rows)
    else:
        dataset = tf.data.TFRecordDataset(names)
    features = {"x": tf.io.FixedLenFeature([], tf.string), "y": tf.io.FixedLenFeature([], tf.int64)}

    def parse(examples: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        parsed = tf.io.parse_example(examples, features)
        flat = tf.io.decode_raw(parsed["x"], tf.as_dtype(source.dtype))
        return tf.reshape(flat, (-1, *source.sample_shape)), parsed["y"]

    dataset = dataset.batch(job.batch_size).map(parse, num_parallel_calls=AUTOTUNE).prefetch(AUTOTUNE)
    return Opened(lambda: dataset, job.batch_size, lambda: None)


def _in_memory(job: Job) -> Opened:
    """All rows in memory, sliced by TensorFlow."""
    dataset = tf.data.Dataset.from_tensor_slices((np.array(job.source.x()), job.source.y()))
    if job.shuffled:
        dataset = dataset.shuffle(job.source.rows)
    dataset = dataset.batch(job.batch_size).prefetch(AUTOTUNE)
    return Opened(lambda: dataset, job.batch_size, lambda: None)


RECIPES: tuple[Recipe, ...] = (
    Recipe("npy map, by batch", "npy", IN_ORDER, _by_batch(MappedRows), by_batch=True),
    Recipe("npy map, by index", "npy", SHUFFLED, _by_index(MappedRows), by_batch=True),
    Recipe("h5py, by batch", "hdf5", IN_ORDER, _by_batch(H5pyRows), by_batch=True),
    Recipe("h5py, by chunk", "hdf5", IN_ORDER, _by_chunk(H5pyRows)),
    Recipe("PyDataset, h5py", "hdf5", IN_ORDER, _py_dataset(H5pyRows), by_batch=True),
    Recipe(
        "h5py, by index", "hdf5", SHUFFLED, _by_index(H5pyRows), by_batch=True, raw_only=True, most_passes=1
    ),
    Recipe(
        "PyDataset, h5py, by index",
        "hdf5",
        SHUFFLED,
        _py_dataset(H5pyRows),
        by_batch=True,
        raw_only=True,
        most_passes=1,
    ),
    Recipe("h5py, by window", "hdf5", SHUFFLED, _by_window(H5pyRows)),
    Recipe("h5py, tf.data shuffle", "hdf5", SHUFFLED, _chunks_shuffled_by_tf(H5pyRows)),
    Recipe("zarr-python, by chunk", "zarr", IN_ORDER, _by_chunk(ZarrRows, run=RUN_CHUNKS)),
    Recipe("zarr-python, by batch", "zarr", IN_ORDER, _by_batch(ZarrRows), by_batch=True, raw_only=True),
    Recipe("zarr-python, by window", "zarr", SHUFFLED, _by_window(ZarrRows)),
    Recipe(
        "zarr-python, by index",
        "zarr",
        SHUFFLED,
        _by_index(ZarrRows),
        by_batch=True,
        raw_only=True,
        most_passes=1,
    ),
    Recipe("zarrs, by chunk", "zarr", IN_ORDER, _by_chunk(ZarrsRows, run=RUN_CHUNKS), needs=("zarrs",)),
    Recipe("zarrs, by window", "zarr", SHUFFLED, _by_window(ZarrsRows), needs=("zarrs",)),
    Recipe(
        "tensorstore, by chunk",
        "zarr",
        IN_ORDER,
        _by_chunk(TensorstoreRows, run=RUN_CHUNKS, ahead=1),
        needs=("tensorstore",),
    ),
    Recipe("tensorstore, by window", "zarr", SHUFFLED, _by_window(TensorstoreRows), needs=("tensorstore",)),
    Recipe("TFRecord", "tfrecord", IN_ORDER, _tfrecord),
    Recipe("TFRecord, shuffled", "tfrecord", SHUFFLED, _tfrecord),
    Recipe("in memory", "memory", IN_ORDER, _in_memory),
    Recipe("in memory, shuffled", "memory", SHUFFLED, _in_memory),
)


def recipes_for(family: Family | Literal["memory"], order: Order, codec: str) -> list[Recipe]:
    """The recipes that load such a store in this order."""
    return [
        recipe
        for recipe in RECIPES
        if recipe.family == family and order in recipe.orders and (codec == "none" or not recipe.raw_only)
    ]
