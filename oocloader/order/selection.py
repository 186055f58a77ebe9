"""Which rows and which arrays: what a user names, checked and brought to one form."""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oocloader.errors import SettingError
from oocloader.order.order import RowSet, Shuffle
from oocloader.order.shards import Shard

Names = str | Sequence[str] | Mapping[str, str]


def whole(option: str, value: Any, *, least: int, most: int | None = None) -> int:
    """`value` as an int within its bounds, or a `SettingError` that names the option."""
    bounds = f"at least {least}" if most is None else f"from {least} to {most}"
    try:
        number = operator.index(value)
    except TypeError:
        raise SettingError(f"{option}={value!r} must be a whole number, {bounds}") from None
    if isinstance(value, bool) or number < least or (most is not None and number > most):
        raise SettingError(f"{option}={value!r} must be a whole number, {bounds}")
    return number


def shuffled(value: Any) -> Shuffle:
    """How rows are to be shuffled."""
    if value is None or isinstance(value, (bool, np.bool_)):
        return "window" if value else False
    if value in ("window", "global"):
        return "global" if value == "global" else "window"
    raise SettingError(f'shuffle={value!r} must be False, True, "window" or "global"')


def shard_of(value: Any) -> Shard:
    """Index and count of the shard that `value` (None, or these two) asks for."""
    if value is None:
        return 0, 1
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise SettingError(f"shard={value!r} must be (index, count), such as (0, 4)")
    count = whole("shard count", value[1], least=1)
    return whole("shard index", value[0], least=0, most=count - 1), count


def row_set(rows: Any, total: int) -> RowSet:
    """The rows that `rows` (None, a slice, sorted unique numbers or a boolean mask) picks of `total`.

    >>> len(row_set(slice(10, None), 25)), row_set(np.array([3, 4, 5]), 25)
    (15, RowSet(start=3, stop=6, picked=None))
    """
    if rows is None:
        return RowSet(0, total)
    if isinstance(rows, slice):
        try:
            start, stop, step = rows.indices(total)
        except (TypeError, ValueError) as error:
            raise SettingError(f"rows={rows!r} is no slice of rows: {error}") from None
        if step == 1:
            return RowSet(start, max(start, stop))
        if step < 1:
            raise SettingError(f"rows={rows!r} must go upwards; shuffle= changes the order of rows")
        return RowSet.of(np.arange(start, stop, step, dtype=np.int64))
    picked = np.asarray(rows)
    if picked.ndim != 1:
        raise SettingError(f"rows must be a slice or one-dimensional, got an array of shape {picked.shape}")
    if picked.dtype == np.bool_:
        if len(picked) != total:
            raise SettingError(f"rows is a mask of {len(picked)} values, but the arrays have {total} rows")
        return RowSet.of(np.flatnonzero(picked).astype(np.int64))
    if len(picked) and picked.dtype.kind not in "iu":
        raise SettingError(f"rows must be integers, a boolean mask or a slice, got dtype {picked.dtype}")
    picked = picked.astype(np.int64)
    if len(picked) and not (picked[0] >= 0 and picked[-1] < total):
        raise SettingError(
            f"rows run from {picked[0]} to {picked[-1]}, but the arrays have rows 0 to {total - 1}"
        )
    if np.any(picked[1:] <= picked[:-1]):
        at = int(np.flatnonzero(picked[1:] <= picked[:-1])[0])
        raise SettingError(
            f"rows must be sorted and unique: rows[{at}] is {picked[at]}, rows[{at + 1}] is "
            f"{picked[at + 1]}; use np.unique, and shuffle= for another order"
        )
    return RowSet.of(picked)


@dataclass(frozen=True, slots=True)
class Cast:
    """What is done to one array on the device: cast to `dtype`, then times `scale`, plus `offset`."""

    dtype: str | None = None
    scale: float | None = None
    offset: float | None = None

    @property
    def nothing(self) -> bool:
        """Whether the array is delivered as stored."""
        return self.dtype is None and self.scale is None and self.offset is None

    def delivered(self, stored: np.dtype) -> str:
        """Name of the dtype delivered for a stored one."""
        if self.dtype is not None:
            return self.dtype
        return stored.name if self.nothing or stored.kind == "c" else "float32"


@dataclass(frozen=True, slots=True)
class Fields:
    """The arrays of an element: their `names`, and its `structure` with indices of them as leaves."""

    names: tuple[str, ...]
    structure: Any
    keys: tuple[str | None, ...]
    """Key of each array in the element, None where it stands alone."""
    feature: tuple[bool, ...]
    """Whether each array is a feature."""
    label: tuple[bool, ...]
    """Whether each array is a label."""

    def casts(self, dtype: Any, scale: Any, offset: Any) -> tuple[Cast, ...]:
        """What is done to each array: one value for all features, or by key."""
        dtypes = self._each("dtype", dtype, _dtype_name)
        scales = self._each("scale", scale, lambda value: _number("scale", value))
        offsets = self._each("offset", offset, lambda value: _number("offset", value))
        casts = tuple(Cast(*parts) for parts in zip(dtypes, scales, offsets, strict=True))
        for cast in casts:
            _check_scaled(cast)
        return casts

    def _each(self, option: str, value: Any, parse: Callable[[Any], Any]) -> list[Any]:
        if not isinstance(value, Mapping):
            parsed = None if value is None else parse(value)
            return [parsed if feature else None for feature in self.feature]
        found: list[Any] = []
        known: set[str] = set()
        for name, key in zip(self.names, self.keys, strict=True):
            own = name if key is None else key
            known.add(own)
            found.append(None if value.get(own) is None else parse(value[own]))
        unknown = [key for key in value if key not in known]
        if unknown:
            keys = ", ".join(map(repr, sorted(known)))
            raise SettingError(f"{option} has the key {unknown[0]!r}; keys of this element are {keys}")
        return found


def fields(features: Names, labels: Names | None, sample_weight: Names | None) -> Fields:
    """The arrays of an element by what the user names."""
    names: list[str] = []
    keys: list[str | None] = []
    feature: list[bool] = []
    label: list[bool] = []
    parts: list[Any] = []
    for option, named in (("features", features), ("labels", labels), ("sample_weight", sample_weight)):
        if named is None:
            continue
        structure: Any
        if isinstance(named, str):
            structure = len(names)
            names.append(named)
            keys.append(None)
        else:
            pairs = _pairs(option, named)
            structure = {key: len(names) + at for at, key in enumerate(pairs)}
            names += pairs.values()
            keys += pairs
        feature += [option == "features"] * (len(names) - len(feature))
        label += [option == "labels"] * (len(names) - len(label))
        parts.append(structure)
    if sample_weight is not None and labels is None:
        raise SettingError("sample_weight needs labels: elements are x, (x, y) or (x, y, weight)")
    element = parts[0] if len(parts) == 1 else tuple(parts)
    return Fields(tuple(names), element, tuple(keys), tuple(feature), tuple(label))


def _pairs(option: str, named: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    if isinstance(named, Mapping):
        pairs = list(named.items())
    elif isinstance(named, Sequence):
        pairs = [(name, name) for name in named]
    else:
        raise SettingError(f"{option}={named!r} must be a name, a list of names or a dict of names by key")
    if not pairs or not all(isinstance(item, str) for pair in pairs for item in pair):
        raise SettingError(f"{option}={named!r} must name at least one array, by strings")
    found = dict(pairs)
    if len(found) < len(pairs):
        raise SettingError(f"{option}={named!r} names an array twice; a dict gives each its own key")
    return found


# Names TensorFlow knows beyond NumPy's, with their bytes.
_OTHER_DTYPES = {"bfloat16": 2}


def _dtype_name(value: Any) -> str:
    name = value if isinstance(value, str) else getattr(value, "name", None)
    if isinstance(name, str) and name in _OTHER_DTYPES:
        return name
    try:
        found = np.dtype(name if isinstance(name, str) else value)
    except TypeError:
        found = None
    if found is None or found.kind not in "biufc" or found.itemsize > 8 * (1 + (found.kind == "c")):
        raise SettingError(f'dtype={value!r} is no number type; write, for example, "float32" or "bfloat16"')
    return found.name


def dtype_nbytes(name: str) -> int:
    """Bytes of one item of a dtype that `Cast` names."""
    return _OTHER_DTYPES.get(name) or np.dtype(name).itemsize


def _number(option: str, value: Any) -> float:
    if isinstance(value, (int, float, np.integer, np.floating)) and math.isfinite(value):
        return float(value)
    raise SettingError(f"{option}={value!r} must be a finite number")


def _check_scaled(cast: Cast) -> None:
    if cast.dtype is None or cast.dtype in _OTHER_DTYPES or np.dtype(cast.dtype).kind in "fc":
        return
    if cast.scale is not None or cast.offset is not None:
        raise SettingError(
            f"dtype={cast.dtype!r} takes no scale or offset; these need a dtype such as float32"
        )
