"""The options of a Loader, checked as far as they can be without the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oocloader.errors import SettingError
from oocloader.machine import usable_cores
from oocloader.order import Shard, Shuffle, shard_of, shuffled, whole
from oocloader.pipeline import CacheOption, Residency, parse_residency
from oocloader.sizes import parse_nbytes

_MOST_THREADS = 8


@dataclass(frozen=True, slots=True)
class Settings:
    """Budgets are in bytes, None where none is written; `window` and `block` are rows, or sizes as text."""

    batch_size: int
    drop_remainder: bool
    shuffle: Shuffle
    seed: int
    window: int | str | None
    block: int | str | None
    host_memory: int | None
    device_memory: int | None
    threads: int
    mapping: bool
    """Whether files may be mapped."""
    shard: Shard
    residency: Residency
    caching: CacheOption

    @classmethod
    def checked(cls, given: Mapping[str, Any]) -> Settings:
        """Those of `given` options. Raises `SettingError` that names the option."""
        threads, mmap, shuffle = given["threads"], given["mmap"], shuffled(given["shuffle"])
        if not isinstance(given["drop_remainder"], bool):
            raise SettingError(f"drop_remainder={given['drop_remainder']!r} must be True or False")
        if mmap is not None and mmap is not False:
            raise SettingError(f"mmap={mmap!r} must be None (map files where it pays) or False (only read)")
        if shuffle == "global" and given["block"] is not None:
            raise SettingError(
                f'block={given["block"]!r} means nothing with shuffle="global", which keeps no rows together'
            )
        if given["residency"] == "device" and given["cache"] == "memory":
            raise SettingError(
                "cache='memory' keeps what residency='device' keeps already; leave cache= out, or name a "
                "folder"
            )
        if threads is not None:
            threads = whole("threads", threads, least=1)
        return cls(
            batch_size=whole("batch_size", given["batch_size"], least=1),
            drop_remainder=given["drop_remainder"],
            shuffle=shuffle,
            seed=whole("seed", given["seed"], least=0, most=2**64 - 1),
            window=given["window"],
            block=given["block"],
            host_memory=_nbytes(given, "host_memory"),
            device_memory=_nbytes(given, "device_memory"),
            threads=threads or min(_MOST_THREADS, usable_cores()),
            mapping=mmap is None,
            shard=shard_of(given["shard"]),
            residency=parse_residency(given["residency"]),
            caching=CacheOption.parse(given["cache"]),
        )


def _nbytes(given: Mapping[str, Any], option: str) -> int | None:
    return None if given[option] is None else parse_nbytes(given[option], option)
