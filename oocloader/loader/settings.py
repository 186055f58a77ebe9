"""The options of a loader as one checked value."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from oocloader.errors import SettingError
from oocloader.machine import usable_cores
from oocloader.memory import RequestedRows
from oocloader.order import Names, Shard, Shuffle, whole
from oocloader.pipeline import CacheOption, Residency
from oocloader.sizes import parse_nbytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike

_MOST_THREADS = 8

ClassWeight: TypeAlias = Mapping[int, float] | Literal["balanced"] | None
DTypes: TypeAlias = "DTypeLike | Mapping[str, DTypeLike] | None"
Factors: TypeAlias = float | Mapping[str, float] | None
"""Of all features, or by their keys."""
Rows: TypeAlias = "slice | Sequence[int] | Sequence[bool] | np.ndarray | None"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoaderOptions:
    """What `Loader` was given, parsed, and checked as far as that can be done without the data.

    Budgets are in bytes, None where none is written. Raises `SettingError` for options that exclude each
    other.
    """

    features: Names | None
    labels: Names | None
    sample_weight: Names | None
    class_weight: ClassWeight
    batch_size: int
    drop_remainder: bool
    shuffle: Shuffle
    seed: int
    window: RequestedRows | None
    block: RequestedRows | None
    dtype: DTypes
    scale: Factors
    offset: Factors
    transform: Callable[..., Any] | None
    device: str | None
    residency: Residency
    host_memory: int | None
    device_memory: int | None
    caching: CacheOption
    threads: int
    mapping: bool
    """Whether files may be mapped."""
    shard: Shard
    rows: Rows

    def __post_init__(self) -> None:
        if self.shuffle == "global" and self.block is not None:
            raise SettingError(
                f'block={self.block} means nothing with shuffle="global", which keeps no rows together'
            )
        if self.residency == "device" and self.caching.in_memory:
            raise SettingError(
                "cache='memory' keeps what residency='device' keeps already; leave cache= out, or name a "
                "folder"
            )


def parse_flag(option: str, value: object) -> bool:
    """True or False; numbers are neither."""
    if not isinstance(value, bool):
        raise SettingError(f"{option}={value!r} must be True or False")
    return value


def parse_mapping(mmap: object) -> bool:
    """Whether files may be mapped."""
    if mmap is not None and mmap is not False:
        raise SettingError(f"mmap={mmap!r} must be None (map files where it pays) or False (only read)")
    return mmap is None


def parse_budget(option: str, value: int | str | None) -> int | None:
    """Bytes, None where no budget is written."""
    return None if value is None else parse_nbytes(value, option)


def parse_threads(value: int | None) -> int:
    """Threads that read: one a usable core, eight at most, where no number is given."""
    return min(_MOST_THREADS, usable_cores()) if value is None else whole("threads", value, least=1)
