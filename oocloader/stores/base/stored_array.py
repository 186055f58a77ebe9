"""One array of a store: what is known of it, and its rows."""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, SupportsIndex

import numpy as np

from oocloader.errors import ClosedError, SettingError, UnsupportedArrayError
from oocloader.reading import Lock, RowReader, read_rows
from oocloader.stores.base.dtypes import native, refusal


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """What is known of an array without reading it.

    Attributes
    ----------
    name : str
        Path in the store.
    shape : tuple of int
        `(rows, *sample_shape)`; `()` for what has none (a broken link, a group).
    dtype : numpy.dtype
        In native byte order; void for what has none.
    chunk_shape : tuple of int or None
        `None` where the array is not chunked; the inner chunk where chunks lie in shards.
    codecs : tuple of str
        Names, in the order in which they were applied when writing.
    stored_nbytes : int
        Bytes that the rows take in the store, compressed.
    attrs : mapping
        Attributes, as plain Python values.
    reader : "direct", "library" or "none"
        "direct": chunk bytes are read and decoded here. "library": h5py, zarr-python or zipfile reads, one
        thread at a time. "none": it cannot be loaded.
    reason : str
        Why the reader is not "direct".

    Examples
    --------
    >>> info = ArrayInfo("x", (1000, 8, 8), np.dtype("f4"), chunk_shape=(64, 8, 8), codecs=("zstd",))
    >>> info.nbytes, info.reader
    (256000, 'direct')
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


@dataclass(eq=False, repr=False, slots=True)
class StoredArray:
    """One array of a store, as `store["name"]` gives it. Reading is thread-safe.

    Parameters
    ----------
    info : ArrayInfo
        What is known of it.
    make_reader : callable, optional
        Called once, by the first thread that reads; never where `info.reader` is "none".
    store : str
        Path of the store, for messages.
    parts : tuple of str
        Paths of the stores that were joined along the rows, in order.
    notice : str
        What a user must know when taking the array.

    Examples
    --------
    >>> from oocloader import open_store
    >>> with open_store(np.arange(8).reshape(4, 2)) as store:
    ...     store["array"].read(1, 3)
    array([[2, 3],
           [4, 5]])
    """

    info: ArrayInfo
    make_reader: Callable[[], RowReader] | None = None
    _: KW_ONLY
    store: str
    parts: tuple[str, ...] = ()
    notice: str = ""
    _reader: RowReader | None = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def __repr__(self) -> str:
        return f"<StoredArray {self.info.name!r} {self.info.shape} {self.info.dtype} of {self.store}>"

    @property
    def reader(self) -> RowReader:
        """What fills rows. Raises `UnsupportedArrayError`, `ClosedError`, or what listing chunks raises."""
        if self._reader is None:
            with self._lock:
                if self._closed:
                    what = f"{self.store}: the store is closed"
                    raise ClosedError(what, file=self.store, array=self.info.name)
                if self.make_reader is None or self.info.reader == "none":
                    raise self.unsupported()
                if self._reader is None:
                    self._reader = self.make_reader()
        return self._reader

    @property
    def decoded_rows(self) -> int:
        """Rows that are decoded at once, 0 where they are not kept in chunks. Raises what `reader` raises."""
        return self.reader.chunk_rows or 0

    def read(self, start: SupportsIndex, stop: SupportsIndex, out: np.ndarray | None = None) -> np.ndarray:
        """Read a range of rows.

        Parameters
        ----------
        start, stop : int
            First row, and the one behind the last.
        out : numpy.ndarray, optional
            Is filled and returned: `(stop - start, *sample_shape)`, `info.dtype`, C order.

        Returns
        -------
        numpy.ndarray
            `(stop - start, *sample_shape)`, native byte order, C order.

        Raises
        ------
        SettingError
            The rows or `out` do not fit the array.
        StoreError
            The bytes cannot be read, or are damaged.
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

    def unsupported(self) -> UnsupportedArrayError:
        """The error of naming an array that cannot be loaded."""
        what = f"{self.store}: array {self.info.name!r} cannot be loaded: {self.info.reason}"
        return UnsupportedArrayError(what, file=self.store, array=self.info.name)

    def close(self) -> None:
        """Let go of files; safe to call twice."""
        with self._lock:
            self._closed = True
            reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


def unreadable(name: str, reason: str, *, store: str, stored_nbytes: int = 0) -> StoredArray:
    """An array that is listed although nothing is known of it, and cannot be loaded."""
    info = ArrayInfo(name, (), np.dtype("V"), stored_nbytes=stored_nbytes, reader="none", reason=reason)
    return StoredArray(info, store=store)


def described(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], *, stored_nbytes: int, **known: Any
) -> ArrayInfo:
    """The info of an array of values, "direct" or "none" by its shape and `dtype` (in any byte order)."""
    reason = refusal(dtype, shape)
    reader: Literal["direct", "none"] = "none" if reason else "direct"
    return ArrayInfo(
        name, shape, native(dtype), stored_nbytes=stored_nbytes, reader=reader, reason=reason, **known
    )
