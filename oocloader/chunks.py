"""Chunks read as byte ranges of files and decoded straight to their rows."""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from oocloader.boxes import Box, Grain, runs_of
from oocloader.buffers import PAGE, map_private, map_shared, on_local_file_system
from oocloader.codecs.chain import CodecError
from oocloader.cost import Cost, banded_cost, row_count, spans
from oocloader.errors import CorruptChunkError, StoreError
from oocloader.files import FileReader
from oocloader.layout import Layout
from oocloader.lone import lone, read_lone
from oocloader.pieces import Piece, apart, cut, place, shared_out
from oocloader.read import JOB_NBYTES, Job, Target
from oocloader.timing import Counters

# Chunks this close in a file are read with one call: reading the gap costs less than another call.
_GAP_NBYTES = 64 << 10
# Chunks are read together up to this many bytes: more saves few calls, and each thread holds as many.
_TOGETHER_NBYTES = 256 << 10
# Rows on their way to shuffled places pass through a buffer that stays in the processor's cache.
_HOT_NBYTES = 1 << 20

# The system allows a process some 65,000 mappings.
_MOST_MAPPED = 1024

# File, offset, bytes, row in the buffer of the rows asked for.
_Range = tuple[int, int, int, int]
_Map = Callable[[Sequence[tuple[int, int, int]]], np.ndarray | None]

_thread = threading.local()


def _scratch(name: str, nbytes: int) -> np.ndarray:
    """Memory of this thread that is reused, uint8 (nbytes,)."""
    memory = getattr(_thread, name, None)
    if memory is None or memory.nbytes < nbytes:
        memory = np.empty(max(nbytes, 1), np.uint8)
        setattr(_thread, name, memory)
    return memory[:nbytes]


@dataclass(slots=True)
class _Run:
    """Chunks that are read with one call: bytes `begin:end` of file number `file`, -1 where none are stored.

    `chunks`: number, band, first byte in the run and stored bytes of each.
    """

    file: int
    begin: int
    end: int
    chunks: list[tuple[int, int, int, int]] = field(default_factory=list)


class ChunkReader:
    """Rows of one array by its `layout`. `store` names the store in messages.

    `ask_fill` gives the fill value where `layout` does not say it, since nothing is missing.
    """

    starts: tuple[int, ...] = (0,)

    def __init__(
        self, layout: Layout, *, store: str, ask_fill: Callable[[], np.ndarray] | None = None
    ) -> None:
        self._layout = layout
        self._ask_fill = ask_fill
        self._store = store
        self._files = FileReader(layout.files)
        self.shape = layout.shape
        self.dtype = layout.dtype.newbyteorder("=")
        self._native = layout.dtype == self.dtype
        self.row_access = layout.chain.raw and layout.whole_rows
        self.gathered_nbytes = layout.row_nbytes * self.shape[0] if self.row_access and self._native else 0
        self._per_group = max(1, JOB_NBYTES // 2 // max(1, layout.chunk_nbytes))
        self._view: np.ndarray | None = None
        self._view_ranges: Sequence[_Range] = ()
        self._viewing = threading.Lock()
        single = layout.chunk_shape == layout.shape
        self.chunk_rows = None if single and self.row_access else layout.chunk_shape[0]
        if self.row_access:
            self.scratch_nbytes = max(min(_HOT_NBYTES, layout.row_nbytes * self.shape[0]), layout.row_nbytes)
        else:
            # What one call reads, a chunk decoded, what its codecs need, a band that two windows share.
            stored = largest = int(layout.stored.max(initial=0))
            if self._per_group > 1:
                stored = max(largest, min(_TOGETHER_NBYTES, self._per_group * (largest + _GAP_NBYTES)))
            decoded = layout.chunk_nbytes + layout.chain.scratch_nbytes(layout.chunk_nbytes)
            self.scratch_nbytes = stored + decoded + layout.chunk_shape[0] * layout.row_nbytes

    @property
    def layout(self) -> Layout:
        """Where the chunks lie."""
        return self._layout

    def jobs(self, pieces: Sequence[Piece], target: Target) -> list[Job]:
        if self.row_access:
            return self._row_jobs(pieces, target)
        return target.bands.jobs(
            pieces,
            target.rows,
            rows=self.shape[0],
            band_rows=self._layout.chunk_shape[0],
            decode=lambda band, lo, hi, out: self._band_jobs(
                {band: [Piece(lo, hi, None, slice(0, hi - lo))]}, out, target
            ),
            direct=lambda pieces: self._band_jobs(pieces, target.rows, target),
        )

    def map(self, start: int, stop: int) -> np.ndarray | None:
        if not (self.row_access and self._native):
            return None
        with self._where((start, stop)):
            ranges = self._ranges(start, stop)
            mapped = self._mapped(ranges, map_private)
        if mapped is None:
            return None
        for file, offset, nbytes, _ in ranges:
            self._files.will_need(file, offset, nbytes)
        return mapped.reshape(stop - start, *self.shape[1:])

    def view(self, pieces: Sequence[Piece]) -> np.ndarray | None:
        if not self.gathered_nbytes:
            return None
        with self._viewing:
            if self._view is None:
                self._view = self._map_all()
                if self._view is None:
                    self.gathered_nbytes = 0
                    return None
        for index in self._files_of(pieces):
            with self._where((pieces[0].start, pieces[-1].stop)):
                self._files.check(index)
        return self._view

    def view_again(self) -> np.ndarray | None:
        with self._where((0, self.shape[0])):
            mapped = self._mapped(self._view_ranges, map_shared)
        return None if mapped is None else mapped.reshape(self.shape)

    def cost(self, pieces: Sequence[Piece]) -> Cost:
        layout = self._layout
        across = math.prod(layout.grid[1:])
        stored = np.where(layout.file >= 0, layout.stored, 0).reshape(-1, across).sum(axis=1)
        if not self.row_access:
            return banded_cost(
                pieces,
                rows=self.shape[0],
                band_rows=layout.chunk_shape[0],
                row_nbytes=layout.row_nbytes,
                stored=stored,
            )
        # Rows before each chunk that are there at all, to count those of any run.
        chunk_rows = layout.chunk_shape[0]
        there = stored > 0
        before = np.concatenate([[0], np.cumsum(there * chunk_rows)])

        def held(first: np.ndarray, behind: np.ndarray) -> int:
            rows = np.concatenate([behind, first])
            chunk = np.minimum(rows // chunk_rows, len(there) - 1)
            counted = before[chunk] + there[chunk] * (rows - chunk * chunk_rows)
            return int(counted[: len(behind)].sum() - counted[len(behind) :].sum())

        wanted = held(*spans(pieces, 0))
        gap = _GAP_NBYTES // max(1, layout.row_nbytes)
        alone = [piece for piece in pieces if piece.pick is not None and lone(piece.pick, gap)]
        near = [piece for piece in pieces if piece.pick is None or not lone(piece.pick, gap)]
        read = held(*spans(alone, 0)) + held(*spans(near, gap))
        touched = row_count(pieces) * layout.row_nbytes
        return Cost(wanted * layout.row_nbytes, read * layout.row_nbytes, touched)

    def close(self) -> None:
        self._view = None
        self._files.close()

    # -- boxes, which conversion reads where rows are spread over more than memory holds

    @property
    def grain(self) -> Grain:
        layout = self._layout
        if not self.row_access:
            unit = layout.chunk_shape
        elif layout.chunk_shape == layout.shape:
            unit = (1,) * len(layout.shape)
        else:
            unit = (1, *layout.shape[1:])
        return Grain(unit, tuple(range(len(layout.shape))))

    @property
    def fill(self) -> np.ndarray:
        """What stands for values that are not stored: 0-d, native byte order."""
        missing = (self._layout.file < 0).any()
        fill = self._layout.fill if missing or self._ask_fill is None else self._ask_fill()
        return fill if self._native else fill.byteswap().view(self.dtype)

    def read_box(self, box: Box, out: np.ndarray) -> None:
        """Fill `out` with a box; a chunk that lies in several boxes is decoded for each."""
        layout = self._layout
        rows = (box[0].start, box[0].stop)
        if not self.row_access:
            across = [
                range(part.start // size, -(-part.stop // size))
                for part, size in zip(box, layout.chunk_shape, strict=True)
            ]
            for index in itertools.product(*across):
                self._decode_into(int(np.ravel_multi_index(index, layout.grid)), index, box, out)
        elif out.shape[1:] == self.shape[1:]:
            self._read_rows(*rows, out.view(layout.dtype), Counters())
            if not self._native:
                out.byteswap(inplace=True)
        elif layout.chunk_shape == layout.shape and layout.file[0] >= 0:
            offsets, run = runs_of(box, layout.shape, layout.dtype.itemsize)
            flat = out.reshape(-1).view(np.uint8)
            with self._where(rows):
                for at, offset in enumerate(offsets.tolist()):
                    self._read(0, int(layout.offset[0]) + offset, flat[at * run : (at + 1) * run])
            if not self._native:
                out.byteswap(inplace=True)
        else:
            whole = np.empty((rows[1] - rows[0], *self.shape[1:]), self.dtype)
            self.read_box((box[0], *(slice(0, length) for length in self.shape[1:])), whole)
            out[...] = whole[(slice(None), *box[1:])]

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
        begin = int(layout.offset[chunk])
        stored = _scratch("stored", self._end(chunk) - begin)
        with self._where(self._rows_of(chunk)):
            self._read(file, begin, stored)
        decoded = self._decoded(chunk, stored, _scratch("decoded", layout.chunk_nbytes))
        out[tuple(dest)] = self._values(decoded)[tuple(held)]

    # -- rows that lie in the file as they are

    def _map_all(self) -> np.ndarray | None:
        """All rows as one shared mapping, None where they do not lie evenly, or too widely spread."""
        if (self._layout.file < 0).any():
            return None
        try:
            ranges = self._ranges(0, self.shape[0])
        except CorruptChunkError:
            return None  # the rows before it are read, and the error comes in its place
        self._view_ranges = ranges
        mapped = self._mapped(ranges, map_shared) if len(ranges) <= _MOST_MAPPED else None
        return None if mapped is None else mapped.reshape(self.shape)

    def _mapped(self, ranges: Sequence[_Range], how: _Map) -> np.ndarray | None:
        """Runs of bytes as one mapping, values in a row; None where they cannot be mapped."""
        # Bytes behind the end of a file can be mapped, and then end the process when they are touched.
        size = self._layout.files.size
        if any(file < 0 or offset + nbytes > size[file] for file, offset, nbytes, _ in ranges):
            return None
        if not on_local_file_system(self._layout.files.root):
            return None
        # Known before the files are opened: most stores whose chunks are files end here.
        if any(offset % PAGE for _, offset, _, _ in ranges[1:]):
            return None
        with contextlib.ExitStack() as stack:
            fds = {file: stack.enter_context(self._files.opened(file)) for file, *_ in ranges}
            mapped = how([(fds[file], offset, nbytes) for file, offset, nbytes, _ in ranges])
        return None if mapped is None else mapped.view(self.dtype)

    def _files_of(self, pieces: Sequence[Piece]) -> list[int]:
        """The files that hold rows of `pieces`."""
        if len(self._layout.files.names) == 1:
            return [0]
        chunk_rows = self._layout.chunk_shape[0]
        touched = [
            self._layout.file[piece.start // chunk_rows : (piece.stop - 1) // chunk_rows + 1]
            for piece in pieces
        ]
        return [int(index) for index in np.unique(np.concatenate(touched))]

    def _ranges(self, start: int, stop: int) -> list[_Range]:
        """Runs of bytes that hold rows `start:stop`: (file, offset, bytes, row in the run's buffer)."""
        layout = self._layout
        row_nbytes, chunk_rows = layout.row_nbytes, layout.chunk_shape[0]
        first, last = start // chunk_rows, (stop - 1) // chunk_rows + 1
        if last - first == 1 and layout.stored[first] == layout.chunk_nbytes:
            begin = int(layout.offset[first]) + (start - first * chunk_rows) * row_nbytes
            return [(int(layout.file[first]), begin, (stop - start) * row_nbytes, 0)]
        file, offset = layout.file[first:last], layout.offset[first:last]
        held = (layout.stored[first:last] != layout.chunk_nbytes) & (file >= 0)
        if held.any():
            chunk = first + int(np.flatnonzero(held)[0])
            raise self._damaged(
                chunk, f"it has {int(layout.stored[chunk])} stored bytes, expected {layout.chunk_nbytes}"
            )
        if last - first > 1:
            joined = (file[1:] == file[:-1]) & (
                (offset[1:] == offset[:-1] + layout.chunk_nbytes) | (file[1:] < 0)
            )
            begins = np.concatenate([[0], np.flatnonzero(~joined) + 1])
        else:
            begins = np.zeros(1, np.int64)
        ends = np.append(begins[1:], last - first)
        lo = np.maximum((first + begins) * chunk_rows, start)
        hi = np.minimum((first + ends) * chunk_rows, stop)
        offsets = offset[begins] + (lo - (first + begins) * chunk_rows) * row_nbytes
        return list(
            zip(
                file[begins].tolist(),
                offsets.tolist(),
                ((hi - lo) * row_nbytes).tolist(),
                (lo - start).tolist(),
                strict=True,
            )
        )

    def _row_jobs(self, pieces: Sequence[Piece], target: Target) -> list[Job]:
        row_nbytes = max(1, self._layout.row_nbytes)
        rows = max(1, JOB_NBYTES // row_nbytes)
        gap = _GAP_NBYTES // row_nbytes
        jobs: list[Job] = []
        for piece in pieces:
            if piece.pick is not None and lone(piece.pick, gap):
                jobs += [self._lone_job(part, target) for part in shared_out(piece, rows)]
                continue
            parts = [part for near in apart(piece, gap) for part in cut(near, rows)]
            for part in parts:
                self._rows_will_be_needed(part.start, part.stop)
            jobs += [self._row_job(part, target) for part in parts]
        return jobs

    def _row_job(self, piece: Piece, target: Target) -> Job:
        straight = piece.pick is None and isinstance(piece.dest, slice) and self._native

        def read() -> None:
            if straight:
                self._read_rows(piece.start, piece.stop, target.rows[piece.dest], target.counters)
                return
            step = max(1, _HOT_NBYTES // max(1, self._layout.row_nbytes))
            for part in cut(piece, step):
                rows = part.stop - part.start
                hot = _scratch("rows", rows * self._layout.row_nbytes).view(self._layout.dtype)
                hot = hot.reshape(rows, *self.shape[1:])
                self._read_rows(part.start, part.stop, hot, target.counters)
                began = time.perf_counter()
                place(target.rows, part.dest, hot if part.pick is None else hot[part.pick])
                target.counters.add(
                    copied_bytes=part.rows * self._layout.row_nbytes, gather_s=time.perf_counter() - began
                )

        return read

    def _lone_job(self, piece: Piece, target: Target) -> Job:
        """Reads rows that lie far apart, each by a call of its own: as little as can be is done a row."""

        def read() -> None:
            layout = self._layout
            wanted = np.arange(piece.stop - piece.start) if piece.pick is None else piece.pick
            row_nbytes = layout.row_nbytes
            step = max(1, _HOT_NBYTES // max(1, row_nbytes))
            began = time.perf_counter()
            calls = 0
            for lo in range(0, piece.rows, step):
                rows = piece.start + wanted[lo : lo + step]
                hot = _scratch("rows", len(rows) * row_nbytes).view(layout.dtype)
                hot = hot.reshape(len(rows), *self.shape[1:])
                calls += self._read_lone(rows, hot)
                dest = piece.dest
                if isinstance(dest, slice):
                    dest = slice(dest.start + lo, dest.start + lo + len(rows))
                else:
                    dest = dest[lo : lo + step]
                place(target.rows, dest, hot)
            nbytes = piece.rows * row_nbytes
            target.counters.add(
                read_calls=calls,
                read_bytes=calls * row_nbytes,
                read_s=time.perf_counter() - began,
                copied_bytes=nbytes,
            )

        return read

    def _read_lone(self, rows: np.ndarray, hot: np.ndarray) -> int:
        """Stored rows (int64, ascending) to those of `hot`; how many of them are stored."""
        layout = self._layout
        chunks = rows // layout.chunk_shape[0]
        held = (layout.stored[chunks] != layout.chunk_nbytes) & (layout.file[chunks] >= 0)
        if held.any():
            self._ranges(int(rows[held][0]), int(rows[held][0]) + 1)  # raises
        with self._where((int(rows[0]), int(rows[-1]) + 1)):
            return read_lone(layout, self._files, rows, hot)

    def _read_rows(self, start: int, stop: int, rows: np.ndarray, counters: Counters) -> None:
        began = time.perf_counter()
        calls = total = 0
        flat = rows.reshape(-1).view(np.uint8)
        with self._where((start, stop)):
            for file, offset, nbytes, at in self._ranges(start, stop):
                if file < 0:
                    n = nbytes // max(1, self._layout.row_nbytes)
                    rows[at : at + n] = self._layout.fill
                    continue
                begin = at * self._layout.row_nbytes
                calls += self._read(file, offset, flat[begin : begin + nbytes])
                total += nbytes
        counters.add(read_calls=calls, read_bytes=total, read_s=time.perf_counter() - began)

    # -- chunks that have to be decoded or put together

    def _band_jobs(self, pieces: dict[int, list[Piece]], out: np.ndarray, target: Target) -> list[Job]:
        """Jobs that decode the chunks of bands and put the rows of their `pieces` into `out`."""
        layout = self._layout
        across = math.prod(layout.grid[1:])
        bands = np.fromiter(pieces, np.int64, len(pieces))
        chunks = (bands[:, np.newaxis] * across + np.arange(across)).reshape(-1)
        # Files in the order of their rows, so that of several that are damaged the first is told of.
        _, first, which = np.unique(layout.file[chunks], return_index=True, return_inverse=True)
        chunks = chunks[np.lexsort((layout.offset[chunks], first[which]))]
        groups = self._groups(chunks)
        for group in groups:
            self._will_need(group)
        return [
            (lambda group=group: self._decode(group, pieces, out, target))  # type: ignore[misc]  # binds group
            for group in groups
        ]

    def _rows_will_be_needed(self, start: int, stop: int) -> None:
        chunk_rows = self._layout.chunk_shape[0]
        first, last = start // chunk_rows, (stop - 1) // chunk_rows
        if first < last:
            self._will_need(range(first, last + 1))
        elif (file := int(self._layout.file[first])) >= 0:
            # A chunk may be the whole array.
            row_nbytes = self._layout.row_nbytes
            begin = int(self._layout.offset[first]) + (start - first * chunk_rows) * row_nbytes
            self._files.will_need(file, begin, (stop - start) * row_nbytes)

    def _will_need(self, chunks: Sequence[int]) -> None:
        """Have the stored bytes of these chunks fetched, file by file, where they lie near each other."""
        layout = self._layout
        at = np.asarray(chunks)
        file = layout.file[at]
        for index in np.unique(file[file >= 0]).tolist():
            held = at[file == index]
            begin = int(layout.offset[held].min())
            nbytes = int((layout.offset[held] + layout.stored[held]).max()) - begin
            if nbytes <= 2 * int(layout.stored[held].sum()):
                self._files.will_need(index, begin, nbytes)

    def _groups(self, chunks: np.ndarray) -> list[list[int]]:
        """Chunks in file order, cut into groups that are worth one job."""
        numbers = chunks.tolist()
        step = self._per_group
        return [numbers[at : at + step] for at in range(0, len(numbers), step)]

    def _runs(self, chunks: list[int]) -> Iterator[_Run]:
        """Chunks in file order, cut into runs that are read with one call: neighbours in a file."""
        layout = self._layout
        across = math.prod(layout.grid[1:])
        at = np.array(chunks)
        # Looked up for all of them at once: one at a time takes longer than decoding a small chunk.
        columns = zip(
            chunks,
            layout.file[at].tolist(),
            layout.offset[at].tolist(),
            layout.stored[at].tolist(),
            (at // across).tolist(),
            strict=True,
        )
        run: _Run | None = None
        last = 0
        for chunk, file, offset, stored, band in columns:
            if run is not None:
                # Between others may lie chunks that nobody wants.
                near = abs(band - last) <= 1 and offset - run.end <= _GAP_NBYTES
                if not (file == run.file and near and offset + stored - run.begin <= _TOGETHER_NBYTES):
                    yield run
                    run = None
            if run is None:
                run = _Run(file, offset, offset)
            run.chunks.append((chunk, band, offset - run.begin, stored))
            run.end = max(run.end, offset + stored)
            last = band
        if run is not None:
            yield run

    def _decode(
        self, chunks: list[int], pieces: dict[int, list[Piece]], out: np.ndarray, target: Target
    ) -> None:
        layout = self._layout
        for run in self._runs(chunks):
            if run.file < 0:
                for chunk, band, _, _ in run.chunks:
                    self._place(chunk, None, pieces[band], out)
                continue
            if run.end > layout.files.size[run.file]:
                for chunk, *_ in run.chunks:
                    self._end(chunk)  # raises for one of them
            began = time.perf_counter()
            stored = _scratch("stored", run.end - run.begin)
            with self._where(self._rows_of(run.chunks[0][0])):
                calls = self._read(run.file, run.begin, stored)
            read = time.perf_counter()
            placing = 0.0
            for chunk, band, at, nbytes in run.chunks:
                placing += self._decode_one(chunk, stored[at : at + nbytes], pieces[band], out)
            target.counters.add(
                read_calls=calls,
                read_bytes=run.end - run.begin,
                read_s=read - began,
                decode_s=time.perf_counter() - read - placing,
                gather_s=placing,
                chunks_decoded=len(run.chunks),
                decoded_bytes=len(run.chunks) * layout.chunk_nbytes,
            )

    def _read(self, file: int, offset: int, out: np.ndarray) -> int:
        with self._files.opened(file) as fd:
            return self._files.read(fd, file, offset, out)

    def _end(self, chunk: int) -> int:
        """Where the bytes of a chunk end in its file."""
        layout = self._layout
        end = int(layout.offset[chunk] + layout.stored[chunk])
        size = int(layout.files.size[layout.file[chunk]])
        if end > size:
            raise self._damaged(chunk, f"it ends at byte {end} of a file of {size} bytes")
        return end

    def _decode_one(self, chunk: int, stored: np.ndarray, pieces: list[Piece], out: np.ndarray) -> float:
        """Bring a chunk to its rows; the seconds that went into placing them once decoded."""
        layout = self._layout
        whole = pieces[0]
        rows = layout.chunk_shape[0]
        straight = (
            layout.whole_rows
            and self._native
            and len(pieces) == 1
            and isinstance(whole.dest, slice)
            and whole.pick is None
            and whole.rows == rows
        )
        if straight:
            decoded = out[whole.dest].reshape(-1).view(np.uint8)
        else:
            decoded = _scratch("decoded", layout.chunk_nbytes)
        decoded = self._decoded(chunk, stored, decoded, straight=straight)
        if straight:
            return 0.0
        began = time.perf_counter()
        self._place(chunk, decoded, pieces, out)
        return time.perf_counter() - began

    def _decoded(
        self, chunk: int, stored: np.ndarray, out: np.ndarray, *, straight: bool = False
    ) -> np.ndarray:
        """The bytes of a chunk: in `out` if they had to be decoded, or where they go `straight` there."""
        if self._layout.chain.raw and not straight and stored.nbytes == out.nbytes:
            return stored
        try:
            self._layout.chain.decode(stored, out, int(self._layout.mask[chunk]))
        except CodecError as error:
            raise self._damaged(chunk, str(error)) from error
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
        layout = self._layout
        index = np.unravel_index(chunk, layout.grid)
        across = tuple(
            slice(int(i) * c, min((int(i) + 1) * c, n))
            for i, c, n in zip(index[1:], layout.chunk_shape[1:], layout.shape[1:], strict=True)
        )
        first = int(index[0]) * layout.chunk_shape[0]
        if decoded is None:
            for piece in pieces:
                out[(piece.dest, *across)] = layout.fill
            return
        values = self._values(decoded)
        values = values[(slice(None), *(slice(0, part.stop - part.start) for part in across))]
        for piece in pieces:
            rows = values[piece.start - first : piece.stop - first]
            rows = rows if piece.pick is None else rows[piece.pick]
            if layout.whole_rows:
                place(out, piece.dest, rows)
            else:
                out[(piece.dest, *across)] = rows

    # -- messages

    @contextlib.contextmanager
    def _where(self, rows: tuple[int, int]) -> Iterator[None]:
        """Errors from within say which array and rows were to be read."""
        try:
            yield
        except StoreError as error:
            if error.array is not None:
                raise
            what = error.message.removeprefix(f"{error.file}: ")
            raise type(error)(
                f"{error.file}: array {self._layout.array!r}, rows {rows[0]} to {rows[1] - 1}: {what}",
                file=error.file,
                array=self._layout.array,
                rows=rows,
            ) from error

    def _rows_of(self, chunk: int) -> tuple[int, int]:
        first = chunk // math.prod(self._layout.grid[1:]) * self._layout.chunk_shape[0]
        return first, min(first + self._layout.chunk_shape[0], self.shape[0])

    def _damaged(self, chunk: int, reason: str) -> CorruptChunkError:
        layout = self._layout
        index = tuple(int(i) for i in np.unravel_index(chunk, layout.grid))
        rows = self._rows_of(chunk)
        path = layout.files.path(int(layout.file[chunk]))
        return CorruptChunkError(
            f"{path}: array {layout.array!r}, chunk {index}, rows {rows[0]} to {rows[1] - 1}: "
            f"damaged: {reason}; restore the file from a copy",
            file=path,
            array=layout.array,
            chunk=index,
            rows=rows,
        )
