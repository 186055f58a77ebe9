"""The public face: settings checked, the loader put together, planned, split, saved."""

from __future__ import annotations

from oocloader.loader.data_spec import DataSpec
from oocloader.loader.loader import Loader
from oocloader.loader.plan import Plan

__all__ = [
    "DataSpec",
    "Loader",
    "Plan",
]
