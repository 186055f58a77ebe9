"""The options of `oocloader convert`, as the types of its arguments."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

_optional = partial(typer.Option, show_default=False)

Paths = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SOURCE] DESTINATION",
        show_default=False,
        help="What to convert, such as x.npy, train.h5 or train.h5::group/x, unless --array names it;"
        " and the store to write, ending in .zarr, .h5 or .hdf5.",
    ),
]
ArraySources = Annotated[
    list[str] | None,
    _optional(
        metavar="NAME=SOURCE",
        help="An array of the new store and where it comes from; repeat it for several arrays,"
        " which must have equally many rows.",
    ),
]
Codec = Annotated[
    str,
    typer.Option(
        metavar="NAME[:LEVEL]",
        help="none, zstd, gzip, lz4, blosc or auto. none loads fastest from memory and fast disks; zstd"
        " where the disk is slower than it decodes (2 to 3 GB/s on two cores) and the data gets smaller;"
        " auto tries them on a sample and takes the fastest for a disk that reads 1 GB/s.",
    ),
]
ChunkRows = Annotated[
    int | None,
    typer.Option(
        show_default="near 8 MiB, at most a thousandth of the rows, at least 64 KiB",
        help="Rows of a chunk, the unit that is read and decoded at once.",
    ),
]
Shards = Annotated[
    str,
    typer.Option(
        metavar="auto|none|ROWS",
        help="Rows of a Zarr shard, a file of many chunks. auto: shards where there would be over 64 files.",
    ),
]
ZarrFormat = Annotated[
    int, typer.Option(metavar="2|3", help="Format of a .zarr; 2 for programs that read no other.")
]
ForMemory = Annotated[
    str | None,
    _optional(
        metavar="SIZE",
        help="Memory of the device to train on, such as 8GiB: chunks are a 1024th of it,"
        " unless --chunk-rows says how large.",
    ),
]
Shape = Annotated[
    list[str] | None,
    _optional(
        metavar="[NAME=]N,N,...",
        help="The source is a raw binary file of this shape, C order, and the --dtype; the first number"
        " may be -1.",
    ),
]
Dtype = Annotated[
    list[str] | None,
    _optional(
        metavar="[NAME=]DTYPE",
        help="Convert to this dtype, such as float32; fails where a value would not survive. Of a raw"
        " file: what its values are, such as >i2.",
    ),
]
Lossy = Annotated[
    bool, typer.Option("--lossy", help="With --dtype: values may be rounded, but stay in range.")
]
Axis = Annotated[
    list[str] | None,
    typer.Option(metavar="[NAME=]N", show_default="0", help="The axis that becomes the rows."),
]
Rows = Annotated[str | None, _optional(metavar="A:B", help="Take rows A to B only, B not included.")]
Shuffle = Annotated[
    int | None,
    _optional(
        metavar="SEED",
        help="Put the rows in a random order, the same for all arrays and every time for one seed.",
    ),
]
ShuffleIndex = Annotated[
    str | None,
    _optional(metavar="NAME", help="With --shuffle: add an array of this name, where each row came from."),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace an existing destination, once the new store is complete.")
]
Spec = Annotated[
    Path | None,
    _optional(
        metavar="FILE",
        help="A data spec (TOML) whose [convert] says all of this; only flags may be given beside it.",
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Go on with a conversion that was broken off, with the same source and options; begin it"
        " where there is none, and do nothing where it is complete.",
    ),
]
Verify = Annotated[
    str,
    typer.Option(
        metavar="sample|full|none",
        help="What is compared with the source, bit by bit, before the new store gets its name.",
    ),
]
Checksum = Annotated[
    bool,
    typer.Option(
        "--checksum",
        help="Store every chunk with a checksum that all readers verify: crc32c in Zarr, fletcher32 in"
        " HDF5. Without it, oocloader verify finds damage by the manifest that every new store has.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
