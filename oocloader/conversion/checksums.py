"""Chunks with a checksum behind them that every reader verifies: crc32c in Zarr, fletcher32 in HDF5."""

from __future__ import annotations

from typing import Any

import google_crc32c
import imagecodecs
import numpy as np

from oocloader.conversion.encode import Encode, Format
from oocloader.conversion.store_plan import Plan
from oocloader.errors import SettingError

NBYTES = 4
_HDF5_CHUNK_LIMIT = (4 << 30) - 1


def check_room(plan: Plan) -> None:
    """Raise `SettingError` where a chunk of HDF5 has no room for its checksum."""
    for array in plan.arrays if plan.checksum and plan.store_format == "hdf5" else ():
        if array.chunk_nbytes + NBYTES > _HDF5_CHUNK_LIMIT:
            raise SettingError(
                f"array {array.name!r}: HDF5 chunks must be smaller than 4 GiB, these take"
                f" {array.chunk_nbytes:,} bytes and a checksum: take fewer rows a chunk"
                " (chunk_rows, --chunk-rows)",
                array=array.name,
            )


def with_checksum(encode: Encode | None, store_format: Format) -> Encode:
    """What encodes a chunk and puts a checksum behind it; `encode` is `None` where chunks are stored raw."""
    sums: Any = google_crc32c.value if store_format == "zarr" else imagecodecs.h5checksum_fletcher32

    def encode_and_sum(chunk: np.ndarray, out: np.ndarray) -> np.ndarray:
        if encode is None:
            out[: chunk.nbytes] = chunk
            nbytes = chunk.nbytes
        else:
            nbytes = encode(chunk, out).nbytes
        summed = int(sums(out[:nbytes]))
        out[nbytes : nbytes + NBYTES] = np.frombuffer(summed.to_bytes(NBYTES, "little"), np.uint8)
        return out[: nbytes + NBYTES]

    return encode_and_sum
