"""`oocloader convert`."""

import json

import typer

from oocloader.cli import convert_options as options
from oocloader.cli.named_values import per_array, sources_beside
from oocloader.cli.spec import conversion_of
from oocloader.errors import SettingError


def convert(
    context: typer.Context,
    paths: options.Paths = None,
    array: options.ArraySources = None,
    codec: options.Codec = "none",
    chunk_rows: options.ChunkRows = None,
    shards: options.Shards = "auto",
    zarr_format: options.ZarrFormat = 3,
    for_memory: options.ForMemory = None,
    shape: options.Shape = None,
    dtype: options.Dtype = None,
    lossy: options.Lossy = False,
    axis: options.Axis = None,
    rows: options.Rows = None,
    shuffle: options.Shuffle = None,
    shuffle_index: options.ShuffleIndex = None,
    overwrite: options.Overwrite = False,
    spec: options.Spec = None,
    resume: options.Resume = False,
    verify: options.Verify = "sample",
    checksum: options.Checksum = False,
    as_json: options.AsJson = False,
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
        paths = paths or []
        takes, alone = "a source and a destination", "the destination"
        sources = sources_beside(paths, array, command="convert", alone=alone, takes=takes, counts=(2,))
        report = run(
            sources or paths[0],
            paths[-1],
            codec=codec,
            chunk_rows=chunk_rows,
            shards=shards,
            zarr_format=zarr_format,  # type: ignore[arg-type] # checked there
            for_memory=for_memory,
            shape=per_array("--shape", shape, str),
            dtype=per_array("--dtype", dtype, str),
            lossy=lossy,
            axis=per_array("--axis", axis, _whole_axis),
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


def _whole_axis(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise SettingError(f"--axis: expected a whole number, got {text!r}") from None
