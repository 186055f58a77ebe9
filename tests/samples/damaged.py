"""Chunks of stores, damaged."""

from __future__ import annotations

from pathlib import Path

import h5py

from oocloader.conversion.verification import VerifyReport
from oocloader.conversion.verification.verify_report import ArrayCheck


def only(report: VerifyReport) -> ArrayCheck:
    assert len(report.arrays) == 1
    return report.arrays[0]


def flip(path: Path, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0x10]))


def chunk_place(store: Path, name: str, chunk: int) -> tuple[Path, int]:
    """File and offset of a chunk of whole rows, as h5py or the names of files tell it."""
    if store.suffix == ".h5":
        with h5py.File(store) as file:
            return store, file[name].id.get_chunk_info(chunk).byte_offset
    (path,) = (store / name).glob(f"c.{chunk}.*")
    return path, 0
