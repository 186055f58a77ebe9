"""What a loader is made of: the arrays asked for, the memory they take, and how passes over them are fed."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from oocloader.errors import DataError, SettingError
from oocloader.loader import global_shuffle, plan
from oocloader.loader.label_order import sorted_labels
from oocloader.loader.settings import Settings
from oocloader.machine import available_host_memory
from oocloader.memory import Column, budget
from oocloader.order import Cast, Order, dtype_nbytes, fields, row_set, share
from oocloader.pipeline import (
    CachedReader,
    ClassWeights,
    Gather,
    Progress,
    ReadConfig,
    Resident,
    class_weights,
    wants_seed,
)
from oocloader.reading import RowReader
from oocloader.sizes import nbytes_of_row
from oocloader.stores import Store, StoredArray

logger = logging.getLogger("oocloader")


class Assembly:
    """The parts of a loader of `store`, by the options `given` to it.

    Raises `OocloaderError` children where these do not fit the data.
    """

    def __init__(self, store: Store, given: Mapping[str, Any]) -> None:
        settings = self.settings = Settings.checked(given)
        chosen = fields(
            store.only_array() if given["features"] is None else given["features"],
            given["labels"],
            given["sample_weight"],
        )
        self.arrays = [store[name] for name in chosen.names]
        total = common_rows(self.arrays)
        self.casts = chosen.casts(given["dtype"], given["scale"], given["offset"])
        transform = given["transform"]
        self.element: dict[str, Any] = {
            "structure": chosen.structure,
            "casts": self.casts,
            "class_weights": class_weights(
                given["class_weight"],
                chosen.structure,
                names=chosen.names,
                shapes=tuple(array.info.shape for array in self.arrays),
                dtypes=tuple(array.info.dtype for array in self.arrays),
                stores=tuple(array.store for array in self.arrays),
            ),
            "transform": transform,
            "seeded": transform is not None and wants_seed(transform),
        }
        self.rows = row_set(given["rows"], total)
        if len(self.rows) == 0:
            raise DataError("rows= selects no row; there is nothing to load")
        if len(self.rows) < settings.shard[1]:
            raise SettingError(
                f"shard={settings.shard}: {len(self.rows)} rows are too few for {settings.shard[1]} shards; "
                "give at most one shard a row"
            )
        self.device: str | None = given["device"]
        if self.device is not None:
            from oocloader.tfdata import resolve

            self.device = resolve(self.device)
        self.readers = readers = [array.reader for array in self.arrays]
        self.costs = [reader.cost([self.rows.span(0, len(self.rows))]) for reader in readers]
        self.columns = [
            Column(
                name=array.info.name,
                row_nbytes=nbytes_of_row(array.info.shape, array.info.dtype),
                delivered_row_nbytes=_delivered_row_nbytes(array, cast),
                chunk_rows=reader.chunk_rows,
                scratch_nbytes=reader.scratch_nbytes,
                row_access=reader.row_access,
                mapped_nbytes=reader.mapped_nbytes if settings.mapping else 0,
                chunk_origins=reader.chunk_origins,
                touched_nbytes=cost.touched_nbytes,
            )
            for array, reader, cast, cost in zip(self.arrays, readers, self.casts, self.costs, strict=True)
        ]
        # Of rows in order a shard has the same in every pass: it would never come to read the others.
        lone = not settings.shuffle and settings.residency != "device"
        kept = self.rows.part(*share(len(self.rows), settings.shard)) if lone else self.rows
        self._caches = settings.caching.plan(self.arrays, kept)
        # Made with the first feed, when it is known how much memory windows take.
        self.cached: list[RowReader] | None = None
        self._free_host = budget.free_host_memory()
        self._budgeted, self._bounded = self.columns, False
        if settings.shuffle == "global":
            global_shuffle.refuse_costly(self.columns)
            self._budgeted, self._bounded = global_shuffle.gathered(
                self.columns, settings.host_memory or self._free_host
            )
        self.warnings: list[str] = []
        # Labels whose order matters, until that was looked into.
        self._unordered = [
            array
            for array, is_label in zip(self.arrays, chosen.label, strict=True)
            if is_label and not settings.shuffle
        ]

    @property
    def batch_rows(self) -> int:
        """Rows of the largest batch."""
        return min(self.settings.batch_size, len(self.rows))

    def sizes(self, block: int | str | None, window: int | str | None, device: str | None) -> budget.Sizes:
        """Block, window and memory on `device` (None: not known yet). Raises where budgets are too small."""
        settings = self.settings
        return budget.choose(
            len(self.rows),
            self._budgeted,
            batch_size=self.batch_rows,
            shuffle=bool(settings.shuffle),
            block=1 if settings.shuffle == "global" else block,
            window=window,
            host_memory=settings.host_memory,
            device_memory=settings.device_memory,
            threads=settings.threads,
            free_host_memory=self._free_host,
            free_device_memory=self._free_device(device),
            cached_nbytes=self._caches.memory_nbytes(self.readers),
            streamed=settings.residency != "device",
        )

    def residence(self, sizes: budget.Sizes) -> Resident:
        """What it takes to keep all rows on the device. Raises where that was asked for and a written budget
        is too small."""
        settings = self.settings
        found = Resident.of(
            len(self.rows),
            self.columns,
            batch_size=self.batch_rows,
            window=None if settings.window is None else sizes.window,
            chosen=sizes.window,
        )
        if settings.residency == "device":
            found.check_fits(settings.device_memory)
        return found

    def is_resident(self, residence: Resident, device: str) -> bool:
        """Whether all rows stay on `device`; raises where the host, being the device, has not the memory."""
        from oocloader.tfdata import is_host

        settings, on_host = self.settings, is_host(device)
        kept = residence.stays(
            settings.residency,
            on_host=on_host,
            device_budget=settings.device_memory or self._free_device(device),
        )
        if kept and on_host and settings.device_memory is None:
            residence.check_host(available_host_memory())
        return kept

    def with_resident_rows(self, sizes: budget.Sizes, residence: Resident) -> budget.Sizes:
        """The memory taken where all rows are kept on the device, and none in memory of the host besides."""
        besides = residence.device_nbytes - residence.rows_nbytes
        batches = min(besides, sizes.device.batches)
        device = budget.DeviceMemory(besides - batches, batches, residence.rows_nbytes)
        return dataclasses.replace(sizes, device=device, host=dataclasses.replace(sizes.host, cached=0))

    def read_config(self, sizes: budget.Sizes, progress: Progress) -> ReadConfig:
        """What passes read from, in windows of these sizes."""
        settings = self.settings
        order = Order(
            self.rows,
            shuffle=settings.shuffle,
            seed=settings.seed,
            block=sizes.block,
            window=sizes.window,
            chunk_origins=sizes.chunk_origins,
            shard=settings.shard,
        )
        gather: Gather = "freely" if sizes.gather else "bounded" if self._bounded else "never"
        if self.cached is None:
            spare = (settings.host_memory or self._free_host) - sizes.host_nbytes
            self.cached = self._caches.readers(
                self.readers, gather=settings.mapping and spare >= self._caches.file_nbytes
            )
        return ReadConfig(
            readers=self.cached,
            order=order,
            batch_size=settings.batch_size,
            drop_remainder=settings.drop_remainder,
            threads=sizes.threads,
            prefetch_windows=sizes.prefetch_windows,
            mapping=settings.mapping,
            gather=gather,
            progress=progress,
        )

    def class_table(self) -> Callable[[], tuple[np.ndarray, np.ndarray]] | None:
        """What counts the labels, where rows are weighted by their class."""
        weighted: ClassWeights | None = self.element["class_weights"]
        if weighted is None:
            return None
        reader, rows = self.readers[weighted.label], self.rows
        return lambda: weighted.table(reader, rows)

    def close(self) -> None:
        """Let go of rows that were kept; the store is left open."""
        for reader in self.cached or ():
            if isinstance(reader, CachedReader):
                reader.close()

    def look_at_mixing(self, sizes: budget.Sizes) -> None:
        """Warn where windows of these sizes mix poorly."""
        poor = plan.mixing_warning(self._mixing(sizes), sizes, len(self.rows), batch_size=self.batch_rows)
        if poor is not None:
            self._warn(poor)

    def leave_labels(self) -> None:
        """Rows in order are wanted: say nothing of it."""
        self._unordered = []

    def look_at_labels(self) -> None:
        """Warn, once, of labels in order that are not shuffled."""
        labels, self._unordered = self._unordered, []
        for array in labels:
            if sorted_labels(array.reader, self.rows):
                self._warn(plan.sorted_warning(array.info.name))

    def plan(self, sizes: budget.Sizes, read_config: ReadConfig, residence: Resident) -> plan.Plan:
        """What an epoch in windows of these sizes does and takes."""
        from oocloader.tfdata import expected, is_host

        settings, order, device = self.settings, read_config.order, expected(self.device)
        on_device = self.is_resident(residence, device)
        if on_device:
            sizes = self.with_resident_rows(sizes, residence)
        # What shards keep are all rows: in another epoch others are theirs.
        share = 1.0 if on_device else order.total / len(self.rows)
        arrays = tuple(
            plan.array_plan(column, cost, array.info, share=share)
            for column, cost, array in zip(self.columns, self.costs, self.arrays, strict=True)
        )
        return plan.Plan(
            rows=order.total,
            batch_size=read_config.batch_size,
            batches=read_config.batches,
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
            host=plan.host_plan(
                sizes,
                budget_nbytes=settings.host_memory or self._free_host,
                written=settings.host_memory is not None,
            ),
            device_memory=plan.device_plan(
                sizes,
                budget_nbytes=settings.device_memory or self._free_device(device),
                written=settings.device_memory is not None,
                on_host=is_host(device),
            ),
            mixing=self._mixing(sizes),
            warnings=(*self.warnings, *plan.amplification_warnings(arrays)),
            kept="device" if on_device else "cache" if self._caches else "",
        )

    def _mixing(self, sizes: budget.Sizes) -> float | None:
        return plan.mixing_figure(
            sizes, len(self.rows), shuffle=self.settings.shuffle, batch_size=self.batch_rows
        )

    def _free_device(self, device: str | None) -> int | None:
        """The budget on a GPU where none is written, from its memory; None elsewhere."""
        if self.settings.device_memory is not None or device is None or not device.startswith("/GPU:"):
            return None
        from oocloader.tfdata import memory_nbytes

        return budget.device_share(memory_nbytes(device))

    def _warn(self, what: str) -> None:
        self.warnings.append(what)
        logger.warning("oocloader: %s", what)


def common_rows(arrays: Sequence[StoredArray]) -> int:
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


def _delivered_row_nbytes(array: StoredArray, cast: Cast) -> int:
    return math.prod(array.info.shape[1:]) * dtype_nbytes(cast.delivered(array.info.dtype))
