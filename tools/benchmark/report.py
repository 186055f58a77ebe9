"""The results as a table, as JSON and as a plot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmark.measure import Row

_HEAD = (
    "store",
    "order",
    "contestant",
    "delivered",
    "read",
    "of yardstick",
    "",
    "of best recipe",
    "oocloader is",
)
_SUMMARY = ("subset", "store", "order", "delivered", "read", "yardstick", "best recipe", "against it")


def write_json(path: Path, about: dict[str, Any], rows: Sequence[Row]) -> None:
    """`{**about, "results": [...]}`, a result with the fields of `Row`."""
    path.write_text(json.dumps({**about, "results": [asdict(row) for row in rows]}, indent=1) + "\n")


def table(rows: Sequence[Row]) -> str:
    """One line a contestant, by subset. GB/s; of several ways to measure the machine the fastest only."""
    parts = []
    for subset in dict.fromkeys(row.subset for row in rows):
        chosen = [row for row in rows if row.subset == subset]
        lines = [_line(row) for row in chosen if not _slower_yardstick(row)]
        parts.append(f"{subset} (GB/s)\n{_aligned([_HEAD, *lines], left=3)}")
    return "\n\n".join(parts)


def summary(rows: Sequence[Row]) -> str:
    """One line a case: the loader against the machine and against the best recipe."""
    lines = []
    for row in rows:
        if row.role == "oocloader":
            yardstick = "" if row.yardstick_gb_s is None else f"{row.yardstick} {row.yardstick_gb_s:.2f}"
            lines.append(
                (
                    row.subset,
                    row.store + (f" ({row.contestant.split(', ')[1]})" if ", " in row.contestant else ""),
                    row.order,
                    _speed(row.delivered_gb_s) + _share(row.delivered_to_yardstick),
                    _speed(row.read_gb_s) + _share(row.read_to_yardstick),
                    yardstick,
                    row.best_recipe or "",
                    _times(row.to_best),
                )
            )
    return _aligned([_SUMMARY, *lines], left=3)


def _line(row: Row) -> tuple[str, ...]:
    return (
        row.store,
        row.order,
        row.contestant,
        _speed(row.delivered_gb_s),
        _speed(row.read_gb_s),
        _number(row.delivered_to_yardstick),
        _number(row.read_to_yardstick),
        _number(row.to_best),
        _times(row.oocloader_to_this),
    )


def _slower_yardstick(row: Row) -> bool:
    return (
        row.role == "machine" and row.contestant.startswith(row.yardstick) and row.delivered_to_yardstick != 1
    )


def _speed(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _share(value: float | None) -> str:
    return "" if value is None else f" ({value:.2f})"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} x" if value < 10 else f"{value:.0f} x"


def _aligned(lines: Sequence[tuple[str, ...]], *, left: int) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if number < left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def plot(path: Path, rows: Sequence[Row]) -> None:
    """A PNG: for each case the loader's bars, a mark for each recipe, a line for what the machine can do."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    cases: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        cases.setdefault((row.subset, row.store, row.order), []).append(row)
    # The first of the loader's is drawn as bars, everything else that loads as a mark.
    ours = [next((row for row in of if row.role == "oocloader"), None) for of in cases.values()]
    marked = [row for row in rows if row.role != "machine" and not any(row is first for first in ours)]
    names = list(dict.fromkeys(row.contestant for row in marked))
    colors = plt.get_cmap("tab20")
    figure, axes = plt.subplots(figsize=(11, 2.5 + 0.28 * len(cases)), layout="constrained")
    for place, first in enumerate(ours):
        if first is None:
            continue
        axes.barh(place, first.delivered_gb_s or 0, 0.8, color="#bcd4e6", label="oocloader, delivered")
        axes.barh(place, first.read_gb_s or 0, 0.5, color="#1f5f8b", label="oocloader, read")
        if first.yardstick_gb_s is not None:
            axes.vlines(first.yardstick_gb_s, place - 0.45, place + 0.45, "k", label="the machine")
    places = {case: place for place, case in enumerate(cases)}
    for number, name in enumerate(names):
        chosen = [row for row in marked if row.contestant == name]
        axes.scatter(
            [(row.delivered_gb_s if row.read_gb_s is None else row.read_gb_s) or 0 for row in chosen],
            [places[row.subset, row.store, row.order] for row in chosen],
            s=36,
            marker="osD^"[number // 20 % 4],
            color=colors(number % 20),
            edgecolors="k",
            linewidths=0.4,
            zorder=3,
            label=name,
        )
    labels = [f"{subset}: {store}, {order}" for subset, store, order in cases]
    axes.set_yticks(range(len(cases)), labels, fontsize=8)
    axes.set_ylim(len(cases) - 0.4, -0.6)
    axes.set_xscale("log")
    axes.set_xlabel("GB/s; of recipes, read where the case reads")
    axes.grid(axis="x", alpha=0.3)
    found, texts = axes.get_legend_handles_labels()
    unique = dict(zip(texts, found, strict=True))
    figure.legend(unique.values(), unique.keys(), loc="outside lower center", ncols=4, fontsize=7)
    figure.savefig(path, dpi=120)
    plt.close(figure)
