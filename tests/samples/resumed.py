"""Loaders that go on from a state, and their batches."""

from __future__ import annotations

from typing import Any

import oocloader as ooc
from recorded import ids_of

OPTIONS: dict[str, Any] = {"batch_size": 32, "seed": 7, "window": 120, "block": 8}


def loader_of(source: Any, **options: Any) -> ooc.Loader:
    return ooc.Loader(source, "x", "y", **{**OPTIONS, **options})


def batches_of(elements: Any) -> list[list[int]]:
    return [ids_of([batch]) for batch in elements]
