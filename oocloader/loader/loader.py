"""The Loader: rows of a store as batches on a device."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

from oocloader.errors import ClosedError, OocloaderError
from oocloader.loader.assembly import Assembly
from oocloader.loader.data_spec import takes_spec
from oocloader.loader.process import close_at_exit, refuse_forked
from oocloader.loader.resumption import Resumable
from oocloader.loader.settings import (
    ClassWeight,
    DTypes,
    Factors,
    LoaderOptions,
    Rows,
    parse_budget,
    parse_flag,
    parse_mapping,
    parse_threads,
)
from oocloader.loader.splitting import split_rows
from oocloader.memory import RequestedRows
from oocloader.order import Names, Position, shard_of, shuffled, whole
from oocloader.pipeline import CacheOption, Residency, parse_residency
from oocloader.stores import Store, open_store

if TYPE_CHECKING:
    from oocloader.loader.plan import Plan
    from oocloader.memory import Sizes
    from oocloader.metrics import Counters, Report
    from oocloader.tfdata import LoaderDataset, LoaderPipeline


class Loader(Resumable):
    """Rows of a store as batches on a device, read window by window.

    Examples
    --------
    >>> import numpy as np
    >>> import oocloader as ooc
    >>> x, y = np.arange(12.0).reshape(6, 2), np.arange(6)
    >>> with ooc.Loader({"x": x, "y": y}, "x", "y", batch_size=4) as loader:
    ...     for features, labels in loader:
    ...         print(features.shape, labels.numpy())
    (4, 2) [0 1 2 3]
    (2, 2) [4 5]

    ``model.fit(loader.dataset(), epochs=3)`` trains on the same batches.

    Parameters
    ----------
    source : path, array, list, dict, Store or DataSpec
        Anything `open_store` takes, an open store, or a `DataSpec`, which brings options with it; those
        given beside it go before its own.
    features, labels, sample_weight : str, list of str or dict of str, default None
        Arrays of an element, `x`, `(x, y)` or `(x, y, weight)`, matched by row number; several come as a
        dict. Without `features`: the only array there is.
    class_weight : dict of float or "balanced", default None
        Weight of each class ("balanced": each weighs the same in sum). Becomes the sample weight of each
        row by its label, or multiplies it.
    batch_size : int, default 32
        Rows of a batch.
    drop_remainder : bool, default False
        Whether to leave out a last, shorter batch.
    shuffle : bool, "window" or "global", default False
        True or "window": windows of blocks from all over the store, permuted within. "global": any row
        anywhere, for arrays whose rows can be read alone (raw, uncompressed, in memory).
    seed : int, default 0
        With the number of the pass it decides the order, and nothing else does.
    window, block : int or str, default None
        Rows, or a size such as "64MiB". None: from the size of rows, chunks and budgets. In stored order
        `block` changes nothing.
    dtype, scale, offset : dtype or float, or dict of these by key, default None
        On the device, of the features: cast (to float32 if only a scale or offset is given), then
        ``x * scale + offset``.
    transform : callable, default None
        ``(*element) -> element``, traced once and run on the device per batch, behind all of the above. A
        parameter named `seed` gets int32 (2,), another for every batch of every pass and the same in every
        run with this `seed`, for `tf.random.stateless_uniform` and its like.
    device : str, default None
        None: "/GPU:0" where TensorFlow sees one, else "/CPU:0".
    residency : "auto", "stream" or "device", default "auto"
        "stream": rows come window by window in every pass. "device": all rows are read once, kept on the
        device and gathered there. "auto": "device" where it is a GPU and half its budget holds them.
    host_memory, device_memory : int or str, default None
        Budgets in bytes, or "2GiB", for what is read ahead on the host and what lies on the device. None: a
        quarter of the free memory, 2 GiB at most; half of a GPU's memory.
    cache : "memory" or path, default None
        Decoded rows are kept for later passes as they are read, in memory (within `host_memory`) or in a
        folder, there also for later runs, until the store changes.
    threads : int, default None
        That read and decode. None: one for each core that this process may use, at most eight.
    mmap : False, default None
        None: files of local file systems are mapped where that is faster; a file that another program
        shortens in that very moment ends the process (SIGBUS). False: files are only ever read.
    shard : (int, int), default None
        (index, count): the part of every pass that one of `count` processes gets. Parts differ by at most
        one row and have the same number of batches.
    rows : slice, array of int or mask of bool, default None
        Of all rows, those to load; numbers are sorted and unique.

    Raises
    ------
    OocloaderError
        A child of it, before anything is read where that can be known.
    """

    @takes_spec
    def __init__(
        self,
        source: Any,
        features: Names | None = None,
        labels: Names | None = None,
        *,
        sample_weight: Names | None = None,
        class_weight: ClassWeight = None,
        batch_size: int = 32,
        drop_remainder: bool = False,
        shuffle: bool | Literal["window", "global"] = False,
        seed: int = 0,
        window: int | str | None = None,
        block: int | str | None = None,
        dtype: DTypes = None,
        scale: Factors = None,
        offset: Factors = None,
        transform: Callable[..., Any] | None = None,
        device: str | None = None,
        residency: Residency = "auto",
        host_memory: int | str | None = None,
        device_memory: int | str | None = None,
        cache: str | os.PathLike[str] | None = None,
        threads: int | None = None,
        mmap: bool | None = None,
        shard: tuple[int, int] | None = None,
        rows: Rows = None,
    ) -> None:
        options = LoaderOptions(
            features=features,
            labels=labels,
            sample_weight=sample_weight,
            class_weight=class_weight,
            batch_size=whole("batch_size", batch_size, least=1),
            drop_remainder=parse_flag("drop_remainder", drop_remainder),
            shuffle=shuffled(shuffle),
            seed=whole("seed", seed, least=0, most=2**64 - 1),
            window=RequestedRows.parse("window", window),
            block=RequestedRows.parse("block", block),
            dtype=dtype,
            scale=scale,
            offset=offset,
            transform=transform,
            device=device,
            residency=parse_residency(residency),
            host_memory=parse_budget("host_memory", host_memory),
            device_memory=parse_budget("device_memory", device_memory),
            caching=CacheOption.parse(cache),
            threads=parse_threads(threads),
            mapping=parse_mapping(mmap),
            shard=shard_of(shard),
            rows=rows,
        )
        self._open(source, options)

    def _open(self, source: Any, options: LoaderOptions) -> None:
        self._pid = os.getpid()
        refuse_forked(self._pid)
        self._owns_store = not isinstance(source, Store)
        self._store: Store = open_store(source) if self._owns_store else source
        try:
            self._assembly = Assembly(self._store, options)
        except BaseException:
            if self._owns_store:
                self._store.close()
            raise
        close_at_exit(self)

    @classmethod
    def _of(cls, store: Store, options: LoaderOptions) -> Self:
        """A loader of an open store, by options that are checked already."""
        loader = cls.__new__(cls)
        loader._open(store, options)
        return loader

    def __len__(self) -> int:
        """Batches in a whole pass."""
        return self._assembly.decisions.read_config.batches

    def __iter__(self) -> Iterator[Any]:
        return self._start().batches(1, self)

    @property
    def element_spec(self) -> Any:
        """Shapes and dtypes of an element, as tf.data has it."""
        return self._start().element_spec

    @property
    def epoch(self) -> int:
        """Number of the pass that starts next, from 0; may be set."""
        return self._assembly.positions.epoch

    @epoch.setter
    def epoch(self, value: int) -> None:
        self._assembly.positions.go_to(Position(whole("epoch", value, least=0, most=2**32 - 1)))

    @property
    def sizes(self) -> Sizes:
        """Rows of a block and a window, and the memory that the loader plans with."""
        return self._assembly.decisions.sizes

    @property
    def counters(self) -> Counters | None:
        """What the last pass read, decoded and waited for; None before the first."""
        source = self._assembly.source
        last = None if source is None else source.last_pass
        return None if last is None else last.counters

    def plan(self) -> Plan:
        """What an epoch does and takes: windows, bytes read, memory by part, mixing. `print` explains it.

        Returns
        -------
        Plan
            Nothing is allocated for it, and no chunk is read.
        """
        return self._assembly.plan()

    def dataset(self, *, epochs: int | None = 1) -> LoaderDataset:
        """The batches as a `tf.data.Dataset`.

        Parameters
        ----------
        epochs : int or None, default 1
            Passes an iterator, each the next epoch; None: without end. Leave it at 1 for `fit`, which
            starts an iterator an epoch.

        Returns
        -------
        LoaderDataset
            A `tf.data.Dataset` of known length, batches on the device.
        """
        if epochs is not None:
            epochs = whole("epochs", epochs, least=1)
        from oocloader.tfdata import LoaderDataset

        return LoaderDataset(self, self._start(), epochs=epochs)

    def split(
        self,
        fraction: float,
        *,
        by: Literal["row", "block"] = "row",
        seed: int = 0,
        stratify: str | None = None,
    ) -> tuple[Loader, Loader]:
        """Two loaders of the same store: to train on, and of the rows held out, unshuffled.

        Both read the store that this loader has open: close it last.

        Parameters
        ----------
        fraction : float
            Of the rows, held out; between 0 and 1.
        by : "row" or "block", default "row"
            "row" holds out any rows; "block" whole chunks (of arrays without chunks about a megabyte of
            neighbouring rows), so that none is decoded for both.
        seed : int, default 0
            It alone decides which, neither the seed nor the shard of the loader.
        stratify : str, default None
            Name of an array with one whole number a row: each class has its share in both.

        Returns
        -------
        (Loader, Loader)
            To train on, and held out.

        Raises
        ------
        SettingError
            Where one side would be empty.
        """
        self._check_open()
        options, data = self._assembly.options, self._assembly.data
        train, val = split_rows(self._store, data, fraction, by=by, seed=seed, stratify=stratify)
        held_out = Loader._of(self._store, replace(options, shuffle=False, block=None, rows=val))
        # What is held out is for evaluation.
        held_out._assembly.expect_labels_in_order()
        return Loader._of(self._store, replace(options, rows=train)), held_out

    def report(self) -> Report:
        """Where the time of the last pass went, over or not.

        Returns
        -------
        Report
            Numbers, and a verdict on what would help.

        Raises
        ------
        OocloaderError
            Before the first batch.
        """
        report = self._assembly.report()
        if report is None:
            raise OocloaderError(
                "there is no report before the first batch; iterate the Loader, or train on it"
            )
        return report

    def close(self) -> None:
        """Give up every pass and close what the loader opened. Safe to call twice."""
        self._assembly.closed = True
        if os.getpid() != self._pid:
            return
        self._assembly.close()
        if self._owns_store:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._assembly.closed:
            raise ClosedError("the Loader is closed; make another one")

    def _start(self) -> LoaderPipeline:
        refuse_forked(self._pid)
        self._check_open()
        return self._assembly.start()
