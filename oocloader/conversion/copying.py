"""Carries the rows of an array to the new store: threads read and encode them, and put them in their places.

Places are given in order, since where a chunk lies depends on the sizes of those before it. The bytes are
written by all threads at once: a file system takes them faster from several.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from oocloader.conversion.encode import Encode, encoded_bound
from oocloader.conversion.extents import Placed, put
from oocloader.conversion.store_plan import ArrayPlan
from oocloader.conversion.verification.manifest import checksum, checksum_of_rows

# How long an interrupted conversion waits for its threads, which notice after the chunk at hand.
_PATIENCE_S = 1.0
# After an error in one of them, the others may finish what they write: it is kept only if it is told of.
_PATIENCE_AFTER_ERROR_S = 30.0
# How often the calling thread looks how far the others are: each time one of them has to wait for it.
_PROGRESS_S = 0.1


class Source(Protocol):
    """Rows to copy; `read` fills `out` and is thread-safe."""

    def read(self, start: int, stop: int, out: np.ndarray | None = None) -> np.ndarray: ...


class Sink(Protocol):
    """Knows where the chunks of one array go. Asked in their order, by one thread at a time."""

    def place(self, first_chunk: int, sizes: Sequence[int]) -> Placed:
        """Where chunks `first_chunk` on go, `sizes` bytes long."""


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

    What a thread raises is raised here. Pieces that are being written then are still told of, where that
    takes less than 30 seconds, or one after an interruption; afterwards `written` is not called any more.
    """
    turns = _Turns(plan.pieces, first_piece, sink, plan.piece_chunks, written)
    # More than threads: whoever is ahead of the others goes on with another.
    free: queue.SimpleQueue[_Piece | None] = queue.SimpleQueue()
    for _ in range(plan.buffers):
        free.put(_Piece(plan, encode))

    def work() -> None:
        # The buffer first: so whoever has the number that all wait for has one.
        while (piece := free.get()) is not None and (number := turns.take()) is not None:
            piece.read(source, number)
            check_source()
            piece.finish(turns.stopped)
            for ready, placed in turns.place(number, piece):
                # What has its place is written after an error of another thread too: pieces behind it may
                # be there. A thread that was given up must not open what is another conversion's by now.
                if not put(placed.extents, ready.data, stopped=turns.closed):
                    return
                turns.finished(ready.written(placed))
                free.put(ready)

    def stop(error: BaseException) -> None:
        turns.stop(error)
        # Whoever waits for a buffer need not wait any more.
        for _ in range(plan.threads):
            free.put(None)

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            stop(error)

    # Daemons: a chunk of gigabytes takes longer to encode than Ctrl-C may take to end the program.
    workers = [
        threading.Thread(target=guarded, name=f"oocloader-convert-{n}", daemon=True)
        for n in range(plan.threads)
    ]
    started: list[threading.Thread] = []
    reported = min(first_piece * plan.piece_rows, plan.rows)
    patience_s = _PATIENCE_AFTER_ERROR_S
    try:
        for worker in workers:
            worker.start()
            started.append(worker)
        for pieces in turns.progress():
            rows = min(pieces * plan.piece_rows, plan.rows)
            advance((rows - reported) * plan.row_nbytes)
            reported = rows
    except BaseException as error:
        stop(error)
        patience_s = _PATIENCE_S
        raise
    finally:
        deadline = time.monotonic() + patience_s
        try:
            for worker in started:
                worker.join(max(0.0, deadline - time.monotonic()))
        finally:
            turns.close()
    if turns.error is not None:
        raise turns.error


class _Piece:
    """Memory of a piece: its rows, whole chunks, and what they are encoded to."""

    def __init__(self, plan: ArrayPlan, encode: Encode | None) -> None:
        self._plan = plan
        self._encode = encode
        self._rows = np.empty((plan.piece_rows, *plan.shape[1:]), plan.dtype)
        self._raw = self._rows.reshape(-1).view(np.uint8)
        self._number = 0
        self._chunks = 0
        self._filled = 0
        self._checksums: list[int] = []
        self.sizes: list[int] = []
        self.data = self._raw
        if encode is not None:
            self.data = np.empty(plan.piece_chunks * encoded_bound(plan.chunk_nbytes), np.uint8)

    def read(self, source: Source, number: int) -> None:
        """Fill with piece `number`; what the last chunk lacks in rows is zero."""
        plan = self._plan
        start = number * plan.piece_rows
        rows = min(plan.piece_rows, plan.rows - start)
        self._number = number
        self._chunks = -(-rows // plan.chunk_rows)
        source.read(start, start + rows, self._rows[:rows])
        self._rows[rows : self._chunks * plan.chunk_rows] = 0
        self._filled = rows

    def finish(self, stopped: Callable[[], bool]) -> None:
        """Encode the chunks, unless stopped, to the front of `data`, one behind the other, `sizes` long."""
        plan, at = self._plan, 0
        self.sizes, self._checksums = [], []
        for chunk in range(self._chunks):
            if stopped():
                break
            first = chunk * plan.chunk_rows
            rows = self._rows[first : min(first + plan.chunk_rows, self._filled)]
            self._checksums.append(checksum_of_rows(rows))
            raw = self._raw[chunk * plan.chunk_nbytes : (chunk + 1) * plan.chunk_nbytes]
            encoded = raw if self._encode is None else self._encode(raw, self.data[at:])
            self.sizes.append(encoded.nbytes)
            at += encoded.nbytes

    def written(self, placed: Placed) -> Written:
        """What to tell of it once it is in its place."""
        return Written(self._number, placed.offsets, self.sizes, self._checksums, self._stored_checksums())

    def _stored_checksums(self) -> list[int]:
        if self._encode is None and self._filled == self._chunks * self._plan.chunk_rows:
            return self._checksums
        ends = list(itertools.accumulate(self.sizes))
        return [checksum(self.data[end - size : end]) for end, size in zip(ends, self.sizes, strict=True)]


class _Turns:
    """Hands out the numbers of pieces in order, and has them placed, and told of, in that order."""

    def __init__(
        self, count: int, first: int, sink: Sink, chunks: int, tell: Callable[[Written], object]
    ) -> None:
        self.error: BaseException | None = None
        self._sink = sink
        self._chunks = chunks
        self._tell = tell
        self._count = count
        self._first = first
        self._taken = first
        self._told = first
        # Encoded, but not all before them are; and written, but not all before them are.
        self._encoded: dict[int, _Piece] = {}
        self._written: dict[int, Written] = {}
        self._placing = threading.Lock()
        self._placed = first
        self._changed = threading.Condition()
        self._closed = False

    def stopped(self) -> bool:
        return self.error is not None

    def closed(self) -> bool:
        return self._closed

    def take(self) -> int | None:
        """The next piece, `None` where there is none or the work was stopped."""
        with self._changed:
            if self.error is not None or self._taken == self._count:
                return None
            self._taken += 1
            return self._taken - 1

    def place(self, number: int, piece: _Piece) -> list[tuple[_Piece, Placed]]:
        """Pieces that have their places now, and are the caller's to write: perhaps this one, and others."""
        with self._changed:
            self._encoded[number] = piece
        placed = []
        with self._placing:
            while (ready := self._next_encoded()) is not None:
                at = self._sink.place(self._placed * self._chunks, ready.sizes)
                self._placed += 1
                placed.append((ready, at))
        return placed

    def _next_encoded(self) -> _Piece | None:
        with self._changed:
            return None if self.error is not None else self._encoded.pop(self._placed, None)

    def finished(self, written: Written) -> None:
        """Tell of this piece, and those after it, once all before it are written; never once closed."""
        with self._changed:
            self._written[written.piece] = written
            while not self._closed and self._told in self._written:
                self._tell(self._written.pop(self._told))
                self._told += 1
            if self._told == self._count:
                self._changed.notify_all()

    def stop(self, error: BaseException) -> None:
        """End the work; the first error is kept."""
        with self._changed:
            self.error = self.error or error
            self._changed.notify_all()

    def close(self) -> None:
        """Whoever is late is not heard any more."""
        with self._changed:
            self._closed = True

    def progress(self) -> Iterator[int]:
        """Pieces told of so far, now and then, until all are or the work was stopped."""
        seen = self._first
        while seen < self._count:
            with self._changed:
                if self.error is None and self._told < self._count:
                    self._changed.wait(_PROGRESS_S)
                if self.error is not None:
                    return
                seen = self._told
            yield seen
