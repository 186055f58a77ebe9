"""A backup: facts and arrays in one file that is written atomically."""

import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from oocloader.errors import StoreError
from oocloader.local_files import write_atomically

FORMAT = 1
NAME = "training.npz"
_FACTS = "facts.json"


@dataclass(frozen=True, slots=True)
class Backup:
    """`facts` are JSON, `arrays` are of any dtype and shape, dtypes unknown to NumPy files included."""

    facts: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]


def prepare(folder: str) -> None:
    """Make `folder` where it is missing, and remove what an interrupted `write` left there.

    Raises `StoreError` where nothing can be written to it.
    """
    try:
        os.makedirs(folder, exist_ok=True)
        for name in os.listdir(folder):
            if name.startswith(f".{NAME}-"):
                os.unlink(os.path.join(folder, name))
    except OSError as error:
        what = f"{folder}: cannot be used as the folder of a backup: {error.strerror}; choose another folder"
        raise StoreError(what, file=folder) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreError(f"{folder}: backups cannot be written here: no permission", file=folder)


def write(folder: str, backup: Backup) -> None:
    """Put `backup` in the place of the one in `folder`, in one step, and wait until it is on the disk.

    A reader finds the old one or the new one, whenever the process or the machine stops. A ZIP file as
    `np.savez` writes it: a checksum for each array, and `np.load` reads it.

    Raises `StoreError` (no space, no permission, ...); the old one is then still there.
    """
    path = os.path.join(folder, NAME)

    def fill(stream: BinaryIO) -> None:
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as file:
            # The names too: a directory of a ZIP file has no checksum.
            facts = {"format": FORMAT, "arrays": list(backup.arrays), **backup.facts}
            file.writestr(_FACTS, json.dumps(facts, indent=1))
            for name, array in backup.arrays.items():
                with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, _plain(array), allow_pickle=False)

    try:
        write_atomically(path, fill)
    except OSError as error:
        what = f"{path}: the backup cannot be written: {error.strerror or error}; the one before it is kept"
        raise StoreError(what, file=path) from error


def read(folder: str) -> Backup | None:
    """The backup in `folder`; None where there is none. Every byte is checked.

    Raises `StoreError` where it is damaged, cannot be read, or is of a later version.
    """
    path = os.path.join(folder, NAME)
    try:
        with zipfile.ZipFile(path) as file:
            facts = json.loads(file.read(_FACTS))
            if not isinstance(facts, dict) or "format" not in facts:
                raise ValueError(f"{_FACTS} has no format")
            version = facts.pop("format")
            if version != FORMAT:
                what = f"{path}: a backup of format {version!r}, expected {FORMAT}: another version of"
                raise StoreError(f"{what} oocloader wrote it; use that, or another folder", file=path)
            arrays = {}
            for name in facts.pop("arrays"):
                with file.open(f"{name}.npy") as member:
                    arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
                    if member.read(1):  # also has the checksum looked at
                        raise ValueError(f"{name} is longer than its array")
    except FileNotFoundError:
        return None
    except StoreError:
        raise
    except OSError as error:
        what = f"{path}: the backup cannot be read: {error.strerror or error}"
        raise StoreError(what, file=path) from error
    except Exception as error:
        # A damaged ZIP file shows in as many ways as it has fields: a password wanted, an unknown method, ...
        reason = " ".join(str(error).split())
        what = f"{path}: the backup is damaged: {reason}"
        remedy = "delete it to train from the start, or put a copy back"
        raise StoreError(f"{what}; {remedy}", file=path) from error
    return Backup(facts, arrays)


def restored(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """An array of a backup as the `dtype` that it had."""
    return array.view(dtype) if _is_extension(dtype) else array


def _plain(array: np.ndarray) -> np.ndarray:
    """`array` as bits where its dtype is none that files of NumPy can name."""
    return array.view(f"u{array.dtype.itemsize}") if _is_extension(array.dtype) else array


def _is_extension(dtype: np.dtype[Any]) -> bool:
    return dtype.isbuiltin == 2  # bfloat16, float8, ...: registered with NumPy by another package
