"""Rows of chunks that have to be decoded, or put together: each chunk goes straight to its rows."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence

import numpy as np

from oocloader.boxes import Box
from oocloader.codecs.chain import CodecError, scratch
from oocloader.cost import Cost, banded_cost
from oocloader.damage import RowsNamed, damaged
from oocloader.files import FileReader
from oocloader.layout import Layout
from oocloader.pieces import Piece, place
from oocloader.read import JOB_NBYTES, Job, Target
from oocloader.runs import GAP_NBYTES, TOGETHER_NBYTES, ChunkRun, chunk_runs, in_file_order, stretches

# To remember where in samples a chunk lies takes about half a kilobyte.
_MOST_CUTS = 4096


class DecodedRows:
    """The rows of one array of any chunks. Thread-safe. Memory belongs to the caller."""

    def __init__(self, layout: Layout, files: FileReader) -> None:
        self._layout = layout
        self._files = files
        # Worked out once: that takes longer than to decode a small chunk.
        self._chunk_nbytes, self._row_nbytes, self._grid = layout.chunk_nbytes, layout.row_nbytes, layout.grid
        self._chunks_across = math.prod(self._grid[1:])
        self._cuts: dict[int, tuple[tuple[slice, ...], tuple[slice, ...]]] = {}
        self._straight = layout.whole_rows and layout.dtype.isnative
        self._raw = layout.chain.raw
        # Chunks that are worth one job.
        self._per_job = max(1, JOB_NBYTES // 2 // max(1, layout.chunk_nbytes))
        # What one call reads, a chunk decoded, what its codecs need, a band that two windows share.
        stored = largest = int(layout.stored.max(initial=0))
        if self._per_job > 1:
            stored = max(largest, min(TOGETHER_NBYTES, self._per_job * (largest + GAP_NBYTES)))
        decoded = layout.chunk_nbytes + layout.chain.scratch_nbytes(layout.chunk_nbytes)
        self.scratch_nbytes = stored + decoded + layout.chunk_shape[0] * layout.row_nbytes
        # The shape of a box that is read as one.
        self.unit = layout.chunk_shape

    def jobs(self, pieces: Sequence[Piece], target: Target) -> list[Job]:
        """What fills `target` with `pieces`."""
        return target.bands.jobs(
            pieces,
            target.rows,
            rows=self._layout.shape[0],
            band_rows=self._layout.chunk_shape[0],
            decode=lambda band, lo, hi, out: self._band_jobs(
                {band: [Piece(lo, hi, None, slice(0, hi - lo))]}, out, target
            ),
            direct=lambda pieces: self._band_jobs(pieces, target.rows, target),
        )

    def cost(self, pieces: Sequence[Piece]) -> Cost:
        """What reading `pieces` takes."""
        layout = self._layout
        across = math.prod(layout.grid[1:])
        return banded_cost(
            pieces,
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
        held, dest = [], []
        for at, size, part in zip(index, layout.chunk_shape, box, strict=True):
            lo, hi = max(part.start, at * size), min(part.stop, (at + 1) * size)
            held.append(slice(lo - at * size, hi - at * size))
            dest.append(slice(lo - part.start, hi - part.start))
        file = int(layout.file[chunk])
        if file < 0:
            out[tuple(dest)] = layout.fill
            return
        self._check_end(chunk)
        stored = scratch("stored", int(layout.stored[chunk]))
        with RowsNamed(layout, chunk):
            self._files.read_at(file, int(layout.offset[chunk]), stored)
        decoded = self._decoded(chunk, stored, scratch("decoded", layout.chunk_nbytes))
        place(out[tuple(dest)], slice(None), self._values(decoded)[tuple(held)])

    def _band_jobs(self, pieces: dict[int, list[Piece]], out: np.ndarray, target: Target) -> list[Job]:
        """Jobs that decode the chunks of bands and put the rows of their `pieces` into `out`."""
        chunks = in_file_order(self._layout, np.fromiter(pieces, np.int64, len(pieces))).tolist()
        groups = [chunks[at : at + self._per_job] for at in range(0, len(chunks), self._per_job)]
        for group in groups:
            for file, offset, nbytes in stretches(self._layout, group):
                self._files.will_need(file, [(offset, nbytes)])
        return [
            (lambda group=group: self._decode(group, pieces, out, target))  # type: ignore[misc]  # binds group
            for group in groups
        ]

    def _decode(
        self, chunks: list[int], pieces: dict[int, list[Piece]], out: np.ndarray, target: Target
    ) -> None:
        layout = self._layout
        # Where chunks go that lie there as they are decoded.
        straight = out.reshape(-1).view(np.uint8) if self._straight else None
        calls = read = decoded = 0
        read_s = decode_s = placing_s = 0.0
        for file, found in itertools.groupby(chunk_runs(layout, chunks), lambda run: run.file):
            runs = list(found)
            if file < 0:
                for run in runs:
                    for chunk, band, _, _ in run.chunks:
                        self._place(chunk, None, pieces[band], out)
                continue
            with RowsNamed(layout, runs[0].chunks[0][0]), self._files.opened(file) as fd:
                for run in runs:
                    took = self._decode_run(fd, run, pieces, out, straight)
                    calls += took[0]
                    read_s += took[1]
                    decode_s += took[2]
                    placing_s += took[3]
                    read += run.end - run.begin
                    decoded += len(run.chunks)
        target.counters.add(
            read_calls=calls,
            read_bytes=read,
            read_s=read_s,
            decode_s=decode_s,
            gather_s=placing_s,
            chunks_decoded=decoded,
            decoded_bytes=decoded * self._chunk_nbytes,
        )

    def _decode_run(
        self,
        fd: int,
        run: ChunkRun,
        pieces: dict[int, list[Piece]],
        out: np.ndarray,
        straight: np.ndarray | None,
    ) -> tuple[int, float, float, float]:
        """Read a run and decode its chunks: system calls, seconds of reading, of decoding, of placing."""
        if run.end > self._layout.files.size[run.file]:
            for chunk, *_ in run.chunks:
                self._check_end(chunk)  # raises for one of them
        began = time.perf_counter()
        stored = scratch("stored", run.end - run.begin)
        with RowsNamed(self._layout, run.chunks[0][0]):
            calls = self._files.read(fd, run.file, run.begin, stored)
        ready = time.perf_counter()
        placing = 0.0
        for chunk, band, at, nbytes in run.chunks:
            placing += self._decode_one(chunk, stored[at : at + nbytes], pieces[band], out, straight)
        return calls, ready - began, time.perf_counter() - ready - placing, placing

    def _check_end(self, chunk: int) -> None:
        """Raise where the bytes of a chunk end behind the end of its file."""
        layout = self._layout
        end = int(layout.offset[chunk] + layout.stored[chunk])
        size = int(layout.files.size[layout.file[chunk]])
        if end > size:
            raise damaged(layout, chunk, f"it ends at byte {end} of a file of {size} bytes")

    def _decode_one(
        self,
        chunk: int,
        stored: np.ndarray,
        pieces: list[Piece],
        out: np.ndarray,
        straight: np.ndarray | None,
    ) -> float:
        """Bring a chunk to its rows; the seconds that went into placing them once decoded."""
        whole = pieces[0]
        if (
            straight is not None
            and len(pieces) == 1
            and isinstance(whole.dest, slice)
            and whole.rows == self._layout.chunk_shape[0]
        ):
            begin = whole.dest.start * self._row_nbytes
            self._decoded(chunk, stored, straight[begin : begin + self._chunk_nbytes], straight=True)
            return 0.0
        decoded = self._decoded(chunk, stored, scratch("decoded", self._chunk_nbytes))
        began = time.perf_counter()
        self._place(chunk, decoded, pieces, out)
        return time.perf_counter() - began

    def _decoded(
        self, chunk: int, stored: np.ndarray, out: np.ndarray, *, straight: bool = False
    ) -> np.ndarray:
        """The bytes of a chunk: in `out` if they had to be decoded, or where they go `straight` there."""
        if self._raw and not straight and stored.nbytes == out.nbytes:
            return stored
        try:
            self._layout.chain.decode(stored, out, int(self._layout.mask[chunk]))
        except CodecError as error:
            raise damaged(self._layout, chunk, str(error)) from error
        return out

    def _values(self, decoded: np.ndarray) -> np.ndarray:
        """The values of a whole decoded chunk, in its shape and in the byte order of the store."""
        layout = self._layout
        values = decoded.view(layout.dtype)
        if layout.axes is None:
            return values.reshape(layout.chunk_shape)
        shape = tuple(layout.chunk_shape[axis] for axis in layout.axes)
        return values.reshape(shape).transpose(np.argsort(layout.axes))

    def _place(self, chunk: int, decoded: np.ndarray | None, pieces: list[Piece], out: np.ndarray) -> None:
        """Copy a decoded chunk, or the fill value, to the rows of `pieces` in `out`."""
        band, number = divmod(chunk, self._chunks_across)
        of_sample, of_chunk = self._cut(number)
        if decoded is None:
            for piece in pieces:
                out[(piece.dest, *of_sample[1:])] = self._layout.fill
            return
        first = band * self._layout.chunk_shape[0]
        values, part_of_out = self._values(decoded)[of_chunk], out[of_sample]
        for piece in pieces:
            rows = values[piece.start - first : piece.stop - first]
            place(part_of_out, piece.dest, rows if piece.pick is None else rows[piece.pick])

    def _cut(self, number: int) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """What chunk `number` of a band has of samples, and what of the chunk that is, all rows of both."""
        found = self._cuts.get(number)
        if found is None:
            layout = self._layout
            sizes = layout.chunk_shape[1:]
            begins = [
                int(i) * c for i, c in zip(np.unravel_index(number, self._grid[1:]), sizes, strict=True)
            ]
            ends = [min(lo + c, n) for lo, c, n in zip(begins, sizes, layout.shape[1:], strict=True)]
            parts = list(zip(begins, ends, strict=True))
            found = (
                (slice(None), *(slice(lo, hi) for lo, hi in parts)),
                (slice(None), *(slice(0, hi - lo) for lo, hi in parts)),
            )
            if len(self._cuts) < _MOST_CUTS:
                self._cuts[number] = found
        return found
