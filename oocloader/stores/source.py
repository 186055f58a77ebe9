"""`open_store`: what the user names becomes a store."""

import glob
import os
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from oocloader.errors import SettingError, StoreError
from oocloader.paths import local_path, natural_key
from oocloader.stores.base import Store, zipped
from oocloader.stores.joined import common_name, join, only, side_by_side
from oocloader.stores.numpy import MAGIC, open_memory, open_npy, open_npz

_GLOB = re.compile(r"[*?\[]")
_ZARR_METADATA = ("zarr.json", ".zarray", ".zgroup")
_ZIP_SIGNATURES = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_ACCEPTED = "a path, a glob, 'store::array', a list of these, a NumPy array, or a dict of these"


def open_store(source: Any) -> Store:
    """Open what `source` names, for reading. Nothing is read but metadata.

    Parameters
    ----------
    source : str, os.PathLike, numpy.ndarray, list, or dict
        A path: HDF5 file, Zarr group or array (folder or zip), `.npy`, `.npz`, folder of `.npy` parts;
        `"store::array"` is the store with that array alone. A list of paths, or a glob: joined along the
        rows, in natural order of the paths (2 before 10). A NumPy array, or a list of them, joined in the
        order given. A dict of any of these: arrays side by side, under the names of the dict.

    Returns
    -------
    Store
        The named arrays. One without a name (`.npy`, Zarr array at the root) is named after the file.

    Raises
    ------
    StoreError
        There is no such store, or it is damaged.
    ArrayNotFoundError, UnsupportedArrayError
        The array behind `::` is not there, or cannot be loaded.
    DataError
        Parts do not fit together.
    SettingError
        `source` is nothing of the above.

    Examples
    --------
    >>> with open_store({"x": [np.zeros((2, 3)), np.ones((4, 3))], "y": np.arange(6)}) as store:
    ...     {name: info.shape for name, info in store.arrays.items()}
    {'x': (6, 3), 'y': (6,)}
    """
    if isinstance(source, Mapping):
        return _open_mapping(source)
    if isinstance(source, list | tuple):
        return _open_list(source)
    if isinstance(source, np.ndarray):
        return open_memory(source)
    if isinstance(source, str | os.PathLike):
        return _open_text(_text(source))
    module = type(source).__module__.partition(".")[0]
    hint = "; give the path of its store" if module in ("h5py", "zarr") else ""
    kind = f"{type(source).__module__}.{type(source).__name__}"
    raise SettingError(f"a source is {_ACCEPTED}; got {kind}{hint}")


def _text(path: str | os.PathLike[Any]) -> str:
    text = os.fspath(path)
    if not isinstance(text, str):
        raise SettingError(f"a path is a string, got {text!r}")
    if not text:
        raise SettingError("a path is empty")
    return local_path(text, remedy="copy the store to this machine")


def _open_mapping(source: Mapping[Any, Any]) -> Store:
    if not source:
        raise SettingError("the dict of arrays is empty")
    for name, value in source.items():
        if not isinstance(name, str) or not name:
            raise SettingError(f"arrays are named by strings, got {name!r}")
        if isinstance(value, Mapping):
            raise SettingError(f"{name!r}: a dict within a dict is no array")
    path = ", ".join(f"{name}={_shown(value)}" for name, value in source.items())
    return side_by_side({name: partial(open_store, value) for name, value in source.items()}, path=path)


def _shown(value: Any) -> str:
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    return f"list of {len(value)}" if isinstance(value, list | tuple) else "array in memory"


def _open_list(source: list[Any] | tuple[Any, ...]) -> Store:
    if not source:
        raise SettingError("the list of parts is empty")
    if all(isinstance(part, str | os.PathLike) for part in source):
        paths = sorted((_text(part) for part in source), key=natural_key)
        name = common_name([path.rpartition("::")[0] or path for path in paths])
        path = paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
        return _open_parts(paths, path=path, single=name)
    if all(isinstance(part, np.ndarray) for part in source):
        openers = (partial(open_memory, part) for part in source)
        return join(openers, path=f"{len(source)} arrays in memory", single="array")
    kinds = ", ".join(sorted({type(part).__name__ for part in source}))
    raise SettingError(f"a list of parts is a list of paths or of NumPy arrays; got one of {kinds}")


def _open_parts(paths: list[str], *, path: str, single: str) -> Store:
    return join((partial(_open_text, part) for part in paths), path=path, single=single)


def _open_text(text: str) -> Store:
    if os.path.exists(text):
        return _open_path(text)
    path, separator, array = text.rpartition("::")
    if separator and path:
        return only(_open_text(path), array.strip("/"))
    if _GLOB.search(text):
        paths = sorted(glob.glob(text, recursive=True), key=natural_key)
        if not paths:
            raise StoreError(f"{text}: no file or folder matches", file=text)
        return _open_parts(paths, path=text, single=common_name(paths))
    raise StoreError(f"{text}: no such file or folder", file=text)


def _open_path(path: str) -> Store:
    try:
        return _open_folder(path) if os.path.isdir(path) else _open_file(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror or error}", file=path) from error


def _open_file(path: str) -> Store:
    if not os.path.isfile(path):
        raise StoreError(f"{path}: is neither a file nor a folder", file=path)
    with open(path, "rb") as stream:
        head = stream.read(8)
    if head.startswith(MAGIC):
        return open_npy(path)
    if head.startswith(_ZIP_SIGNATURES):
        return _open_zip(path)
    import h5py  # not at the top: files of other formats need not wait for it

    if h5py.is_hdf5(path):
        from oocloader.stores.hdf5 import open_hdf5

        return open_hdf5(path)
    what = f"it begins with {head!r}" if head else "it is empty"
    if os.path.basename(path) in _ZARR_METADATA:
        what = "it is the metadata of a Zarr store: give the folder that holds it"
    elif head.startswith(b"CDF"):
        what = "it is netCDF 3: convert it to netCDF 4 (nccopy -k nc4 in.nc out.nc)"
    raise StoreError(f"{path}: not a store (.npy, .npz, HDF5, Zarr): {what}", file=path)


def _open_zip(path: str) -> Store:
    members = zipped.members(path)
    if any(os.path.basename(name) in _ZARR_METADATA for name in members):
        from oocloader.stores.zarr import open_zarr_zip

        return open_zarr_zip(path, members)
    if any(name.endswith(".npy") for name in members):
        return open_npz(path, members)
    raise StoreError(f"{path}: a zip archive with neither .npy members (.npz) nor Zarr metadata", file=path)


def _open_folder(path: str) -> Store:
    with os.scandir(path) as entries:
        names = [entry.name for entry in entries]
    if not any(name in _ZARR_METADATA for name in names):
        parts = [name for name in names if name.endswith(".npy") and not name.startswith(".")]
        if parts:
            paths = [os.path.join(path, name) for name in sorted(parts, key=natural_key)]
            name = os.path.basename(os.path.abspath(path)).partition(".")[0] or "array"
            return _open_parts(paths, path=path, single=name)
    from oocloader.stores.zarr import open_zarr_folder

    store = open_zarr_folder(path)
    if store is not None:
        return store
    files = [name for name in names if name.endswith((".h5", ".hdf5", ".nc", ".h5ad", ".npz", ".zip"))]
    example = min(files, key=natural_key, default="")
    hint = f"; it holds files such as {example}: name one, or join them by a glob" if files else ""
    what = f"{path}: a folder that is no store: neither Zarr metadata nor .npy parts{hint}"
    raise StoreError(what, file=path)
