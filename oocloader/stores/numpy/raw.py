"""Raw binary files: nothing but values, whose shape and dtype the user says."""

import operator
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from oocloader.errors import DataError, SettingError, StoreError
from oocloader.paths import local_path
from oocloader.reading import Files
from oocloader.sizes import nbytes_of_row
from oocloader.stores.base import Store, StoredArray, described
from oocloader.stores.numpy.npy import MAGIC, Header, direct_reader

_KNOWN = {MAGIC: "a .npy file", b"\x89HDF\r\n\x1a\n": "an HDF5 file", b"PK\x03\x04": "a zip archive"}


def raw_shape(shape: Any) -> tuple[int, ...]:
    """A shape as given: whole numbers, of which the first may be -1 for as many rows as there are.

    >>> raw_shape("-1, 64,64")
    (-1, 64, 64)
    """
    try:
        parts = shape.split(",") if isinstance(shape, str) else shape
        numbers = tuple(int(part) if isinstance(part, str) else operator.index(part) for part in parts)
    except (TypeError, ValueError):
        numbers = ()
    if not numbers or any(n < 1 for n in numbers[1:]) or (numbers[0] < 1 and numbers[0] != -1):
        what = "shape: expected whole numbers of at least 1 such as 1000,64,64 (the first may be -1: as many"
        raise SettingError(f"{what} rows as the file has), got {shape!r}")
    return numbers


def open_raw(path: str, shape: Sequence[int], dtype: np.dtype) -> Store:
    """A store of one array, named after the file, whose values follow each other in C order.

    `dtype` says the byte order too. Raises `StoreError` where the file cannot be read, `DataError` where its
    size is another than that of the array.
    """
    path = local_path(path, remedy="copy the file to this machine")
    try:
        if not os.path.isfile(path):
            what = "is a folder" if os.path.isdir(path) else "no such file"
            raise StoreError(f"{path}: {what}; shape describes a file of raw values", file=path)
        with open(path, "rb") as stream:
            head = stream.read(8)
        files = Files.of(path)
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}", file=path) from error
    kind = next((kind for magic, kind in _KNOWN.items() if head.startswith(magic)), None)
    if kind is not None:
        raise SettingError(f"shape: {path} is {kind}, which has a shape of its own; leave it out", file=path)
    size = int(files.size[0])
    row_nbytes = nbytes_of_row(shape, dtype)
    rows = size // row_nbytes if shape[0] == -1 else shape[0]
    whole = (rows, *shape[1:])
    name = os.path.splitext(os.path.basename(path))[0]
    if size != rows * row_nbytes or rows == 0:
        expected = f"a multiple of {row_nbytes:,}" if shape[0] == -1 else f"{rows * row_nbytes:,}"
        what = f"{path}: has {size:,} bytes, but {expected} are expected for {dtype} {tuple(shape)}"
        remedy = "check shape and dtype (a header in front has to be cut off first)"
        raise DataError(f"{what}; {remedy}", file=path)
    info = described(name, whole, dtype, stored_nbytes=size)
    header = Header(whole, dtype, fortran=False, nbytes=0)
    array = StoredArray(info, lambda: direct_reader(name, header, files, 0), store=path)
    if info.reader == "none":
        raise array.unsupported()
    return Store(path, [array])
