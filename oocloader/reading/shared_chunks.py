"""Bands: the rows that one row of chunks holds, decoded once a pass however windows cut them.

A window that takes a whole band has it decoded straight to its place. A band that several windows
share is decoded to memory of its own at the first and held until the last has taken its rows.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from oocloader.errors import ClosedError
from oocloader.order import RowSpan, split
from oocloader.reading.jobs import Job, then


@dataclass(slots=True)
class Band:
    """Stored rows `lo:hi`, to be decoded to `rows` by the window that claimed them first."""

    number: int
    lo: int
    hi: int
    rows: np.ndarray
    rows_left: int = 0
    """Rows of the pass that no window has asked for yet."""
    error: BaseException | None = None
    ready: bool = False
    settle: Callable[[BaseException | None], object] | None = None
    """To be called when `rows` are decoded, or with the error; None where nobody waits for them."""

    def jobs(self, decode: Sequence[Job]) -> list[Job]:
        """`decode`, which fills `rows`, then handed to every window that waits for them."""
        # Not held on to: it holds the buffer of a window, and the band may outlive that.
        settle, self.settle = self.settle, None
        if settle is None:
            return list(decode)

        def run(job: Job) -> None:
            try:
                job()
            except BaseException as error:
                settle(error)
                raise

        return then([functools.partial(run, job) for job in decode], lambda: settle(None))

    def copy(self, spans: Sequence[RowSpan], out: np.ndarray) -> None:
        """Copy the rows of `spans` to their places in `out`."""
        for span in spans:
            span.copy(self.rows, out, first=self.lo)


@dataclass(slots=True)
class Claim:
    """What a window has to decode, and how it comes by what others decode.

    - `unshared`: the spans of bands that no other window needs: to be decoded to the rows of these spans
    - `bands`: to be decoded whole
    - `copies`: copy rows of bands that jobs of other windows decode, and wait for these: to come last
    """

    unshared: dict[int, list[RowSpan]] = field(default_factory=dict)
    bands: list[Band] = field(default_factory=list)
    copies: list[Job] = field(default_factory=list)


class SharedChunks:
    """The shared bands of one array in one pass. Thread-safe.

    `wanted(lo, hi)` says how many of the stored rows `lo:hi` the pass delivers.
    """

    def __init__(self, wanted: Callable[[int, int], int]) -> None:
        self._wanted = wanted
        self._held: dict[int, Band] = {}
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
            self._held.clear()
            self._changed.notify_all()
            parts = list(self._parts.values())
        for shared_chunks in parts:
            shared_chunks.cancel()

    @property
    def held_nbytes(self) -> int:
        """Memory held for bands that are needed again."""
        with self._lock:
            held = sum(band.rows.nbytes for band in self._held.values())
            return held + sum(shared_chunks.held_nbytes for shared_chunks in self._parts.values())

    def claim(
        self, spans: Sequence[RowSpan], out: np.ndarray, *, rows: int, band_rows: int, whole: bool = True
    ) -> Claim:
        """How `spans` of an array of `rows` rows, `band_rows` to a band, get to `out`.

        `whole`: bands can only be decoded whole, to neighbouring rows; then none is `unshared`.
        """
        claim = Claim()
        for number, parts in split(spans, band_rows):
            lo, hi = number * band_rows, min(rows, (number + 1) * band_rows)
            taken, wanted = sum(part.rows for part in parts), self._wanted(lo, hi)
            with self._lock:
                if self._cancelled:
                    raise ClosedError("the pass was given up")
                band = self._held.get(number)
                if band is not None:
                    band.rows_left -= taken
                    if band.rows_left <= 0:
                        del self._held[number]
                    claim.copies.append(functools.partial(self._copy, band, parts, out))
                    continue
                shared = taken < wanted
                if not shared and not whole:
                    claim.unshared[number] = parts
                    continue
                dest = parts[0].dest_index
                if not shared and taken == hi - lo and len(parts) == 1 and isinstance(dest, slice):
                    claim.bands.append(Band(number, lo, hi, out[dest]))
                    continue
                buffer = np.empty((hi - lo, *out.shape[1:]), out.dtype)
                band = Band(number, lo, hi, buffer, wanted - taken)
                band.settle = functools.partial(self._settle, band, parts, out)
                claim.bands.append(band)
                if shared:
                    self._held[number] = band
        return claim

    def _settle(
        self, band: Band, parts: Sequence[RowSpan], out: np.ndarray, error: BaseException | None
    ) -> None:
        with self._lock:
            band.error = band.error or error
            band.ready = True
            self._changed.notify_all()
        if error is None:
            band.copy(parts, out)

    def _copy(self, band: Band, parts: Sequence[RowSpan], out: np.ndarray) -> None:
        with self._lock:
            while not (band.ready or self._cancelled):
                self._changed.wait()
            if not band.ready:
                raise ClosedError("the pass was given up")
        if band.error is not None:
            raise band.error
        band.copy(parts, out)
