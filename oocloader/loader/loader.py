"""The Loader: rows of a store as batches on a device."""

from __future__ import annotations

import atexit
import dataclasses
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from oocloader.errors import ClosedError, OocloaderError, SettingError, StateError, in_forked_child
from oocloader.loader import splitting
from oocloader.loader.assembly import Assembly, common_rows
from oocloader.loader.data_spec import takes_spec
from oocloader.loader.state import Identity, Saved, identity, saved
from oocloader.order import Position, whole
from oocloader.pipeline import Progress
from oocloader.sizes import nbytes_of_row
from oocloader.stores import Store, open_store

if TYPE_CHECKING:
    from oocloader.loader.plan import Plan
    from oocloader.memory import Sizes
    from oocloader.metrics import Counters, Report
    from oocloader.tfdata import LoaderDataset, LoaderPipeline

_live: weakref.WeakSet[Loader] = weakref.WeakSet()
# Whether TensorFlow was in use when this process was forked off.
_forked_in_use = False


class Loader:
    """Rows of a store as batches on a device, read window by window.

    `source` is anything `open_store` takes, an open store, or a `DataSpec`, which brings options with it;
    those given beside it go before its own. Elements are `x`, `(x, y)` or
    `(x, y, weight)`; several features or labels come as a dict. Labels and features are matched by row
    number. Rows come as stored unless `shuffle` is given.

    - `features`, `labels`, `sample_weight`: name | [names] | {key: name}; features None: the only array.
    - `class_weight`: {class: weight} or "balanced" (each class weighs the same in sum): becomes the sample
      weight of each row by its label, or multiplies it.
    - `batch_size` rows a batch; the last is shorter unless `drop_remainder`.
    - `shuffle`: False | True ("window"): windows of blocks from all over the store, permuted within.
      "global": any row anywhere, for arrays whose rows can be read alone (raw, uncompressed, in memory).
      `seed` and the number of the pass decide the order, nothing else.
    - `window`, `block`: rows, or a size such as "64MiB"; None: from the size of rows, chunks and budgets. In
      stored order `block` changes nothing.
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
    - `shard`: (index, count): the part of every pass that one of `count` processes gets. Parts differ by at
      most one row and have the same number of batches.
    - `rows`: None | slice | integer array (sorted, unique) | boolean mask of all rows.

    A context manager. Raises `OocloaderError` children, before anything is read where that can be known.
    """

    @takes_spec
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
        shard: tuple[int, int] | None = None,
        rows: Any = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in ("self", "source")}
        self._given = given
        self._source: LoaderPipeline | None = None
        self._closed = False
        self._pid = os.getpid()
        _refuse_forked(self._pid)
        self._epoch = 0
        self._counting = threading.Lock()
        self._progress = Progress()
        self._owns_store = not isinstance(source, Store)
        self._store = open_store(source) if self._owns_store else source
        try:
            made = self._made = Assembly(self._store, given)
            self._sizes = made.sizes(block, window, made.device)
            self._resident = made.residence(self._sizes)
            self._feed = made.read_config(self._sizes, self._progress)
            if made.settings.residency == "device":
                self._sizes = made.with_resident_rows(self._sizes, self._resident)
            made.look_at_mixing(self._sizes)
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
        self._go_to(Position(whole("epoch", value, least=0, most=2**32 - 1)))

    @property
    def sizes(self) -> Sizes:
        """Rows of a block and a window, and the memory that the loader plans with."""
        return self._sizes

    @property
    def counters(self) -> Counters | None:
        """What the last pass read, decoded and waited for; None before the first."""
        last = None if self._source is None else self._source.last_pass
        return None if last is None else last.counters

    def plan(self) -> Plan:
        """What an epoch does and takes: windows, bytes read, memory by part, mixing. `print` explains it.

        Nothing is allocated, and no chunk is read.
        """
        return self._made.plan(self._sizes, self._feed, self._resident)

    def dataset(self, *, epochs: int | None = 1) -> LoaderDataset:
        """The batches as a `tf.data.Dataset`: `epochs` passes an iterator (None: without end).

        Leave it at 1 for `fit`, which starts an iterator an epoch. Each pass is the next epoch.
        """
        if epochs is not None:
            epochs = whole("epochs", epochs, least=1)
        from oocloader.tfdata import LoaderDataset

        return LoaderDataset(self, self._tensorflow(), epochs=epochs)

    def split(
        self, fraction: float, *, by: str = "row", seed: int = 0, stratify: str | None = None
    ) -> tuple[Loader, Loader]:
        """Two loaders of the same store: to train on, and of the `fraction` of the rows held out, unshuffled.

        - `by`: "row" holds out any rows; "block" whole chunks (of arrays without chunks about a megabyte of
          neighbouring rows), so that none is decoded for both.
        - `seed` alone decides which, neither the seed nor the shard of the loader.
        - `stratify`: name of an array with one whole number a row: each class has its share in both.

        Both read the store that this loader has open: close it last. Raises `SettingError` where one side
        would be empty.
        """
        if self._closed:
            raise ClosedError("the Loader is closed; make another one")
        rows = self._feed.order.rows
        total = self._made.arrays[0].info.shape[0]
        seed = whole("seed", seed, least=0, most=2**64 - 1)
        held = splitting.held_rows(fraction, len(rows))
        if by not in ("row", "block"):
            raise SettingError(f'by={by!r} must be "row" or "block"')
        if by == "block":
            if stratify is not None:
                raise SettingError(f'stratify={stratify!r} holds out single rows: give by="row"')
            block, chunk_origins = splitting.block_of(self._made.columns)
            parts = splitting.by_block(
                rows, held, seed=seed, total=total, block=block, chunk_origins=chunk_origins
            )
        elif stratify is not None:
            labels = self._store[stratify]
            common_rows([self._made.arrays[0], labels])
            parts = splitting.stratified(
                rows, held, splitting.labels_of(labels, rows), seed=seed, total=total
            )
        else:
            parts = splitting.by_row(rows, held, seed=seed, total=total)
        train, val = (slice(part.start, part.stop) if part.picked is None else part.picked for part in parts)
        unshuffled = {"shuffle": False, "block": None}
        held_out = Loader(self._store, **{**self._given, **unshuffled, "rows": val})
        # What is held out is for evaluation.
        held_out._made.leave_labels()
        return Loader(self._store, **{**self._given, "rows": train}), held_out

    def state_dict(self) -> dict[str, Any]:
        """Where the passes are, as JSON under a kilobyte: `load_state_dict` of the same loader goes on there.

        That is behind the last batch that was delivered, not behind what was read ahead. All shards of a run
        save theirs after the same number of batches. Raises `StateError` after a pass of a pipeline derived
        from the dataset (`map`, a strategy): what such a pipeline delivers cannot be seen.
        """
        with self._counting:
            if self._progress.unseen:
                raise StateError(
                    "batches of the last pass went through a pipeline derived from the dataset (map, a "
                    "strategy, class_weight of fit), where they cannot be counted: use "
                    "ooc.keras.BackupAndRestore, which counts training steps, or state_at(epoch, batches)"
                )
            delivered = self._progress.delivered
            at = self._coming()
        return self._state(at if delivered is None else Position(*delivered))

    def state_at(self, epoch: int, batches: int) -> dict[str, Any]:
        """What `state_dict` gives when pass `epoch` has delivered its first `batches`.

        In a pass that went on after a restart with another number of shards, batches count from there.
        """
        epoch = whole("epoch", epoch, least=0, most=2**32 - 1)
        batches = whole("batches", batches, least=0)
        at = self._progress.resumed
        history = at.history if at is not None and at.epoch == epoch else ()
        most = self._feed.row_sequence(history)[1].batches
        if batches > most:
            raise SettingError(f"batches={batches}: pass {epoch} has {most} batches")
        return self._state(Position(epoch, batches, history))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the next pass start where `state` was saved, and the one after it be the next epoch.

        Only that pass is short; `len` stays that of a whole one. Block and window are those of the state
        where this loader was not given its own. A state of another number of shards is what all of them
        saved after the same number of batches: the rows that none of them delivered are shared out anew.

        Raises `DataError` or `SettingError` for a state of other data or settings, saying which differ.
        """
        found = saved(state)
        chosen = {"block", "window"} & set(found.told) if self._feed.order.shuffle == "window" else set()
        free = [name for name in sorted(chosen) if self._given[name] is None]
        found.refuse_other(self._identity(), besides=free)
        sizes, read_config = self._sizes, self._feed
        if any(found.told[name] != getattr(sizes, name) for name in free):
            sizes = self._sizes_of(found)
            read_config = self._made.read_config(sizes, self._progress)
        at = found.position_for(read_config.order.shard[1])
        batches = read_config.row_sequence(at.history)[1].batches
        if at.batches > batches:
            raise SettingError(f"the state has batches={at.batches}: pass {at.epoch} has {batches} batches")
        if at.batches == batches:
            at = Position(at.epoch + 1)
        self._sizes, self._feed = sizes, read_config
        if self._source is not None:
            self._source.take(read_config)
        self._go_to(at)
        self._progress.resumed = at

    def _sizes_of(self, found: Saved) -> Sizes:
        """Memory for the block and window of a state."""
        block, window = found.told["block"], found.told["window"]
        for name in ("block", "window"):
            whole(f"the state's {name}", found.told[name], least=1)
        try:
            return self._made.sizes(block, window, self._made.device)
        except SettingError as error:
            raise SettingError(
                f"the state was saved with window={window} and block={block}, which this loader has no "
                f"memory for: {error.message.partition(', or ')[0]}"
            ) from error

    def _state(self, at: Position) -> dict[str, Any]:
        if at.batches and at.batches >= self._feed.row_sequence(at.history)[1].batches:
            at = Position(at.epoch + 1)
        return self._identity().state(at, self._feed.order.shard[1])

    def report(self) -> Report:
        """Where the time of the last pass went, over or not. Raises `OocloaderError` before the first."""
        from oocloader.metrics import Reading, make_report

        last = None if self._source is None else self._source.last_pass
        if self._source is None or last is None:
            raise OocloaderError(
                "there is no report before the first batch; iterate the Loader, or train on it"
            )
        reading = Reading(
            row_nbytes=sum(nbytes_of_row(array.info.shape, array.info.dtype) for array in self._made.arrays),
            codecs=tuple(codec for array in self._made.arrays for codec in array.info.codecs),
            threads=self._feed.threads,
            device=self._source.device,
            crosses=self._source.crosses,
            batch_size=self._feed.batch_size,
            batches=self._feed.batches,
        )
        return make_report(last.counters, reading, epoch=last.epoch, start=last.start)

    def close(self) -> None:
        """Give up every pass and close what the loader opened. Safe to call twice."""
        self._closed = True
        if os.getpid() != self._pid:
            return
        if self._source is not None:
            self._source.close()
        self._made.close()
        if self._owns_store:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _coming(self) -> Position:
        return self._progress.pending or Position(self._epoch)

    def _next_position(self) -> Position:
        with self._counting:
            at = self._coming()
            self._progress.pending = None
            # Until its first batch: whoever asks meanwhile must not be told of the pass after it.
            self._progress.delivered = (at.epoch, at.batches, at.history)
            self._epoch = at.epoch + 1
        return at

    def _go_to(self, at: Position) -> None:
        with self._counting:
            self._epoch = at.epoch
            self._progress.pending = at if at.batches or at.history else None
            self._progress.resumed = None
            self._progress.delivered = None
            self._progress.unseen = False

    def _identity(self) -> Identity:
        read_config = self._feed
        return identity(
            self._made.arrays,
            read_config.order,
            batch_size=read_config.batch_size,
            drop_remainder=read_config.drop_remainder,
        )

    def _tensorflow(self) -> LoaderPipeline:
        _refuse_forked(self._pid)
        if self._closed:
            raise ClosedError("the Loader is closed; make another one")
        if self._source is None:
            from oocloader.tfdata import Element, LoaderPipeline, resolve

            position = weakref.WeakMethod(self._next_position)

            def next_position() -> Position:
                method = position()
                if method is None:
                    raise ClosedError("the Loader is gone; keep it for as long as its dataset is used")
                return method()

            this = weakref.ref(self)

            def coming() -> Position | None:
                loader = this()
                return None if loader is None or loader._closed else loader._coming()

            made = self._made
            device = resolve(None) if made.device is None else made.device
            # Only now is it known whether there is a GPU, whose memory may refuse the windows.
            made.sizes(self._given["block"], self._given["window"], device)
            made.look_at_labels()
            kept = made.is_resident(self._resident, device)
            read_config = self._feed
            if kept and made.settings.caching.in_memory:
                read_config = dataclasses.replace(read_config, readers=made.readers)
            self._source = LoaderPipeline(
                read_config,
                Element(**made.element),
                device=device,
                next_position=next_position,
                coming=coming,
                class_table=made.class_table(),
                resident=self._resident if kept else None,
            )
        return self._source


def _refuse_forked(made_in: int) -> None:
    if os.getpid() != made_in or _forked_in_use:
        raise in_forked_child("a Loader cannot be used")


def _close_all() -> None:
    # TensorFlow's threads must not wait in Python code when the interpreter goes.
    for loader in list(_live):
        loader.close()
    used = sys.modules.get("oocloader.tfdata")
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
