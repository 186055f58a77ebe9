"""The whole of a conversion: plan, write aside, check, sync, publish."""

from __future__ import annotations

import contextlib
import errno
import json
import operator
import os
import time
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from tqdm import tqdm

from oocloader.conversion.check import check_store
from oocloader.conversion.copying import Sink, copy_array
from oocloader.conversion.encode import Codec, Format, encoder
from oocloader.conversion.plan import ArrayPlan, Plan, Reading, check_sources, make_plan
from oocloader.conversion.publish import aside, check_destination, publish, size_of, sync
from oocloader.conversion.report import ConvertReport
from oocloader.errors import OocloaderError, SettingError, StoreError
from oocloader.stores import Store, StoredArray, open_store

_NO_NAMES = frozenset(("", ".", "..", "zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"))
_SUFFIXES: dict[str, Format] = {".zarr": "zarr", ".h5": "hdf5", ".hdf5": "hdf5"}


def convert(
    source: Any,
    destination: str | os.PathLike[str],
    *,
    codec: str = "none",
    chunk_rows: int | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> ConvertReport:
    """Write a source as a new chunked store, which appears under its name only when it is complete.

    - `source`: anything `open_store` takes. `{"x": "x.npy", "y": "y.npy"}` puts several arrays of
      equally many rows into one store. An only array without a name (`.npy`, in memory) becomes the
      root of a Zarr store; in HDF5 it is named after the file.
    - `destination`: ends in `.zarr` (Zarr format 3), `.h5` or `.hdf5`.
    - `codec`: `none`, `zstd`, `gzip`, `lz4` or `blosc` (LZ4 behind a byte shuffle), with `:level` if
      wanted. Uncompressed chunks load fastest from memory and fast disks, and each row can be read
      alone; zstd pays where the disk is slower than zstd decodes (2 to 3 GB/s on two cores) and the
      data gets smaller, or room counts. In HDF5, programs other than this one need the package
      hdf5plugin for zstd, lz4 and blosc; lz4 in Zarr is not in its specification and is read by
      zarr-python.
    - `chunk_rows`: rows of a chunk, for every array; else near 8 MiB, at most a thousandth of the rows,
      but at least 64 KiB. Where that makes many chunks, Zarr chunks are packed into shards.
    - `overwrite`: replace what is there once the new store is complete.
    - `progress`: draw a bar on stderr, if that is a terminal.

    The rows are copied bit by bit; attributes are not. Memory stays under 300 MiB, whatever the size of
    the source, unless a chunk of source or destination is larger than 32 MiB. Raises `OocloaderError`
    children; then, and after Ctrl-C, nothing is left behind.
    """
    started = time.perf_counter()
    chosen = Codec.parse(codec)
    path = _checked_path(destination)
    store_format = _format_of(path)
    chunk_rows = _checked_rows(chunk_rows)
    with open_store(source) as store:
        names = _new_names(source, store, store_format)
        for name in names:
            _check_name(name)
        check_sources((store.arrays[name] for name in names.values()), where=store.path)
        sources = {new: store[name] for new, name in names.items()}
        plan = make_plan(
            {new: (array.info, _reading(array)) for new, array in sources.items()},
            store_format=store_format,
            codec=chosen,
            chunk_rows=chunk_rows,
            cores=_cores(),
        )
        real = check_destination(path, overwrite=overwrite, needed_nbytes=plan.needed_nbytes)
        with _explained(path, plan), aside(real) as new_path:
            stored = _write(new_path, plan, sources, progress=progress)
            written = time.perf_counter()
            check_store(new_path, plan, sources, least_nbytes=stored, destination=path)
            checked = time.perf_counter()
            sync(new_path)
            bytes_out = size_of(new_path)
            publish(new_path, real, overwrite=overwrite)
    finished = time.perf_counter()
    return ConvertReport(
        destination=path,
        format=store_format,
        codec=str(chosen),
        arrays=tuple(array.name for array in plan.arrays),
        rows=plan.rows,
        bytes_in=plan.nbytes,
        bytes_out=bytes_out,
        seconds=finished - started,
        seconds_writing=written - started,
        seconds_checking=checked - written,
        seconds_syncing=finished - checked,
    )


def _checked_path(destination: str | os.PathLike[str]) -> str:
    try:
        path = os.fspath(destination)
    except TypeError:
        raise SettingError(f"destination: expected a path, got {destination!r}") from None
    return os.path.expanduser(os.fsdecode(path)).rstrip(os.sep) or os.sep


def _format_of(path: str) -> Format:
    suffix = os.path.splitext(path)[1].lower()
    found = _SUFFIXES.get(suffix)
    if found is None:
        raise SettingError(
            f"{path}: the ending says which format to write, .zarr, .h5 or .hdf5; got {suffix or 'none'!r}",
            file=path,
        )
    return found


def _checked_rows(chunk_rows: int | None) -> int | None:
    if chunk_rows is None:
        return None
    try:
        rows = operator.index(chunk_rows)
    except TypeError:
        rows = 0
    if rows < 1:
        raise SettingError(f"chunk_rows: expected a whole number of at least 1, got {chunk_rows!r}")
    return rows


def _check_name(name: str) -> None:
    """Refuse a name that is no path of groups in either format, or that Zarr keeps its metadata under."""
    parts = name.split("/")
    if name and any(part in _NO_NAMES for part in parts):
        raise SettingError(
            f"{name!r} cannot be the name of an array: use letters, digits, '_', '-' and '.', "
            "and '/' between the names of groups"
        )


def _new_names(source: Any, store: Store, store_format: Format) -> dict[str, str]:
    """Names in the new store -> names in the source; "" is the root of a Zarr store."""
    names = list(store.arrays)
    if not names:
        raise StoreError(f"{store.path}: holds no arrays, so there is nothing to convert", file=store.path)
    if store_format == "zarr" and len(names) == 1 and _is_nameless(source):
        return {"": names[0]}
    return {name: name for name in names}


def _reading(array: StoredArray) -> Reading:
    reader = array.reader
    return Reading(reader.chunk_rows, reader.scratch_nbytes)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _is_nameless(source: Any) -> bool:
    if isinstance(source, str | os.PathLike):
        path = os.fsdecode(source)
        return path.lower().endswith(".npy") or _is_nameless_folder(os.path.expanduser(path))
    if isinstance(source, list | tuple):
        return all(_is_nameless(part) for part in source)
    return isinstance(source, np.ndarray)


def _is_nameless_folder(path: str) -> bool:
    """Whether a folder is a Zarr array at the root, or `.npy` parts, rather than a Zarr group."""
    if not os.path.isdir(path):
        return False
    names = os.listdir(path)
    if "zarr.json" in names:
        with open(os.path.join(path, "zarr.json"), "rb") as file:
            return bool(json.load(file)["node_type"] == "array")
    return ".zarray" in names or any(name.endswith(".npy") for name in names)


class _Writer(Protocol):
    def sink(self, array: ArrayPlan) -> _CountingSink: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...


class _Bar(tqdm):  # type: ignore[misc] # tqdm has no stubs
    monitor_interval = 0  # else a thread is started, which outlives the bar


class _CountingSink(Sink, Protocol):
    stored_nbytes: int


def _write(path: str, plan: Plan, sources: dict[str, StoredArray], *, progress: bool) -> int:
    """Write the store; the bytes of its chunks."""
    stored = 0
    # disable=None: silent where stderr is no terminal.
    with _Bar(total=plan.nbytes, unit="B", unit_scale=True, disable=None if progress else True) as bar:
        writer = _writer(path, plan)
        try:
            for array in plan.arrays:
                sink = writer.sink(array)
                copy_array(
                    sources[array.name],
                    sink,
                    array,
                    encode=encoder(plan.codec, plan.store_format, array.dtype.itemsize),
                    advance=bar.update,
                )
                stored += sink.stored_nbytes
        except BaseException:
            writer.abandon()
            raise
        writer.close()
    return stored


def _writer(path: str, plan: Plan) -> _Writer:
    # Each library is loaded only where its format is written.
    if plan.store_format == "zarr":
        from oocloader.conversion.zarr import ZarrWriter

        return ZarrWriter(path, plan)
    from oocloader.conversion.hdf5 import Hdf5Writer

    return Hdf5Writer(path, plan)


_NO_SPACE = {
    errno.ENOSPC: "no space left on the disk",
    errno.EDQUOT: "no space left within the disk quota",
    errno.EFBIG: "no space: the file would outgrow the limit for files (ulimit -f, or the file system's)",
}


@contextlib.contextmanager
def _explained(path: str, plan: Plan) -> Iterator[None]:
    """Turn what the system or a library says about writing into one line that names the destination."""
    try:
        yield
    except OocloaderError:
        raise
    except (OSError, RuntimeError) as error:
        code = error.errno if isinstance(error, OSError) else None
        reason = _NO_SPACE.get(code or 0)
        if reason is not None:
            what = (
                f"{reason}; {plan.nbytes / 1e6:,.1f} MB of rows were to be written;"
                " free some or choose another disk"
            )
        else:
            said = getattr(error, "strerror", None) or str(error) or type(error).__name__
            what = f"cannot be written: {said.splitlines()[0]}"
        raise StoreError(f"{path}: {what}", file=path) from error
