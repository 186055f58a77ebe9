"""From the arrays of a source to what is copied: decided first, and opened when the plan is made."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from oocloader.conversion.casting import CastRows, cast_values
from oocloader.conversion.derived_rows import Advance, DerivedArray, Rows, StoredRows, moved
from oocloader.conversion.options import Shaping
from oocloader.conversion.shuffling import BLOCK_NBYTES, OrderRows, ShuffledRows, order_of
from oocloader.conversion.store_plan import ArrayPlan, Plan, Reading, check_rows
from oocloader.conversion.transposing import BOX_NBYTES, TransposedRows
from oocloader.errors import SettingError
from oocloader.order import RandomPermutation
from oocloader.reading import BoxReader, ChunkReader, JoinedReader, RowReader
from oocloader.stores import ArrayInfo, FortranReader, Store, StoredArray, open_raw, open_store, side_by_side

# Rows are read straight where at least this many bytes lie next to each other: less is mostly calls.
_LEAST_RUN_NBYTES = 64 << 10
# Chunks of so many rows that they take more than this would be decoded for piece after piece.
_MOST_BAND_NBYTES = 32 << 20
# What the threads of a first pass may hold together, unless one alone needs more.
_MEMORY_NBYTES = 160 << 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """An array of the new store, and how its rows are made.

    - `array`: of the source; `None` for the order of a shuffle
    - `info`: of the new array, under the name in the source
    - `fill`: what stands for values that are not there, 0-d
    - `axis`: of the source that becomes the rows; `first`: rows before those that are taken
    - `transposed`: whether rows come by way of boxes
    - `cast`: whether the dtype is another than in the source
    """

    array: StoredArray | None
    info: ArrayInfo
    fill: np.ndarray
    axis: int = 0
    first: int = 0
    transposed: bool = False
    cast: bool = False

    @property
    def stored_dtype(self) -> np.dtype:
        """That of the rows before they are cast."""
        return self.info.dtype if self.array is None else self.array.info.dtype

    @property
    def stored_nbytes(self) -> int:
        """Bytes of the rows before they are cast."""
        return math.prod(self.info.shape) * self.stored_dtype.itemsize

    def reading(self, *, shuffled: bool) -> Reading:
        """What making its rows takes."""
        if self.array is None:
            return Reading()
        reader = self.array.reader
        ratio = self.stored_dtype.itemsize / self.info.dtype.itemsize
        # A bucket of rows, rows to be cast, the part of a box: each beside the rows of the piece.
        copies = ratio * (self.cast + shuffled + 0.5 * self.transposed)
        if shuffled or self.transposed:
            return Reading(copies=copies, scattered=True)
        return Reading(reader.chunk_rows, reader.scratch_nbytes, copies=copies)

    def scratch_nbytes(self, *, shuffled: bool) -> int:
        """Room that its temporary files take."""
        return 0 if self.array is None else self.stored_nbytes * (self.transposed + shuffled)


def open_source(source: Any, asked: Shaping) -> Store:
    """What `open_store` makes of `source`, whose raw files `asked` describes. Raises what that raises."""
    shapes = asked.shapes
    if not shapes:
        return open_store(source)
    if not isinstance(source, Mapping):
        if shapes.named:
            raise SettingError("shape: is given by name; name the source too, as in {'x': 'x.bin'}")
        return _open_raw("", source, asked)
    if shapes.every is not None:
        raise SettingError("shape: say which array is a raw file, as in shape={'x': (1000, 64)} (x=1000,64)")
    shapes.check_names(source)
    stores: dict[str, Store] = {}
    try:
        for name, value in source.items():
            raw = shapes.of(name) is not None
            stores[name] = _open_raw(name, value, asked) if raw else open_store({name: value})
        return side_by_side(stores, path=", ".join(f"{name}={value}" for name, value in source.items()))
    except BaseException:
        for store in stores.values():
            store.close()
        raise


def _open_raw(name: str, source: Any, asked: Shaping) -> Store:
    shape, dtype = asked.shapes.of(name), asked.dtypes.of(name)
    if not isinstance(source, str | os.PathLike):
        raise SettingError(f"shape: describes a file of raw values; the source is {type(source).__name__}")
    path = os.fsdecode(source)
    assert shape is not None
    if dtype is None:
        raise SettingError(f"dtype: {path} is a file of raw values; say which, as in uint8 or >f4")
    return open_raw(path, shape, dtype)


def raw_names(names: Mapping[str, str], asked: Shaping) -> frozenset[str]:
    """The new names of those arrays that come from raw files, so that `dtypes` describes them already."""
    if asked.shapes.every is not None:
        return frozenset(names)
    return frozenset(new for new in names if asked.shapes.of(new) is not None)


def wanted_arrays(store: Store, names: Mapping[str, str], asked: Shaping) -> dict[str, Wanted]:
    """Each array of the new store by its name there; `names` maps these to those in the source.

    The arrays can be loaded. Raises `SettingError` where an option does not fit one, `DataError` where the
    numbers of rows differ.
    """
    known = {*names, *names.values()}
    for option in (asked.dtypes, asked.axes):
        option.check_names(known)
    raw = raw_names(names, asked)
    arrays = {new: store[name] for new, name in names.items()}
    axes = {new: _axis(arrays[new].info, asked.axes.of(new, name) or 0) for new, name in names.items()}
    check_rows(
        {array.info.name: array.info.shape[axes[new]] for new, array in arrays.items()}, where=store.path
    )
    wanted = {}
    for new, name in names.items():
        dtype = None if new in raw else asked.dtypes.of(new, name)
        wanted[new] = _wanted(arrays[new], dtype, axes[new], asked)
    index = asked.shuffle_index
    if index is not None:
        if index in wanted:
            raise SettingError(f"shuffle_index: there is an array {index!r} already; choose another name")
        rows = next(iter(wanted.values())).info.shape[0]
        info = ArrayInfo(index, (rows,), np.dtype(np.int64))
        first = next(iter(wanted.values())).first
        wanted[index] = Wanted(None, info, np.zeros((), np.int64), first=first)
    return wanted


def _axis(info: ArrayInfo, axis: int) -> int:
    ndim = len(info.shape)
    if not -ndim <= axis < ndim:
        raise SettingError(
            f"axis: array {info.name!r} has the {ndim} axes of shape {info.shape}, got {axis}; expected"
            f" {-ndim} to {ndim - 1}",
            array=info.name,
        )
    return axis % ndim


def _wanted(array: StoredArray, dtype: np.dtype | None, axis: int, asked: Shaping) -> Wanted:
    info = array.info
    shape = moved(info.shape, axis)
    first, stop, _ = slice(asked.first, asked.stop).indices(shape[0])
    if stop <= first:
        raise SettingError(
            f"rows: array {info.name!r} has {shape[0]:,} rows, of which {_slice(asked)} takes none",
            array=info.name,
        )
    new_dtype = info.dtype if dtype is None else dtype.newbyteorder("=")
    return Wanted(
        array,
        dataclasses.replace(
            info,
            shape=(stop - first, *shape[1:]),
            dtype=new_dtype,
            chunk_shape=None,
            codecs=(),
            attrs=_attributes(info.attrs, axis, len(info.shape)),
        ),
        _fill(array.reader, info.dtype, new_dtype),
        axis=axis,
        first=first,
        transposed=is_spread(array.reader, axis),
        cast=new_dtype != info.dtype,
    )


def _slice(asked: Shaping) -> str:
    return f"{'' if asked.first is None else asked.first}:{'' if asked.stop is None else asked.stop}"


# What HDF5 and netCDF keep among the attributes to link axes with their scales, by numbers of their own.
_OF_SCALES = frozenset(("_Netcdf4Dimid", "_Netcdf4Coordinates", "DIMENSION_LIST", "REFERENCE_LIST"))


def _attributes(attrs: Mapping[str, Any], axis: int, ndim: int) -> dict[str, Any]:
    scale = attrs.get("CLASS") == "DIMENSION_SCALE"
    kept = {
        name: value
        for name, value in attrs.items()
        if name not in _OF_SCALES and not (scale and name in ("CLASS", "NAME"))
    }
    names = kept.get("_ARRAY_DIMENSIONS")  # the names of the axes, as xarray keeps them
    if isinstance(names, list) and len(names) == ndim:
        kept["_ARRAY_DIMENSIONS"] = [names[axis], *names[:axis], *names[axis + 1 :]]
    return kept


def _fill(reader: RowReader, stored: np.dtype, new: np.dtype) -> np.ndarray:
    """The value that stands for what is not there, bit by bit, if the new dtype has it; else zero."""
    while isinstance(reader, JoinedReader):
        _, reader = reader.parts[0]
    fill = reader.fill if isinstance(reader, ChunkReader) else np.zeros((), stored)
    if new == stored:
        return fill
    cast = np.zeros(1, new)
    lost = cast_values(fill.reshape(1), cast, lossy=False)
    return np.zeros((), new) if lost is not None else cast.reshape(())


def is_spread(reader: RowReader, axis: int) -> bool:
    """Whether rows along `axis` are spread so widely that pieces of them cannot be read one by one."""
    if isinstance(reader, JoinedReader):
        return any(is_spread(part, axis) for _, part in reader.parts)
    if axis != 0:
        return True
    row_nbytes = reader.row_nbytes
    chunk_rows = reader.chunk_rows
    if chunk_rows is None or (chunk_rows >= reader.shape[0] and reader.shape[0] * row_nbytes <= BOX_NBYTES):
        return False
    if isinstance(reader, FortranReader):
        return reader.run_nbytes < _LEAST_RUN_NBYTES
    if isinstance(reader, BoxReader) and reader.chunk_geometry.order[0] != 0 and not reader.row_access:
        return True
    return not reader.row_access and chunk_rows * row_nbytes > _MOST_BAND_NBYTES


@contextmanager
def opened_sources(
    wanted: Mapping[str, Wanted], plan: Plan, asked: Shaping, *, folder: str, cores: int
) -> Iterator[dict[str, StoredArray]]:
    """What to copy for each array of the plan. Temporary files in `folder` go with the context."""
    order = None if asked.shuffle is None else order_of(plan.rows, asked.shuffle)
    arrays: dict[str, StoredArray] = {}
    try:
        for array in plan.arrays:
            arrays[array.name] = _opened(wanted[array.name], array, order, asked, folder, cores)
        yield arrays
    finally:
        for opened in arrays.values():
            if isinstance(opened, DerivedArray):
                opened.close()


def _opened(
    wanted: Wanted, plan: ArrayPlan, order: RandomPermutation | None, asked: Shaping, folder: str, cores: int
) -> StoredArray:
    base = wanted.array
    if base is None:
        assert order is not None
        return DerivedArray(wanted.info, OrderRows(order, wanted.first), None)
    # Pieces are read by several threads at once, which need none of their own: unless they are so large
    # that memory allows for few.
    rows: Rows = StoredRows(base, wanted.first, threads=max(1, cores // plan.threads))
    if wanted.transposed:
        rows = TransposedRows(
            base.reader,
            axis=wanted.axis,
            start=wanted.first,
            shape=plan.shape,
            folder=folder,
            threads=_threads(_box_memory(base.reader), cores),
        )
    if order is not None:
        rows = ShuffledRows(
            rows,
            order,
            shape=plan.shape,
            dtype=wanted.stored_dtype,
            bucket_rows=plan.piece_rows,
            folder=folder,
            threads=_threads(
                2 * BLOCK_NBYTES + (0 if wanted.transposed else base.reader.scratch_nbytes), cores
            ),
        )
    if wanted.cast:
        rows = CastRows(
            rows,
            dtype=wanted.stored_dtype,
            sample_shape=plan.shape[1:],
            lossy=asked.lossy,
            where=f"{base.store}: array {base.info.name!r}",
        )
    return DerivedArray(wanted.info, rows, base)


def _box_memory(reader: RowReader) -> int:
    """What a thread needs to read a box and turn it."""
    if isinstance(reader, JoinedReader):
        return max(_box_memory(part) for _, part in reader.parts)
    assert isinstance(reader, BoxReader)
    unit_nbytes = math.prod(reader.chunk_geometry.unit) * reader.dtype.itemsize
    return 2 * max(BOX_NBYTES, unit_nbytes) + 2 * unit_nbytes


def _threads(each_nbytes: int, cores: int) -> int:
    return max(1, min(cores, _MEMORY_NBYTES // each_nbytes))


def prepare(array: StoredArray, advance: Advance) -> None:
    """Make the pass over the source that comes before the rows of `array` can be read, where there is one."""
    if isinstance(array, DerivedArray):
        array.prepare(advance)
