"""Chunks with a checksum behind them that every reader verifies: crc32c in Zarr, fletcher32 in HDF5."""

from typing import Any

import google_crc32c
import imagecodecs
import numpy as np

from oocloader.conversion.chunking import CHECKSUM_NBYTES
from oocloader.conversion.encode import Encode, Format


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
        out[nbytes : nbytes + CHECKSUM_NBYTES] = np.frombuffer(
            summed.to_bytes(CHECKSUM_NBYTES, "little"), np.uint8
        )
        return out[: nbytes + CHECKSUM_NBYTES]

    return encode_and_sum
