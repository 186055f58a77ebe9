"""Several stores seen as one: joined along the rows, or side by side."""

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack

from oocloader.errors import DataError
from oocloader.reading import JoinedReader
from oocloader.stores.base import ArrayInfo, Store, StoredArray


def common_name(paths: Sequence[str]) -> str:
    """What the stems of paths have in common, without the number of the part.

    >>> common_name(["a/x_01.npy", "a/x_02.npy"])
    'x'
    """
    stems = [os.path.basename(path).partition(".")[0] for path in paths]
    first, last = min(stems), max(stems)
    alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join(letter for letter, _ in alike).rstrip("0123456789-_. ") or "array"


def join(openers: Iterable[Callable[[], Store]], *, path: str, single: str) -> Store:
    """The arrays of the stores that are opened, each joined along the rows in the order given.

    Stores of one array each are joined whatever the arrays are called, under the name `single`; otherwise
    arrays of one name belong together. `path` names the whole in messages. Raises `DataError`, naming
    the store, where one lacks an array or has it with another sample shape or dtype; where anything fails,
    nothing stays open.
    """
    with ExitStack() as opened:
        stores = [opened.enter_context(opener()) for opener in openers]
        paths = tuple(store.path for store in stores)
        return Store(
            path,
            [_joined(name, arrays, path, paths) for name, arrays in _by_name(stores, single).items()],
            scales=frozenset().union(*(store.scales for store in stores)),
            hidden=stores[0].hidden,
            on_close=opened.pop_all().close,
        )


def side_by_side(openers: Mapping[str, Callable[[], Store]], *, path: str) -> Store:
    """The only array of each store that is opened, under the name given; else nothing stays open."""
    with ExitStack() as opened:
        stores = {name: opened.enter_context(opener()) for name, opener in openers.items()}
        arrays = [_renamed(store.find(store.only_array()), name) for name, store in stores.items()]
        return Store(path, arrays, on_close=opened.pop_all().close)


def only(store: Store, name: str) -> Store:
    """A store of one array of `store`, under its name there. Takes over the store."""
    with ExitStack() as opened:
        opened.enter_context(store)
        return Store(store.path, [store.find(name)], on_close=opened.pop_all().close)


def _renamed(array: StoredArray, name: str) -> StoredArray:
    info = dataclasses.replace(array.info, name=name)
    return StoredArray(info, lambda: array.reader, store=array.store, parts=array.parts, notice=array.notice)


def _by_name(stores: Sequence[Store], single: str) -> dict[str, list[StoredArray]]:
    """The arrays that belong together."""
    first = stores[0]
    if all(len(store.arrays) == 1 for store in stores):
        return {single: [next(iter(store.stored.values())) for store in stores]}
    for store in stores:
        for name in store.arrays:
            _member(first, name, store)
    return {name: [_member(store, name, first) for store in stores] for name in first.arrays}


def _member(store: Store, name: str, first: Store) -> StoredArray:
    array = store.stored.get(name)
    if array is None:
        what = f"{store.path} has no array {name!r}, which {first.path} has; parts must hold the same arrays"
        raise DataError(what, file=store.path, array=name)
    return array


def _joined(name: str, arrays: Sequence[StoredArray], path: str, paths: tuple[str, ...]) -> StoredArray:
    first = arrays[0]
    filled = [array for array in arrays if not _without_rows(array.info)]
    for array in filled:
        if array.info.reader == "none":
            reason = f"in part {array.store}: {array.info.reason}"
            info = dataclasses.replace(array.info, name=name, reason=reason)
            return StoredArray(info, store=path, parts=paths)
    for array in arrays[1:]:
        _check_alike(name, first, array)
    if not filled:
        return StoredArray(dataclasses.replace(first.info, name=name), store=path, parts=paths)
    infos = [array.info for array in filled]
    slow = next((array for array in filled if array.info.reader == "library"), None)
    info = ArrayInfo(
        name,
        (sum(info.shape[0] for info in infos), *infos[0].shape[1:]),
        infos[0].dtype,
        chunk_shape=infos[0].chunk_shape,
        codecs=tuple(dict.fromkeys(codec for info in infos for codec in info.codecs)),
        stored_nbytes=sum(info.stored_nbytes for info in infos),
        attrs=first.info.attrs,
        reader="direct" if slow is None else "library",
        reason="" if slow is None else f"in part {slow.store}: {slow.info.reason}",
    )
    notice = next((array.notice for array in filled if array.notice), "")
    return StoredArray(
        info, lambda: JoinedReader([array.reader for array in filled]), store=path, parts=paths, notice=notice
    )


def _without_rows(info: ArrayInfo) -> bool:
    """Whether a part adds nothing, which is no reason to refuse the others."""
    return bool(info.shape) and info.shape[0] == 0 and info.dtype.kind in "biufc"


def _check_alike(name: str, first: StoredArray, other: StoredArray) -> None:
    for what, expected, actual in (
        ("samples of shape", first.info.shape[1:], other.info.shape[1:]),
        ("dtype", first.info.dtype, other.info.dtype),
    ):
        if expected != actual:
            where = f"{other.store}: array {other.info.name!r}"
            difference = f"{where} has {what} {actual}, but {first.store} has"
            remedy = "parts joined along the rows must agree (name arrays side by side in a dict)"
            raise DataError(f"{difference} {expected}; {remedy}", file=other.store, array=name)
