"""Writes the chunks of a new store, beginning with those that are not finished yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from oocloader.conversion.checksums import with_checksum
from oocloader.conversion.copying import Sink, Written, copy_array
from oocloader.conversion.encode import encoder
from oocloader.conversion.journal import Finished, Journal
from oocloader.conversion.resume import usable
from oocloader.conversion.sources import prepare
from oocloader.conversion.store_plan import ArrayPlan, Plan
from oocloader.conversion.verification.manifest import ArrayManifest
from oocloader.conversion.workspace import Work
from oocloader.stores import StoredArray


class StoreSink(Sink, Protocol):
    """Where the chunks of one array of a store go."""

    stored_nbytes: int

    def path_of(self, chunk: int) -> str:
        """The file that a chunk lies in."""

    def keep(self, first_chunk: int, offsets: Sequence[int], sizes: Sequence[int]) -> None:
        """Take chunks `first_chunk` on for written, at `offsets` of their files, `sizes` bytes long."""


class _Writer(Protocol):
    def sink(self, array: ArrayPlan) -> StoreSink: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Stored:
    """What was written.

    - `nbytes`: of all chunks; `kept_nbytes`: of the rows that were finished before.
    - `manifests`: what the arrays are.
    """

    nbytes: int
    kept_nbytes: int
    manifests: tuple[ArrayManifest, ...]


def write_store(
    work: Work,
    plan: Plan,
    sources: Mapping[str, StoredArray],
    *,
    advance: Callable[[int], object],
    check_source: Callable[[], object],
) -> Stored:
    """Write the store, apart from what `work` has of it already.

    `advance` is told how many bytes of rows more are there, in the calling thread; `check_source` is called
    behind the reading of each piece, and raises where the source changed.
    """
    writer = _writer(work.store, plan)
    try:
        sinks = [writer.sink(array) for array in plan.arrays]
        pieces = _usable(work, plan, sinks)
        kept = 0
        checksums = [np.zeros(array.chunks, np.uint32) for array in plan.arrays]
        for number, array in enumerate(plan.arrays):
            before = [piece for piece in pieces if piece.array == number]
            for piece in before:
                first = piece.piece * array.piece_chunks
                sinks[number].keep(first, piece.offsets, piece.sizes)
                checksums[number][first : first + len(piece.checksums)] = piece.checksums
            rows = min(len(before) * array.piece_rows, array.rows)
            kept += rows * array.row_nbytes
            advance(rows * array.row_nbytes)
            # Always, since the check reads the source too.
            prepare(sources[array.name], advance)
            encode = encoder(plan.codec, plan.store_format, array.dtype.itemsize)
            copy_array(
                sources[array.name],
                sinks[number],
                array,
                encode=with_checksum(encode, plan.store_format) if plan.checksum else encode,
                advance=advance,
                first_piece=len(before),
                written=partial(_note, work.journal, number, array, checksums[number]),
                check_source=check_source,
            )
        writer.close()
    except BaseException:
        writer.abandon()
        raise
    manifests = tuple(
        ArrayManifest(array.name, array.shape, array.dtype, array.chunk_rows, found)
        for array, found in zip(plan.arrays, checksums, strict=True)
    )
    return Stored(sum(sink.stored_nbytes for sink in sinks), kept, manifests)


def _usable(work: Work, plan: Plan, sinks: Sequence[StoreSink]) -> Sequence[Finished]:
    """The finished pieces that can be relied on; the journal forgets the others."""
    if work.journal is None or not work.finished:
        return ()
    count = usable(work.finished, plan, lambda array, chunk: sinks[array].path_of(chunk), read=work.rebooted)
    work.journal.keep(count)
    return work.finished[:count]


def _note(
    journal: Journal | None, number: int, array: ArrayPlan, checksums: np.ndarray, piece: Written
) -> None:
    first = piece.piece * array.piece_chunks
    checksums[first : first + len(piece.checksums)] = piece.checksums
    if journal is not None:
        journal.add(
            Finished(number, piece.piece, piece.offsets, piece.sizes, piece.checksums, piece.stored_checksums)
        )


def _writer(path: str, plan: Plan) -> _Writer:
    # Each library is loaded only where its format is written.
    if plan.store_format == "zarr":
        from oocloader.conversion.zarr import ZarrWriter

        return ZarrWriter(path, plan)
    from oocloader.conversion.hdf5 import Hdf5Writer

    return Hdf5Writer(path, plan)
