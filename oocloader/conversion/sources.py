"""The source opened, and the rows that are copied from it, with whatever lies between both."""

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from oocloader.conversion.casting import CastRows
from oocloader.conversion.derived_rows import DerivedArray, Rows, StoredRows
from oocloader.conversion.new_array import NewArray
from oocloader.conversion.options import ConvertOptions
from oocloader.conversion.shuffling import BLOCK_NBYTES, OrderRows, ShuffledRows, order_of
from oocloader.conversion.store_plan import StoredArrayPlan, StorePlan
from oocloader.conversion.transposing import BOX_NBYTES, TransposedRows
from oocloader.errors import SettingError
from oocloader.order import RandomPermutation
from oocloader.reading import BoxReader, JoinedReader, RowReader
from oocloader.stores import Store, open_raw, open_store, side_by_side

# What the threads of a first pass may hold together, unless one alone needs more.
_MEMORY_NBYTES = 160 << 20


def open_source(source: Any, options: ConvertOptions) -> Store:
    """What `open_store` makes of `source`, whose raw files `options` describe. Raises what that raises."""
    shapes = options.shapes
    if not shapes:
        return open_store(source)
    if not isinstance(source, Mapping):
        if shapes.named:
            raise SettingError("shape: is given by name; name the source too, as in {'x': 'x.bin'}")
        return _open_part("", source, options)
    if shapes.every is not None:
        raise SettingError("shape: say which array is a raw file, as in shape={'x': (1000, 64)} (x=1000,64)")
    shapes.check_names(source)
    openers: dict[str, Callable[[], Store]] = {
        name: partial(_open_part, name, value, options) for name, value in source.items()
    }
    return side_by_side(openers, path=", ".join(f"{name}={value}" for name, value in source.items()))


def _open_part(name: str, source: Any, options: ConvertOptions) -> Store:
    shape, dtype = options.shapes.of(name), options.dtypes.of(name)
    if shape is None:
        return open_store({name: source})
    if not isinstance(source, str | os.PathLike):
        raise SettingError(f"shape: describes a file of raw values; the source is {type(source).__name__}")
    path = os.fsdecode(source)
    if dtype is None:
        raise SettingError(f"dtype: {path} is a file of raw values; say which, as in uint8 or >f4")
    return open_raw(path, shape, dtype)


@contextlib.contextmanager
def opened_sources(
    arrays: Mapping[str, NewArray], plan: StorePlan, options: ConvertOptions, *, folder: str, cores: int
) -> Iterator[dict[str, DerivedArray]]:
    """What to copy for each array of the plan. Temporary files in `folder` go with the context."""
    order = None if options.shuffle is None else order_of(plan.rows, options.shuffle)
    with contextlib.ExitStack() as opened:
        sources: dict[str, DerivedArray] = {}
        for array in plan.arrays:
            rows = _rows(arrays[array.name], array, order, options, folder, cores)
            opened.callback(rows.close)
            sources[array.name] = DerivedArray(arrays[array.name].info, rows, arrays[array.name].array)
        yield sources


def _rows(
    new: NewArray,
    plan: StoredArrayPlan,
    order: RandomPermutation | None,
    options: ConvertOptions,
    folder: str,
    cores: int,
) -> Rows:
    source = new.array
    if source is None:
        assert order is not None
        return OrderRows(order, new.first)
    # Pieces are read by several threads at once, which need none of their own: unless they are so large
    # that memory allows for few.
    rows: Rows = StoredRows(source, new.first, threads=max(1, cores // plan.threads))
    if new.transposed:
        threads = _threads(_box_memory(source.reader), cores)
        rows = TransposedRows(
            source.reader, axis=new.axis, start=new.first, shape=plan.shape, folder=folder, threads=threads
        )
    if order is not None:
        reading_nbytes = 0 if new.transposed else source.reader.scratch_nbytes
        rows = ShuffledRows(
            rows,
            order,
            shape=plan.shape,
            dtype=new.stored_dtype,
            bucket_rows=plan.piece_rows,
            folder=folder,
            threads=_threads(2 * BLOCK_NBYTES + reading_nbytes, cores),
        )
    if new.cast:
        where = f"{source.store}: array {source.info.name!r}"
        sample_shape = plan.shape[1:]
        rows = CastRows(
            rows, dtype=new.stored_dtype, sample_shape=sample_shape, lossy=options.lossy, where=where
        )
    return rows


def _box_memory(reader: RowReader) -> int:
    """What a thread needs to read a box and turn it."""
    if isinstance(reader, JoinedReader):
        return max(_box_memory(part) for _, part in reader.parts)
    assert isinstance(reader, BoxReader)
    unit_nbytes = math.prod(reader.chunk_geometry.unit) * reader.dtype.itemsize
    return 2 * max(BOX_NBYTES, unit_nbytes) + 2 * unit_nbytes


def _threads(each_nbytes: int, cores: int) -> int:
    return max(1, min(cores, _MEMORY_NBYTES // each_nbytes))
