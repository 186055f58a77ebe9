"""Bands: the rows that one row of chunks holds, decoded once a pass however windows cut them.

A window that takes a whole band has it decoded straight to its place. A band that several windows
share is decoded to memory of its own at the first and kept until the last has taken its rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from oocloader.errors import ClosedError
from oocloader.order import RowSpan, place, split

Job = Callable[[], object]
# (band, first row, row behind the last, buffer of these rows) -> jobs that fill the buffer
Decode = Callable[[int, int, int, np.ndarray], list[Job]]


@dataclass(slots=True)
class _Kept:
    left: int
    """Rows of the pass that no window has asked for yet."""
    rows: np.ndarray | None = None
    error: BaseException | None = None
    ready: bool = False


class SharedChunks:
    """The shared bands of one array in one pass. Thread-safe.

    `wanted(lo, hi)` says how many of the stored rows `lo:hi` the pass delivers.
    """

    def __init__(self, wanted: Callable[[int, int], int]) -> None:
        self._wanted = wanted
        self._kept: dict[int, _Kept] = {}
        self._parts: dict[int, SharedChunks] = {}
        # As in `Prefetcher`: never entered through the condition, for the sake of Ctrl-C.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._cancelled = False

    def of_part(self, part: object, first: int) -> SharedChunks:
        """The bands of a part that begins at row `first`."""
        with self._lock:
            shared_chunks = self._parts.get(id(part))
            if shared_chunks is None:
                shared_chunks = SharedChunks(lambda lo, hi: self._wanted(lo + first, hi + first))
                shared_chunks._cancelled = self._cancelled
                self._parts[id(part)] = shared_chunks
            return shared_chunks

    def cancel(self) -> None:
        """Let go of everything, and of every thread that waits for a band."""
        with self._lock:
            self._cancelled = True
            self._kept.clear()
            self._changed.notify_all()
            parts = list(self._parts.values())
        for shared_chunks in parts:
            shared_chunks.cancel()

    @property
    def kept_nbytes(self) -> int:
        """Memory held for bands that are needed again."""
        with self._lock:
            own = sum(entry.rows.nbytes for entry in self._kept.values() if entry.rows is not None)
            return own + sum(shared_chunks.kept_nbytes for shared_chunks in self._parts.values())

    def jobs(
        self,
        spans: Sequence[RowSpan],
        out: np.ndarray,
        *,
        rows: int,
        band_rows: int,
        decode: Decode,
        direct: Callable[[dict[int, list[RowSpan]]], list[Job]] | None = None,
    ) -> list[Job]:
        """Jobs that bring `spans` of an array of `rows` rows, kept `band_rows` to a band, into `out`.

        `direct(spans by band)` brings the bands that no other window needs to their places, without a
        buffer in between and all of them at once, so that neighbours can be read together.
        """
        jobs: list[Job] = []
        unshared: dict[int, list[RowSpan]] = {}
        for band, parts in split(spans, band_rows):
            lo, hi = band * band_rows, min(rows, (band + 1) * band_rows)
            taken = sum(part.rows for part in parts)
            entry, fresh = self._claim(band, taken, self._wanted(lo, hi))
            if entry is None:
                if direct is not None:
                    unshared[band] = parts
                    continue
                whole = parts[0]
                if len(parts) == 1 and taken == hi - lo and isinstance(whole.dest_index, slice):
                    jobs += decode(band, lo, hi, out[whole.dest_index])
                    continue
                entry, fresh = _Kept(0), True
            if fresh:
                jobs += self._filling(entry, band, lo, hi, out, parts, decode)
            else:
                jobs.append(self._taking(entry, lo, out, parts))
        return direct(unshared) + jobs if direct is not None and unshared else jobs

    def _claim(self, band: int, taken: int, wanted: int) -> tuple[_Kept | None, bool]:
        with self._lock:
            if self._cancelled:
                raise ClosedError("the pass was given up")
            entry = self._kept.get(band)
            if entry is not None:
                entry.left -= taken
                if entry.left <= 0:
                    del self._kept[band]
                return entry, False
            if taken >= wanted:
                return None, True
            entry = self._kept[band] = _Kept(wanted - taken)
            return entry, True

    def _filling(
        self, entry: _Kept, band: int, lo: int, hi: int, out: np.ndarray, parts: list[RowSpan], decode: Decode
    ) -> list[Job]:
        entry.rows = np.empty((hi - lo, *out.shape[1:]), out.dtype)
        steps = decode(band, lo, hi, entry.rows)
        left = [len(steps)]
        lock = threading.Lock()

        def job(step: Job) -> None:
            try:
                step()
            except BaseException as error:
                self._settle(entry, error)
                raise
            with lock:
                left[0] -= 1
                last = left[0] == 0
            if last:
                self._settle(entry, None)
                _place(entry, lo, out, parts)

        return [lambda step=step: job(step) for step in steps]  # type: ignore[misc]  # default binds the step

    def _settle(self, entry: _Kept, error: BaseException | None) -> None:
        with self._lock:
            entry.error = entry.error or error
            entry.ready = True
            self._changed.notify_all()

    def _taking(self, entry: _Kept, lo: int, out: np.ndarray, parts: list[RowSpan]) -> Job:
        def take() -> None:
            with self._lock:
                while not (entry.ready or self._cancelled):
                    self._changed.wait()
                if not entry.ready:
                    raise ClosedError("the pass was given up")
            if entry.error is not None:
                raise entry.error
            _place(entry, lo, out, parts)

        return take


def _place(entry: _Kept, lo: int, out: np.ndarray, parts: list[RowSpan]) -> None:
    assert entry.rows is not None
    for part in parts:
        rows = entry.rows[part.start - lo : part.stop - lo]
        place(out, part.dest_index, rows if part.row_index is None else rows[part.row_index])
