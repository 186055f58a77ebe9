"""The whole of a conversion: plan, write aside, check, sync, publish."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import operator
import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from oocloader.conversion.check import Verify, check_store, checked_verify
from oocloader.conversion.checksums import check_room
from oocloader.conversion.encode import Codec, Format
from oocloader.conversion.job import SourceFiles, digest, job_of
from oocloader.conversion.plan import Plan, Reading, check_sources, make_plan
from oocloader.conversion.publish import check_destination, publish, size_of, sync
from oocloader.conversion.report import ConvertReport
from oocloader.conversion.work import Work, begun_nbytes, made_by, open_work, remove_leftover
from oocloader.conversion.write import write_store
from oocloader.errors import ChangedError, OocloaderError, SettingError, StoreError
from oocloader.progress import bar
from oocloader.stores import Store, StoredArray, open_store
from oocloader.verification.manifest import write_manifests

_NO_NAMES = frozenset(("", ".", "..", "zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"))
_SUFFIXES: dict[str, Format] = {".zarr": "zarr", ".h5": "hdf5", ".hdf5": "hdf5"}


def convert(
    source: Any,
    destination: str | os.PathLike[str],
    *,
    codec: str = "none",
    chunk_rows: int | None = None,
    overwrite: bool = False,
    resume: bool = False,
    verify: Verify = "sample",
    checksum: bool = False,
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
    - `resume`: go on with a conversion that was broken off, with the same source and options; begin it
      where there is none, and do nothing where it is complete. Without it, unfinished work is an error.
    - `verify`: what of the new store is compared with the source, bit by bit, before it gets its name:
      `"sample"` (eight mebibytes an array), `"full"` or `"none"`. Shapes, dtypes and size are always checked.
    - `checksum`: store every chunk with a checksum that all readers verify, crc32c in Zarr and
      fletcher32 in HDF5. Rows cannot be read alone then. Without it damage is found by
      `oocloader verify`, from the manifest that every new store has.
    - `progress`: draw a bar on stderr, if that is a terminal.

    The rows are copied bit by bit; attributes are not. Memory stays under 300 MiB, whatever the size of
    the source, unless a chunk of source or destination is larger than 32 MiB. Raises `OocloaderError`
    children. Where it is broken off, also by Ctrl-C or by a full disk, what is finished is kept beside
    the destination for `resume=True`, and the error says so; of arrays in memory nothing is kept.
    """
    started = time.perf_counter()
    verify = checked_verify(verify)
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
        plan = dataclasses.replace(plan, checksum=bool(checksum))
        check_room(plan)
        files = SourceFiles.of(sources.values())
        if resume and files is None:
            raise SettingError(
                "resume: arrays in memory cannot be told from others, so nothing is kept of them; save them"
                " (np.save) and convert the file"
            )
        options = {"codec": str(chosen), "chunk_rows": chunk_rows, "checksum": plan.checksum}
        job = job_of(files, sources, plan, options)
        real = os.path.realpath(path)
        if resume and job is not None and os.path.lexists(real) and made_by(real, job):
            remove_leftover(real, job)
            return _report(path, plan, size_of(path), _Times.all_at(started), verify, kept_nbytes=plan.nbytes)
        room = plan.needed_nbytes - (begun_nbytes(real) if resume else 0)
        real = check_destination(path, overwrite=overwrite, needed_nbytes=room)
        pieces = sum(array.pieces for array in plan.arrays)
        with (
            _explained(path, plan),
            open_work(real, job, resume=resume, overwrite=overwrite, pieces=pieces) as work,
            _explained(path, plan),
            _source_watched(files, work),
        ):
            unchanged = files.check if files is not None and files.few else _nothing
            with bar(plan.nbytes, shown=progress) as shown:
                stored = write_store(work, plan, sources, advance=shown.update, check_source=unchanged)
            written = time.perf_counter()
            with bar(plan.nbytes, shown=progress and verify == "full") as shown:
                check_store(
                    work.store,
                    plan,
                    sources,
                    least_nbytes=stored.nbytes,
                    destination=path,
                    verify=verify,
                    advance=shown.update,
                )
            write_manifests(work.store, plan.store_format, stored.manifests, job=digest(job))
            checked = time.perf_counter()
            sync(work.store)
            bytes_out = size_of(work.store)
            if files is not None:
                files.check()
            if work.journal is not None:
                work.journal.rename()
            publish(work.store, real, overwrite=overwrite)
    times = _Times(started, written, checked, time.perf_counter())
    return _report(path, plan, bytes_out, times, verify, kept_nbytes=stored.kept_nbytes)


@dataclasses.dataclass(frozen=True, slots=True)
class _Times:
    """When each part of the work was done, as `time.perf_counter` has it."""

    started: float
    written: float
    checked: float
    finished: float

    @classmethod
    def all_at(cls, started: float) -> _Times:
        return cls(started, started, started, time.perf_counter())


def _report(
    path: str, plan: Plan, bytes_out: int, times: _Times, verify: Verify, *, kept_nbytes: int
) -> ConvertReport:
    return ConvertReport(
        destination=path,
        format=plan.store_format,
        codec=str(plan.codec),
        arrays=tuple(array.name for array in plan.arrays),
        rows=plan.rows,
        bytes_in=plan.nbytes,
        bytes_out=bytes_out,
        bytes_resumed=kept_nbytes,
        verify=verify,
        seconds=times.finished - times.started,
        seconds_writing=times.written - times.started,
        seconds_checking=times.checked - times.written,
        seconds_syncing=times.finished - times.checked,
    )


def _nothing() -> None:
    pass


@contextlib.contextmanager
def _source_watched(files: SourceFiles | None, work: Work) -> Iterator[None]:
    """Where the source changed, keep what is finished only if every piece is known to be older than that."""
    try:
        yield
    except ChangedError:
        work.keep = files is not None and files.few
        raise


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
