"""Weights by class: given, or balanced by how often each class occurs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from oocloader.errors import DataError, SettingError
from oocloader.order import RowSet
from oocloader.reading import JOB_NBYTES, RowReader, read_rows

# Labels with more values than this are no classes; counting them would take memory by the row.
_MOST_CLASSES = 1 << 20
# Values that lie this close together are counted by their place instead of being sorted.
_CLOSE = 1 << 16


@dataclass(frozen=True, slots=True)
class ClassWeights:
    """A weight for each class of the labels, array number `label` of the element.

    `weights` None: balanced, so that every class weighs the same in sum. `name` and `store` tell the label
    array in messages.
    """

    label: int
    weights: Mapping[int, float] | None
    name: str
    store: str

    def table(self, reader: RowReader, rows: RowSet) -> tuple[np.ndarray, np.ndarray]:
        """The classes, int64 ascending, and their weights, float32, both (classes,).

        Reads the labels of `rows` once, a few megabytes at a time. Raises `DataError` where a class has no
        weight, naming its first row.
        """
        counts: dict[int, int] = {}
        for lo, hi, labels in _labels(reader, rows):
            classes, number = _counted(labels)
            for value, count in zip(classes.tolist(), number.tolist(), strict=True):
                counts[value] = counts.get(value, 0) + count
            if self.weights is not None:
                self._check_known(classes, lo, hi, labels, rows)
            elif len(counts) > _MOST_CLASSES:
                raise self._wrong(f"has over {_MOST_CLASSES} different labels: these are no classes")
        if self.weights is not None:
            known = sorted(self.weights)
            return np.array(known, np.int64), np.array([self.weights[key] for key in known], np.float32)
        classes = np.array(sorted(counts), np.int64)
        total = sum(counts.values())
        weights = np.array([total / (len(counts) * counts[value]) for value in classes.tolist()])
        return classes, weights.astype(np.float32)

    def _check_known(self, classes: np.ndarray, lo: int, hi: int, labels: np.ndarray, rows: RowSet) -> None:
        assert self.weights is not None
        unknown = [value for value in classes.tolist() if value not in self.weights]
        if not unknown:
            return
        at = int(np.flatnonzero(labels == unknown[0])[0])
        picked = rows.picked
        row = lo + at if picked is None else int(picked[np.searchsorted(picked, lo) + at])
        keys = sorted(self.weights)
        listed = ", ".join(map(str, keys[:10])) + (", ..." if len(keys) > 10 else "")
        raise self._wrong(
            f"has the class {unknown[0]} (first in row {row}), for which class_weight has no weight: it has "
            f"weights for {listed}; add {unknown[0]}: 1.0 to leave its rows as they are",
            rows=(lo, hi),
        )

    def _wrong(self, what: str, rows: tuple[int, int] | None = None) -> DataError:
        return DataError(
            f"{self.store}: array {self.name!r} {what}", file=self.store, array=self.name, rows=rows
        )


def class_weights(
    value: Any,
    structure: Any,
    *,
    names: tuple[str, ...],
    shapes: tuple[tuple[int, ...], ...],
    dtypes: tuple[np.dtype, ...],
    stores: tuple[str, ...],
) -> ClassWeights | None:
    """What `class_weight` (None, a dict or "balanced") asks of an element of this `structure`.

    The others are of each array. Raises `SettingError` where the element has no classes.
    """
    if value is None:
        return None
    weights = _weights(value)
    if not isinstance(structure, tuple):
        raise SettingError("class_weight needs labels: name them with labels=")
    if any(not isinstance(part, int) for part in structure[1:]):
        raise SettingError(
            "class_weight needs one array of labels (and of sample weights), not a dict of them; "
            "give sample_weight= by key instead"
        )
    label = structure[1]
    name, dtype, shape = names[label], dtypes[label], shapes[label]
    what = f"class_weight needs integer labels, one a row; array {name!r} of {stores[label]} has"
    if dtype.kind not in "iub":
        raise SettingError(f"{what} dtype {dtype}; store class numbers, or use sample_weight=")
    if math.prod(shape[1:]) != 1:
        raise SettingError(f"{what} samples of shape {shape[1:]}; use sample_weight= instead")
    if len(structure) == 3 and dtypes[structure[2]].kind == "c":
        raise SettingError(f"class_weight cannot multiply sample weights of dtype {dtypes[structure[2]]}")
    return ClassWeights(label, weights, name, stores[label])


def _weights(value: Any) -> dict[int, float] | None:
    if isinstance(value, str) and value == "balanced":
        return None
    if not isinstance(value, Mapping) or not value:
        raise SettingError(f'class_weight={value!r} must be a dict such as {{0: 1.0, 1: 5.0}}, or "balanced"')
    found: dict[int, float] = {}
    for key, weight in value.items():
        if not isinstance(key, (int, np.integer)) or isinstance(key, bool):
            raise SettingError(f"class_weight has the class {key!r}; classes are whole numbers")
        number = isinstance(weight, (int, float, np.integer, np.floating)) and not isinstance(weight, bool)
        if not number or not math.isfinite(weight) or weight < 0:
            raise SettingError(f"class_weight[{key!r}]={weight!r} must be a finite number of at least 0")
        if not -(2**63) <= int(key) < 2**63:
            raise SettingError(f"class_weight has the class {key!r}; classes are numbers of 64 bits")
        found[int(key)] = float(weight)
    return found


def _labels(reader: RowReader, rows: RowSet) -> Any:
    """`(lo, hi, labels)`: the labels, 1-d, of the members of `rows` among stored rows `lo:hi`."""
    row_nbytes = max(1, reader.row_nbytes)
    # Whole chunks, so that each is decoded once.
    unit = reader.chunk_rows or 1
    step = max(1, JOB_NBYTES // row_nbytes // unit) * unit
    for begin in range(rows.start // unit * unit, rows.stop, step):
        lo, hi = max(begin, rows.start), min(begin + step, rows.stop)
        if rows.count(lo, hi) == 0:
            continue
        out = np.empty((hi - lo, *reader.shape[1:]), reader.dtype)
        read_rows(reader, lo, hi, out)
        labels = out.reshape(hi - lo)
        if rows.picked is not None:
            first, last = np.searchsorted(rows.picked, (lo, hi))
            labels = labels[rows.picked[first:last] - lo]
        yield lo, hi, labels


def _counted(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different values and how often each occurs."""
    # As the device casts them, so that both sides agree on numbers beyond 63 bits too.
    values = labels.astype(np.int64)
    least = int(values.min())
    if int(values.max()) - least < _CLOSE:
        counts = np.bincount(values - least)
        found = np.flatnonzero(counts)
        return found + least, counts[found]
    return np.unique_counts(values)
