"""Rows of chunks that have to be decoded, or put together: each chunk goes straight to its rows."""

import functools
import itertools
import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from oocloader.codecs import scratch
from oocloader.memory import Cost, banded_cost
from oocloader.metrics import Counters
from oocloader.order import RowSpan, place
from oocloader.reading.boxes import Box
from oocloader.reading.byte_ranges import GAP_NBYTES, TOGETHER_NBYTES, in_file_order, stretches
from oocloader.reading.chunk_bytes import ChunkBytes
from oocloader.reading.files import FileReader
from oocloader.reading.jobs import JOB_NBYTES, Job
from oocloader.reading.layout import Layout
from oocloader.reading.row_reader import Target
from oocloader.reading.tiles import Tiling, are_compact, are_runs
from oocloader.sizes import rows_in

# The spans of each band that are to be filled.
_Spans = dict[int, list[RowSpan]]
# Decodes the chunks, or the tiles, of these numbers to the rows of their spans in a buffer, and counts.
_Decode = Callable[[list[int], _Spans, np.ndarray, Counters], None]


class DecodedRows:
    """The rows of one array of any chunks. Thread-safe. Memory belongs to the caller."""

    def __init__(self, layout: Layout, files: FileReader) -> None:
        self._layout = layout
        self._files = files
        self._chunks = ChunkBytes(layout, files)
        # Worked out once: that takes longer than to decode a small chunk.
        self._chunk_nbytes, self._row_nbytes = layout.chunk_nbytes, layout.row_nbytes
        self._chunks_across = math.prod(layout.grid[1:])
        self._tiling, self._single = Tiling(layout), Tiling(layout, most_nbytes=0)
        self._straight = layout.whole_rows and layout.dtype.isnative
        # Chunks that are worth one job.
        self._per_job = rows_in(JOB_NBYTES // 2, self._chunk_nbytes)
        # What one call reads, a chunk decoded, what its codecs need, a band that two windows share.
        stored = largest = int(layout.stored.max(initial=0))
        if self._per_job > 1:
            stored = max(largest, min(TOGETHER_NBYTES, self._per_job * (largest + GAP_NBYTES)))
        decoded = self._tiling.chunks * self._chunk_nbytes + layout.chain.scratch_nbytes(self._chunk_nbytes)
        self.scratch_nbytes = stored + decoded + layout.chunk_shape[0] * self._row_nbytes
        # The shape of a box that is read as one.
        self.unit = layout.chunk_shape

    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        """What fills `target` with `spans`."""
        rows, band_rows = self._layout.shape[0], self._layout.chunk_shape[0]
        claim = target.shared_chunks.claim(spans, target.rows, rows=rows, band_rows=band_rows, whole=False)
        # All of them at once, so that neighbours are read together.
        jobs = self._band_jobs(claim.unshared, target.rows, target.counters) if claim.unshared else []
        for band in claim.bands:
            whole = RowSpan(band.lo, band.hi, None, slice(0, band.hi - band.lo))
            jobs += band.jobs(self._band_jobs({band.number: [whole]}, band.rows, target.counters))
        return jobs + claim.copies

    def cost(self, spans: Sequence[RowSpan]) -> Cost:
        """What reading `spans` takes."""
        layout = self._layout
        stored = np.where(layout.file >= 0, layout.stored, 0).reshape(-1, self._chunks_across).sum(axis=1)
        rows, band_rows = layout.shape[0], layout.chunk_shape[0]
        return banded_cost(spans, rows=rows, band_rows=band_rows, row_nbytes=self._row_nbytes, stored=stored)

    def read_box(self, box: Box, out: np.ndarray) -> None:
        """Fill `out` (native byte order, C order) with a box; a chunk in several is decoded for each."""
        layout = self._layout
        across = [
            range(part.start // size, -(-part.stop // size))
            for part, size in zip(box, layout.chunk_shape, strict=True)
        ]
        for index in itertools.product(*across):
            in_chunk, in_box = [], []
            for at, size, part in zip(index, layout.chunk_shape, box, strict=True):
                lo, hi = max(part.start, at * size), min(part.stop, (at + 1) * size)
                in_chunk.append(slice(lo - at * size, hi - at * size))
                in_box.append(slice(lo - part.start, hi - part.start))
            chunk = int(np.ravel_multi_index(index, layout.grid))
            if layout.file[chunk] < 0:
                out[tuple(in_box)] = layout.fill
            else:
                values = self._single.values(self._chunks.read_one(chunk))
                place(out[tuple(in_box)], slice(None), values[tuple(in_chunk)])

    def _band_jobs(self, spans: _Spans, out: np.ndarray, counters: Counters) -> list[Job]:
        """Jobs that decode the chunks of bands and put the rows of their `spans` into `out`."""
        bands = np.fromiter(spans, np.int64, len(spans))
        together = self._tiles.chunks
        numbers = _numbers_within(bands, self._chunks_across // together)
        decode: _Decode = self._decode_tiles
        if together == 1:
            decode, numbers = self._decode_chunks, in_file_order(self._layout, numbers)
        per_job = max(1, self._per_job // together)
        jobs: list[Job] = []
        for group in (numbers[at : at + per_job] for at in range(0, len(numbers), per_job)):
            for file, offset, nbytes in stretches(self._layout, _numbers_within(group, together)):
                self._files.will_need(file, [(offset, nbytes)])
            jobs.append(functools.partial(self._counted, decode, group.tolist(), spans, out, counters))
        return jobs

    def _counted(
        self, decode: _Decode, numbers: list[int], spans: _Spans, out: np.ndarray, counters: Counters
    ) -> None:
        # Added to the others at the end, all at once: that takes a lock.
        job_counters = Counters()
        decode(numbers, spans, out, job_counters)
        job_counters.decoded_bytes = job_counters.chunks_decoded * self._chunk_nbytes
        counters.include(job_counters)

    def _decode_chunks(self, chunks: list[int], spans: _Spans, out: np.ndarray, counters: Counters) -> None:
        # Where chunks go that lie there as they are decoded.
        straight = out.reshape(-1).view(np.uint8) if self._straight else None

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
                self._chunks.decode(chunk, stored, straight[begin : begin + self._chunk_nbytes])
            else:
                decoded = self._chunks.decoded(chunk, stored, scratch("decoded", self._chunk_nbytes))
                self._place(chunk, decoded, spans[band], out, counters)

        self._chunks.read(chunks, take, counters)

    def _decode_tiles(self, tiles: list[int], spans: _Spans, out: np.ndarray, counters: Counters) -> None:
        together = self._tiles.chunks
        decoded = scratch("decoded", together * self._chunk_nbytes)
        for first in (tile * together for tile in tiles):
            if self._tiles_are_runs[first // together]:
                self._chunks.read_raw(first, together, decoded, counters)
            else:
                chunks = in_file_order(self._layout, np.arange(first, first + together)).tolist()
                self._chunks.read(chunks, functools.partial(self._to_slot, decoded, first), counters)
            self._place(first, decoded, spans[first // self._chunks_across], out, counters)

    def _to_slot(
        self, decoded: np.ndarray, first: int, chunk: int, band: int, stored: np.ndarray | None
    ) -> None:
        """Decode a chunk to its place in the tile that begins with chunk number `first`."""
        begin = (chunk - first) * self._chunk_nbytes
        slot = decoded[begin : begin + self._chunk_nbytes]
        if stored is None:
            slot.view(self._layout.dtype)[:] = self._layout.fill
        else:
            self._chunks.decode(chunk, stored, slot)

    @functools.cached_property
    def _tiles(self) -> Tiling:
        """Tiles of several chunks, unless these lie among those of others, as along a space-filling curve."""
        several = self._tiling.chunks > 1 and are_compact(self._layout, self._tiling.chunks)
        return self._tiling if several else self._single

    @functools.cached_property
    def _tiles_are_runs(self) -> np.ndarray:
        return are_runs(self._layout, self._tiles.chunks)

    def _fill(self, chunk: int, spans: list[RowSpan], out: np.ndarray) -> None:
        """The fill value for what the rows of `spans` have in a chunk."""
        part = self._single.of(out, chunk % self._chunks_across)
        for span in spans:
            part[span.dest_index] = self._layout.fill

    def _place(
        self, chunk: int, decoded: np.ndarray, spans: list[RowSpan], out: np.ndarray, counters: Counters
    ) -> None:
        """Copy a decoded chunk, or the tile that begins with it, to the rows of `spans` in `out`."""
        began = time.perf_counter()
        band, number = divmod(chunk, self._chunks_across)
        part = self._tiles.of(out, number // self._tiles.chunks)
        values = self._tiles.values(decoded)
        if values.shape[1:] != part.shape[1:]:
            # Beyond the edge of samples there is more of the chunk.
            values = values[(slice(None), *map(slice, part.shape[1:]))]
        for span in spans:
            span.copy(values, part, first=band * self._layout.chunk_shape[0])
        counters.gather_s += time.perf_counter() - began


def _numbers_within(groups: np.ndarray, count: int) -> np.ndarray:
    """The numbers of what lies in groups of `count` each: int64 (groups * count,)."""
    return (groups[:, np.newaxis] * count + np.arange(count)).reshape(-1)
