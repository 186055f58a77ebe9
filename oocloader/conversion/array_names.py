"""What the arrays of the new store are called."""

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from oocloader.conversion.encode import Format
from oocloader.conversion.options import ConvertOptions
from oocloader.conversion.store_plan import is_text
from oocloader.errors import SettingError, StoreError
from oocloader.stores import MEMBERS, Store, sparse_kind

_NO_NAMES = frozenset(("", ".", "..", "zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"))


def names_of(store: Store, source: Any, options: ConvertOptions, store_format: Format) -> dict[str, str]:
    """Names in the new store -> names in the source; an only array may be "", the root of a Zarr store.

    Raises `StoreError` where there is no array, `SettingError` where the format has no place for one.
    """
    names = list(store.arrays)
    if not names:
        raise StoreError(f"{store.path}: holds no arrays, so there is nothing to convert", file=store.path)
    index = options.shuffle_index
    at_root = store_format == "zarr" and index is None and len(names) == 1
    nameless = at_root and (options.shapes.every is not None or _is_nameless(source))
    renamed = {"": names[0]} if nameless else {name: name for name in names}
    _check_names((*renamed, *(() if index is None else (index,))), store_format)
    return renamed


def _check_names(names: Sequence[str], store_format: Format) -> None:
    for name in names:
        _check_name(name, store_format)
        for at in (at for at, letter in enumerate(name) if letter == "/"):
            if name[:at] in names:
                raise SettingError(
                    f"{name!r} cannot be the name of an array beside {name[:at]!r}, which is no group but an"
                    " array too; rename one of them"
                )
    for group in {name.rpartition("/")[0] for name in names} - {""}:
        if sparse_kind({}, [name.removeprefix(f"{group}/") for name in names]):
            raise SettingError(
                f"{', '.join(repr(f'{group}/{member}') for member in MEMBERS)}: a group of arrays with these"
                " names is taken for a sparse matrix, and is not loaded; rename one of them"
            )


def _check_name(name: str, store_format: Format) -> None:
    """Refuse a name that is no path of groups, no text, or that Zarr has its metadata under."""
    # zarr-python takes a backslash for a slash.
    wrong = "\0" in name or ("\\" in name and store_format == "zarr") or not is_text(name)
    if name and (wrong or any(part in _NO_NAMES for part in name.split("/"))):
        raise SettingError(
            f"{name!r} cannot be the name of an array: use letters, digits, '_', '-' and '.', "
            "and '/' between the names of groups"
        )


def _is_nameless(source: Any) -> bool:
    if isinstance(source, str | os.PathLike):
        path = os.fsdecode(source)
        return path.lower().endswith(".npy") or _is_nameless_folder(os.path.expanduser(path))
    if isinstance(source, list | tuple):
        return all(_is_nameless(part) for part in source)
    return isinstance(source, np.ndarray)


def _is_nameless_folder(path: str) -> bool:
    """Whether a folder is a Zarr array at the root, or `.npy` parts, rather than a Zarr group."""
    if not os.path.isdir(path):
        return False
    names = os.listdir(path)
    if "zarr.json" in names:
        with open(os.path.join(path, "zarr.json"), "rb") as file:
            return bool(json.load(file)["node_type"] == "array")
    return ".zarray" in names or any(name.endswith(".npy") for name in names)
