"""What a loader is made of: its arrays, what is decided about their memory, and what passes read from."""

from __future__ import annotations

import dataclasses
import logging
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oocloader.errors import ClosedError
from oocloader.loader import global_shuffle, plan
from oocloader.loader.label_order import sorted_labels
from oocloader.loader.loaded_arrays import loaded_arrays
from oocloader.loader.positions import Positions
from oocloader.loader.settings import LoaderOptions
from oocloader.machine import available_host_memory
from oocloader.memory import (
    DeviceMemory,
    RequestedRows,
    Sizes,
    SizingInputs,
    choose,
    device_share,
    host_share,
)
from oocloader.metrics import PassContext, Report, make_report
from oocloader.order import History, Order, Position, share
from oocloader.pipeline import (
    CachedReader,
    ReadConfig,
    Resident,
    wants_seed,
)
from oocloader.reading import RowReader
from oocloader.stores import Store

if TYPE_CHECKING:
    from oocloader.tfdata import LoaderPipeline

logger = logging.getLogger("oocloader")


@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """What was decided about a loader.

    - `inputs`: what `sizes` were decided from
    - `residence`: what it takes to keep all rows on the device; `is_resident`: whether they are kept there,
      as far as that is known without the device
    - `read_config`: what passes read from
    - `mixing`: how well windows mix, 0 to 1; None where nothing is shuffled
    """

    inputs: SizingInputs
    sizes: Sizes
    residence: Resident
    is_resident: bool
    read_config: ReadConfig
    mixing: float | None

    def batches_of(self, history: History) -> int:
        """Batches of a pass with this history."""
        return self.read_config.row_sequence(history)[1].batches


class Assembly:
    """The parts of a loader of `store`, by its options.

    Raises `OocloaderError` children where these do not fit the data, or budgets are too small.
    """

    def __init__(self, store: Store, options: LoaderOptions) -> None:
        self.options = options
        self.data = data = loaded_arrays(store, options)
        self.seeded = options.transform is not None and wants_seed(options.transform)
        self.device: str | None = options.device
        if self.device is not None:
            from oocloader.tfdata import resolve

            self.device = resolve(self.device)
        self.positions = Positions()
        self.closed = False
        self.source: LoaderPipeline | None = None
        """What TensorFlow reads from; None until it is needed."""
        # Of rows in order a shard has the same in every pass: it would never come to read the others.
        same_rows = not options.shuffle and options.residency != "device"
        cached_rows = data.rows.part(*share(len(data.rows), options.shard)) if same_rows else data.rows
        self._caches = options.caching.plan(data.arrays, cached_rows)
        # Made with the first decisions, when it is known how much memory windows take.
        self._cached_readers: list[RowReader] | None = None
        self._free_host = host_share(available_host_memory())
        self.decisions = self.decide(options.block, options.window)
        self._warnings: list[str] = []
        # Labels whose order matters, until that was looked into.
        labels = [array for array, is_label in zip(data.arrays, data.is_label, strict=True) if is_label]
        self._unordered = [] if options.shuffle else labels
        poor = plan.mixing_warning(self.decisions.mixing, self.decisions.inputs, self.decisions.sizes)
        if poor is not None:
            self._warn(poor)

    def decide(self, block: RequestedRows | None, window: RequestedRows | None) -> Decisions:
        """What follows from options and data for the block and window asked for.

        Raises `SettingError` where a budget is too small.
        """
        options, rows, columns, bounded = self.options, len(self.data.rows), self.data.columns, False
        batch_rows = min(options.batch_size, rows)
        if options.shuffle == "global":
            global_shuffle.refuse_costly(columns)
            columns, bounded = global_shuffle.gathered(columns, options.host_memory or self._free_host)
            block = RequestedRows(1)
        inputs = SizingInputs(
            rows=rows,
            columns=columns,
            batch_size=batch_rows,
            shuffle=bool(options.shuffle),
            block=block,
            window=window,
            host_memory=options.host_memory,
            device_memory=options.device_memory,
            threads=options.threads,
            free_host_memory=self._free_host,
            free_device_memory=self._free_device(self.device),
            cached_nbytes=self._caches.memory_nbytes(self.data.readers),
            streamed=options.residency != "device",
        )
        sizes = choose(inputs)
        residence = Resident.of(
            rows,
            self.data.columns,
            batch_size=batch_rows,
            window=None if options.window is None else sizes.window,
            chosen=sizes.window,
        )
        mixing = plan.mixing_figure(inputs, sizes, options.shuffle)
        read_config = self._read_config(sizes, bounded=bounded)
        stays = options.residency == "device"
        if stays:
            residence.check_fits(options.device_memory)
            sizes = _with_resident_rows(sizes, residence)
        return Decisions(inputs, sizes, residence, stays, read_config, mixing)

    def start(self) -> LoaderPipeline:
        """What TensorFlow reads from, made when it is first asked for.

        Only then it is known whether there is a GPU, whose memory may refuse the windows or hold all rows.
        """
        if self.source is None:
            from oocloader.tfdata import Element, LoaderPipeline, resolve

            device = resolve(None) if self.device is None else self.device
            self.decisions = decisions = self._decide_on(device)
            self._look_at_labels()
            data = self.data
            # It may outlive the loader, and must not keep it.
            taken, this = weakref.WeakMethod(self.positions.take), weakref.ref(self)

            def next_position() -> Position:
                take = taken()
                if take is None:
                    raise ClosedError("the Loader is gone; keep it for as long as its dataset is used")
                return take()

            def coming() -> Position | None:
                assembly = this()
                return None if assembly is None or assembly.closed else assembly.positions.coming()

            self.source = LoaderPipeline(
                decisions.read_config,
                Element(data.structure, data.casts, data.class_weights, self.options.transform, self.seeded),
                device=device,
                next_position=next_position,
                coming=coming,
                class_table=data.class_table,
                resident=decisions.residence if decisions.is_resident else None,
            )
        return self.source

    def _decide_on(self, device: str) -> Decisions:
        """The decisions, now that the device is known."""
        decisions = self.decisions
        choose(self._inputs_on(device))
        if not self._stays_on(device):
            return decisions
        read_config = decisions.read_config
        if self.options.caching.in_memory:
            read_config = dataclasses.replace(read_config, readers=self.data.readers)
        sizes = _with_resident_rows(decisions.sizes, decisions.residence)
        return dataclasses.replace(decisions, sizes=sizes, is_resident=True, read_config=read_config)

    def _inputs_on(self, device: str) -> SizingInputs:
        return dataclasses.replace(self.decisions.inputs, free_device_memory=self._free_device(device))

    def _stays_on(self, device: str) -> bool:
        """Whether all rows stay on `device`; raises where the host, being the device, has not the memory."""
        from oocloader.tfdata import is_host

        options, residence, on_host = self.options, self.decisions.residence, is_host(device)
        budget = options.device_memory or self._free_device(device)
        stays = residence.stays(options.residency, on_host=on_host, device_budget=budget)
        if stays and on_host and options.device_memory is None:
            residence.check_host(available_host_memory())
        return stays

    def _read_config(self, sizes: Sizes, *, bounded: bool) -> ReadConfig:
        options = self.options
        if self._cached_readers is None:
            spare = (options.host_memory or self._free_host) - sizes.host_nbytes
            self._cached_readers = self._caches.readers(
                self.data.readers, gather=options.mapping and spare >= self._caches.file_nbytes
            )
        return ReadConfig(
            readers=self._cached_readers,
            order=Order(
                self.data.rows,
                shuffle=options.shuffle,
                seed=options.seed,
                block=sizes.block,
                window=sizes.window,
                chunk_origins=sizes.chunk_origins,
                shard=options.shard,
            ),
            batch_size=options.batch_size,
            drop_remainder=options.drop_remainder,
            threads=sizes.threads,
            prefetch_windows=sizes.prefetch_windows,
            mapping=options.mapping,
            gather="freely" if sizes.gather else "bounded" if bounded else "never",
            progress=self.positions.progress,
        )

    def report(self) -> Report | None:
        """Where the time of the last pass went; None before the first."""
        last = None if self.source is None else self.source.last_pass
        if self.source is None or last is None:
            return None
        read_config = self.decisions.read_config
        context = PassContext(
            row_nbytes=self.data.row_nbytes,
            codecs=tuple(codec for array in self.data.arrays for codec in array.info.codecs),
            threads=read_config.threads,
            device=self.source.device,
            crosses=self.source.crosses,
            batch_size=read_config.batch_size,
            batches=read_config.batches,
        )
        return make_report(last.counters, context, epoch=last.epoch, start=last.start)

    def close(self) -> None:
        """Give up every pass, and rows that were kept; the store is left open."""
        if self.source is not None:
            self.source.close()
        for reader in self._cached_readers or ():
            if isinstance(reader, CachedReader):
                reader.close()

    def expect_labels_in_order(self) -> None:
        """Rows in order are wanted: say nothing of it."""
        self._unordered = []

    def _look_at_labels(self) -> None:
        """Warn, once, of labels in order that are not shuffled."""
        labels, self._unordered = self._unordered, []
        for array in labels:
            if sorted_labels(array.reader, self.data.rows):
                self._warn(plan.sorted_warning(array.info.name))

    def plan(self) -> plan.Plan:
        """What an epoch does and takes."""
        from oocloader.tfdata import expected, is_host

        data, decisions, device = self.data, self.decisions, expected(self.device)
        sizes, order, on_device = decisions.sizes, decisions.read_config.order, self._stays_on(device)
        if on_device:
            sizes = _with_resident_rows(sizes, decisions.residence)
        # What shards keep are all rows: in another epoch others are theirs.
        part = 1.0 if on_device else order.total / len(data.rows)
        arrays = tuple(
            plan.array_plan(column, cost, array.info, share=part)
            for column, cost, array in zip(data.columns, data.costs, data.arrays, strict=True)
        )
        return plan.Plan(
            rows=order.total,
            batch_size=self.options.batch_size,
            batches=decisions.read_config.batches,
            windows=len(order),
            window_rows=sizes.window,
            window_nbytes=sizes.window_nbytes,
            window_why=sizes.window_why,
            block_rows=sizes.block,
            block_why=sizes.block_why,
            shuffle=order.shuffle,
            threads=sizes.threads,
            device=device,
            arrays=arrays,
            host=plan.host_plan(decisions.inputs, sizes),
            device_memory=plan.device_plan(self._inputs_on(device), sizes, on_host=is_host(device)),
            mixing=decisions.mixing,
            warnings=(*self._warnings, *plan.amplification_warnings(arrays)),
            kept="device" if on_device else "cache" if self._caches else "",
        )

    def _free_device(self, device: str | None) -> int | None:
        """The budget on a GPU where none is written, from its memory; None elsewhere."""
        if self.options.device_memory is not None or device is None or not device.startswith("/GPU:"):
            return None
        from oocloader.tfdata import memory_nbytes

        return device_share(memory_nbytes(device))

    def _warn(self, what: str) -> None:
        self._warnings.append(what)
        logger.warning("oocloader: %s", what)


def _with_resident_rows(sizes: Sizes, residence: Resident) -> Sizes:
    """The memory taken where all rows stay on the device, and none are cached on the host besides."""
    besides = residence.device_nbytes - residence.rows_nbytes
    batches = min(besides, sizes.device.batches)
    device = DeviceMemory(besides - batches, batches, residence.rows_nbytes)
    return dataclasses.replace(sizes, device=device, host=dataclasses.replace(sizes.host, cached=0))
