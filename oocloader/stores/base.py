"""What every store is: named arrays, what is known of each, and a reader made when it is first needed."""

from __future__ import annotations

import difflib
import math
import operator
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, TracebackType
from typing import Any, Literal, Self, SupportsIndex

import numpy as np

from oocloader.errors import (
    ArrayNotFoundError,
    ClosedError,
    DataError,
    OocloaderError,
    SettingError,
    UnsupportedArrayError,
)
from oocloader.reading import Lock, RowReader, read_rows

_NAMES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """What is known of an array without reading it.

    - `dtype`: native byte order. What has no shape or dtype of its own (a broken link, a group) has
      shape `()` and dtype void.
    - `chunk_shape`: `None` where the array is not chunked; the inner chunk where chunks lie in shards.
    - `codecs`: names, in the order in which they were applied when writing.
    - `stored_nbytes`: bytes that the rows take in the store, compressed.
    - `reader`: "direct" (chunk bytes read and decoded here), "library" (h5py, zarr-python or zipfile
      reads, one thread at a time) or "none" (it cannot be loaded); `reason` says why not "direct".
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk_shape: tuple[int, ...] | None = None
    codecs: tuple[str, ...] = ()
    stored_nbytes: int = 0
    attrs: Mapping[str, Any] = field(default_factory=dict, hash=False)
    reader: Literal["direct", "library", "none"] = "direct"
    reason: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array in memory."""
        return math.prod(self.shape) * self.dtype.itemsize


class StoredArray:
    """One array of a store. Reading is thread-safe.

    `make_reader` is called once, by the first thread that needs it; `None` where `info.reader` is "none".
    `parts` are the paths of the stores that were joined along the rows, in order. `notice` is what a
    user must know when taking the array.
    """

    def __init__(
        self,
        info: ArrayInfo,
        make_reader: Callable[[], RowReader] | None,
        *,
        store: str,
        parts: tuple[str, ...] = (),
        notice: str = "",
    ) -> None:
        self.info = info
        self.store = store
        self.parts = parts
        self.notice = notice
        self._make_reader = make_reader
        self._reader: RowReader | None = None
        self._closed = False
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"<StoredArray {self.info.name!r} {self.info.shape} {self.info.dtype} of {self.store}>"

    @property
    def reader(self) -> RowReader:
        """What fills rows. Raises `UnsupportedArrayError`, `ClosedError`, or what listing chunks raises."""
        if self._reader is None:
            with self._lock:
                if self._closed:
                    raise ClosedError(
                        f"{self.store}: the store is closed", file=self.store, array=self.info.name
                    )
                if self._make_reader is None:
                    raise unsupported(self.info, self.store)
                if self._reader is None:
                    self._reader = self._make_reader()
        return self._reader

    @property
    def decoded_rows(self) -> int:
        """Rows that are decoded at once, 0 where they are not kept in chunks. Raises what `reader` raises."""
        return self.reader.chunk_rows or 0

    def read(self, start: SupportsIndex, stop: SupportsIndex, out: np.ndarray | None = None) -> np.ndarray:
        """Rows `start` to `stop` as `(stop - start, *sample_shape)`, native byte order, C order.

        `out`, if given, is filled and returned; it must have that shape, `info.dtype` and C order. Raises
        `SettingError` where the rows or `out` do not fit, `StoreError` where the bytes cannot be read.
        """
        reader = self.reader
        first, last = self._checked_rows(start, stop)
        shape = (last - first, *self.info.shape[1:])
        if out is None:
            out = np.empty(shape, self.info.dtype)
        else:
            self._check_out(out, shape)
        if first < last:
            read_rows(reader, first, last, out)
        return out

    def _checked_rows(self, start: SupportsIndex, stop: SupportsIndex) -> tuple[int, int]:
        rows = self.info.shape[0]
        try:
            first, last = operator.index(start), operator.index(stop)
        except TypeError:
            raise self._refused(f"rows must be two integers, got {start!r} and {stop!r}") from None
        if not 0 <= first <= last <= rows:
            raise self._refused(f"rows {first}:{last} are not within its {rows} rows")
        return first, last

    def _check_out(self, out: np.ndarray, shape: tuple[int, ...]) -> None:
        if not isinstance(out, np.ndarray):
            raise self._refused(f"out must be a NumPy array, got {type(out).__name__}")
        if out.shape != shape or out.dtype != self.info.dtype:
            raise self._refused(f"out must be {self.info.dtype} {shape}, got {out.dtype} {out.shape}")
        if not (out.flags.c_contiguous and out.flags.writeable):
            raise self._refused("out must be writable and in C order")

    def _refused(self, what: str) -> SettingError:
        name = self.info.name
        return SettingError(f"{self.store}: array {name!r}: {what}", file=self.store, array=name)

    def close(self) -> None:
        """Let go of files; safe to call twice."""
        with self._lock:
            self._closed = True
            reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


class Store:
    """Named arrays in file order: `store.arrays` tells, `store[name]` gives one to read. A context manager.

    `scales` names arrays that hold coordinates of others: they load when named, but are never "the
    only array". `hidden` are names of members that must not be taken for arrays, with the reason.
    `on_close` is called once, after the readers were closed.
    """

    def __init__(
        self,
        path: str,
        arrays: Iterable[StoredArray],
        *,
        scales: Iterable[str] = (),
        hidden: Mapping[str, str] | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self.path = path
        self._stored = {array.info.name: array for array in arrays}
        self.arrays: Mapping[str, ArrayInfo] = MappingProxyType(
            {name: array.info for name, array in self._stored.items()}
        )
        self._scales = frozenset(scales)
        self._hidden = dict(hidden or {})
        self._on_close = on_close
        self._noticed: set[str] = set()

    def __repr__(self) -> str:
        return f"<Store {self.path}: {_listed(self.arrays)}>"

    def find(self, name: str) -> StoredArray:
        """The array of that name, without the warning of `store[name]`.

        Raises `ArrayNotFoundError`, listing the names there are, or `UnsupportedArrayError`, saying why
        it cannot be loaded.
        """
        found = self._stored.get(name)
        if found is None:
            raise self._not_found(name)
        if found.info.reader == "none":
            raise unsupported(found.info, found.store)
        return found

    def __getitem__(self, name: str) -> StoredArray:
        """What `find` gives or raises. Warns where the values stored are not the values meant."""
        found = self.find(name)
        if found.notice and name not in self._noticed:
            self._noticed.add(name)
            warnings.warn(f"{found.store}: array {name!r}: {found.notice}", UserWarning, stacklevel=2)
        return found

    @property
    def stored(self) -> Mapping[str, StoredArray]:
        """Every array listed, loadable or not, for inspection and for stores made of others."""
        return MappingProxyType(self._stored)

    @property
    def scales(self) -> frozenset[str]:
        """Names of arrays that hold coordinates of others."""
        return self._scales

    @property
    def hidden(self) -> Mapping[str, str]:
        """Names that must not be taken for arrays, and why."""
        return MappingProxyType(self._hidden)

    def only_array(self) -> str:
        """Name of the only array there is; else `DataError` that lists what there is.

        Coordinates of others, single values and broken links do not count. Arrays of rows that cannot be
        loaded do: what is left beside features of an unknown dtype is likely to be their labels.
        """
        counted = [name for name, info in self.arrays.items() if name not in self._scales and _has_rows(info)]
        if len(counted) == 1:
            return self.find(counted[0]).info.name
        if counted:
            names = _listed(counted)
            raise DataError(f"{self.path} has several arrays: {names}; name the one to load", file=self.path)
        if len(self.arrays) == 1 and not self._scales:
            return self.find(next(iter(self.arrays))).info.name
        listed = "; ".join(
            f"{name!r}: {info.reason or 'coordinates of another array'}" for name, info in self.arrays.items()
        )
        raise DataError(
            f"{self.path} has no array that can be loaded ({listed or 'it holds no arrays'})", file=self.path
        )

    def _not_found(self, name: object) -> OocloaderError:
        if not isinstance(name, str):
            return SettingError(f"an array is named by a string, got {name!r}", file=self.path)
        if name in self._hidden:
            return UnsupportedArrayError(
                f"{self.path}: {name!r} cannot be loaded: {self._hidden[name]}", file=self.path, array=name
            )
        inside = [known for known in self.arrays if known.startswith(f"{name.strip('/')}/")]
        if inside:
            what = f"{name!r} in {self.path} is a group, not an array; it holds {_listed(inside)}"
            return ArrayNotFoundError(what, file=self.path, array=name)
        close = difflib.get_close_matches(name, self.arrays, n=3)
        names = [*close, *(known for known in self.arrays if known not in close)]
        what = f"{self.path} has no array {name!r}; it has {_listed(names) or 'none'}"
        return ArrayNotFoundError(what, file=self.path, array=name)

    def close(self) -> None:
        """Let go of files; safe to call twice."""
        for array in self._stored.values():
            array.close()
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def unsupported(info: ArrayInfo, store: str) -> UnsupportedArrayError:
    """The error of naming an array that cannot be loaded."""
    what = f"{store}: array {info.name!r} cannot be loaded: {info.reason}"
    return UnsupportedArrayError(what, file=store, array=info.name)


def _has_rows(info: ArrayInfo) -> bool:
    return info.reader != "none" or (bool(info.shape) and 0 not in info.shape)


def _listed(names: Iterable[str]) -> str:
    every = [repr(name) for name in names]
    more = f" and {len(every) - _NAMES_SHOWN} more" if len(every) > _NAMES_SHOWN else ""
    return ", ".join(every[:_NAMES_SHOWN]) + more
