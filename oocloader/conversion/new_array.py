"""The arrays of the new store, decided from those of the source: which rows, of which dtype, by which way."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from oocloader.conversion.casting import cast_values
from oocloader.conversion.derived_rows import moved
from oocloader.conversion.options import ConvertOptions
from oocloader.conversion.store_plan import ReadPlan, check_rows
from oocloader.conversion.transposing import BOX_NBYTES
from oocloader.errors import SettingError
from oocloader.reading import BoxReader, ChunkReader, JoinedReader, RowReader
from oocloader.sizes import nbytes_of_row
from oocloader.stores import ArrayInfo, FortranReader, Store, StoredArray

# Rows are read straight where at least this many bytes lie next to each other: less is mostly calls.
_LEAST_RUN_NBYTES = 64 << 10
# Chunks of so many rows that they take more than this would be decoded for piece after piece.
_MOST_BAND_NBYTES = 32 << 20
# What HDF5 and netCDF keep among the attributes to link axes with their scales, by numbers of their own.
_OF_SCALES = frozenset(("_Netcdf4Dimid", "_Netcdf4Coordinates", "DIMENSION_LIST", "REFERENCE_LIST"))


@dataclass(frozen=True, slots=True)
class NewArray:
    """An array of the new store, and how its rows are made.

    - `array`: of the source; `None` for the order of a shuffle
    - `info`: of the new array, under the name in the source
    - `fill`: what stands for values that are not there, 0-d
    - `axis`: of the source that becomes the rows; `first`: rows before those that are taken
    - `transposed`, `shuffled`: whether rows come by way of boxes, and through buckets
    - `cast`: whether the dtype is another than in the source
    """

    array: StoredArray | None
    info: ArrayInfo
    fill: np.ndarray
    axis: int = 0
    first: int = 0
    transposed: bool = False
    shuffled: bool = False
    cast: bool = False

    @property
    def stored_dtype(self) -> np.dtype:
        """That of the rows before they are cast."""
        return self.info.dtype if self.array is None else self.array.info.dtype

    @property
    def stored_nbytes(self) -> int:
        """Bytes of the rows before they are cast."""
        return math.prod(self.info.shape) * self.stored_dtype.itemsize

    @property
    def scratch_nbytes(self) -> int:
        """Room that its temporary files take."""
        return 0 if self.array is None else self.stored_nbytes * (self.transposed + self.shuffled)

    @property
    def reading(self) -> ReadPlan:
        """What making its rows takes."""
        if self.array is None:
            return ReadPlan()
        ratio = self.stored_dtype.itemsize / self.info.dtype.itemsize
        # A bucket of rows, rows to be cast, the part of a box: each beside the rows of the piece.
        copies = ratio * (self.cast + self.shuffled + 0.5 * self.transposed)
        if self.shuffled or self.transposed:
            return ReadPlan(copies=copies, scattered=True)
        reader = self.array.reader
        return ReadPlan(reader.chunk_rows, reader.scratch_nbytes, copies=copies)


def new_arrays(store: Store, names: Mapping[str, str], options: ConvertOptions) -> dict[str, NewArray]:
    """Each array of the new store by its name there; `names` maps these to those in the source.

    The arrays can be loaded. Raises `SettingError` where an option does not fit one, `DataError` where the
    numbers of rows differ.
    """
    for option in (options.dtypes, options.axes):
        option.check_names({*names, *names.values()})
    sources = {new: store[name] for new, name in names.items()}
    axes = {new: _axis(sources[new].info, options.axes.of(new, name) or 0) for new, name in names.items()}
    rows = {source.info.name: source.info.shape[axes[new]] for new, source in sources.items()}
    check_rows(rows, where=store.path)
    arrays = {}
    for new, name in names.items():
        # The dtype of a raw file says what its values are, not what becomes of them.
        raw = options.shapes.every is not None or options.shapes.of(new) is not None
        dtype = None if raw else options.dtypes.of(new, name)
        arrays[new] = _new_array(sources[new], dtype, axes[new], options)
    index = options.shuffle_index
    if index is not None:
        if index in arrays:
            raise SettingError(f"shuffle_index: there is an array {index!r} already; choose another name")
        example = next(iter(arrays.values()))
        info = ArrayInfo(index, example.info.shape[:1], np.dtype(np.int64))
        arrays[index] = NewArray(None, info, np.zeros((), np.int64), first=example.first)
    return arrays


def _axis(info: ArrayInfo, axis: int) -> int:
    ndim = len(info.shape)
    if not -ndim <= axis < ndim:
        raise SettingError(
            f"axis: array {info.name!r} has the {ndim} axes of shape {info.shape}, got {axis}; expected"
            f" {-ndim} to {ndim - 1}",
            array=info.name,
        )
    return axis % ndim


def _new_array(source: StoredArray, dtype: np.dtype | None, axis: int, options: ConvertOptions) -> NewArray:
    info = source.info
    shape = moved(info.shape, axis)
    first, stop, _ = slice(options.first, options.stop).indices(shape[0])
    if stop <= first:
        taken = ":".join("" if at is None else str(at) for at in (options.first, options.stop))
        what = f"rows: array {info.name!r} has {shape[0]:,} rows, of which {taken} takes none"
        raise SettingError(what, array=info.name)
    new_dtype = info.dtype if dtype is None else dtype.newbyteorder("=")
    return NewArray(
        source,
        dataclasses.replace(
            info,
            shape=(stop - first, *shape[1:]),
            dtype=new_dtype,
            chunk_shape=None,
            codecs=(),
            attrs=_attributes(info.attrs, axis, len(info.shape)),
        ),
        _fill(source.reader, info.dtype, new_dtype),
        axis=axis,
        first=first,
        transposed=is_spread(source.reader, axis),
        shuffled=options.shuffle is not None,
        cast=new_dtype != info.dtype,
    )


def _attributes(attrs: Mapping[str, Any], axis: int, ndim: int) -> dict[str, Any]:
    left_out = _OF_SCALES
    if attrs.get("CLASS") == "DIMENSION_SCALE":
        left_out |= {"CLASS", "NAME"}
    taken = {name: value for name, value in attrs.items() if name not in left_out}
    names = taken.get("_ARRAY_DIMENSIONS")  # the names of the axes, as xarray has them
    if isinstance(names, list) and len(names) == ndim:
        taken["_ARRAY_DIMENSIONS"] = [names[axis], *names[:axis], *names[axis + 1 :]]
    return taken


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
    row_nbytes = nbytes_of_row(reader.shape, reader.dtype)
    chunk_rows = reader.chunk_rows
    if chunk_rows is None or (chunk_rows >= reader.shape[0] and reader.shape[0] * row_nbytes <= BOX_NBYTES):
        return False
    if isinstance(reader, FortranReader):
        return reader.run_nbytes < _LEAST_RUN_NBYTES
    if isinstance(reader, BoxReader) and reader.chunk_geometry.order[0] != 0 and not reader.row_access:
        return True
    return not reader.row_access and chunk_rows * row_nbytes > _MOST_BAND_NBYTES
