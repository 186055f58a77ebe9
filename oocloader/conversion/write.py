"""Writes the chunks of a new store, beginning with those that are not finished yet."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from oocloader.conversion.checksums import with_checksum
from oocloader.conversion.copying import copy_array
from oocloader.conversion.derived_rows import DerivedArray
from oocloader.conversion.encode import encoder
from oocloader.conversion.journal import FinishedPiece, Journal
from oocloader.conversion.sinks import Sink
from oocloader.conversion.store_plan import StoredArrayPlan, StorePlan
from oocloader.conversion.usable_pieces import count_usable
from oocloader.conversion.verification.manifest import ArrayManifest
from oocloader.conversion.workspace import Workspace


class _Writer(Protocol):
    def sink(self, array: StoredArrayPlan) -> Sink: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...


@dataclass(frozen=True, slots=True)
class WrittenStore:
    """What was written.

    - `nbytes`: of all chunks; `resumed_nbytes`: of the rows that were finished before.
    - `manifests`: what the arrays are.
    """

    nbytes: int
    resumed_nbytes: int
    manifests: tuple[ArrayManifest, ...]


def write_store(
    space: Workspace,
    plan: StorePlan,
    sources: Mapping[str, DerivedArray],
    *,
    advance: Callable[[int], object],
    check_source: Callable[[], object],
) -> WrittenStore:
    """Write the store, apart from what `space` has of it already.

    `advance` is called, in the calling thread, with how many bytes of rows more are there; `check_source` is
    called behind the reading of each piece, and raises where the source changed.
    """
    writer = _writer(space.store, plan)
    try:
        sinks = [writer.sink(array) for array in plan.arrays]
        finished = _usable(space, plan, sinks)
        resumed_nbytes = 0
        manifests = []
        for number, (array, sink) in enumerate(zip(plan.arrays, sinks, strict=True)):
            record = _ArrayRecord(array, advance)
            resumed = [piece for piece in finished if piece.array == number]
            for piece in resumed:
                sink.take_over(piece.piece * array.piece_chunks, piece.offsets, piece.sizes)
                resumed_nbytes += record.add(piece)
            # Always, since the check reads the source too.
            sources[array.name].prepare(advance)
            encode = encoder(plan.codec, plan.store_format, array.dtype.itemsize)
            copy_array(
                sources[array.name],
                sink,
                array,
                array=number,
                encode=with_checksum(encode, plan.store_format) if plan.checksum else encode,
                first_piece=len(resumed),
                finish=partial(_finish, space.journal, record),
                check_source=check_source,
            )
            manifests.append(record.manifest)
        writer.close()
    except BaseException:
        writer.abandon()
        raise
    return WrittenStore(sum(sink.stored_nbytes for sink in sinks), resumed_nbytes, tuple(manifests))


def _usable(space: Workspace, plan: StorePlan, sinks: Sequence[Sink]) -> Sequence[FinishedPiece]:
    """The finished pieces that can be relied on; the journal forgets the others."""
    if space.journal is None or not space.finished:
        return ()

    def path_of(array: int, chunk: int) -> str:
        return sinks[array].path_of(chunk)

    count = count_usable(space.finished, plan, path_of, read=space.rebooted)
    space.journal.forget_after(count)
    return space.finished[:count]


class _ArrayRecord:
    """What is known of the chunks of one array that are written."""

    def __init__(self, plan: StoredArrayPlan, advance: Callable[[int], object]) -> None:
        self._plan = plan
        self._advance = advance
        checksums = np.zeros(plan.chunks, np.uint32)
        self.manifest = ArrayManifest(plan.name, plan.shape, plan.dtype, plan.chunk_rows, checksums)

    def add(self, piece: FinishedPiece) -> int:
        """Note a piece; the bytes of its rows."""
        plan, first = self._plan, piece.piece * self._plan.piece_chunks
        self.manifest.checksums[first : first + len(piece.checksums)] = piece.checksums
        rows = min(plan.piece_rows, plan.rows - piece.piece * plan.piece_rows)
        self._advance(rows * plan.row_nbytes)
        return rows * plan.row_nbytes


def _finish(journal: Journal | None, record: _ArrayRecord, piece: FinishedPiece) -> None:
    if journal is not None:
        journal.add(piece)
    record.add(piece)


def _writer(path: str, plan: StorePlan) -> _Writer:
    # Each library is loaded only where its format is written.
    if plan.store_format == "zarr":
        from oocloader.conversion.zarr_writer import ZarrWriter

        return ZarrWriter(path, plan)
    from oocloader.conversion.hdf5_writer import Hdf5Writer

    return Hdf5Writer(path, plan)
