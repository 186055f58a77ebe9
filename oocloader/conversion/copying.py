"""Carries the rows of an array to the new store: threads read and encode them, and put them in their places.

Places are given in order, since where a chunk lies depends on the sizes of those before it. The bytes are
written by all threads at once: a file system takes them faster from several.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Protocol

import numpy as np

from oocloader.conversion.encode import Encode, encoded_bound
from oocloader.conversion.extents import Placement, put
from oocloader.conversion.journal import FinishedPiece
from oocloader.conversion.sinks import Sink
from oocloader.conversion.store_plan import StoredArrayPlan
from oocloader.conversion.verification.manifest import checksum, checksum_of_rows
from oocloader.conversion.worker_threads import results_in_order


class PieceSource(Protocol):
    """Rows to copy; `read` fills `out` and is thread-safe."""

    def read(self, start: int, stop: int, out: np.ndarray | None = None) -> np.ndarray: ...


def copy_array(
    source: PieceSource,
    sink: Sink,
    plan: StoredArrayPlan,
    *,
    array: int,
    encode: Encode | None,
    first_piece: int = 0,
    finish: Callable[[FinishedPiece], object],
    check_source: Callable[[], object],
) -> None:
    """Copy every row of the array of this number, from piece `first_piece` on.

    `finish` is called for every piece that is written, in order, in the calling thread. `check_source` is
    called behind the reading of each piece and raises where what was read cannot be trusted.

    What a thread raises is raised here. Pieces before it that are being written then are still finished,
    where that takes less than 30 seconds, or one after an interruption.
    """
    places = _PlacesInOrder(sink, first_piece, plan.piece_chunks)
    # More than threads: whoever is ahead of the others goes on with another.
    free = [_PieceBuffer(plan, encode) for _ in range(plan.buffers)]
    stopped, closed = threading.Event(), threading.Event()

    def carry(piece: int) -> list[FinishedPiece | BaseException]:
        """Have this piece ready, and write those that have their places by that: it, and some behind it.

        An error ends what is returned, so that those before it count.
        """
        buffer = free.pop()  # there is one: no more pieces are under way than there are buffers
        buffer.read(source, piece)
        check_source()
        buffer.encode(stopped)
        written: list[FinishedPiece | BaseException] = []
        try:
            for ready, placement in places.take(buffer, stopped):
                # What has its place is written after an error of another thread too: pieces behind it may be
                # there. A thread that was given up must not open what is another conversion's by now.
                if not put(placement.extents, ready.data, stopped=closed.is_set):
                    break
                written.append(ready.finished(array, placement))
                free.append(ready)  # next in turn, since its memory is in the cache
        except BaseException as error:
            if not written:
                raise
            stopped.set()
            written.append(error)
        return written

    pieces = range(first_piece, plan.pieces)
    work = results_in_order(
        carry, pieces, threads=plan.threads, name="oocloader-convert", ahead=plan.buffers, stop=stopped
    )
    try:
        with closing(work):
            for piece in itertools.chain.from_iterable(work):
                if isinstance(piece, BaseException):
                    raise piece
                finish(piece)
    finally:
        closed.set()


class _PlacesInOrder:
    """Has pieces placed in their order, whichever of them is ready first."""

    def __init__(self, sink: Sink, first_piece: int, piece_chunks: int) -> None:
        self._sink = sink
        self._next_piece = first_piece
        self._piece_chunks = piece_chunks
        self._ready: dict[int, _PieceBuffer] = {}
        self._lock = threading.Lock()

    def take(self, buffer: _PieceBuffer, stopped: threading.Event) -> list[tuple[_PieceBuffer, Placement]]:
        """Pieces that have their places now, and are the caller's to write: none, or this and more."""
        placed = []
        with self._lock:
            self._ready[buffer.piece] = buffer
            while not stopped.is_set() and (ready := self._ready.pop(self._next_piece, None)) is not None:
                placed.append((ready, self._sink.place(self._next_piece * self._piece_chunks, ready.sizes)))
                self._next_piece += 1
        return placed


class _PieceBuffer:
    """Memory of a piece: its rows, whole chunks, and what they are encoded to."""

    def __init__(self, plan: StoredArrayPlan, encode: Encode | None) -> None:
        self._plan = plan
        self._encode = encode
        self._rows = np.empty((plan.piece_rows, *plan.shape[1:]), plan.dtype)
        self._raw = self._rows.reshape(-1).view(np.uint8)
        self._filled = 0
        self._checksums: list[int] = []
        self.piece = 0
        self.sizes: list[int] = []
        self.data = self._raw
        if encode is not None:
            self.data = np.empty(plan.piece_chunks * encoded_bound(plan.chunk_nbytes), np.uint8)

    def read(self, source: PieceSource, piece: int) -> None:
        """Fill with this piece; what the last chunk lacks in rows is zero."""
        start = piece * self._plan.piece_rows
        self.piece = piece
        self._filled = min(self._plan.piece_rows, self._plan.rows - start)
        source.read(start, start + self._filled, self._rows[: self._filled])
        self._rows[self._filled : self._chunks * self._plan.chunk_rows] = 0

    @property
    def _chunks(self) -> int:
        return -(-self._filled // self._plan.chunk_rows)

    def encode(self, stopped: threading.Event) -> None:
        """Encode the chunks, unless stopped, to the front of `data`, one behind the other, `sizes` long."""
        chunk_rows, chunk_nbytes, at = self._plan.chunk_rows, self._plan.chunk_nbytes, 0
        self.sizes, self._checksums = [], []
        for chunk in range(self._chunks):
            if stopped.is_set():
                break
            rows = self._rows[chunk * chunk_rows : min((chunk + 1) * chunk_rows, self._filled)]
            self._checksums.append(checksum_of_rows(rows))
            raw = self._raw[chunk * chunk_nbytes : (chunk + 1) * chunk_nbytes]
            encoded = raw if self._encode is None else self._encode(raw, self.data[at:])
            self.sizes.append(encoded.nbytes)
            at += encoded.nbytes

    def finished(self, array: int, placement: Placement) -> FinishedPiece:
        """What the journal says of it once it is in its place."""
        stored = self._checksums
        if self._encode is not None or self._filled < self._chunks * self._plan.chunk_rows:
            ends = itertools.accumulate(self.sizes)
            stored = [
                checksum(self.data[end - size : end]) for end, size in zip(ends, self.sizes, strict=True)
            ]
        return FinishedPiece(array, self.piece, placement.offsets, self.sizes, self._checksums, stored)
