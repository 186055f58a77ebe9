"""`oocloader convert`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from oocloader.cli.arrays import named_sources
from oocloader.cli.spec import conversion_of
from oocloader.errors import SettingError

_T = TypeVar("_T")


def convert(
    context: typer.Context,
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SOURCE] DESTINATION",
            show_default=False,
            help="What to convert, such as x.npy, train.h5 or train.h5::group/x, unless --array names it;"
            " and the store to write, ending in .zarr, .h5 or .hdf5.",
        ),
    ] = None,
    array: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SOURCE",
            show_default=False,
            help="An array of the new store and where it comes from; repeat it for several arrays,"
            " which must have equally many rows.",
        ),
    ] = None,
    codec: Annotated[
        str,
        typer.Option(
            metavar="NAME[:LEVEL]",
            help="none, zstd, gzip, lz4, blosc or auto. none loads fastest from memory and fast disks; zstd"
            " where the disk is slower than it decodes (2 to 3 GB/s on two cores) and the data gets smaller;"
            " auto tries them on a sample and takes the fastest for a disk that reads 1 GB/s.",
        ),
    ] = "none",
    chunk_rows: Annotated[
        int | None,
        typer.Option(
            show_default="near 8 MiB, at most a thousandth of the rows, at least 64 KiB",
            help="Rows of a chunk, the unit that is read and decoded at once.",
        ),
    ] = None,
    shards: Annotated[
        str,
        typer.Option(
            metavar="auto|none|ROWS",
            help="Rows of a Zarr shard, a file of many chunks. auto: shards where there would be over 64"
            " files.",
        ),
    ] = "auto",
    zarr_format: Annotated[
        int, typer.Option(metavar="2|3", help="Format of a .zarr; 2 for programs that read no other.")
    ] = 3,
    for_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            show_default=False,
            help="Memory of the device to train on, such as 8GiB: chunks are a 1024th of it,"
            " unless --chunk-rows says how large.",
        ),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]N,N,...",
            show_default=False,
            help="The source is a raw binary file of this shape, C order, and the --dtype; the first number"
            " may be -1.",
        ),
    ] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]DTYPE",
            show_default=False,
            help="Convert to this dtype, such as float32; fails where a value would not survive. Of a raw"
            " file: what its values are, such as >i2.",
        ),
    ] = None,
    lossy: Annotated[
        bool, typer.Option("--lossy", help="With --dtype: values may be rounded, but stay in range.")
    ] = False,
    axis: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]N", show_default="0", help="The axis that becomes the rows."),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(metavar="A:B", show_default=False, help="Take rows A to B only, B not included."),
    ] = None,
    shuffle: Annotated[
        int | None,
        typer.Option(
            metavar="SEED",
            show_default=False,
            help="Put the rows in a random order, the same for all arrays and every time for one seed.",
        ),
    ] = None,
    shuffle_index: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            show_default=False,
            help="With --shuffle: add an array of this name, where each row came from.",
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace an existing destination, once the new store is complete."),
    ] = False,
    spec: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="A data spec (TOML) whose [convert] says all of this; only flags may be given beside it.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with a conversion that was broken off, with the same source and options; begin it"
            " where there is none, and do nothing where it is complete.",
        ),
    ] = False,
    verify: Annotated[
        str,
        typer.Option(
            metavar="sample|full|none",
            help="What is compared with the source, bit by bit, before the new store gets its name.",
        ),
    ] = "sample",
    checksum: Annotated[
        bool,
        typer.Option(
            "--checksum",
            help="Store every chunk with a checksum that all readers verify: crc32c in Zarr, fletcher32 in"
            " HDF5. Without it, oocloader verify finds damage by the manifest that every new store has.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Write .npy files, or any other store, as a chunked HDF5 or Zarr store.

    The new store is written beside the destination, checked, synced to the disk and then renamed: it is
    there complete or not at all. What a crash, Ctrl-C or a full disk breaks off goes on with --resume.
    Memory stays small, whatever the size of the source.

    Example: oocloader convert images.npy images.zarr

    Example: oocloader convert --array x=images.npy --array y=labels.npy train.h5 --codec zstd:3

    Example: oocloader convert --spec data_specs/digits.toml

    Example: oocloader convert --shape=-1,64,64,3 --dtype uint8 images.bin images.zarr --shuffle 1
    """
    from oocloader.conversion import convert as run  # not at the top: --help need not wait for it

    if spec is not None:
        report = run(**conversion_of(spec, context), progress=True)
    else:
        source, destination = _source_and_destination(paths or [], array or [])
        report = run(
            source,
            destination,
            codec=codec,
            chunk_rows=chunk_rows,
            shards=shards,
            zarr_format=zarr_format,
            for_memory=for_memory,
            shape=_per_array("--shape", shape, str),
            dtype=_per_array("--dtype", dtype, str),
            lossy=lossy,
            axis=_per_array("--axis", axis, lambda text: _whole("--axis", text)),
            rows=rows,
            shuffle=shuffle,
            shuffle_index=shuffle_index,
            overwrite=overwrite,
            resume=resume,
            verify=verify,  # type: ignore[arg-type] # checked there
            checksum=checksum,
            progress=True,
        )
    typer.echo(json.dumps(report.as_dict(), indent=2) if as_json else str(report))


def _source_and_destination(paths: list[str], arrays: list[str]) -> tuple[str | dict[str, str], str]:
    if not arrays:
        if len(paths) != 2:
            raise SettingError(
                f"convert takes a source and a destination, got {len(paths)} paths;"
                " see oocloader convert --help"
            )
        return paths[0], paths[1]
    if len(paths) != 1:
        raise SettingError(
            f"with --array, convert takes the destination alone, got {len(paths)} paths: {', '.join(paths)}"
        )
    return named_sources(arrays), paths[0]


def _per_array(option: str, texts: list[str] | None, parse: Callable[[str], _T]) -> Any:
    """One value for all arrays, or a dict by the names in front of equals signs; `None` for none."""
    if not texts:
        return None
    if len(texts) == 1 and "=" not in texts[0]:
        return parse(texts[0])
    found: dict[str, _T] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise SettingError(f"{option}: expected one value, or NAME=VALUE for each array, got {text!r}")
        if name in found:
            raise SettingError(f"{option}: {name!r} is given twice")
        found[name] = parse(value)
    return found


def _whole(option: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise SettingError(f"{option}: expected a whole number, got {text!r}") from None
