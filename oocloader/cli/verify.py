"""`oocloader verify`."""

import json
from typing import Annotated

import typer

from oocloader.cli.named_values import sources_beside


def verify(
    stores: Annotated[
        list[str],
        typer.Argument(
            metavar="STORE [OTHER]",
            show_default=False,
            help="The store to verify, and what it should be equal to: another store, or the source that"
            " it was converted from.",
        ),
    ],
    array: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SOURCE",
            show_default=False,
            help="An array of the store and what it should be equal to; repeat it for several.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all that was found as JSON.")] = False,
) -> None:
    """Check every chunk of a store, alone or against another store, and name what is damaged or differs.

    A store that convert wrote has a manifest: chunks that are not what they were are found without the
    source. Against another store, every value is compared bit by bit. Exit code 1 if anything is damaged
    or differs.

    Example: oocloader verify train.zarr

    Example: oocloader verify images.zarr images.npy

    Example: oocloader verify train.h5 --array x=images.npy --array y=labels.npy
    """
    from oocloader.conversion import verify as run  # not at the top: --help need not wait for it

    takes, alone = "a store and one to compare it with", "the store"
    sources = sources_beside(stores, array, command="verify", alone=alone, takes=takes, counts=(1, 2))
    report = run(stores[0], sources or (stores[1] if len(stores) == 2 else None), progress=True)
    typer.echo(json.dumps(report.as_dict(), indent=2) if as_json else str(report))
    if not report.ok:
        raise typer.Exit(1)
