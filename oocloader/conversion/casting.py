"""Values in another dtype, and the check that they survive it."""

import warnings
from typing import Any

import numpy as np

from oocloader.conversion.derived_rows import Advance, Rows
from oocloader.errors import DataError

# Values that are cast and compared at once: few enough for the processor's cache.
_STEP = 1 << 16


class CastRows:
    """The rows of `rows`, whose `dtype` and `sample_shape` are given, in the dtype of what is filled.

    Every value must survive: come back the same when cast back (NaN as NaN). With `lossy` it may be rounded,
    to the nearest whole number where the new dtype has only those, but must be in the range of the new
    dtype, and a number where that has no NaN. Raises `DataError`, saying where, with `where` in front.
    """

    def __init__(
        self, rows: Rows, *, dtype: np.dtype, sample_shape: tuple[int, ...], lossy: bool, where: str
    ) -> None:
        self._rows = rows
        self._dtype = dtype
        self._sample_shape = sample_shape
        self._lossy = lossy
        self._where = where

    def prepare(self, advance: Advance) -> None:
        self._rows.prepare(advance)

    def read(self, start: int, stop: int, out: np.ndarray) -> None:
        found = np.empty((stop - start, *self._sample_shape), self._dtype)
        self._rows.read(start, stop, found)
        flat, cast = found.reshape(-1), out.reshape(-1)
        for at in range(0, len(flat), _STEP):
            part, to = flat[at : at + _STEP], cast[at : at + _STEP]
            lost = cast_values(part, to, lossy=self._lossy)
            if lost is not None:
                index = np.unravel_index(at + lost, found.shape)
                raise self._lost(start + int(index[0]), index[1:], part[lost], to[lost])

    def _lost(
        self, row: int, within: tuple[np.intp, ...], value: np.generic, became: np.generic
    ) -> DataError:
        place = f"row {row} of the new array"
        place += f", element {tuple(int(i) for i in within)}" if within else ""
        if self._lossy or not _in_range(np.asarray([value]), became.dtype).all():
            what = f"{value} is outside what {became.dtype} can hold"
            remedy = f"take a wider dtype than {became.dtype}"
        else:
            what = f"{value} does not survive the conversion from {self._dtype} to {became.dtype}"
            remedy = "allow rounding with lossy=True (--lossy), or take a wider dtype"
        return DataError(f"{self._where}, {place}: {what}; {remedy}", rows=(row, row + 1))

    def close(self) -> None:
        self._rows.close()


def cast_values(values: np.ndarray, out: np.ndarray, *, lossy: bool) -> int | None:
    """Fill `out` with `values` in its dtype, both 1-d: the index of the first that is lost, or `None`.

    >>> cast_values(np.array([1.0, 2.5]), np.empty(2, "i1"), lossy=False)
    1
    >>> cast_values(np.array([1.0, 2.5]), np.empty(2, "i1"), lossy=True) is None
    True
    """
    if always_survive(values.dtype, out.dtype):
        out[:] = values
        return None
    if lossy and out.dtype.kind in "iu" and values.dtype.kind in "fc":
        values = np.rint(values)
    good = _in_range(values, out.dtype)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        # What is out of range would be undefined, or differ from machine to machine.
        out[:] = values if good.all() else np.where(good, values, np.zeros((), values.dtype))
        if not lossy:
            back = out.astype(values.dtype)
            good &= (back == values) | (_is_nan(values) & _is_nan(back))
            if out.dtype.kind in "fc" and values.dtype.kind in "iu":
                # The largest whole numbers round up to one beyond their range, which casts back to anything.
                good &= out.real < np.ldexp(1.0, 8 * values.dtype.itemsize - (values.dtype.kind == "i"))
    return None if good.all() else int(np.argmin(good))


def always_survive(old: np.dtype, new: np.dtype) -> bool:
    """Whether every value of one dtype is one of the other.

    >>> always_survive(np.dtype("i4"), np.dtype("f8")), always_survive(np.dtype("i8"), np.dtype("f8"))
    (True, False)
    """
    if old.kind in "iu" and new.kind in "fc":
        # NumPy calls it safe to cast int64 to float64, which has 53 bits.
        return old.itemsize < new.itemsize // (2 if new.kind == "c" else 1)
    return np.can_cast(old, new, "safe")


def _is_nan(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind not in "fc":
        return np.zeros(values.shape, bool)
    nan: np.ndarray = np.isnan(values)
    return nan


def _in_range(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Which of `values` `dtype` has a value near to."""
    found: np.ndarray = _near(values, dtype)
    return found


def _near(values: np.ndarray, dtype: np.dtype) -> Any:
    if dtype.kind == "b":
        return (values == 0) | (values == 1)
    if values.dtype.kind == "c":
        if dtype.kind != "c":
            return (values.imag == 0) & _in_range(values.real, dtype)
        inner = np.dtype(f"f{dtype.itemsize // 2}")
        return _in_range(values.real, inner) & _in_range(values.imag, inner)
    if dtype.kind == "c":
        dtype = np.dtype(f"f{dtype.itemsize // 2}")
    if dtype.kind == "f":
        if values.dtype.kind == "b":
            return np.ones(values.shape, bool)
        with np.errstate(over="ignore", invalid="ignore"):
            cast = values.astype(dtype)
        return np.isfinite(cast) | ~np.isfinite(values)
    limits = np.iinfo(dtype)
    if values.dtype.kind == "f":
        # 2**n is exact in every float that reaches it; the largest whole number below may not be.
        with np.errstate(invalid="ignore", over="ignore"):
            wide = values.astype(np.float64)
            return (wide >= float(limits.min)) & (wide < float(limits.max + 1))
    if values.dtype.kind == "b":
        return np.ones(values.shape, bool)
    mine = np.iinfo(values.dtype)
    low, high = max(limits.min, mine.min), min(limits.max, mine.max)
    return (values >= low) & (values <= high)
