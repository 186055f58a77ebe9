"""The subset of orders over all rows: rows kept in memory, and every row anywhere in the epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import oocloader as ooc
from benchmark import machine
from benchmark.data import images
from benchmark.loading import Settings, loader_contestant, open_recipe, preadv
from benchmark.measure import Case, Contestant, Row, check_first_batch, run_case
from benchmark.recipes import RECIPES, Job

_OPTIONS: dict[str, dict[str, Any]] = {
    "global order": {"shuffle": "global"},
    "resident": {"shuffle": "global", "residency": "device"},
    "window order": {"shuffle": "window"},
}


def resident(settings: Settings) -> Iterator[Row]:
    """Rows anywhere in the epoch, and rows kept in memory, against from_tensor_slices + shuffle."""
    source = images(settings.folder / f"images-{settings.rows}", settings.rows)
    machine.warm_cache([source.x_path])
    contestants: list[Contestant] = []
    for name, options in _OPTIONS.items():
        settings.say(f"resident: {name}")
        loader = ooc.Loader(
            {"x": str(source.x_path), "y": str(source.y_path)},
            "x",
            "y",
            batch_size=settings.batch_size,
            device="/CPU:0",
            **options,
        )
        check_first_batch(source, loader, settings.batch_size, shuffled=True)
        contestants.append(replace(loader_contestant(loader, source), name=f"oocloader, {name}"))
    recipe = next(found for found in RECIPES if found.family == "memory" and "shuffled" in found.orders)
    job = Job(source, source.x_path, settings.batch_size, "shuffled", settings.rows)
    contestants.append(open_recipe(recipe, job, "recipe", settings.most_s))
    contestants += preadv(source.x_path)
    yield from run_case(Case("resident", "npy", "shuffled", "preadv", contestants), settings.repeats)
