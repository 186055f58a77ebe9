"""`.npz` files: a zip archive of `.npy` members, each an array."""

import zipfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from oocloader.errors import OocloaderError, StoreError
from oocloader.reading import Box, FileReader, Files, LibraryReader
from oocloader.sizes import nbytes_of_row
from oocloader.stores.base import Store, StoredArray, described, unreadable
from oocloader.stores.base.zipped import Member, compression, data_offset
from oocloader.stores.numpy.fortran import band_rows, geometry_of_runs, places_of_runs, read_runs
from oocloader.stores.numpy.inflate import InflatedBytes
from oocloader.stores.numpy.npy import Header, direct_reader, read_header

_PIECE_NBYTES = 4 << 20


def open_npz(path: str, members: Mapping[str, Member]) -> Store:
    """A store of the `.npy` members, each named without its suffix, as NumPy names them.

    Members packing as they are lie in the file like a `.npy`; deflated ones are unpacked piece by piece.
    """
    files = Files.of(path)
    arrays_of = [member for member in members.values() if member.filename.endswith(".npy")]
    with zipfile.ZipFile(path) as archive:
        arrays = [_stored_array(path, files, archive, member) for member in arrays_of]
    return Store(path, arrays)


def _stored_array(path: str, files: Files, archive: zipfile.ZipFile, member: Member) -> StoredArray:
    name = member.filename.removesuffix(".npy")
    where = f"{path}: member {member.filename!r}"
    refused = partial(unreadable, name, store=path, stored_nbytes=member.compress_size)
    packing = compression(member)
    if packing not in ("stored", "deflate"):
        return refused(f"its zip compression is {packing}: write it again with numpy.savez")
    try:
        with archive.open(member) as stream:
            header = read_header(stream, where)
        with open(path, "rb") as file:
            start = data_offset(file.fileno(), member, path)
        expected = header.nbytes + header.data_nbytes
        if member.file_size < expected:
            raise StoreError(f"it is truncated: {member.file_size} bytes, expected {expected}", file=path)
    except OocloaderError as error:
        return refused(error.message.removeprefix(f"{where}: "))
    except (zipfile.BadZipFile, EOFError, OSError, ValueError) as error:
        return refused(f"it is damaged: {error}")
    deflated = packing == "deflate"
    codecs = ("deflate",) if deflated else ()
    info = described(name, header.shape, header.dtype, stored_nbytes=member.compress_size, codecs=codecs)
    if info.reader == "none" or not deflated:
        return StoredArray(info, lambda: direct_reader(name, header, files, start), store=path)
    reason = "the member is deflated as one stream, which is unpacked by one thread from the front"
    info = replace(info, reader="library", reason=reason)
    return StoredArray(info, lambda: _inflating(name, header, files, start, member, path), store=path)


def _inflating(
    name: str, header: Header, files: Files, start: int, member: Member, path: str
) -> LibraryReader:
    """The reader of a deflated member."""
    file = FileReader(files)
    source = InflatedBytes(file, member, start, store=path, array=name)
    shape, dtype = header.shape, header.dtype
    # Column by column, every read passes over the whole member: as few and large ones as memory allows.
    columns = header.fortran and len(shape) > 1
    read = _read_columns if columns else _read_rows

    def read_box(box: Box, out: np.ndarray) -> None:
        read_runs(lambda offset, part: source.read(header.nbytes + offset, part), box, shape, dtype, out)

    return LibraryReader(
        lambda lo, hi, out: read(source, header, lo, hi, out),
        shape=shape,
        dtype=dtype,
        chunk_rows=band_rows(shape, dtype) if columns else None,
        store=path,
        array=name,
        close=file.close,
        chunk_geometry=geometry_of_runs(shape) if columns else None,
        read_box=read_box if columns else None,
    )


def _read_rows(source: InflatedBytes, header: Header, start: int, stop: int, out: np.ndarray) -> None:
    flat = out.reshape(-1)
    source.read(header.nbytes + start * nbytes_of_row(header.shape, header.dtype), flat.view(np.uint8))
    if header.dtype != out.dtype:
        flat.byteswap(inplace=True)


def _read_columns(source: InflatedBytes, header: Header, start: int, stop: int, out: np.ndarray) -> None:
    run_nbytes = header.shape[0] * header.dtype.itemsize
    places = places_of_runs(header.shape)
    flat = out.reshape(stop - start, -1)
    step = max(1, _PIECE_NBYTES // run_nbytes)
    for first in range(0, len(places), step):
        piece = places[first : first + step]
        runs = np.empty((len(piece), header.shape[0]), header.dtype)
        source.read(header.nbytes + first * run_nbytes, runs.reshape(-1).view(np.uint8))
        flat[:, piece] = runs[:, start:stop].T
