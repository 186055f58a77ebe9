"""The arrays that a loader reads, which of their rows, and what these cost."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oocloader.errors import DataError, SettingError
from oocloader.loader.settings import LoaderOptions
from oocloader.memory import Column, Cost
from oocloader.order import Cast, RowSet, dtype_nbytes, fields, row_set
from oocloader.pipeline import ClassWeights, class_weights
from oocloader.reading import RowReader
from oocloader.sizes import nbytes_of_row
from oocloader.stores import Store, StoredArray


@dataclass(frozen=True, slots=True, eq=False)
class LoadedArrays:
    """The arrays of an element in turn, and the rows of each that are loaded.

    - `structure`: of an element, with indices of arrays as leaves; `casts`: of each array
    - `columns`, `costs`: what a row of each array takes, and what reading all of `rows` once does
    - `is_label`: whether each array is a label
    """

    arrays: tuple[StoredArray, ...]
    rows: RowSet
    structure: Any
    casts: tuple[Cast, ...]
    is_label: tuple[bool, ...]
    class_weights: ClassWeights | None
    readers: tuple[RowReader, ...]
    columns: tuple[Column, ...]
    costs: tuple[Cost, ...]

    @property
    def stored_rows(self) -> int:
        """Rows of every array, loaded or not."""
        return self.arrays[0].info.shape[0]

    @property
    def class_table(self) -> Callable[[], tuple[np.ndarray, np.ndarray]] | None:
        """What counts the labels, where rows are weighted by their class."""
        weights = self.class_weights
        if weights is None:
            return None
        return functools.partial(weights.table, self.readers[weights.label], self.rows)

    @property
    def row_nbytes(self) -> int:
        """Bytes of a row of all arrays."""
        return sum(column.row_nbytes for column in self.columns)


def loaded_arrays(store: Store, options: LoaderOptions) -> LoadedArrays:
    """What `options` name of a store. Raises `OocloaderError` children where they do not fit the data."""
    features = store.only_array() if options.features is None else options.features
    chosen = fields(features, options.labels, options.sample_weight)
    arrays = tuple(store[name] for name in chosen.names)
    total = common_rows(arrays)
    casts = chosen.casts(options.dtype, options.scale, options.offset)
    infos = [array.info for array in arrays]
    weights = class_weights(
        options.class_weight,
        chosen.structure,
        names=chosen.names,
        shapes=tuple(info.shape for info in infos),
        dtypes=tuple(info.dtype for info in infos),
        stores=tuple(array.store for array in arrays),
    )
    rows = _selected_rows(options, total)
    readers = tuple(array.reader for array in arrays)
    costs = tuple(reader.cost([rows.span(0, len(rows))]) for reader in readers)
    columns = tuple(
        _column(array, cast, cost, mapping=options.mapping)
        for array, cast, cost in zip(arrays, casts, costs, strict=True)
    )
    return LoadedArrays(arrays, rows, chosen.structure, casts, chosen.label, weights, readers, columns, costs)


def common_rows(arrays: Sequence[StoredArray]) -> int:
    """Rows of every array, or the error that names two of unequal length."""
    first = arrays[0]
    for array in arrays[1:]:
        if array.info.shape[0] != first.info.shape[0]:
            raise DataError(
                f"arrays differ in length: {first.info.name!r} of {first.store} has "
                f"{first.info.shape[0]} rows, {array.info.name!r} of {array.store} has "
                f"{array.info.shape[0]}; rows are matched by their number, so both need the same",
                file=array.store,
                array=array.info.name,
            )
    return first.info.shape[0]


def _selected_rows(options: LoaderOptions, total: int) -> RowSet:
    rows = row_set(options.rows, total)
    if len(rows) == 0:
        raise DataError("rows= selects no row; there is nothing to load")
    shards = options.shard[1]
    if len(rows) < shards:
        raise SettingError(
            f"shard={options.shard}: {len(rows)} rows are too few for {shards} shards; give at most one "
            "shard a row"
        )
    return rows


def _column(array: StoredArray, cast: Cast, cost: Cost, *, mapping: bool) -> Column:
    info, reader = array.info, array.reader
    return Column(
        name=info.name,
        row_nbytes=nbytes_of_row(info.shape, info.dtype),
        delivered_row_nbytes=math.prod(info.shape[1:]) * dtype_nbytes(cast.delivered(info.dtype)),
        chunk_rows=reader.chunk_rows,
        scratch_nbytes=reader.scratch_nbytes,
        row_access=reader.row_access,
        mapped_nbytes=reader.mapped_nbytes if mapping else 0,
        chunk_origins=reader.chunk_origins,
        touched_nbytes=cost.touched_nbytes,
    )
