"""One epoch as windows, read ahead, kept where they fit."""

from __future__ import annotations

from oocloader.pipeline.cache import CachedReader, Caching
from oocloader.pipeline.class_weights import ClassWeights, class_weights
from oocloader.pipeline.epoch_pass import Feed, Pass, Progress
from oocloader.pipeline.next_epoch import Border
from oocloader.pipeline.residency import (
    HostRows,
    Residency,
    Resident,
    check_fits,
    check_host,
    keeps,
    load,
    numbers_of,
    parse_residency,
    resident,
)
from oocloader.pipeline.staging import Gather
from oocloader.pipeline.transform_seeds import Seeds, wants_seed

__all__ = [
    "Border",
    "CachedReader",
    "Caching",
    "ClassWeights",
    "Feed",
    "Gather",
    "HostRows",
    "Pass",
    "Progress",
    "Residency",
    "Resident",
    "Seeds",
    "check_fits",
    "check_host",
    "class_weights",
    "keeps",
    "load",
    "numbers_of",
    "parse_residency",
    "resident",
    "wants_seed",
]
