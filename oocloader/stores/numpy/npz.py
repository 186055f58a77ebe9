"""`.npz` files: a zip archive of `.npy` members, each an array."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable, Mapping

import numpy as np

from oocloader.errors import OocloaderError, StoreError
from oocloader.reading import Box, ChunkGeometry, FileReader, Files, LibraryReader, RowReader, runs_of
from oocloader.sizes import nbytes_of_row
from oocloader.stores.base import ArrayInfo, Store, StoredArray
from oocloader.stores.base.zipped import Member, data_offset, method_name
from oocloader.stores.numpy.fortran import BAND_NBYTES
from oocloader.stores.numpy.inflate import InflatedBytes
from oocloader.stores.numpy.npy import Header, described, direct_reader, read_header

_STORED, _DEFLATED = 0, 8
_PIECE_NBYTES = 4 << 20


def open_npz(path: str, members: Mapping[str, Member]) -> Store:
    """A store of the `.npy` members, each named without its suffix, as NumPy names them.

    Members kept as they are lie in the file like a `.npy`; deflated ones are unpacked piece by piece.
    """
    files = Files.of(path)
    arrays_of = [member for member in members.values() if member.name.endswith(".npy")]
    with zipfile.ZipFile(path) as archive:
        arrays = [_stored_array(path, files, archive, member) for member in arrays_of]
    return Store(path, arrays)


def _stored_array(path: str, files: Files, archive: zipfile.ZipFile, member: Member) -> StoredArray:
    name = member.name.removesuffix(".npy")
    if member.method not in (_STORED, _DEFLATED):
        reason = f"its zip compression is {method_name(member.method)}: write it again with numpy.savez"
        return StoredArray(_unreadable(name, member, reason), None, store=path)
    where = f"{path}: member {member.name!r}"
    try:
        with archive.open(archive.NameToInfo[member.name]) as stream:
            header = read_header(stream, where)
        start = _data_offset(path, member)
        expected = header.nbytes + header.data_nbytes
        if member.nbytes < expected:
            raise StoreError(f"it is truncated: {member.nbytes} bytes, expected {expected}", file=path)
    except OocloaderError as error:
        reason = error.message.removeprefix(f"{where}: ")
        return StoredArray(_unreadable(name, member, reason), None, store=path)
    except (zipfile.BadZipFile, EOFError, OSError, ValueError) as error:
        return StoredArray(_unreadable(name, member, f"it is damaged: {error}"), None, store=path)
    deflated = member.method == _DEFLATED
    info = described(name, header, stored_nbytes=member.stored, codecs=("deflate",) if deflated else ())
    if info.reader == "none":
        return StoredArray(info, None, store=path)
    if not deflated:
        return StoredArray(info, direct_reader(name, header, files, start), store=path)
    info = ArrayInfo(
        name,
        info.shape,
        info.dtype,
        codecs=info.codecs,
        stored_nbytes=info.stored_nbytes,
        reader="library",
        reason="the member is deflated as one stream, which is unpacked by one thread from the front",
    )
    return StoredArray(info, _inflating(name, header, files, start, member, path), store=path)


def _data_offset(path: str, member: Member) -> int:
    fd = os.open(path, os.O_RDONLY)
    try:
        return data_offset(fd, member, path)
    finally:
        os.close(fd)


def _unreadable(name: str, member: Member, reason: str) -> ArrayInfo:
    return ArrayInfo(name, (), np.dtype("V"), stored_nbytes=member.stored, reader="none", reason=reason)


def _inflating(
    name: str, header: Header, files: Files, start: int, member: Member, path: str
) -> Callable[[], RowReader]:
    row_nbytes = nbytes_of_row(header.shape, header.dtype)
    # Column by column, every read passes over the whole member: as few and large ones as memory allows.
    columns = header.fortran and len(header.shape) > 1
    chunk_rows = min(header.shape[0], max(1, BAND_NBYTES // row_nbytes)) if columns else None

    def make() -> RowReader:
        file = FileReader(files)
        source = InflatedBytes(
            file,
            offset=start,
            stored=member.stored,
            nbytes=member.nbytes,
            crc=member.crc,
            store=path,
            array=name,
        )
        read = _read_columns if columns else _read_rows
        return LibraryReader(
            lambda lo, hi, out: read(source, header, lo, hi, out),
            shape=header.shape,
            dtype=header.dtype,
            chunk_rows=chunk_rows,
            store=path,
            array=name,
            close=file.close,
            chunk_geometry=ChunkGeometry((1,) * len(header.shape), tuple(reversed(range(len(header.shape)))))
            if columns
            else None,
            read_box=(lambda box, out: _read_box(source, header, box, out)) if columns else None,
        )

    return make


def _read_rows(source: InflatedBytes, header: Header, start: int, stop: int, out: np.ndarray) -> None:
    row_nbytes = nbytes_of_row(header.shape, header.dtype)
    flat = out.reshape(-1)
    source.read(header.nbytes + start * row_nbytes, flat.view(np.uint8))
    if header.dtype != out.dtype:
        flat.byteswap(inplace=True)


def _read_columns(source: InflatedBytes, header: Header, start: int, stop: int, out: np.ndarray) -> None:
    rows, itemsize = header.shape[0], header.dtype.itemsize
    elements = math.prod(header.shape[1:])
    places = np.arange(elements).reshape(header.shape[1:]).ravel(order="F")
    flat = out.reshape(stop - start, elements)
    step = max(1, _PIECE_NBYTES // (rows * itemsize))
    for first in range(0, elements, step):
        last = min(first + step, elements)
        runs = np.empty((last - first, rows), header.dtype)
        source.read(header.nbytes + first * rows * itemsize, runs.reshape(-1).view(np.uint8))
        flat[:, places[first:last]] = runs[:, start:stop].T


def _read_box(source: InflatedBytes, header: Header, box: Box, out: np.ndarray) -> None:
    offsets, run = runs_of(box[::-1], header.shape[::-1], header.dtype.itemsize)
    flat = out.reshape(-1).view(np.uint8)
    for at, offset in enumerate(offsets.tolist()):
        source.read(header.nbytes + offset, flat[at * run : (at + 1) * run])
    if header.dtype != out.dtype:
        out.byteswap(inplace=True)
