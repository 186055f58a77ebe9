"""`.npy` files: one array, one run of bytes behind a header."""

import ast
import math
import os
import re
import warnings
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from oocloader.errors import StoreError, UnsupportedArrayError
from oocloader.reading import ChunkReader, Files, Layout, RowReader
from oocloader.stores.base import Store, StoredArray, described
from oocloader.stores.numpy.fortran import FortranReader

MAGIC = b"\x93NUMPY"
# A header holds shape and dtype; megabytes of it are damage, and literal_eval would choke on them.
_MAX_HEADER_NBYTES = 1 << 20
_LONG_SUFFIX = re.compile(r"(?<=\d)L\b")


@dataclass(frozen=True, slots=True)
class Header:
    """What a `.npy` header says; the data begins `nbytes` behind the start of the header."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    nbytes: int

    @property
    def data_nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(stream: IO[bytes], where: str) -> Header:
    """The header at the position of `stream`, of any version of the format. Nothing is unpickled.

    Raises `StoreError` naming `where`. The format: numpy.lib.format.
    """

    def take(count: int) -> bytes:
        data = stream.read(count)
        if len(data) < count:
            raise StoreError(f"{where}: the .npy header is cut short; the file is truncated", file=where)
        return data

    magic = take(8)
    if magic[:6] != MAGIC:
        raise StoreError(f"{where}: not a .npy file: it starts with {magic[:6]!r}", file=where)
    major = magic[6]
    if major not in (1, 2, 3):
        raise StoreError(f"{where}: .npy format version {major}.{magic[7]} is unknown", file=where)
    width = 2 if major == 1 else 4
    length = int.from_bytes(take(width), "little")
    if length > _MAX_HEADER_NBYTES:
        raise StoreError(f"{where}: the .npy header claims {length} bytes; the file is damaged", file=where)
    # Versions 1 and 2 are latin-1, version 3 is UTF-8, made for field names outside latin-1.
    text = take(length).decode("utf-8" if major == 3 else "latin-1", errors="replace")
    try:
        shape, dtype, fortran = _parse(text)
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError) as error:
        what = f"{where}: the .npy header is damaged: {text.strip()[:100]!r}"
        raise StoreError(what, file=where) from error
    return Header(shape, dtype, fortran, 8 + width + length)


def _parse(text: str) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    # Python 2 wrote long integers, such as (10L, 3L).
    header = ast.literal_eval(_LONG_SUFFIX.sub("", text).strip())
    shape, fortran = header["shape"], header["fortran_order"]
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"shape {shape!r}")
    if not isinstance(fortran, bool):
        raise TypeError(f"fortran_order {fortran!r}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # dtypes that NumPy is about to drop still have to be named
        dtype = np.lib.format.descr_to_dtype(header["descr"])
    return shape, dtype, fortran


def direct_reader(name: str, header: Header, files: Files, start: int) -> RowReader:
    """The reader of an array whose header begins at byte `start` of the only file."""
    offset = start + header.nbytes
    # In one dimension both orders are the same.
    if header.fortran and len(header.shape) > 1:
        return FortranReader(header.shape, header.dtype, files, offset)
    return ChunkReader(Layout.contiguous(name, header.shape, header.dtype, files, offset))


def open_npy(path: str) -> Store:
    """A store of one array, named after the file.

    Raises `StoreError` where the file is shorter than its header says, `UnsupportedArrayError` where it
    holds pickled objects.
    """
    name = os.path.splitext(os.path.basename(path))[0]
    with open(path, "rb") as stream:
        header = read_header(stream, path)
        files = Files.of(path)
    if header.dtype.hasobject and header.dtype.names is None:
        what = f"{path}: its dtype is object (pickled Python objects): it is never unpickled; save"
        what += " its numbers as an array of a number type, such as np.stack(list_of_equal_arrays)"
        raise UnsupportedArrayError(what, file=path, array=name)
    expected, size = header.nbytes + header.data_nbytes, int(files.size[0])
    if size < expected:
        what = f"{path}: the file is truncated: it has {size} bytes and {expected} are expected"
        raise StoreError(f"{what} for {header.dtype} {header.shape}", file=path)
    info = described(name, header.shape, header.dtype, stored_nbytes=header.data_nbytes)
    return Store(path, [StoredArray(info, lambda: direct_reader(name, header, files, 0), store=path)])
