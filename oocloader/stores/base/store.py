"""A store: its arrays by name, and what to say of a name that is none of theirs."""

import difflib
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType

from oocloader.errors import (
    ArrayNotFoundError,
    DataError,
    OocloaderError,
    SettingError,
    UnsupportedArrayError,
)
from oocloader.stores.base.stored_array import ArrayInfo, StoredArray

_NAMES_SHOWN = 20


class Store(AbstractContextManager["Store", None]):
    """Named arrays in file order, and a context manager that closes them.

    Parameters
    ----------
    path : str
        What messages call the store.
    arrays : iterable of StoredArray
        The arrays, loadable or not.
    scales : iterable of str
        Names of arrays that hold coordinates of others: they load when named, but are never "the only
        array".
    hidden : mapping
        Names of members that must not be taken for arrays, with the reason.
    on_close : callable, optional
        Called once, after the readers were closed.

    Attributes
    ----------
    arrays : mapping of str to ArrayInfo
        What is known of each array.
    stored : mapping of str to StoredArray
        The arrays, loadable or not, for inspection and for stores made of others.
    scales, hidden
        As given.

    Examples
    --------
    >>> import numpy as np
    >>> from oocloader import open_store
    >>> with open_store({"x": np.zeros((3, 2)), "y": np.arange(3)}) as store:
    ...     print({name: info.shape for name, info in store.arrays.items()}, store["y"].read(0, 2))
    {'x': (3, 2), 'y': (3,)} [0 1]
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
        by_name = {array.info.name: array for array in arrays}
        infos = {name: array.info for name, array in by_name.items()}
        self.stored: Mapping[str, StoredArray] = MappingProxyType(by_name)
        self.arrays: Mapping[str, ArrayInfo] = MappingProxyType(infos)
        self.scales = frozenset(scales)
        self.hidden: Mapping[str, str] = MappingProxyType(dict(hidden or {}))
        self._on_close = on_close
        self._warned: set[str] = set()

    def __repr__(self) -> str:
        return f"<Store {self.path}: {_listed(self.arrays)}>"

    def find(self, name: str) -> StoredArray:
        """The array of that name, without the warning of `store[name]`.

        Raises `ArrayNotFoundError`, listing the names there are, or `UnsupportedArrayError`, saying why
        it cannot be loaded.
        """
        array = self.stored.get(name)
        if array is None:
            raise self._not_found(name)
        if array.info.reader == "none":
            raise array.unsupported()
        return array

    def __getitem__(self, name: str) -> StoredArray:
        """What `find` gives or raises. Warns where the values stored are not the values meant."""
        array = self.find(name)
        if array.notice and name not in self._warned:
            self._warned.add(name)
            warnings.warn(f"{array.store}: array {name!r}: {array.notice}", UserWarning, stacklevel=2)
        return array

    def only_array(self) -> str:
        """Name of the only array there is; else `DataError` that lists what there is.

        Coordinates of others, single values and broken links do not count. Arrays of rows that cannot be
        loaded do: what is left beside features of an unknown dtype is likely to be their labels.
        """
        counted = [name for name, info in self.arrays.items() if name not in self.scales and _has_rows(info)]
        if len(counted) == 1:
            return self.find(counted[0]).info.name
        if counted:
            names = _listed(counted)
            raise DataError(f"{self.path} has several arrays: {names}; name the one to load", file=self.path)
        if len(self.arrays) == 1 and not self.scales:
            return self.find(next(iter(self.arrays))).info.name
        listed = "; ".join(
            f"{name!r}: {info.reason or 'coordinates of another array'}" for name, info in self.arrays.items()
        )
        what = f"{self.path} has no array that can be loaded ({listed or 'it holds no arrays'})"
        raise DataError(what, file=self.path)

    def _not_found(self, name: object) -> OocloaderError:
        if not isinstance(name, str):
            return SettingError(f"an array is named by a string, got {name!r}", file=self.path)
        if name in self.hidden:
            what = f"{self.path}: {name!r} cannot be loaded: {self.hidden[name]}"
            return UnsupportedArrayError(what, file=self.path, array=name)
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
        for array in self.stored.values():
            array.close()
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    def __exit__(self, *error: object) -> None:
        self.close()


def _has_rows(info: ArrayInfo) -> bool:
    return info.reader != "none" or (bool(info.shape) and 0 not in info.shape)


def _listed(names: Iterable[str]) -> str:
    every = [repr(name) for name in names]
    more = f" and {len(every) - _NAMES_SHOWN} more" if len(every) > _NAMES_SHOWN else ""
    return ", ".join(every[:_NAMES_SHOWN]) + more
