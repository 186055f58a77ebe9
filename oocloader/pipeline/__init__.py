"""One epoch as windows, read ahead, kept where they fit."""

from __future__ import annotations

from oocloader.pipeline.cache import CachedReader, Caching
from oocloader.pipeline.class_weights import ClassWeights, class_weights
from oocloader.pipeline.epoch_pass import EpochPass, Progress, ReadConfig
from oocloader.pipeline.next_epoch import NextEpoch
from oocloader.pipeline.residency import (
    HostRows,
    Residency,
    Resident,
    check_fits,
    check_host,
    is_resident,
    load,
    numbers_of,
    parse_residency,
    resident,
)
from oocloader.pipeline.staging import Gather
from oocloader.pipeline.transform_seeds import Seeds, wants_seed

__all__ = [
    "CachedReader",
    "Caching",
    "ClassWeights",
    "EpochPass",
    "Gather",
    "HostRows",
    "NextEpoch",
    "Progress",
    "ReadConfig",
    "Residency",
    "Resident",
    "Seeds",
    "check_fits",
    "check_host",
    "class_weights",
    "is_resident",
    "load",
    "numbers_of",
    "parse_residency",
    "resident",
    "wants_seed",
]
