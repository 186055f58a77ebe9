"""Carries the rows of an array to the new store: threads read and encode them, and write them in order."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from oocloader.conversion.encode import Encode, encoded_bound
from oocloader.conversion.plan import ArrayPlan
from oocloader.verification.manifest import checksum, checksum_of_rows

# How long an interrupted conversion waits for its threads, which notice after the chunk at hand.
_PATIENCE_S = 1.0


class Source(Protocol):
    """Rows to copy; `read` fills `out` and is thread-safe."""

    def read(self, start: int, stop: int, out: np.ndarray | None = None) -> np.ndarray: ...


class Sink(Protocol):
    """Takes the chunks of one array, in order, from one thread at a time."""

    def write(self, first_chunk: int, data: np.ndarray, sizes: Sequence[int]) -> Sequence[int]:
        """Store chunks `first_chunk` on: one behind the other in `data` (uint8, 1-d), `sizes` bytes long.

        `data` is the caller's again when this returns. Returns where each lies in its file.
        """


@dataclass(frozen=True, slots=True)
class Written:
    """A piece that was written: where its chunks were put, how many bytes they have there, what they are.

    `checksums` are of the rows of each chunk, `stored_checksums` of its bytes in the file.
    """

    piece: int
    offsets: Sequence[int]
    sizes: Sequence[int]
    checksums: Sequence[int]
    stored_checksums: Sequence[int]


def copy_array(
    source: Source,
    sink: Sink,
    plan: ArrayPlan,
    *,
    encode: Encode | None,
    advance: Callable[[int], object],
    first_piece: int = 0,
    written: Callable[[Written], object],
    check_source: Callable[[], object],
) -> None:
    """Copy every row, from piece `first_piece` on.

    `advance` is told, in the calling thread, how many bytes more have been written. `written` is told of
    every piece once it is written, in order, by one thread at a time. `check_source` is called behind the
    reading of each piece and raises where what was read cannot be trusted.

    What a thread raises is raised here. After an interruption no thread writes any more.
    """
    turns = _Turns(plan.pieces, first_piece)

    def work() -> None:
        piece = _Piece(plan, encode)
        while (number := turns.take()) is not None:
            piece.read(source, number)
            check_source()
            checksums = piece.checksums()
            sizes = piece.encode(turns.stopped)
            stored = piece.stored_checksums(sizes, checksums)
            if not turns.mine(number):
                return
            offsets = sink.write(number * plan.piece_chunks, piece.data, sizes)
            if turns.stopped():
                return  # whoever stopped us may have made the sink drop it
            written(Written(number, offsets, sizes, checksums, stored))
            turns.finished(number)

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            turns.stop(error)

    # Daemons: a chunk of gigabytes takes longer to encode than Ctrl-C may take to end the program.
    workers = [
        threading.Thread(target=guarded, name=f"oocloader-convert-{n}", daemon=True)
        for n in range(plan.threads)
    ]
    started: list[threading.Thread] = []
    reported = min(first_piece * plan.piece_rows, plan.rows)
    try:
        for worker in workers:
            worker.start()
            started.append(worker)
        for pieces in turns.progress():
            rows = min(pieces * plan.piece_rows, plan.rows)
            advance((rows - reported) * plan.row_nbytes)
            reported = rows
    except BaseException as error:
        turns.stop(error)
        raise
    finally:
        deadline = time.monotonic() + _PATIENCE_S
        for worker in started:
            worker.join(max(0.0, deadline - time.monotonic()))
    if turns.error is not None:
        raise turns.error


class _Piece:
    """Memory of one thread: the rows of a piece, whole chunks, and what they are encoded to."""

    def __init__(self, plan: ArrayPlan, encode: Encode | None) -> None:
        self._plan = plan
        self._encode = encode
        self._rows = np.empty((plan.piece_rows, *plan.shape[1:]), plan.dtype)
        self._raw = self._rows.reshape(-1).view(np.uint8)
        self._chunks = 0
        self._filled = 0
        self.data = self._raw
        if encode is not None:
            self.data = np.empty(plan.piece_chunks * encoded_bound(plan.chunk_nbytes), np.uint8)

    def read(self, source: Source, number: int) -> None:
        """Fill with piece `number`; what the last chunk lacks in rows is zero."""
        plan = self._plan
        start = number * plan.piece_rows
        rows = min(plan.piece_rows, plan.rows - start)
        self._chunks = -(-rows // plan.chunk_rows)
        source.read(start, start + rows, self._rows[:rows])
        self._rows[rows : self._chunks * plan.chunk_rows] = 0
        self._filled = rows

    def checksums(self) -> list[int]:
        """Of the rows of each chunk."""
        rows, step = self._rows[: self._filled], self._plan.chunk_rows
        return [checksum_of_rows(rows[at : at + step]) for at in range(0, self._filled, step)]

    def stored_checksums(self, sizes: Sequence[int], checksums: Sequence[int]) -> list[int]:
        """Of the bytes of each chunk in `data`; `checksums` are of its rows."""
        if self._encode is None and self._filled == self._chunks * self._plan.chunk_rows:
            return list(checksums)
        ends = list(itertools.accumulate(sizes))
        return [checksum(self.data[end - size : end]) for end, size in zip(ends, sizes, strict=True)]

    def encode(self, stopped: Callable[[], bool]) -> list[int]:
        """Encode the chunks to the front of `data`, one behind the other, unless stopped; their sizes."""
        nbytes = self._plan.chunk_nbytes
        if self._encode is None:
            return [nbytes] * self._chunks
        sizes, at = [], 0
        for chunk in range(self._chunks):
            if stopped():
                break
            raw = self._raw[chunk * nbytes : (chunk + 1) * nbytes]
            encoded = self._encode(raw, self.data[at:])
            sizes.append(encoded.nbytes)
            at += encoded.nbytes
        return sizes


class _Turns:
    """Hands out the numbers of pieces in order, and lets them be written in that order."""

    def __init__(self, count: int, first: int) -> None:
        self.error: BaseException | None = None
        self._count = count
        self._first = first
        self._taken = first
        self._written = first
        self._changed = threading.Condition()

    def stopped(self) -> bool:
        return self.error is not None

    def take(self) -> int | None:
        """The next piece, `None` where there is none or the work was stopped."""
        with self._changed:
            if self.error is not None or self._taken == self._count:
                return None
            self._taken += 1
            return self._taken - 1

    def mine(self, number: int) -> bool:
        """Wait until every piece before `number` is written; False where the work was stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self.error is not None or self._written == number)
            return self.error is None

    def finished(self, number: int) -> None:
        with self._changed:
            self._written = number + 1
            self._changed.notify_all()

    def stop(self, error: BaseException) -> None:
        """End the work; the first error is kept."""
        with self._changed:
            self.error = self.error or error
            self._changed.notify_all()

    def progress(self) -> Iterator[int]:
        """Pieces written so far, whenever that changes, until all are or the work was stopped."""
        seen = self._first
        while seen < self._count:
            with self._changed:
                while self.error is None and self._written == seen:
                    self._changed.wait()
                if self.error is not None:
                    return
                seen = self._written
            yield seen
