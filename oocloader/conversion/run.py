"""The whole of a conversion: plan, write aside, check, sync, publish."""

import contextlib
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import DTypeLike

from oocloader.conversion.array_names import names_of
from oocloader.conversion.auto_codec import CodecChoice, choose_codec
from oocloader.conversion.convert_report import ConvertReport, choices
from oocloader.conversion.derived_rows import DerivedArray
from oocloader.conversion.destination import Destination
from oocloader.conversion.encode import Codec
from oocloader.conversion.identity import SourceFiles, digest, identity_of
from oocloader.conversion.new_array import NewArray, new_arrays
from oocloader.conversion.options import ConvertOptions, Shape, Verify, ZarrFormat
from oocloader.conversion.publish import publish, size_of, sync
from oocloader.conversion.read_back import check_store
from oocloader.conversion.sources import open_source, opened_sources
from oocloader.conversion.store_plan import StorePlan, check_sources, make_plan
from oocloader.conversion.verification.manifest import write_manifests
from oocloader.conversion.workspace import (
    Workspace,
    begun_codec,
    begun_nbytes,
    is_made_by,
    open_workspace,
    remove_leftover,
)
from oocloader.conversion.write import write_store
from oocloader.errors import ChangedError, SettingError
from oocloader.machine import usable_cores
from oocloader.progress import bar
from oocloader.stores import Store


def convert(
    source: Any,
    destination: str | os.PathLike[str],
    *,
    codec: str = "none",
    chunk_rows: int | None = None,
    shards: str | int = "auto",
    zarr_format: ZarrFormat = 3,
    for_memory: str | int | None = None,
    shape: Shape | Mapping[str, Shape] | None = None,
    dtype: DTypeLike | Mapping[str, DTypeLike] | None = None,
    lossy: bool = False,
    axis: int | Mapping[str, int] | None = 0,
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

    Parameters
    ----------
    source : str, os.PathLike, numpy.ndarray, list, or dict
        Anything `open_store` takes. `{"x": "x.npy", "y": "y.npy"}` puts several arrays of equally many rows
        into one store. An only array without a name (`.npy`, in memory) becomes the root of a Zarr store; in
        HDF5 it is named after the file.
    destination : str or os.PathLike
        Path of the new store; ends in `.zarr`, `.h5` or `.hdf5`.
    codec : str, default "none"
        `none`, `zstd`, `gzip`, `lz4` or `blosc` (LZ4 behind a byte shuffle), with `:level` if wanted.
        Uncompressed chunks load fastest from memory and fast disks, and each row can be read alone; zstd pays
        where the disk is slower than zstd decodes (2 to 3 GB/s on two cores) and the data gets smaller, or
        room counts. In HDF5, programs other than this one need the package hdf5plugin for zstd, lz4 and
        blosc; lz4 in Zarr is not in its specification and is read by zarr-python. `auto` tries them on a
        sample and takes the one that loads fastest here from a disk that reads 1 GB/s.
    chunk_rows : int, optional
        Rows of a chunk, for every array; else near 8 MiB, at most a thousandth of the rows, but at least
        64 KiB.
    shards : "auto", "none" or int, default "auto"
        Of Zarr format 3. `auto` packs chunks into shards where they would be more than 64 files, `none` never
        does; a number is the rows of a shard, whole chunks.
    zarr_format : {3, 2}, default 3
        2 is for programs that read no other; it has no shards, so chunks are larger.
    for_memory : int or str, optional
        Memory of the device that the store is to be trained on, bytes or "8GiB": chunks are a 1024th of it in
        place of 8 MiB. `chunk_rows` goes before it.
    shape : str, sequence of int, or dict of these by array, optional
        Of a raw binary file, whose values follow each other in C order; the first number may be -1. `dtype`
        then says what they are, byte order included (`>f4`).
    dtype : numpy.dtype, str, or dict of these by array, optional
        To convert to. Every value must survive, else `DataError` says which does not.
    lossy : bool, default False
        Lets values be rounded to `dtype`, but never leave its range.
    axis : int, or dict of these by array, default 0
        Axis of the source that becomes the rows.
    rows : slice or str, optional
        Rows that are taken, such as `slice(1000, 2000)` or "1000:2000".
    shuffle : int, optional
        A seed. The rows are put in a random order, the same for all arrays, which depends on the seed and the
        number of rows alone.
    shuffle_index : str, optional
        An array to store that order in: row i of the new store is row `index[i]` of the source.
    overwrite : bool, default False
        Replace what is there once the new store is complete.
    resume : bool, default False
        Go on with a conversion that was broken off, with the same source and options; begin it where there is
        none, and do nothing where it is complete. Without it, unfinished work is an error.
    verify : {"sample", "full", "none"}, default "sample"
        What of the new store is compared with the source, bit by bit, before it gets its name: eight
        mebibytes an array, all, or nothing. Shapes, dtypes and size are always checked.
    checksum : bool, default False
        Store every chunk with a checksum that all readers verify, crc32c in Zarr and fletcher32 in HDF5. Rows
        cannot be read alone then. Without it damage is found by `oocloader verify`, from the manifest that
        every new store has.
    progress : bool, default False
        Draw a bar on stderr, if that is a terminal.

    Returns
    -------
    ConvertReport
        What was written, how large it became, and how long that took.

    Raises
    ------
    SettingError
        An option makes no sense, or does not fit the source or the format.
    StoreError
        The source cannot be read, or the destination cannot be written: it exists, its disk is full, somebody
        else writes it, or unfinished work lies there.
    DataError
        A value does not survive the conversion to `dtype`, or the arrays differ in their number of rows.
    UnsupportedArrayError
        An array of the source cannot be loaded.
    ChangedError
        The source changed meanwhile.

    Notes
    -----
    The rows are copied bit by bit, with the attributes and the fill value of their array. Memory stays under
    300 MiB (400 MiB where rows are shuffled or spread over the source), whatever the size of the source,
    unless a chunk of source or destination is larger than 32 MiB. Rows that are shuffled, that another axis
    becomes, or that are spread over the source (Fortran order, chunks that hold parts of many rows) go
    through a temporary file beside the destination, as large as the rows: the source is read once.
    Otherwise a chunk of the source is decoded at most twice.

    Where it is broken off, also by Ctrl-C or by a full disk, what is finished stays beside the destination
    for `resume=True`, and the error says so; of arrays in memory nothing stays.

    Examples
    --------
    >>> import numpy as np, oocloader as ooc, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> report = ooc.convert({"x": np.zeros((1000, 64, 64), "f4")}, f"{folder}/train.zarr", codec="zstd:3")
    >>> report.rows, report.bytes_in, report.codec
    (1000, 16384000, 'zstd:3')
    """
    started = time.perf_counter()
    options = ConvertOptions(
        codec=codec,
        chunk_rows=chunk_rows,
        shards=shards,
        zarr_format=zarr_format,
        for_memory=for_memory,
        shape=shape,
        dtype=dtype,
        lossy=lossy,
        axis=axis,
        rows=rows,
        shuffle=shuffle,
        shuffle_index=shuffle_index,
        overwrite=overwrite,
        resume=resume,
        verify=verify,
        checksum=checksum,
        progress=progress,
    )
    target = Destination.parsed(destination)
    with open_source(source, options) as store:
        conversion = _plan(store, source, target, options)
        if conversion.plan.warning:
            warnings.warn(f"{target.path}: {conversion.plan.warning}", UserWarning, stacklevel=2)
        done = conversion.adopt_complete_store() or conversion.carry_out()
    return conversion.report(done, started)


@dataclass(frozen=True, slots=True)
class _Done:
    """What carrying out came to, and when each part of it was done, as `time.perf_counter` has it."""

    bytes_out: int
    resumed_nbytes: int
    written: float
    checked: float
    finished: float


@dataclass(frozen=True, slots=True)
class _Conversion:
    """All that is decided before anything is written.

    - `arrays`: by their new names; `files`: those of the source, `None` where it is in memory
    - `identity`: what tells it from others, `None` where that cannot be told
    """

    options: ConvertOptions
    target: Destination
    arrays: Mapping[str, NewArray]
    plan: StorePlan
    files: SourceFiles | None
    identity: dict[str, Any] | None
    why_codec: str
    cores: int

    @property
    def temporary_nbytes(self) -> int:
        return sum(array.scratch_nbytes for array in self.arrays.values())

    def adopt_complete_store(self) -> _Done | None:
        """Where this conversion is to be resumed, and is complete: what it came to."""
        real = self.target.real
        if not self.options.resume or self.identity is None or not os.path.lexists(real):
            return None
        if not is_made_by(real, self.identity):
            return None
        remove_leftover(real, self.identity)
        now = time.perf_counter()
        return _Done(size_of(self.target.path), self.plan.nbytes, now, now, now)

    def carry_out(self) -> _Done:
        """Write the store, check it, and give it its name."""
        options, plan, target = self.options, self.plan, self.target
        begun = begun_nbytes(target.real) if options.resume else 0
        needed_nbytes = plan.needed_nbytes + self.temporary_nbytes - begun
        target.check(overwrite=options.overwrite, needed_nbytes=needed_nbytes)
        with (
            target.explained(plan.nbytes),
            opened_sources(self.arrays, plan, options, folder=target.folder, cores=self.cores) as sources,
            open_workspace(
                target.real,
                self.identity,
                resume=options.resume,
                overwrite=options.overwrite,
                pieces=sum(array.pieces for array in plan.arrays),
            ) as space,
            target.explained(plan.nbytes),
            self._source_watched(space),
        ):
            return self._write(space, sources)

    def _write(self, space: Workspace, sources: Mapping[str, DerivedArray]) -> _Done:
        options, plan, files = self.options, self.plan, self.files
        check_source = files.check if files is not None and files.few else _nothing
        with bar(plan.nbytes + self.temporary_nbytes, shown=options.progress) as shown:
            stored = write_store(space, plan, sources, advance=shown.update, check_source=check_source)
        written = time.perf_counter()
        with bar(plan.nbytes, shown=options.progress and options.verify == "full") as shown:
            check_store(
                space.store,
                plan,
                sources,
                least_nbytes=stored.nbytes,
                destination=self.target.path,
                verify=options.verify,
                advance=shown.update,
            )
        write_manifests(space.store, plan.store_format, stored.manifests, digest=digest(self.identity))
        checked = time.perf_counter()
        sync(space.store)
        bytes_out = size_of(space.store)
        if files is not None:
            files.check()
        if space.journal is not None:
            space.journal.record_renaming()
        publish(space.store, self.target.real, overwrite=options.overwrite)
        return _Done(bytes_out, stored.resumed_nbytes, written, checked, time.perf_counter())

    @contextlib.contextmanager
    def _source_watched(self, space: Workspace) -> Iterator[None]:
        """Where the source changed, what is finished stays if every piece is known to be older."""
        try:
            yield
        except ChangedError:
            space.is_resumable = self.files is not None and self.files.few
            if self.files is not None:
                # Whoever reads it advises to open it again.
                self.files.check()
            raise

    def report(self, done: _Done, started: float) -> ConvertReport:
        return ConvertReport(
            destination=self.target.path,
            format=self.plan.store_format,
            codec=str(self.plan.codec),
            arrays=tuple(array.name for array in self.plan.arrays),
            rows=self.plan.rows,
            bytes_in=self.plan.nbytes,
            bytes_out=done.bytes_out,
            bytes_resumed=done.resumed_nbytes,
            verify=self.options.verify,
            seconds=done.finished - started,
            seconds_writing=done.written - started,
            seconds_checking=done.checked - done.written,
            seconds_syncing=done.finished - done.checked,
            choices=tuple(choices(self.plan, self.options, self.why_codec, self.temporary_nbytes)),
        )


def _nothing() -> None:
    pass


def _plan(store: Store, source: Any, target: Destination, options: ConvertOptions) -> _Conversion:
    """Decide all of it. Raises `OocloaderError` children where something does not fit."""
    cores = usable_cores()
    names = names_of(store, source, options, target.store_format)
    check_sources((store.arrays[name] for name in names.values()), where=store.path)
    arrays = new_arrays(store, names, options)
    choice = _codec_of(options, target, arrays, cores)
    plan = make_plan(
        {new: (array.info, array.reading) for new, array in arrays.items()},
        options,
        store_format=target.store_format,
        codec=choice.codec,
        cores=cores,
        fills={new: array.fill for new, array in arrays.items()},
    )
    sources = {new: array.array for new, array in arrays.items() if array.array is not None}
    files = SourceFiles.of(sources.values())
    if options.resume and files is None:
        raise SettingError(
            "resume: arrays in memory cannot be told from others, so nothing is kept of them; save them"
            " (np.save) and convert the file"
        )
    identity = identity_of(files, sources, plan, options.recorded)
    return _Conversion(options, target, arrays, plan, files, identity, choice.why, cores)


def _codec_of(
    options: ConvertOptions, target: Destination, arrays: Mapping[str, NewArray], cores: int
) -> CodecChoice:
    if options.parsed_codec is not None:
        raw = options.parsed_codec.raw
        why = "not compressed, which loads fastest from memory and fast disks" if raw else "as asked for"
        return CodecChoice(options.parsed_codec, why)
    begun = begun_codec(target.real) if options.resume else None
    if begun is not None:
        return CodecChoice(Codec.parse(begun), "chosen when the conversion was begun")
    return choose_codec(
        arrays.values(), store_format=target.store_format, chunk_rows=options.chunk_rows, cores=cores
    )
