"""What the caller of `convert` asks for, checked before anything is opened."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Generic, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import DTypeLike

from oocloader.conversion.encode import Codec
from oocloader.errors import SettingError
from oocloader.sizes import parse_nbytes
from oocloader.stores import raw_shape

_T = TypeVar("_T")
Shape = str | Sequence[int]
Shards = int | Literal["auto", "none"]
Verify = Literal["sample", "full", "none"]
ZarrFormat = Literal[2, 3]

AUTO = "auto"
# Of a conversion that differs in nothing but these, the new store is the same.
_NOT_RECORDED = frozenset(("overwrite", "resume", "verify", "progress"))


@dataclass(frozen=True, slots=True)
class PerArray(Generic[_T]):
    """A value for every array, or one for each of some arrays by name, in the new store or in the source."""

    option: str
    every: _T | None = None
    named: Mapping[str, _T] = field(default_factory=dict)

    @classmethod
    def parsed(cls, option: str, value: object, parse: Callable[[object], _T]) -> PerArray[_T]:
        """From what was given: a dict by names, one value for all, or `None` for none."""
        if value is None:
            return cls(option)
        if isinstance(value, Mapping):
            return cls(option, None, {name: parse(one) for name, one in value.items()})
        return cls(option, parse(value))

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertOptions:
    """The options of `convert`, and what they say. Raises `SettingError` for bad ones.

    - `recorded`: those that show in the new store, as they were given
    - `shapes`: of raw binary files
    - `dtypes`: of the new arrays, or of the values in raw files
    - `axes`: which axis becomes the rows
    - `first`, `stop`: the rows that are taken, as in a slice
    - `parsed_codec`: `None` where it is to be chosen
    - `parsed_shards`: `auto`, `none`, or the rows of a shard
    - `device_nbytes`: memory of the device that the store is for, `None` where nothing was said
    """

    codec: str = "none"
    chunk_rows: int | None = None
    shards: str | int = "auto"
    zarr_format: ZarrFormat = 3
    for_memory: str | int | None = None
    shape: Shape | Mapping[str, Shape] | None = None
    dtype: DTypeLike | Mapping[str, DTypeLike] | None = None
    lossy: bool = False
    axis: int | Mapping[str, int] | None = 0
    rows: slice | str | None = None
    shuffle: int | None = None
    shuffle_index: str | None = None
    overwrite: bool = False
    resume: bool = False
    verify: Verify = "sample"
    checksum: bool = False
    progress: bool = False
    recorded: Mapping[str, object] = field(init=False)
    shapes: PerArray[tuple[int, ...]] = field(init=False)
    dtypes: PerArray[np.dtype] = field(init=False)
    axes: PerArray[int] = field(init=False)
    first: int | None = field(init=False)
    stop: int | None = field(init=False)
    parsed_codec: Codec | None = field(init=False)
    parsed_shards: Shards = field(init=False)
    device_nbytes: int | None = field(init=False)

    def __post_init__(self) -> None:
        for name in ("lossy", "overwrite", "resume", "checksum", "progress"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise SettingError(f"{name}: expected True or False, got {getattr(self, name)!r}")
        if self.verify not in get_args(Verify):
            raise SettingError(f"verify: expected 'sample', 'full' or 'none', got {self.verify!r}")
        if self.zarr_format not in get_args(ZarrFormat) or isinstance(self.zarr_format, bool):
            raise SettingError(f"zarr_format: expected 2 or 3, got {self.zarr_format!r}")
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.init}
        if self.chunk_rows is not None:
            _set(self, "chunk_rows", _whole("chunk_rows", self.chunk_rows, 1))
        if self.shuffle is not None:
            _set(self, "shuffle", _whole("shuffle", self.shuffle, 0))
        first, stop = _first_and_stop(self.rows)
        _set(self, "first", first)
        _set(self, "stop", stop)
        _set(self, "shapes", PerArray.parsed("shape", self.shape, raw_shape))
        _set(self, "dtypes", PerArray.parsed("dtype", self.dtype, _number_dtype))
        axis = 0 if self.axis is None else self.axis
        _set(self, "axes", PerArray.parsed("axis", axis, lambda value: _integer("axis", value)))
        _set(self, "parsed_codec", None if self.codec == AUTO else Codec.parse(self.codec))
        _set(self, "parsed_shards", _parsed_shards(self.shards))
        recorded = {name: value for name, value in given.items() if name not in _NOT_RECORDED}
        recorded |= {"codec": str(self.parsed_codec or AUTO), "checksum": bool(self.checksum)}
        _set(self, "recorded", recorded)
        memory = self.for_memory
        _set(self, "device_nbytes", None if memory is None else parse_nbytes(memory, "for_memory"))
        self._check_together()

    def _check_together(self) -> None:
        index = self.shuffle_index
        if index is not None:
            if not isinstance(index, str) or not index:
                raise SettingError(f"shuffle_index: expected the name of an array, got {index!r}")
            if self.shuffle is None:
                raise SettingError(
                    "shuffle_index: stores the order of a shuffle; give its seed with shuffle too"
                )
        if self.lossy and not self.dtypes:
            raise SettingError("lossy: says how to convert to another dtype; name it with dtype too")
        if self.checksum and self.zarr_format == 2:
            what = "Zarr format 2 has no place for a checksum behind its compressor"
            raise SettingError(f"checksum: {what}; leave out zarr_format=2")


def _set(options: ConvertOptions, name: str, value: object) -> None:
    object.__setattr__(options, name, value)  # frozen once it is made


def _number_dtype(value: object) -> np.dtype:
    try:
        dtype: np.dtype = np.dtype(value)  # type: ignore[call-overload] # whether it is one is found out here
    except TypeError:
        dtype = np.dtype("V")
    if value is None or dtype.kind not in "biufc" or dtype.itemsize > 16 or dtype == np.dtype("g"):
        raise SettingError(f"dtype: expected a number type such as float32, uint8 or >i2, got {value!r}")
    return dtype


def _integer(option: str, value: object) -> int:
    try:
        return operator.index(value)  # type: ignore[arg-type] # whether it is one is found out here
    except TypeError:
        raise SettingError(f"{option}: expected a whole number, got {value!r}") from None


def _whole(option: str, value: object, least: int) -> int:
    number = _integer(option, value)
    if number < least or isinstance(value, bool):
        raise SettingError(f"{option}: expected a whole number of at least {least}, got {value!r}")
    return number


def _first_and_stop(rows: slice | str | None) -> tuple[int | None, int | None]:
    """First and stop of a slice, or of text such as `1000:2000`."""
    if rows is None:
        return None, None
    try:
        if isinstance(rows, str):
            first, stop = (int(text) if text.strip() else None for text in rows.split(":"))
            return first, stop
        if isinstance(rows, slice) and rows.step in (None, 1):
            first, stop = (None if at is None else operator.index(at) for at in (rows.start, rows.stop))
            return first, stop
    except (TypeError, ValueError):
        pass
    raise SettingError(
        f"rows: expected the first row and the one behind the last, such as 1000:2000, got {rows!r}"
    )


def _parsed_shards(shards: str | int) -> Shards:
    if shards == "auto":
        return "auto"
    if shards == "none":
        return "none"
    try:
        rows = int(shards) if isinstance(shards, str) else operator.index(shards)
    except (TypeError, ValueError):
        rows = 0
    if rows < 1 or isinstance(shards, bool):
        raise SettingError(f"shards: expected auto, none or the rows of a shard, got {shards!r}")
    return rows
