"""The manifest of a converted store: a checksum of every run of rows, by which damage is found later.

It lies where other readers do not look: in a Zarr array's folder, beside its chunk files, and in an HDF5
file behind the end that HDF5 knows of. Whatever opens an HDF5 file for writing cuts it off; the file
then is not what was converted any more.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import os
import struct
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import imagecodecs
import numpy as np

from oocloader.errors import StoreError
from oocloader.stores import StoredArray

FILE_NAME = ".oocloader-manifest"
_VERSION = 1
# The last bytes of an HDF5 file with a manifest: bytes of the manifest before it, then the signature.
_FOOTER = struct.Struct("<Q24s")
_SIGNATURE = b"oocloader manifest v1   "


def checksum(data: Any) -> int:
    """CRC-32 (as in zip) of bytes (uint8, 1-d).

    It costs next to nothing: 38 GB/s, where blake2b takes 1.4 and CRC-32C 17 and the GIL.
    """
    return int(imagecodecs.deflate_crc32(data))


def checksum_of_rows(rows: np.ndarray) -> int:
    """CRC-32 of rows in C order, little-endian."""
    if sys.byteorder == "big":
        rows = rows.byteswap()
    return checksum(rows.reshape(-1).view(np.uint8))


@dataclass(frozen=True, slots=True)
class ArrayManifest:
    """What one array was when it was written.

    `checksums`: uint32, the CRC-32 of each run of `chunk_rows` rows, little-endian, the last one shorter.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    chunk_rows: int
    checksums: np.ndarray

    @property
    def digest(self) -> str:
        """BLAKE2b-128 of all of it: equal where the arrays are equal and cut alike."""
        what = json.dumps([list(self.shape), _dtype_text(self.dtype), self.chunk_rows])
        return hashlib.blake2b(what.encode() + self._packed(), digest_size=16).hexdigest()

    def _packed(self) -> bytes:
        return self.checksums.astype("<u4").tobytes()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "shape": list(self.shape),
            "dtype": _dtype_text(self.dtype),
            "chunk_rows": self.chunk_rows,
            "crc32": base64.b64encode(self._packed()).decode(),
            "blake2b": self.digest,
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> ArrayManifest:
        """Raises `ValueError` or `KeyError` where it is not what `as_dict` made."""
        manifest = cls(
            name=str(saved["name"]),
            shape=tuple(int(n) for n in saved["shape"]),
            dtype=np.dtype(saved["dtype"]).newbyteorder("="),
            chunk_rows=int(saved["chunk_rows"]),
            checksums=np.frombuffer(base64.b64decode(saved["crc32"], validate=True), "<u4"),
        )
        if manifest.digest != saved["blake2b"]:
            raise ValueError("its digest is wrong")
        return manifest


def _dtype_text(dtype: np.dtype) -> str:
    return dtype.newbyteorder("<").str


def write_manifests(path: str, store_format: str, manifests: Sequence[ArrayManifest], *, digest: str) -> None:
    """Put manifests into a new store. `digest` tells one conversion from others, "" where it cannot."""
    if store_format == "hdf5":
        packed = _packed(manifests, digest)
        with open(path, "ab") as file:
            file.write(packed + _FOOTER.pack(len(packed), _SIGNATURE))
        return
    for manifest in manifests:
        with open(os.path.join(path, *manifest.name.split("/"), FILE_NAME), "wb") as file:
            file.write(_packed([manifest], digest))


def _packed(manifests: Sequence[ArrayManifest], digest: str) -> bytes:
    arrays = [manifest.as_dict() for manifest in manifests]
    return json.dumps({"oocloader_manifest": _VERSION, "job": digest, "arrays": arrays}).encode() + b"\n"


def read_manifest(array: StoredArray) -> ArrayManifest | None:
    """The manifest of an array of a store, `None` where there is none.

    Raises `StoreError` where it is damaged.
    """
    if array.parts or not os.path.exists(array.store):
        return None
    if not os.path.isdir(array.store):
        if zipfile.is_zipfile(array.store):
            return next(iter(_of_zip(array.store, array.info.name)[1]), None)
        _, manifests = _of_file(array.store)
        return next((manifest for manifest in manifests if manifest.name == array.info.name), None)
    inside = os.path.join(array.store, *array.info.name.split("/"))
    # An array at the root is named after its folder.
    return next(iter(_of_folder(inside if os.path.isdir(inside) else array.store)[1]), None)


def names_in(path: str) -> list[str]:
    """Names of the arrays of the store at `path` that have manifests, whether or not they are still arrays.

    An array at the root of a Zarr store is not among them.
    """
    if os.path.isdir(path):
        folders = [folder for folder, _, files in os.walk(path) if FILE_NAME in files]
        names = [os.path.relpath(folder, path).replace(os.sep, "/") for folder in folders]
        return sorted(name for name in names if name != ".")
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            ending = f"/{FILE_NAME}"
            return sorted(n.removesuffix(ending) for n in archive.namelist() if n.endswith(ending))
    return [manifest.name for manifest in _of_file(path)[1]]


def digest_in(path: str, name: str) -> str:
    """What tells the conversion that made the store at `path`, by array `name`; "" where unknown."""
    try:
        if os.path.isdir(path):
            return _of_folder(os.path.join(path, *name.split("/")))[0]
        return _of_file(path)[0]
    except (StoreError, OSError):
        return ""


_Contents = tuple[str, list[ArrayManifest]]


def _of_folder(folder: str) -> _Contents:
    path = os.path.join(folder, FILE_NAME)
    try:
        with open(path, "rb") as file:
            return _parsed(file.read(), path)
    except FileNotFoundError:
        return "", []


def _of_zip(path: str, name: str) -> _Contents:
    with zipfile.ZipFile(path) as archive:
        for member in (f"{name}/{FILE_NAME}", FILE_NAME):
            with contextlib.suppress(KeyError):
                return _parsed(archive.read(member), path)
    return "", []


def _of_file(path: str) -> _Contents:
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size < _FOOTER.size:
            return "", []
        file.seek(size - _FOOTER.size)
        nbytes, signature = _FOOTER.unpack(file.read(_FOOTER.size))
        if signature != _SIGNATURE:
            return "", []
        if nbytes > size - _FOOTER.size:
            raise StoreError(f"{path}: the manifest is damaged: it cannot have {nbytes} bytes", file=path)
        file.seek(size - _FOOTER.size - nbytes)
        return _parsed(file.read(nbytes), path)


def _parsed(text: bytes, path: str) -> _Contents:
    try:
        contents = json.loads(text)
        version = contents["oocloader_manifest"]
        if version != _VERSION:
            what = f"the manifest is of version {version}, which a later oocloader wrote; use that one"
            raise StoreError(f"{path}: {what}", file=path)
        return str(contents["job"]), [ArrayManifest.from_dict(array) for array in contents["arrays"]]
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise StoreError(f"{path}: the manifest is damaged: {error}", file=path) from error
