"""HDF5 files: every dataset listed, and how each is read."""

import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import h5py
import numpy as np

from oocloader.errors import OocloaderError, StoreError
from oocloader.stores.base import (
    ArrayInfo,
    Listing,
    Store,
    StoredArray,
    described,
    native,
    packed_notice,
    plain,
)
from oocloader.stores.hdf5.file import Hdf5File, open_for_reading
from oocloader.stores.hdf5.readers import Storage, make_reader, storage_of
from oocloader.stores.hdf5.types import type_refusal


def open_hdf5(path: str) -> Store:
    """A store of every dataset of the file, named by its path in it. The file is closed again.

    Raises `StoreError` where the file is truncated, damaged, or open for writing. A file that is written
    in SWMR mode is read with the lengths that it has now.
    """
    path = os.path.abspath(path)
    opened, swmr = open_for_reading(path)
    walk = _Walk(Hdf5File(path, swmr=swmr), Listing(path))
    try:
        with opened:
            walk.group(opened, "", ())
    except (OSError, RuntimeError) as error:
        what = f"{path}: cannot be read as HDF5: {_first_line(error)}"
        raise StoreError(what, file=path) from error
    return walk.listing.store(on_close=walk.file.close)


@dataclass(frozen=True, slots=True)
class _Walk:
    """The way through the groups of a file."""

    file: Hdf5File
    listing: Listing

    def group(self, group: h5py.Group, prefix: str, above: tuple[object, ...]) -> None:
        """List what is in `group`, whose members are named `prefix + name`."""
        # Groups may contain themselves by links; `above` are those that we are in.
        token = h5py.h5o.get_info(group.id)
        identity = (token.fileno, token.addr)
        if identity in above:
            return
        for name, member in _members(group):
            path = prefix + name
            if isinstance(member, str):
                self.listing.add_unreadable(path, member)
            elif isinstance(member, h5py.Dataset):
                self._dataset(path, member)
            elif isinstance(member, h5py.Group) and not self._is_sparse(path, member):
                self.group(member, f"{path}/", (*above, identity))

    def _dataset(self, name: str, dataset: h5py.Dataset) -> None:
        try:
            info, storage, notice = describe(name, dataset, swmr=self.file.swmr)
            if h5py.h5ds.is_scale(dataset.id):
                self.listing.scales.add(name)
        except OocloaderError:
            raise
        except Exception as error:
            # One damaged dataset must not hide the others, whatever the library makes of it.
            self.listing.add_unreadable(name, f"it cannot be read: {_first_line(error)}")
            return
        make = None if storage is None else partial(make_reader, self.file, info, storage)
        self.listing.arrays.append(StoredArray(info, make, store=self.file.path, notice=notice))

    def _is_sparse(self, name: str, group: h5py.Group) -> bool:
        def dtype() -> np.dtype[Any]:
            data = group.get("data")
            known = isinstance(data, h5py.Dataset) and data.dtype.kind in "biufc"
            return native(data.dtype) if known else np.dtype("V")

        return self.listing.add_sparse(name, _attributes(group), group.keys(), dtype)


def _members(group: h5py.Group) -> Iterator[tuple[str, Any]]:
    """Names and objects in a group; instead of an object that cannot be had, the reason."""
    for name in group:
        if isinstance(name, bytes):
            yield name.decode("utf-8", "replace"), "its name is not UTF-8"
            continue
        link = None
        try:
            link = group.get(name, getlink=True)
            yield name, group[name]
        except (KeyError, OSError, RuntimeError, ValueError, TypeError) as error:
            if isinstance(link, h5py.ExternalLink):
                target = f"{link.filename}:{link.path}"
                yield name, f"it is an external link to {target}, which cannot be reached"
            elif isinstance(link, h5py.SoftLink):
                yield name, f"it is a soft link to {link.path}, which does not exist"
            else:
                yield name, f"it cannot be read: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    text = error.args[0] if isinstance(error, KeyError) and error.args else str(error)
    return " ".join(str(text).split()) or type(error).__name__


def _attributes(owner: h5py.Dataset | h5py.Group) -> dict[str, Any]:
    """Attributes as plain values; those that refer to other objects or cannot be read are left out."""
    attributes = {}
    for name in owner.attrs:
        try:
            value = owner.attrs[name]
        except (OSError, TypeError, RuntimeError, KeyError, ValueError):
            continue  # a type that h5py does not know
        if isinstance(value, h5py.Empty | h5py.Reference | h5py.RegionReference):
            continue
        if isinstance(value, np.ndarray):
            dtype = value.dtype
            lists = h5py.check_vlen_dtype(dtype) and not h5py.check_string_dtype(dtype)
            if dtype.names or h5py.check_ref_dtype(dtype) or lists:
                continue
        attributes[name] = plain(value)
    return attributes


def describe(name: str, dataset: h5py.Dataset, *, swmr: bool) -> tuple[ArrayInfo, Storage | None, str]:
    """The info of a dataset, how it is read (`None`: not at all), and what to warn of when it is taken."""
    attrs, stored_nbytes = _attributes(dataset), 0
    if dataset.shape is not None:
        stored_nbytes = int(dataset.id.get_storage_size())
    reason = type_refusal(dataset)
    if reason:
        shape, dtype = dataset.shape or (), np.dtype("O")
        return ArrayInfo(name, shape, dtype, None, (), stored_nbytes, attrs, "none", reason), None, ""
    # Each value of an array type is a small array: its axes follow those of the dataset.
    element, inner = dataset.dtype.subdtype or (dataset.dtype, ())
    shape = (*dataset.shape, *inner)
    chunk_shape = None if dataset.chunks is None else (*dataset.chunks, *inner)
    info = described(name, shape, element, stored_nbytes=stored_nbytes, chunk_shape=chunk_shape, attrs=attrs)
    if info.reader == "none":
        return info, None, ""
    storage = storage_of(dataset, swmr=swmr)
    info = dataclasses.replace(info, codecs=storage.codecs, reader=storage.reader, reason=storage.reason)
    notice = "; ".join(text for text in (packed_notice(attrs, info.dtype), storage.notice) if text)
    return info, None if storage.reader == "none" else storage, notice
