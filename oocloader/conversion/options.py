"""What the user may ask of the rows on their way, checked before anything is opened."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from oocloader.errors import SettingError
from oocloader.sizes import parse_nbytes
from oocloader.stores import raw_shape

_T = TypeVar("_T")
Shards = int | Literal["auto", "none"]


@dataclass(frozen=True, slots=True)
class PerArray(Generic[_T]):
    """A value for every array, or one for each of some arrays by name, in the new store or in the source."""

    option: str
    every: _T | None = None
    named: Mapping[str, _T] = field(default_factory=dict)

    def of(self, *names: str) -> _T | None:
        return next((self.named[name] for name in names if name in self.named), self.every)

    def check_names(self, names: Collection[str]) -> None:
        """Raise `SettingError` where an array is named that is not among `names`."""
        for name in self.named:
            if name not in names:
                listed = ", ".join(repr(known) for known in sorted(names) if known)
                raise SettingError(f"{self.option}: there is no array {name!r}; there are {listed}")

    def __bool__(self) -> bool:
        return self.every is not None or bool(self.named)


@dataclass(frozen=True, slots=True)
class Shaping:
    """How the rows of the new store are made of the source.

    - `shapes`: of raw binary files
    - `dtypes`: of the new arrays, or of the values in raw files; `lossy`: may values be rounded
    - `axes`: which axis becomes the rows
    - `first`, `stop`: the rows that are taken, as in a slice
    - `shuffle`: seed; `shuffle_index`: name of the array that tells where rows came from
    """

    shapes: PerArray[tuple[int, ...]]
    dtypes: PerArray[np.dtype]
    axes: PerArray[int]
    lossy: bool = False
    first: int | None = None
    stop: int | None = None
    shuffle: int | None = None
    shuffle_index: str | None = None


def shaping(
    *,
    shape: Any = None,
    dtype: Any = None,
    lossy: bool = False,
    axis: Any = 0,
    rows: Any = None,
    shuffle: Any = None,
    shuffle_index: Any = None,
) -> Shaping:
    """The options as given by the user, checked. Raises `SettingError`."""
    first, stop = _rows(rows)
    if shuffle is not None:
        shuffle = _whole("shuffle", shuffle, 0)
    if shuffle_index is not None:
        if not isinstance(shuffle_index, str) or not shuffle_index:
            raise SettingError(f"shuffle_index: expected the name of an array, got {shuffle_index!r}")
        if shuffle is None:
            raise SettingError("shuffle_index: stores the order of a shuffle; give its seed with shuffle too")
    dtypes = _per_array("dtype", dtype, _dtype)
    if lossy and not dtypes:
        raise SettingError("lossy: says how to convert to another dtype; name it with dtype too")
    return Shaping(
        shapes=_per_array("shape", shape, raw_shape),
        dtypes=dtypes,
        axes=_per_array("axis", 0 if axis is None else axis, lambda value: _integer("axis", value)),
        lossy=bool(lossy),
        first=first,
        stop=stop,
        shuffle=shuffle,
        shuffle_index=shuffle_index,
    )


def _per_array(option: str, value: Any, parse: Any) -> PerArray[Any]:
    if value is None:
        return PerArray(option)
    if isinstance(value, Mapping):
        return PerArray(option, None, {name: parse(found) for name, found in value.items()})
    return PerArray(option, parse(value))


def _dtype(value: Any) -> np.dtype:
    try:
        found: np.dtype = np.dtype(value)
    except TypeError:
        found = np.dtype("V")
    if value is None or found.kind not in "biufc" or found.itemsize > 16 or found == np.dtype("g"):
        raise SettingError(f"dtype: expected a number type such as float32, uint8 or >i2, got {value!r}")
    return found


def _integer(option: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise SettingError(f"{option}: expected a whole number, got {value!r}") from None


def _whole(option: str, value: Any, least: int) -> int:
    found = _integer(option, value)
    if found < least or isinstance(value, bool):
        raise SettingError(f"{option}: expected a whole number of at least {least}, got {value!r}")
    return found


def _rows(rows: Any) -> tuple[int | None, int | None]:
    """First and stop of a slice, or of text such as `1000:2000`."""
    if rows is None:
        return None, None
    found = rows
    try:
        if isinstance(rows, str):
            start, colon, stop = rows.partition(":")
            if not colon:
                raise ValueError
            found = slice(int(start) if start.strip() else None, int(stop) if stop.strip() else None)
        if isinstance(found, slice) and found.step in (None, 1):
            return tuple(None if at is None else operator.index(at) for at in (found.start, found.stop))  # type: ignore[return-value] # two of them
    except (TypeError, ValueError):
        pass
    raise SettingError(
        f"rows: expected the first row and the one behind the last, such as 1000:2000, got {rows!r}"
    )


def checked_shards(shards: Any) -> Shards:
    """`auto`, `none`, or the rows of a shard. Raises `SettingError`."""
    if shards in ("auto", "none"):
        return shards  # type: ignore[no-any-return] # one of the two
    try:
        rows = int(shards) if isinstance(shards, str) else operator.index(shards)
    except (TypeError, ValueError):
        rows = 0
    if rows < 1 or isinstance(shards, bool):
        raise SettingError(f"shards: expected auto, none or the rows of a shard, got {shards!r}")
    return rows


def checked_zarr_format(value: Any) -> Literal[2, 3]:
    """2 or 3. Raises `SettingError`."""
    if value not in (2, 3) or isinstance(value, bool):
        raise SettingError(f"zarr_format: expected 2 or 3, got {value!r}")
    return 2 if value == 2 else 3


def checked_memory(value: Any) -> int | None:
    """Bytes of the device memory that the store is for, `None` where nothing was said."""
    return None if value is None else parse_nbytes(value, "for_memory")


def check_flags(**flags: Any) -> None:
    """Raise `SettingError` where one of these is neither true nor false."""
    for name, value in flags.items():
        if not isinstance(value, bool | np.bool_):
            raise SettingError(f"{name}: expected True or False, got {value!r}")
