"""Writes Zarr format 3 or 2: metadata by zarr-python, chunk and shard files directly.

The shard format: https://zarr-specs.readthedocs.io, codec `sharding_indexed`, index at the end.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from typing import Any

import google_crc32c
import numcodecs
import numpy as np
import zarr

from oocloader.conversion.encode import zarr2_compressor, zarr_codecs
from oocloader.conversion.extents import Extent, Placement
from oocloader.conversion.sinks import Sink
from oocloader.conversion.store_plan import StoredArrayPlan, StorePlan

# Stands in a shard's index for a chunk that is not there.
_MISSING = np.uint64(2**64 - 1)
_METADATA = frozenset(("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"))


class ZarrWriter:
    """A new Zarr store in the folder `path`, or the rest of one that was broken off.

    An only array named "" is the root of the store.
    """

    def __init__(self, path: str, plan: StorePlan) -> None:
        self._path = path
        self._prefix = ["c"] if plan.zarr_format == 3 else []
        _remove_metadata(path)
        at_root = [array.name for array in plan.arrays] == [""]
        group = None if at_root else zarr.create_group(path, zarr_format=plan.zarr_format)
        for array in plan.arrays:
            options = _options(array, plan)
            with warnings.catch_warnings():
                # lz4 is not in the specification; the documentation says so to the user.
                warnings.filterwarnings("ignore", message="Numcodecs codecs are not in the Zarr version 3")
                if group is None:
                    zarr.create_array(path, zarr_format=plan.zarr_format, **options)
                else:
                    group.create_array(array.name, **options)
            if plan.zarr_format == 3:
                _record_nan(os.path.join(self._folder(array), "zarr.json"), array)

    def _folder(self, array: StoredArrayPlan) -> str:
        return os.path.join(self._path, *array.name.split("/"))

    def sink(self, array: StoredArrayPlan) -> _Files:
        """Where the chunks of one array of the plan go."""
        return _Files(self._folder(array), array, self._prefix)

    def close(self) -> None:
        """Nothing is open."""

    abandon = close


def _remove_metadata(path: str) -> None:
    """Have metadata written anew, whatever became of it."""
    for folder, _, names in os.walk(path):
        for name in _METADATA.intersection(names):
            os.unlink(os.path.join(folder, name))


def _options(array: StoredArrayPlan, plan: StorePlan) -> dict[str, Any]:
    options: dict[str, Any] = {
        "shape": array.shape,
        "dtype": array.dtype,
        "chunks": array.chunk_shape,
        "filters": None,
        # Every chunk is written, so that it never stands for a value.
        "fill_value": array.fill_value[()],
        "attributes": {name: _json(value) for name, value in array.attrs.items()},
    }
    if plan.zarr_format == 2:
        compressor = zarr2_compressor(plan.codec, array.dtype.itemsize)
        return {
            **options,
            "compressors": None if compressor is None else numcodecs.get_codec(compressor),
            "chunk_key_encoding": {"name": "v2", "separator": "."},
        }
    return {
        **options,
        "shards": None if array.shard_rows is None else (array.shard_rows, *array.shape[1:]),
        "compressors": _compressors(plan, array) or None,
        # One folder for all chunks, in place of one for each axis and row of them.
        "chunk_key_encoding": {"name": "default", "separator": "."},
    }


def _json(value: Any) -> Any:
    """An attribute as JSON has it: complex numbers as pairs, as Zarr format 3 spells those of fill values."""
    if isinstance(value, complex):
        return [value.real, value.imag]
    return [_json(item) for item in value] if isinstance(value, list) else value


def _compressors(plan: StorePlan, array: StoredArrayPlan) -> list[dict[str, Any]]:
    codecs = zarr_codecs(plan.codec, array.dtype.itemsize)
    return [*codecs, {"name": "crc32c"}] if plan.checksum else codecs


def _record_nan(path: str, array: StoredArrayPlan) -> None:
    """Write a fill value that is another NaN than the usual one bit by bit, which zarr-python does not."""
    fill = array.fill_value
    if array.dtype.kind not in "fc" or not np.isnan(fill):
        return
    part = np.dtype(f"f{array.dtype.itemsize // (2 if array.dtype.kind == 'c' else 1)}")
    values = [_json_float(value) for value in fill.reshape(1).view(part)]
    with open(path, "r+", encoding="utf-8") as file:
        document = json.load(file)
        document["fill_value"] = values if array.dtype.kind == "c" else values[0]
        file.seek(0)
        file.truncate()
        json.dump(document, file, indent=2)


def _json_float(value: np.floating) -> str | float:
    """As Zarr format 3 spells it: NaNs other than the usual one by their bits."""
    if not np.isnan(value):
        return float(value) if np.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")
    usual = value.dtype.type(np.nan)
    if usual.tobytes() == value.tobytes():
        return "NaN"
    bits = int(value.view(f"u{value.dtype.itemsize}"))
    return f"0x{bits:0{2 * value.dtype.itemsize}x}"


class _Files(Sink):
    """The files of one array, one a chunk or one a shard."""

    def __init__(self, folder: str, array: StoredArrayPlan, prefix: list[str]) -> None:
        super().__init__()
        self._prefix = prefix
        self._folder = folder
        self._array = array
        self._per_shard = 1 if array.shard_rows is None else array.shard_rows // array.chunk_rows
        self._index: np.ndarray | None = None
        if array.shard_rows is not None:
            self._index = np.full((self._per_shard, 2), _MISSING, "<u8")
        self._end = 0  # of the chunks that lie in the last file so far

    def path_of(self, chunk: int) -> str:
        number = str(chunk // self._per_shard)
        name = ".".join([*self._prefix, number, *["0"] * (len(self._array.shape) - 1)])
        return os.path.join(self._folder, name)

    def place(self, first_chunk: int, sizes: Sequence[int]) -> Placement:
        placement = Placement([], [])
        done = 0
        while done < len(sizes):
            chunk = first_chunk + done
            here = sizes[done : done + self._per_shard - chunk % self._per_shard]
            placement.extents.append(self._extent(chunk, here, offsets=placement.offsets))
            done += len(here)
        return placement

    def _extent(self, chunk: int, sizes: Sequence[int], *, offsets: list[int]) -> Extent:
        """That of chunks in one file; their `offsets` are added."""
        within = chunk % self._per_shard
        ends = within + len(sizes) == self._per_shard or chunk + len(sizes) == self._array.chunks
        start = self._end if within else 0
        stops = start + np.cumsum(sizes, dtype=np.int64)
        offsets += (stops - sizes).tolist()
        tail = b""
        if self._index is not None:
            self._index[within : within + len(sizes)] = np.stack((stops - sizes, sizes), axis=1)
            if ends:
                index = self._index.tobytes()
                tail = index + google_crc32c.value(index).to_bytes(4, "little")
                self._index[:] = _MISSING
        self._end = int(stops[-1])
        self.stored_nbytes += self._end - start + len(tail)
        return Extent(self.path_of(chunk), start, self._end - start, tail, ends)
