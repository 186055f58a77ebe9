"""Packages that are compared with, or needed to compare, where they are installed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from typing import Any

PEERS = ("hdf5plugin", "zarrs", "tensorstore")


def missing(names: Iterable[str] = PEERS) -> list[str]:
    """Those of `names` that are not installed."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def load(name: str) -> Any:
    """The package, untyped: which of them are installed must not change what the type checker sees."""
    return importlib.import_module(name)
