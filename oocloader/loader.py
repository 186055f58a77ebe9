"""The Loader: rows of a store as batches on a device."""

from __future__ import annotations

import atexit
import dataclasses
import math
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from oocloader import budget
from oocloader.cache import CachedReader, Caching
from oocloader.class_weights import ClassWeights, class_weights
from oocloader.errors import ClosedError, DataError, SettingError
from oocloader.order import Order
from oocloader.passes import Feed
from oocloader.resident import check_fits, check_host, keeps, parse_residency, resident
from oocloader.selection import Cast, dtype_nbytes, fields, row_set, shuffled, whole
from oocloader.stores import Store, StoredArray, open_store
from oocloader.transform import wants_seed

if TYPE_CHECKING:
    import numpy as np

    from oocloader.dataset import LoaderDataset, Source
    from oocloader.timing import Counters

_live: weakref.WeakSet[Loader] = weakref.WeakSet()
# Whether TensorFlow was in use when this process was forked off.
_forked_in_use = False


class Loader:
    """Rows of a store as batches on a device, read window by window.

    `source` is anything `open_store` takes, or an open store. Elements are `x`, `(x, y)` or
    `(x, y, weight)`; several features or labels come as a dict. Labels and features are matched by row
    number. Rows come as stored unless `shuffle` is given.

    - `features`, `labels`, `sample_weight`: name | [names] | {key: name}; features None: the only array.
    - `class_weight`: {class: weight} or "balanced" (each class weighs the same in sum): becomes the sample
      weight of each row by its label, or multiplies it.
    - `batch_size` rows a batch; the last is shorter unless `drop_remainder`.
    - `shuffle`: False | True ("window"): windows of blocks from all over the store, permuted within.
      `seed` and the number of the pass decide the order, nothing else.
    - `window`, `block`: rows, or a size such as "64MiB"; None: from the size of rows, chunks and budgets.
    - `dtype`, `scale`, `offset`: on the device, of the features (or a dict by key): cast (to float32 if only
      a scale or offset is given), then `x * scale + offset`.
    - `transform`: `(*element) -> element`, traced once and run on the device per batch, behind all of the
      above. A parameter named `seed` gets int32 (2,), another for every batch of every pass and the same in
      every run with this `seed`, for `tf.random.stateless_uniform` and its like.
    - `device`: None: "/GPU:0" where TensorFlow sees one, else "/CPU:0".
    - `host_memory`, `device_memory`: bytes or "2GiB", for what is read ahead on the host and what lies on
      the device.
    - `residency`: "stream": rows come window by window in every pass. "device": all rows are read once, kept
      on the device and gathered there. "auto": "device" where it is a GPU and half its budget holds them.
    - `cache`: "memory" (within `host_memory`) or a folder: decoded rows, kept for later passes as they are
      read; in a folder also for later runs, until the store changes.
    - `threads` that read and decode; None: one a processor, at most eight.
    - `mmap`: None: files of local file systems are mapped where that is faster; a file that another program
      shortens in that very moment ends the process (SIGBUS). False: files are only ever read.
    - `rows`: None | slice | integer array (sorted, unique) | boolean mask of all rows.

    A context manager. Raises `OocloaderError` children, before anything is read where that can be known.
    """

    def __init__(
        self,
        source: Any,
        features: str | Sequence[str] | Mapping[str, str] | None = None,
        labels: str | Sequence[str] | Mapping[str, str] | None = None,
        *,
        sample_weight: str | Sequence[str] | Mapping[str, str] | None = None,
        class_weight: Mapping[int, float] | str | None = None,
        batch_size: int = 32,
        drop_remainder: bool = False,
        shuffle: bool | str = False,
        seed: int = 0,
        window: int | str | None = None,
        block: int | str | None = None,
        dtype: Any = None,
        scale: Any = None,
        offset: Any = None,
        transform: Callable[..., Any] | None = None,
        device: str | None = None,
        residency: str = "auto",
        host_memory: int | str | None = None,
        device_memory: int | str | None = None,
        cache: str | os.PathLike[str] | None = None,
        threads: int | None = None,
        mmap: bool | None = None,
        rows: Any = None,
    ) -> None:
        self._source: Source | None = None
        self._closed = False
        self._pid = os.getpid()
        _refuse_forked(self._pid)
        self._epoch = 0
        self._counting = threading.Lock()
        batch_size = whole("batch_size", batch_size, least=1)
        seed = whole("seed", seed, least=0, most=2**64 - 1)
        if threads is not None:
            threads = whole("threads", threads, least=1)
        if not isinstance(drop_remainder, bool):
            raise SettingError(f"drop_remainder={drop_remainder!r} must be True or False")
        if mmap is not None and mmap is not False:
            raise SettingError(f"mmap={mmap!r} must be None (map files where it pays) or False (only read)")
        mixed = shuffled(shuffle)
        host = None if host_memory is None else budget.parse_nbytes(host_memory, "host_memory")
        on_device = None if device_memory is None else budget.parse_nbytes(device_memory, "device_memory")
        residency = parse_residency(residency)
        caching = Caching.parse(cache)
        seeded = transform is not None and wants_seed(transform)

        self._owns_store = not isinstance(source, Store)
        self._store = open_store(source) if self._owns_store else source
        try:
            chosen = fields(self._store.only_array() if features is None else features, labels, sample_weight)
            self._arrays = [self._store[name] for name in chosen.names]
            total = _common_rows(self._arrays)
            self._casts = chosen.casts(dtype, scale, offset)
            weighted = class_weights(
                class_weight,
                chosen.structure,
                names=chosen.names,
                shapes=tuple(array.info.shape for array in self._arrays),
                dtypes=tuple(array.info.dtype for array in self._arrays),
                stores=tuple(array.store for array in self._arrays),
            )
            self._element = {
                "structure": chosen.structure,
                "casts": self._casts,
                "class_weights": weighted,
                "transform": transform,
                "seeded": seeded,
            }
            selected = row_set(rows, total)
            if len(selected) == 0:
                raise DataError("rows= selects no row; there is nothing to load")
            readers = [array.reader for array in self._arrays]
            self._device = device
            if device is not None:
                from oocloader.device import resolve

                self._device = resolve(device)
            columns = [
                budget.Column(
                    name=array.info.name,
                    row_nbytes=_row_nbytes(array),
                    delivered_row_nbytes=_delivered_row_nbytes(array, cast),
                    chunk_rows=reader.chunk_rows,
                    scratch_nbytes=reader.scratch_nbytes,
                    row_access=reader.row_access,
                    gathered_nbytes=0 if mmap is False else reader.gathered_nbytes,
                    starts=reader.starts,
                )
                for array, reader, cast in zip(self._arrays, readers, self._casts, strict=True)
            ]
            most = min(batch_size, len(selected))
            caches = caching.of(self._arrays, selected)
            self._sizes = budget.choose(
                len(selected),
                columns,
                batch_size=most,
                shuffle=mixed,
                block=block,
                window=window,
                host_memory=host,
                device_memory=on_device,
                threads=threads or min(8, os.cpu_count() or 1),
                free_host_memory=budget.free_host_memory(),
                cached_nbytes=caches.memory_nbytes(readers),
            )
            self._resident = resident(
                len(selected),
                columns,
                batch_size=most,
                window=None if window is None else self._sizes.window,
                chosen=self._sizes.window,
            )
            if residency == "device" and caching.in_memory:
                raise SettingError(
                    "cache='memory' keeps what residency='device' keeps already; leave cache= out, or name a "
                    "folder"
                )
            if residency == "device":
                check_fits(self._resident, on_device)
                self._sizes = dataclasses.replace(self._sizes, device_nbytes=self._resident.device_nbytes)
            self._residency = residency
            self._caching = caching
            self._device_budget = on_device
            order = Order(
                selected,
                shuffle=mixed,
                seed=seed,
                block=self._sizes.block,
                window=self._sizes.window,
                starts=self._sizes.starts,
            )
            spare = (budget.free_host_memory() if host is None else host) - self._sizes.host_nbytes
            self._cached = caches.readers(readers, gather=mmap is not False and spare >= caches.file_nbytes)
            self._feed = Feed(
                readers=self._cached,
                order=order,
                batch_size=batch_size,
                drop_remainder=drop_remainder,
                threads=self._sizes.threads,
                ahead=self._sizes.ahead,
                mapping=mmap is not False,
                gather=self._sizes.gather,
            )
        except BaseException:
            if self._owns_store:
                self._store.close()
            raise
        _live.add(self)
        # Called before what the libraries of the store have registered, or a reader waits for what is gone.
        atexit.unregister(_close_all)
        atexit.register(_close_all)

    def __len__(self) -> int:
        """Batches in a whole pass."""
        return self._feed.batches

    def __iter__(self) -> Iterator[Any]:
        return self._tensorflow().batches(1, self)

    @property
    def element_spec(self) -> Any:
        """Shapes and dtypes of an element, as tf.data has it."""
        return self._tensorflow().element_spec

    @property
    def epoch(self) -> int:
        """Number of the pass that starts next, from 0; may be set."""
        return self._epoch

    @epoch.setter
    def epoch(self, value: int) -> None:
        self._epoch = whole("epoch", value, least=0, most=2**32 - 1)

    @property
    def sizes(self) -> budget.Sizes:
        """Rows of a block and a window, and the memory that the loader plans with."""
        return self._sizes

    @property
    def counters(self) -> Counters | None:
        """What the last pass read, decoded and waited for; None before the first."""
        last = None if self._source is None else self._source.last_pass
        return None if last is None else last.counters

    def dataset(self, *, epochs: int | None = 1) -> LoaderDataset:
        """The batches as a `tf.data.Dataset`: `epochs` passes an iterator (None: without end).

        Leave it at 1 for `fit`, which starts an iterator an epoch. Each pass is the next epoch.
        """
        if epochs is not None:
            epochs = whole("epochs", epochs, least=1)
        from oocloader.dataset import LoaderDataset

        return LoaderDataset(self, self._tensorflow(), epochs=epochs)

    def close(self) -> None:
        """Give up every pass and close what the loader opened. Safe to call twice."""
        self._closed = True
        if os.getpid() != self._pid:
            return
        if self._source is not None:
            self._source.close()
        for reader in self._cached:
            if isinstance(reader, CachedReader):
                reader.close()
        if self._owns_store:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _next_epoch(self) -> int:
        with self._counting:
            number = self._epoch
            self._epoch = number + 1
        return number

    def _tensorflow(self) -> Source:
        _refuse_forked(self._pid)
        if self._closed:
            raise ClosedError("the Loader is closed; make another one")
        if self._source is None:
            from oocloader.dataset import Element, Source
            from oocloader.device import is_host, resolve

            number = weakref.WeakMethod(self._next_epoch)

            def next_epoch() -> int:
                method = number()
                if method is None:
                    raise ClosedError("the Loader is gone; keep it for as long as its dataset is used")
                return method()

            device = resolve(self._device) if self._device is None else self._device
            kept = self._keeps(is_host(device))
            feed = self._feed
            if kept and self._caching.in_memory:
                feed = dataclasses.replace(feed, readers=[array.reader for array in self._arrays])
            self._source = Source(
                feed,
                Element(**self._element),
                device=device,
                next_epoch=next_epoch,
                table=self._class_table(),
                resident=self._resident if kept else None,
            )
        return self._source

    def _keeps(self, on_host: bool) -> bool:
        """Whether all rows are kept on the device; raises where the host, being the device, cannot."""
        kept = keeps(self._residency, self._resident, on_host=on_host, device_budget=self._device_budget)
        if kept and on_host and self._device_budget is None:
            check_host(self._resident, budget.available_host_memory())
        return kept

    def _class_table(self) -> Callable[[], tuple[np.ndarray, np.ndarray]] | None:
        """What counts the labels, where rows are weighted by their class."""
        weighted: ClassWeights | None = self._element["class_weights"]
        if weighted is None:
            return None
        array, rows = self._arrays[weighted.label], self._feed.order.rows
        # The source must not keep the loader alive.
        return lambda: weighted.table(array.reader, rows)


def _common_rows(arrays: Sequence[StoredArray]) -> int:
    """Rows of every array, or the error that names two of unequal length."""
    first = arrays[0]
    for array in arrays[1:]:
        if array.info.shape[0] != first.info.shape[0]:
            raise DataError(
                f"arrays differ in length: {first.info.name!r} of {first.store} has "
                f"{first.info.shape[0]} rows, "
                f"{array.info.name!r} of {array.store} has {array.info.shape[0]}; "
                "rows are matched by their number, so both need the same",
                file=array.store,
                array=array.info.name,
            )
    return first.info.shape[0]


def _row_nbytes(array: StoredArray) -> int:
    return math.prod(array.info.shape[1:]) * array.info.dtype.itemsize


def _delivered_row_nbytes(array: StoredArray, cast: Cast) -> int:
    return math.prod(array.info.shape[1:]) * dtype_nbytes(cast.delivered(array.info.dtype))


def _refuse_forked(made_in: int) -> None:
    if os.getpid() != made_in or _forked_in_use:
        raise ClosedError(
            "a Loader cannot be used in a forked child: neither its threads nor TensorFlow survive a fork; "
            'start the process with multiprocessing.get_context("spawn")'
        )


def _close_all() -> None:
    # TensorFlow's threads must not wait in Python code when the interpreter goes.
    for loader in list(_live):
        loader.close()
    used = sys.modules.get("oocloader.device")
    if used is not None and not _forked_in_use:
        used.settle(timeout_s=1.0)


def _after_fork() -> None:
    global _forked_in_use
    eager = sys.modules.get("tensorflow.python.eager.context")
    if eager is not None:
        # No public name tells whether TensorFlow's threads have been started; without one, they have.
        _forked_in_use = getattr(getattr(eager, "_context", None), "_initialized", True)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
