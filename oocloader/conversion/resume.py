"""What of broken-off work can be relied on."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np

from oocloader.conversion.journal import Finished
from oocloader.conversion.store_plan import Plan
from oocloader.conversion.verification.manifest import checksum

PathOf = Callable[[int, int], str]
"""The file of a chunk, by the number of its array and its own."""


def usable(finished: Sequence[Finished], plan: Plan, path_of: PathOf, *, read: bool) -> int:
    """How many of the `finished` pieces, from the first on, are in the files as the journal says.

    Pieces come in the order of the plan. All bytes are read back and held against their checksums
    where `read`: the disk may lack what the system was handed before the machine stopped. Otherwise, files
    that are long enough are trusted.
    """
    order = [(number, piece) for number, array in enumerate(plan.arrays) for piece in range(array.pieces)]
    for count, (piece, place) in enumerate(zip(finished, order, strict=False)):
        if (piece.array, piece.piece) != place or not _is_there(piece, plan, path_of, read=read):
            return count
    return min(len(finished), len(order))


def _is_there(piece: Finished, plan: Plan, path_of: PathOf, *, read: bool) -> bool:
    array = plan.arrays[piece.array]
    first = piece.piece * array.piece_chunks
    chunks = len(piece.sizes)
    if chunks != min(array.piece_chunks, array.chunks - first):
        return False
    if not read:
        # Chunks lie in order in each file: the last one says how long it has to be.
        ends = {
            path_of(piece.array, first + chunk): piece.offsets[chunk] + piece.sizes[chunk]
            for chunk in range(chunks)
        }
        return all(_size(path) >= end for path, end in ends.items())
    return all(
        _checksum(path_of(piece.array, first + chunk), piece.offsets[chunk], piece.sizes[chunk])
        == piece.stored_checksums[chunk]
        for chunk in range(chunks)
    )


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _checksum(path: str, offset: int, nbytes: int) -> int | None:
    """Of bytes of a file, `None` where they are not there."""
    data = np.empty(nbytes, np.uint8)
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(offset)
            view = data.data
            while view and (got := file.readinto(view)):
                view = view[got:]
    except OSError:
        return None
    return None if len(view) else checksum(data)
