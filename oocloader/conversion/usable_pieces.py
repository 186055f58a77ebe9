"""What of broken-off work can be relied on."""

import os
from collections.abc import Callable, Sequence

import numpy as np

from oocloader.conversion.journal import FinishedPiece
from oocloader.conversion.store_plan import StorePlan
from oocloader.conversion.verification.manifest import checksum

PathOf = Callable[[int, int], str]
"""The file of a chunk, by the number of its array and its own."""


def count_usable(finished: Sequence[FinishedPiece], plan: StorePlan, path_of: PathOf, *, read: bool) -> int:
    """How many of the `finished` pieces, from the first on, are in the files as the journal says.

    Pieces come in the order of the plan. All bytes are read back and held against their checksums
    where `read`: the disk may lack what the system was handed before the machine stopped. Otherwise, files
    that are long enough are trusted.
    """
    places = [(number, piece) for number, array in enumerate(plan.arrays) for piece in range(array.pieces)]
    count = 0
    for piece, place in zip(finished, places, strict=False):
        if (piece.array, piece.piece) != place or not _is_there(piece, plan, path_of, read=read):
            break
        count += 1
    return count


def _is_there(piece: FinishedPiece, plan: StorePlan, path_of: PathOf, *, read: bool) -> bool:
    array = plan.arrays[piece.array]
    first = piece.piece * array.piece_chunks
    count = len(piece.sizes)
    if count != min(array.piece_chunks, array.chunks - first):
        return False
    paths = [path_of(piece.array, chunk) for chunk in range(first, first + count)]
    chunks = zip(paths, piece.offsets, piece.sizes, piece.stored_checksums, strict=True)
    if read:
        return all(_checksum(path, offset, size) == stored for path, offset, size, stored in chunks)
    # Chunks lie in order in each file: the last one says how long it has to be.
    ends = {path: offset + size for path, offset, size, _ in chunks}
    return all(os.path.exists(path) and os.path.getsize(path) >= end for path, end in ends.items())


def _checksum(path: str, offset: int, nbytes: int) -> int | None:
    """Of bytes of a file, `None` where they are not there."""
    data = np.empty(nbytes, np.uint8)
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            return checksum(data) if file.readinto(data.data) == nbytes else None
    except OSError:
        return None
