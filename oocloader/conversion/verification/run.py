"""The whole of a verification: a store alone, or against another."""

import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from oocloader.conversion.verification.arrays import check_array
from oocloader.conversion.verification.manifest import names_in
from oocloader.conversion.verification.verify_report import ArrayCheck, VerifyReport
from oocloader.errors import StoreError
from oocloader.progress import bar
from oocloader.stores import Store, StoredArray, open_store


def verify(store: Any, against: Any = None, *, progress: bool = False) -> VerifyReport:
    """Whether a store holds what it should.

    Parameters
    ----------
    store : str, os.PathLike, numpy.ndarray, list, or dict
        Anything `open_store` takes. What `convert` made has a manifest, by which every chunk is known that is
        not what it was. Of other stores all chunks are read and decoded.
    against : str, os.PathLike, numpy.ndarray, list, or dict, optional
        Another store, such as the source of the conversion, whose every value must be the same, bit by bit.
        Arrays belong together by name; where both stores have one only, by that. A dict of sources,
        `{"x": "x.npy"}`, names the arrays of `store` to compare, and leaves out the others.
    progress : bool, default False
        Draw a bar on stderr, if that is a terminal.

    Returns
    -------
    VerifyReport
        Damage and differences, if there are any; `ok` says whether there are none.

    Raises
    ------
    StoreError
        A store cannot be opened, as `open_store` raises it, or holds no arrays.
    ChangedError
        A store changes meanwhile.

    Examples
    --------
    >>> import numpy as np, oocloader as ooc, tempfile
    >>> path = f"{tempfile.mkdtemp()}/x.h5"
    >>> report = ooc.convert({"x": np.arange(10)}, path)
    >>> from oocloader.conversion import verify
    >>> verify(path).ok, verify(path, np.arange(10)).ok, verify(path, np.zeros(10, int)).ok
    (True, True, False)
    """
    started = time.perf_counter()
    with open_store(store) as opened:
        lost = tuple(_lost(store, opened))
        if not opened.stored and not lost:
            raise StoreError(
                f"{opened.path}: holds no arrays, so there is nothing to verify", file=opened.path
            )
        if against is None:
            pairs: _Pairs = {name: (array, None) for name, array in opened.stored.items()}
            arrays = (*lost, *_checks(pairs, progress))
            return VerifyReport(opened.path, None, arrays, time.perf_counter() - started)
        with open_store(against) as other:
            named = isinstance(against, Mapping)
            arrays = (
                *_lonely(opened, other, named),
                *_checks(_pairs(opened, other), progress),
            )
            return VerifyReport(opened.path, other.path, arrays, time.perf_counter() - started)


def _lost(source: Any, store: Store) -> Iterator[ArrayCheck]:
    """Arrays that were written and are none any more; where the source is a whole store by its path."""
    if not isinstance(source, str | os.PathLike):
        return
    path = os.path.expanduser(os.fsdecode(source))
    if not os.path.exists(path) or any(array.parts for array in store.stored.values()):
        return
    try:
        names = names_in(path)
    except StoreError:
        return  # that the manifest is damaged is said of every array
    for name in names:
        if name not in store.stored and name not in store.hidden:
            problem = "was written, but its metadata, or that of its group, is lost or damaged"
            yield ArrayCheck(name, 0, 0, "manifest", problem=problem)


_Pairs = dict[str, tuple[StoredArray, StoredArray | None]]


def _checks(pairs: _Pairs, progress: bool) -> Iterator[ArrayCheck]:
    total = sum(array.info.nbytes for array, _ in pairs.values() if array.info.reader != "none")
    with bar(total, shown=progress) as shown:
        for array, other in pairs.values():
            yield check_array(array, other, shown.update)


def _pairs(store: Store, other: Store) -> _Pairs:
    """Arrays to compare, by their names in `store`."""
    ours, theirs = store.stored, other.stored
    if len(ours) == len(theirs) == 1:
        return {name: (array, next(iter(theirs.values()))) for name, array in ours.items()}
    return {name: (array, theirs[name]) for name, array in ours.items() if name in theirs}


def _lonely(store: Store, other: Store, named: bool) -> Iterator[ArrayCheck]:
    """Arrays that one of the stores lacks; where the others were `named`, only `store` can lack any."""
    if len(store.stored) == len(other.stored) == 1:
        return
    for one, two in ((other, store), *(((store, other),) if not named else ())):
        for name in one.stored:
            if name not in two.stored:
                yield ArrayCheck(name, 0, 0, "comparison", problem=f"is in {one.path}, but not in {two.path}")
