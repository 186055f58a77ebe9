"""`oocloader inspect`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from oocloader.stores import ArrayReport


def inspect(
    store: Annotated[
        list[str],
        typer.Argument(
            metavar="STORE...",
            show_default=False,
            help="A store, such as train.h5, train.zarr or x.npy; several are joined along their rows.",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show what is in a store: arrays, chunks, codecs, sizes, how each is read, and what would be faster.

    Example: oocloader inspect train.h5

    Example: oocloader inspect --json part-1.npy part-2.npy
    """
    from oocloader.stores import inspect_store, open_store

    with open_store(store[0] if len(store) == 1 else store) as opened:
        reports = inspect_store(opened)
        path = opened.path
    if as_json:
        typer.echo(json.dumps({"store": path, "arrays": [report.as_dict() for report in reports]}, indent=2))
        return
    typer.echo(path)
    for report in reports:
        for line in _lines(report):
            typer.echo(f"  {line}")


def _lines(report: ArrayReport) -> list[str]:
    from oocloader.sizes import nbytes_text

    info = report.info
    if info.reader == "none":
        return [f"{info.name}: cannot be loaded: {info.reason}"]
    shape = " x ".join(map(str, info.shape))
    chunks = "not chunked" if info.chunk_shape is None else f"chunks {' x '.join(map(str, info.chunk_shape))}"
    codecs = ", ".join(info.codecs) or "no codec"
    how = "directly" if info.reader == "direct" else f"by the library ({info.reason})"
    sizes = f"{nbytes_text(info.nbytes)}, stored {nbytes_text(info.stored_nbytes)}"
    lines = [f"{info.name}: {shape} {info.dtype}, {chunks}, {codecs}, {sizes}, read {how}"]
    if report.parts:
        lines.append(f"  {len(report.parts)} parts, in this order:")
        lines += [f"    {part}" for part in report.parts]
    if report.notice:
        lines.append(f"  note: {report.notice}")
    lines += [f"  advice: {line}" for line in report.advice]
    return lines
