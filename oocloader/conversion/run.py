"""The whole of a conversion: plan, write aside, check, sync, publish."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import operator
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from oocloader.conversion.auto_codec import AUTO, Choice, choose_codec
from oocloader.conversion.checksums import check_room
from oocloader.conversion.encode import Codec, Format
from oocloader.conversion.job import SourceFiles, digest, job_of
from oocloader.conversion.options import (
    check_flags,
    checked_memory,
    checked_shards,
    checked_zarr_format,
    shaping,
)
from oocloader.conversion.publish import check_destination, publish, size_of, sync
from oocloader.conversion.read_back import Verify, check_store, checked_verify
from oocloader.conversion.report import ConvertReport, choices
from oocloader.conversion.sources import open_source, opened_sources, wanted_arrays
from oocloader.conversion.store_plan import Plan, check_sources, is_text, make_plan
from oocloader.conversion.verification.manifest import write_manifests
from oocloader.conversion.workspace import (
    Work,
    begun_codec,
    begun_nbytes,
    made_by,
    open_work,
    remove_leftover,
)
from oocloader.conversion.write import write_store
from oocloader.errors import ChangedError, OocloaderError, SettingError, StoreError
from oocloader.machine import usable_cores
from oocloader.paths import local_path
from oocloader.progress import bar
from oocloader.sizes import nbytes_text
from oocloader.stores import MEMBERS, Store, sparse_kind

_NO_NAMES = frozenset(("", ".", "..", "zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"))
_SUFFIXES: dict[str, Format] = {".zarr": "zarr", ".h5": "hdf5", ".hdf5": "hdf5"}


def convert(
    source: Any,
    destination: str | os.PathLike[str],
    *,
    codec: str = "none",
    chunk_rows: int | None = None,
    shards: str | int = "auto",
    zarr_format: int = 3,
    for_memory: str | int | None = None,
    shape: Any = None,
    dtype: Any = None,
    lossy: bool = False,
    axis: Any = 0,
    rows: slice | str | None = None,
    shuffle: int | None = None,
    shuffle_index: str | None = None,
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
    - `destination`: ends in `.zarr`, `.h5` or `.hdf5`.
    - `codec`: `none`, `zstd`, `gzip`, `lz4` or `blosc` (LZ4 behind a byte shuffle), with `:level` if
      wanted. Uncompressed chunks load fastest from memory and fast disks, and each row can be read
      alone; zstd pays where the disk is slower than zstd decodes (2 to 3 GB/s on two cores) and the
      data gets smaller, or room counts. In HDF5, programs other than this one need the package
      hdf5plugin for zstd, lz4 and blosc; lz4 in Zarr is not in its specification and is read by
      zarr-python. `auto` tries them on a sample and takes the one that loads fastest here from a disk that
      reads 1 GB/s.
    - `chunk_rows`: rows of a chunk, for every array; else near 8 MiB, at most a thousandth of the rows,
      but at least 64 KiB.
    - `shards`: of Zarr format 3. `auto` packs chunks into shards where they would be more than 64 files,
      `none` never does; a number is the rows of a shard, whole chunks.
    - `zarr_format`: 3, or 2 for programs that read no other; that has no shards, so chunks are larger.
    - `for_memory`: of the device that the store is to be trained on, bytes or "8GiB": chunks are a 1024th of
      it in place of 8 MiB. `chunk_rows` goes before it.
    - `shape`: of a raw binary file, whose values follow each other in C order; the first number may be -1.
      `dtype` then says what they are, byte order included (`>f4`).
    - `dtype`: to convert to. Every value must survive, else `DataError` says which does not; `lossy` lets
      values be rounded, but never leave the range of the new dtype.
    - `axis`: of the source that becomes the rows.
    - `rows`: a slice, or text such as "1000:2000": rows that are taken.
    - `shuffle`: a seed. The rows are put in a random order, the same for all arrays, which depends on the
      seed and the number of rows alone. `shuffle_index` names an array to store it in: row i of the new
      store is row `index[i]` of the source.
    - `shape`, `dtype` and `axis` may be dicts by the names of arrays.
    - `overwrite`: replace what is there once the new store is complete.
    - `resume`: go on with a conversion that was broken off, with the same source and options; begin it
      where there is none, and do nothing where it is complete. Without it, unfinished work is an error.
    - `verify`: what of the new store is compared with the source, bit by bit, before it gets its name:
      `"sample"` (eight mebibytes an array), `"full"` or `"none"`. Shapes, dtypes and size are always checked.
    - `checksum`: store every chunk with a checksum that all readers verify, crc32c in Zarr and
      fletcher32 in HDF5. Rows cannot be read alone then. Without it damage is found by
      `oocloader verify`, from the manifest that every new store has.
    - `progress`: draw a bar on stderr, if that is a terminal.

    The rows are copied bit by bit, with the attributes and the fill value of their array. Memory stays under
    300 MiB (400 MiB where rows are shuffled or spread over the source), whatever the size of the source,
    unless a chunk of source or destination is larger than 32 MiB. Rows that are shuffled, that another axis
    becomes, or that are spread over the source (Fortran order, chunks that hold parts of many rows) go
    through a temporary file beside the destination, as large as the rows: the source is read once.
    Otherwise a chunk of the source is decoded at most twice. Raises `OocloaderError` children. Where it is
    broken off, also by Ctrl-C or by a full disk, what is finished is kept beside the destination for
    `resume=True`, and the error says so; of arrays in memory nothing is kept.
    """
    started = time.perf_counter()
    check_flags(lossy=lossy, overwrite=overwrite, resume=resume, checksum=checksum, progress=progress)
    verify = checked_verify(verify)
    asked = shaping(
        shape=shape,
        dtype=dtype,
        lossy=lossy,
        axis=axis,
        rows=rows,
        shuffle=shuffle,
        shuffle_index=shuffle_index,
    )
    choice = (
        None if codec == AUTO else Choice(Codec.parse(codec), "as asked for" if codec != "none" else _RAW)
    )
    options = {
        "codec": AUTO if choice is None else str(choice.codec),
        "chunk_rows": chunk_rows,
        "shards": shards,
        "zarr_format": zarr_format,
        "for_memory": for_memory,
        "shape": shape,
        "dtype": dtype,
        "lossy": lossy,
        "axis": axis,
        "rows": rows,
        "shuffle": shuffle,
        "shuffle_index": shuffle_index,
        "checksum": bool(checksum),
    }
    path = _checked_path(destination)
    real = os.path.realpath(path)
    begun = begun_codec(real) if resume and choice is None else None
    if begun is not None:
        choice = Choice(Codec.parse(begun), "chosen when the conversion was begun")
    store_format = _format_of(path)
    chunk_rows = _checked_rows(chunk_rows)
    packing, version = checked_shards(shards), checked_zarr_format(zarr_format)
    if checksum and version == 2:
        raise SettingError(
            "checksum: Zarr format 2 has no place for a checksum behind its compressor; "
            "leave out zarr_format=2"
        )
    memory, cores = checked_memory(for_memory), usable_cores()
    with open_source(source, asked) as store:
        nameless = asked.shapes.every is not None or _is_nameless(source)
        names = _new_names(store, at_root=store_format == "zarr" and nameless and shuffle_index is None)
        _check_names((*names, *(() if shuffle_index is None else (shuffle_index,))), store_format)
        check_sources((store.arrays[name] for name in names.values()), where=store.path)
        wanted = wanted_arrays(store, names, asked)
        if choice is None:
            choice = choose_codec(
                wanted.values(), store_format=store_format, chunk_rows=chunk_rows, cores=cores
            )
        shuffled = asked.shuffle is not None
        plan = make_plan(
            {new: (one.info, one.reading(shuffled=shuffled)) for new, one in wanted.items()},
            store_format=store_format,
            codec=choice.codec,
            chunk_rows=chunk_rows,
            cores=cores,
            shards=packing,
            zarr_format=version,
            for_memory=memory,
            fills={new: one.fill for new, one in wanted.items()},
        )
        plan = dataclasses.replace(plan, checksum=bool(checksum))
        check_room(plan)
        if plan.warning:
            warnings.warn(f"{path}: {plan.warning}", UserWarning, stacklevel=2)
        arrays = {new: one.array for new, one in wanted.items() if one.array is not None}
        files = SourceFiles.of(arrays.values())
        if resume and files is None:
            raise SettingError(
                "resume: arrays in memory cannot be told from others, so nothing is kept of them; save them"
                " (np.save) and convert the file"
            )
        temporary = sum(one.scratch_nbytes(shuffled=shuffled) for one in wanted.values())
        job = job_of(files, arrays, plan, options)
        told = tuple(
            choices(
                plan,
                chunks=_chunks_words(chunk_rows, memory),
                codec=choice.why,
                temporary_nbytes=temporary,
            )
        )
        if resume and job is not None and os.path.lexists(real) and made_by(real, job):
            remove_leftover(real, job)
            return _report(
                path, plan, size_of(path), _Times.all_at(started), verify, told, kept_nbytes=plan.nbytes
            )
        room = plan.needed_nbytes + temporary - (begun_nbytes(real) if resume else 0)
        real = check_destination(path, overwrite=overwrite, needed_nbytes=room)
        pieces = sum(array.pieces for array in plan.arrays)
        with (
            _explained(path, plan),
            opened_sources(wanted, plan, asked, folder=os.path.dirname(real), cores=cores) as sources,
            open_work(real, job, resume=resume, overwrite=overwrite, pieces=pieces) as work,
            _explained(path, plan),
            _source_watched(files, work),
        ):
            unchanged = files.check if files is not None and files.few else _nothing
            with bar(plan.nbytes + temporary, shown=progress) as shown:
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
    return _report(path, plan, bytes_out, times, verify, told, kept_nbytes=stored.kept_nbytes)


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
    path: str,
    plan: Plan,
    bytes_out: int,
    times: _Times,
    verify: Verify,
    told: tuple[str, ...],
    *,
    kept_nbytes: int,
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
        choices=told,
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
        if files is not None:
            # Whoever reads it advises to open it again.
            files.check()
        raise


_RAW = "not compressed, which loads fastest from memory and fast disks"


def _chunks_words(chunk_rows: int | None, for_memory: int | None) -> str:
    if chunk_rows is not None:
        return "as asked for"
    aim = "8 MiB" if for_memory is None else f"a 1024th of the {for_memory / 2**30:.3g} GiB of the device"
    return f"near {aim}, at most a thousandth of the rows, at least 64 KiB"


def _checked_path(destination: str | os.PathLike[str]) -> str:
    try:
        path = os.fspath(destination)
    except TypeError:
        path = ""
    if not path:
        raise SettingError(f"destination: expected a path, got {destination!r}")
    local = local_path(path, remedy="write the store to this machine and copy it there")
    return local.rstrip(os.sep) or os.sep


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


def _check_names(names: Sequence[str], store_format: Format) -> None:
    """Raise `SettingError` where the format has no place for arrays of these names."""
    for name in names:
        _check_name(name, store_format)
        for at in (at for at, letter in enumerate(name) if letter == "/"):
            if name[:at] in names:
                raise SettingError(
                    f"{name!r} cannot be the name of an array beside {name[:at]!r}, which is no group but an"
                    " array too; rename one of them"
                )
    for group in {name.rpartition("/")[0] for name in names} - {""}:
        if sparse_kind({}, [name.removeprefix(f"{group}/") for name in names]):
            raise SettingError(
                f"{', '.join(repr(f'{group}/{member}') for member in MEMBERS)}: a group of arrays with these"
                " names is taken for a sparse matrix, and is not loaded; rename one of them"
            )


def _check_name(name: str, store_format: Format) -> None:
    """Refuse a name that is no path of groups, no text, or that Zarr keeps its metadata under."""
    parts = name.split("/")
    # zarr-python takes a backslash for a slash.
    wrong = "\0" in name or ("\\" in name and store_format == "zarr") or not is_text(name)
    if name and (wrong or any(part in _NO_NAMES for part in parts)):
        raise SettingError(
            f"{name!r} cannot be the name of an array: use letters, digits, '_', '-' and '.', "
            "and '/' between the names of groups"
        )


def _new_names(store: Store, *, at_root: bool) -> dict[str, str]:
    """Names in the new store -> names in the source; an only array `at_root` of a Zarr store is called ""."""
    names = list(store.arrays)
    if not names:
        raise StoreError(f"{store.path}: holds no arrays, so there is nothing to convert", file=store.path)
    return {"": names[0]} if at_root and len(names) == 1 else {name: name for name in names}


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
                f"{reason}; {nbytes_text(plan.nbytes)} of rows were to be written;"
                " free some or choose another disk"
            )
        else:
            said = getattr(error, "strerror", None) or str(error) or type(error).__name__
            what = f"cannot be written: {said.splitlines()[0]}"
        raise StoreError(f"{path}: {what}", file=path) from error
