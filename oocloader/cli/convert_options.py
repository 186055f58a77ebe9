"""The options of `oocloader convert`, as the types of its arguments."""

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
    _optional(metavar="NAME=SOURCE", help="An array of the new store and its source; repeat it for several."),
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
_CHUNK_ROWS = "near 8 MiB, at most a thousandth of the rows, at least 64 KiB"
ChunkRows = Annotated[
    int | None, typer.Option(show_default=_CHUNK_ROWS, help="Rows of a chunk, which is read as one.")
]
Shards = Annotated[
    str, typer.Option(metavar="auto|none|ROWS", help="Rows of a Zarr shard; auto: shards, not over 64 files.")
]
ZarrFormat = Annotated[int, typer.Option(metavar="2|3", help="Format of a .zarr; 2 for older programs.")]
ForMemory = Annotated[
    str | None,
    _optional(metavar="SIZE", help="Chunks are a 1024th of this memory of the device, such as 8GiB."),
]
Shape = Annotated[
    list[str] | None,
    _optional(metavar="[NAME=]N,N,...", help="The source is a raw file of this shape and the --dtype."),
]
Dtype = Annotated[
    list[str] | None,
    _optional(
        metavar="[NAME=]DTYPE",
        help="Convert to this dtype, or fail where a value would not survive; of a raw file: its dtype.",
    ),
]
Lossy = Annotated[bool, typer.Option("--lossy", help="With --dtype: values may be rounded, in range.")]
Axis = Annotated[
    list[str] | None,
    typer.Option(metavar="[NAME=]N", show_default="0", help="The axis that becomes the rows."),
]
Rows = Annotated[str | None, _optional(metavar="A:B", help="Take rows A to B only, B not included.")]
Shuffle = Annotated[
    int | None,
    _optional(metavar="SEED", help="Put the rows in a random order, the same for all arrays and each seed."),
]
ShuffleIndex = Annotated[
    str | None,
    _optional(metavar="NAME", help="With --shuffle: add an array of this name, where each row came from."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there, at the very end.")]
Spec = Annotated[
    Path | None, _optional(metavar="FILE", help="A data spec (TOML) whose [convert] says all but flags.")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with the same conversion, or begin it where there is none.")
]
Verify = Annotated[
    str, typer.Option(metavar="sample|full|none", help="How much is compared with the source, bit by bit.")
]
Checksum = Annotated[bool, typer.Option("--checksum", help="crc32c or fletcher32 with every chunk.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
