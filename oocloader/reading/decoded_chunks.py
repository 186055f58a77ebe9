"""Rows of chunks that have to be decoded, or put together: each chunk goes straight to its rows."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from oocloader.codecs import CodecError, scratch
from oocloader.memory import Cost, banded_cost
from oocloader.metrics import Counters
from oocloader.order import RowSpan, place
from oocloader.reading.boxes import Box
from oocloader.reading.byte_ranges import (
    GAP_NBYTES,
    TOGETHER_NBYTES,
    ChunkRun,
    chunk_runs,
    in_file_order,
    stretches,
)
from oocloader.reading.decode_turns import QuickJobs
from oocloader.reading.files import FileReader
from oocloader.reading.layout import Layout
from oocloader.reading.read_errors import damaged, error_context
from oocloader.reading.row_reader import JOB_NBYTES, Job, Target
from oocloader.reading.tiles import Tiling

# Called with the number of a chunk, its band and its stored bytes (None: nothing is stored), to decode it.
_Take = Callable[[int, int, np.ndarray | None], None]
# Decodes the chunks, or the tiles, of these numbers to their places in a buffer of rows, by the spans of
# each band: the seconds of reading.
_Decode = Callable[[list[int], dict[int, list[RowSpan]], np.ndarray, Counters], float]
# Chunks of a tile that take more than so many times their bytes in the file lie among those of other tiles.
_COMPACT = 1.1


@dataclass(slots=True)
class _Sums:
    """What a job counts, as `Counters` has it."""

    read_calls: int = 0
    read_bytes: int = 0
    chunks_decoded: int = 0
    read_s: float = 0.0
    decode_s: float = 0.0
    gather_s: float = 0.0

    def add_to(self, counters: Counters, chunk_nbytes: int) -> None:
        counters.add(
            read_calls=self.read_calls,
            read_bytes=self.read_bytes,
            chunks_decoded=self.chunks_decoded,
            decoded_bytes=self.chunks_decoded * chunk_nbytes,
            read_s=self.read_s,
            decode_s=self.decode_s,
            gather_s=self.gather_s,
        )


class DecodedRows:
    """The rows of one array of any chunks. Thread-safe. Memory belongs to the caller."""

    def __init__(self, layout: Layout, files: FileReader) -> None:
        self._layout = layout
        self._files = files
        # Worked out once: that takes longer than to decode a small chunk.
        self._chunk_nbytes, self._row_nbytes = layout.chunk_nbytes, layout.row_nbytes
        self._chunks_across = math.prod(layout.grid[1:])
        self._tiling, self._single = Tiling(layout), Tiling(layout, most_nbytes=0)
        self._straight = layout.whole_rows and layout.dtype.isnative
        self._raw = layout.chain.raw
        self._quick = QuickJobs()
        # Chunks that are worth one job.
        self._per_job = max(1, JOB_NBYTES // 2 // max(1, layout.chunk_nbytes))
        # What one call reads, a chunk decoded, what its codecs need, a band that two windows share.
        stored = largest = int(layout.stored.max(initial=0))
        if self._per_job > 1:
            stored = max(largest, min(TOGETHER_NBYTES, self._per_job * (largest + GAP_NBYTES)))
        decoded = self._tiling.chunks * layout.chunk_nbytes + layout.chain.scratch_nbytes(layout.chunk_nbytes)
        self.scratch_nbytes = stored + decoded + layout.chunk_shape[0] * layout.row_nbytes
        # The shape of a box that is read as one.
        self.unit = layout.chunk_shape

    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        """What fills `target` with `spans`."""
        return target.shared_chunks.jobs(
            spans,
            target.rows,
            rows=self._layout.shape[0],
            band_rows=self._layout.chunk_shape[0],
            decode=lambda band, lo, hi, out: self._band_jobs(
                {band: [RowSpan(lo, hi, None, slice(0, hi - lo))]}, out, target
            ),
            direct=lambda spans: self._band_jobs(spans, target.rows, target),
        )

    def cost(self, spans: Sequence[RowSpan]) -> Cost:
        """What reading `spans` takes."""
        layout = self._layout
        across = math.prod(layout.grid[1:])
        return banded_cost(
            spans,
            rows=layout.shape[0],
            band_rows=layout.chunk_shape[0],
            row_nbytes=layout.row_nbytes,
            stored=np.where(layout.file >= 0, layout.stored, 0).reshape(-1, across).sum(axis=1),
        )

    def read_box(self, box: Box, out: np.ndarray) -> None:
        """Fill `out` (native byte order, C order) with a box; a chunk in several is decoded for each."""
        layout = self._layout
        across = [
            range(part.start // size, -(-part.stop // size))
            for part, size in zip(box, layout.chunk_shape, strict=True)
        ]
        for index in itertools.product(*across):
            self._decode_into(int(np.ravel_multi_index(index, layout.grid)), index, box, out)

    def _decode_into(self, chunk: int, index: tuple[int, ...], box: Box, out: np.ndarray) -> None:
        """Put what `box` has of a chunk into `out`."""
        layout = self._layout
        held, dest_index = [], []
        for at, size, part in zip(index, layout.chunk_shape, box, strict=True):
            lo, hi = max(part.start, at * size), min(part.stop, (at + 1) * size)
            held.append(slice(lo - at * size, hi - at * size))
            dest_index.append(slice(lo - part.start, hi - part.start))
        file = int(layout.file[chunk])
        if file < 0:
            out[tuple(dest_index)] = layout.fill
            return
        self._check_end(chunk)
        stored = scratch("stored", int(layout.stored[chunk]))
        with error_context(layout, chunk):
            self._files.read_at(file, int(layout.offset[chunk]), stored)
        decoded = self._decoded(chunk, stored, scratch("decoded", layout.chunk_nbytes))
        place(out[tuple(dest_index)], slice(None), self._single.values(decoded)[tuple(held)])

    def _band_jobs(self, spans: dict[int, list[RowSpan]], out: np.ndarray, target: Target) -> list[Job]:
        """Jobs that decode the chunks of bands and put the rows of their `spans` into `out`."""
        shared_chunks = np.fromiter(spans, np.int64, len(spans))
        together = self._tiles.chunks
        across = self._chunks_across // together
        numbers = (shared_chunks[:, np.newaxis] * across + np.arange(across)).reshape(-1)
        decode: _Decode = self._decode_tiles
        if together == 1:
            decode, numbers = self._decode_chunks, in_file_order(self._layout, numbers)
        per_job = max(1, self._per_job // together)
        jobs: list[Job] = []
        for group in (numbers[at : at + per_job] for at in range(0, len(numbers), per_job)):
            for file, offset, nbytes in stretches(self._layout, _chunks_of(group, together)):
                self._files.will_need(file, [(offset, nbytes)])
            job = functools.partial(decode, group.tolist(), spans, out, target.counters)
            # Nothing is decoded of raw chunks: few calls read and place many of them.
            jobs.append(job if self._raw else functools.partial(self._quick.run, job, len(group) * together))
        return jobs

    def _decode_chunks(
        self, chunks: list[int], spans: dict[int, list[RowSpan]], out: np.ndarray, counters: Counters
    ) -> float:
        # Where chunks go that lie there as they are decoded.
        straight = out.reshape(-1).view(np.uint8) if self._straight else None
        sums = _Sums()

        def take(chunk: int, band: int, stored: np.ndarray | None) -> None:
            whole = spans[band][0]
            if stored is None:
                self._fill(chunk, spans[band], out)
            elif (
                straight is not None
                and len(spans[band]) == 1
                and isinstance(whole.dest_index, slice)
                and whole.rows == self._layout.chunk_shape[0]
            ):
                begin = whole.dest_index.start * self._row_nbytes
                self._decode_to(chunk, stored, straight[begin : begin + self._chunk_nbytes])
            else:
                decoded = self._decoded(chunk, stored, scratch("decoded", self._chunk_nbytes))
                began = time.perf_counter()
                self._place(chunk, decoded, spans[band], out)
                sums.gather_s += time.perf_counter() - began

        self._read(chunks, take, sums)
        sums.add_to(counters, self._chunk_nbytes)
        return sums.read_s

    def _decode_tiles(
        self, tiles: list[int], spans: dict[int, list[RowSpan]], out: np.ndarray, counters: Counters
    ) -> float:
        together = self._tiles.chunks
        decoded = scratch("decoded", together * self._chunk_nbytes)
        sums = _Sums()
        for tile in tiles:
            first = tile * together
            if self._runs_of_tiles[tile]:
                self._read_tile(first, decoded, sums)
            else:
                chunks = in_file_order(self._layout, np.arange(first, first + together))
                self._read(chunks.tolist(), functools.partial(self._to_slot, decoded, first), sums)
            began = time.perf_counter()
            self._place(first, decoded, spans[first // self._chunks_across], out)
            sums.gather_s += time.perf_counter() - began
        sums.add_to(counters, self._chunk_nbytes)
        return sums.read_s

    def _to_slot(
        self, decoded: np.ndarray, first: int, chunk: int, band: int, stored: np.ndarray | None
    ) -> None:
        """Decode a chunk to its place in the tile that begins with chunk number `first`."""
        begin = (chunk - first) * self._chunk_nbytes
        slot = decoded[begin : begin + self._chunk_nbytes]
        if stored is None:
            slot.view(self._layout.dtype)[:] = self._layout.fill
        else:
            self._decode_to(chunk, stored, slot)

    @functools.cached_property
    def _tiles(self) -> Tiling:
        """Tiles of several chunks, unless these lie among those of others, as along a space-filling curve."""
        together = self._tiling.chunks
        if together == 1:
            return self._tiling
        file, offset, stored = self._columns_of_tiles
        there = file >= 0
        ends = np.where(there, offset + stored, 0).max(axis=1)
        begins = np.where(there, offset, np.iinfo(np.int64).max).min(axis=1)
        # Chunks in files of their own have nothing between them.
        in_one = there.any(axis=1) & ((file == file.max(axis=1, keepdims=True)) | ~there).all(axis=1)
        spanned, own = (ends - begins)[in_one].sum(), np.where(there, stored, 0).sum(axis=1)[in_one].sum()
        return self._tiling if spanned <= _COMPACT * own else self._single

    @property
    def _columns_of_tiles(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """File, offset and stored bytes of the chunks of each tile: (tiles, chunks) each."""
        layout, together = self._layout, self._tiling.chunks
        return (
            layout.file.reshape(-1, together),
            layout.offset.reshape(-1, together),
            layout.stored.reshape(-1, together),
        )

    @functools.cached_property
    def _runs_of_tiles(self) -> np.ndarray:
        """Whether the chunks of each tile are raw and lie one behind the other: bool (tiles,)."""
        file, offset, stored = self._columns_of_tiles
        if not self._raw:
            return np.zeros(len(file), bool)
        behind = offset[:, :1] + np.arange(file.shape[1]) * self._chunk_nbytes
        there = (file == file[:, :1]) & (file >= 0)
        return np.asarray((there & (offset == behind) & (stored == self._chunk_nbytes)).all(axis=1))

    def _read_tile(self, first: int, decoded: np.ndarray, sums: _Sums) -> None:
        """Read raw chunks, from number `first` on, that lie one behind the other."""
        layout, together = self._layout, self._tiles.chunks
        file, begin = int(layout.file[first]), int(layout.offset[first])
        if begin + decoded.nbytes > layout.files.size[file]:
            for chunk in range(first, first + together):
                self._check_end(chunk)  # raises for one of them
        began = time.perf_counter()
        with error_context(layout, first):
            sums.read_calls += self._files.read_at(file, begin, decoded)
        sums.read_s += time.perf_counter() - began
        sums.read_bytes += decoded.nbytes
        sums.chunks_decoded += together

    def _read(self, chunks: list[int], take: _Take, sums: _Sums) -> None:
        """Read chunks, which are in file order, and have each decoded: None where it is not stored."""
        layout = self._layout
        for file, found in itertools.groupby(chunk_runs(layout, chunks), lambda run: run.file):
            runs = list(found)
            if file < 0:
                for run in runs:
                    for chunk, band, _, _ in run.chunks:
                        take(chunk, band, None)
                continue
            with error_context(layout, runs[0].chunks[0][0]), self._files.opened(file) as fd:
                for run in runs:
                    self._read_run(fd, run, take, sums)

    def _read_run(self, fd: int, run: ChunkRun, take: _Take, sums: _Sums) -> None:
        if run.end > self._layout.files.size[run.file]:
            for chunk, *_ in run.chunks:
                self._check_end(chunk)  # raises for one of them
        began = time.perf_counter()
        stored = scratch("stored", run.end - run.begin)
        with error_context(self._layout, run.chunks[0][0]):
            sums.read_calls += self._files.read(fd, run.file, run.begin, stored)
        ready = time.perf_counter()
        placing = sums.gather_s
        for chunk, band, at, nbytes in run.chunks:
            take(chunk, band, stored[at : at + nbytes])
        sums.read_bytes += run.end - run.begin
        sums.chunks_decoded += len(run.chunks)
        sums.read_s += ready - began
        sums.decode_s += time.perf_counter() - ready - (sums.gather_s - placing)

    def _check_end(self, chunk: int) -> None:
        """Raise where the bytes of a chunk end behind the end of its file."""
        layout = self._layout
        end = int(layout.offset[chunk] + layout.stored[chunk])
        size = int(layout.files.size[layout.file[chunk]])
        if end > size:
            raise damaged(layout, chunk, f"it ends at byte {end} of a file of {size} bytes")

    def _decoded(self, chunk: int, stored: np.ndarray, out: np.ndarray) -> np.ndarray:
        """The bytes of a chunk: where they are, or in `out` if they had to be decoded."""
        if self._raw and stored.nbytes == out.nbytes:
            return stored
        self._decode_to(chunk, stored, out)
        return out

    def _decode_to(self, chunk: int, stored: np.ndarray, out: np.ndarray) -> None:
        try:
            self._layout.chain.decode(stored, out, int(self._layout.mask[chunk]))
        except CodecError as error:
            raise damaged(self._layout, chunk, str(error)) from error

    def _fill(self, chunk: int, spans: list[RowSpan], out: np.ndarray) -> None:
        """The fill value for what the rows of `spans` have in a chunk."""
        part = self._single.of(out, chunk % self._chunks_across)
        for span in spans:
            part[span.dest_index] = self._layout.fill

    def _place(self, chunk: int, decoded: np.ndarray, spans: list[RowSpan], out: np.ndarray) -> None:
        """Copy a decoded chunk, or the tile that begins with it, to the rows of `spans` in `out`."""
        band, number = divmod(chunk, self._chunks_across)
        part = self._tiles.of(out, number // self._tiles.chunks)
        values = self._tiles.values(decoded)
        if values.shape[1:] != part.shape[1:]:
            # Beyond the edge of samples there is more of the chunk.
            values = values[(slice(None), *map(slice, part.shape[1:]))]
        first = band * self._layout.chunk_shape[0]
        for span in spans:
            rows = values[span.start - first : span.stop - first]
            place(part, span.dest_index, rows if span.row_index is None else rows[span.row_index])


def _chunks_of(tiles: np.ndarray, together: int) -> np.ndarray:
    """The chunks of tiles: int64 (tiles * together,)."""
    return (tiles[:, np.newaxis] * together + np.arange(together)).reshape(-1)
