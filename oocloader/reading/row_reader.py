"""Rows of an array into a buffer, from wherever they are kept.

Every reader turns the spans of a window into jobs, which threads carry out in any order. Rows land
at their place in the buffer: reading, decoding and shuffling are one movement.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from oocloader.errors import OocloaderError, StoreError
from oocloader.machine import usable_cores
from oocloader.memory import Cost, banded_cost, row_count
from oocloader.metrics import Counters
from oocloader.order import RowSpan, cut, place, within
from oocloader.reading.boxes import Box, ChunkGeometry
from oocloader.reading.buffers import FAULT_NBYTES
from oocloader.reading.decode_turns import HANDOVER_S
from oocloader.reading.locks import Lock
from oocloader.reading.shared_chunks import SharedChunks
from oocloader.sizes import nbytes_of_row

Job = Callable[[], object]
# About this many bytes are one job: large enough that a system call and a Python call do not count.
JOB_NBYTES = 4 << 20
_MOST_THREADS = 8
# To start a thread and to share the interpreter takes its time too: two threads read what takes one thread
# 1 ms 0.8 times as fast, and what takes it 6 ms 1.2 times.
_ALONE_S = 2e-3
# What a job may make resident of a mapping that it gathers rows from and then lets go of: with half of it,
# rows of 12 KiB came 0.7 times as fast.
GATHERED_NBYTES = 48 << 20


@dataclass(frozen=True, slots=True)
class Target:
    """Where a window of one array goes: `rows`, shape (rows, *sample_shape), native dtype, C order."""

    rows: np.ndarray
    shared_chunks: SharedChunks
    counters: Counters


class RowReader(Protocol):
    """Rows of one array. Thread-safe. Memory belongs to the caller."""

    shape: tuple[int, ...]
    dtype: np.dtype
    """Native byte order."""
    chunk_rows: int | None
    """Rows of a chunk, where the array is kept in chunks."""
    chunk_origins: tuple[int, ...]
    """Rows from which chunks are counted, ascending from 0: several where parts are joined."""
    scratch_nbytes: int
    """Memory each thread needs besides the buffer it fills."""

    @property
    def row_access(self) -> bool:
        """Whether single rows can be read without decoding their neighbours."""

    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        """What fills `target` with `spans`, which ascend and do not overlap.

        Raises `CorruptChunkError` at once where it is known that a raw chunk has another size than its rows.
        """

    def map(self, start: int, stop: int) -> np.ndarray | None:
        """Rows `start:stop` as a private copy-on-write mapping, aligned; None where that cannot be."""

    def view(self, spans: Sequence[RowSpan]) -> np.ndarray | None:
        """All rows as one array to gather the rows of `spans` from, None where that cannot be.

        It must neither be written to nor handed out. `mapped_nbytes` of it count as resident memory.
        """

    def fresh_view(self) -> np.ndarray | None:
        """What `view` has given, as a mapping of its own, None where that cannot be."""

    mapped_nbytes: int

    def cost(self, spans: Sequence[RowSpan]) -> Cost:
        """What reading `spans`, which ascend and do not overlap, takes in one pass. Reads nothing."""

    def close(self) -> None:
        """Let go of open files."""


def read_rows(
    reader: RowReader, start: int, stop: int, out: np.ndarray, *, most_threads: int = _MOST_THREADS
) -> None:
    """Fill `out` with rows `start:stop`, by several threads where there is much to read."""
    target = Target(out, SharedChunks(lambda lo, hi: max(0, min(hi, stop) - max(lo, start))), Counters())
    jobs = reader.jobs([RowSpan(start, stop, None, slice(0, stop - start))], target)
    threads = min(len(jobs), usable_cores(), most_threads)
    alone = threads <= 1 or out.nbytes < JOB_NBYTES
    if not alone:
        began = time.perf_counter()
        jobs.pop(0)()
        took = time.perf_counter() - began
        # Also where nothing is decoded, and before it is known how quick that is.
        calls = target.counters.read_calls + target.counters.chunks_decoded
        alone = took * len(jobs) < _ALONE_S or took < calls * HANDOVER_S
    if alone:
        for job in jobs:
            job()
        return
    # This thread is one of them: to start one takes as long as copying a mebibyte.
    work = _Shared(jobs)
    others = [
        threading.Thread(target=work.run, name=f"oocloader-rows-{number}", daemon=True)
        for number in range(1, threads)
    ]
    try:
        for other in others:
            other.start()
        work.run()
    except BaseException as error:
        work.stop(error)
        raise
    finally:
        for other in others:
            if other.ident is not None:
                other.join()
    if work.errors:
        raise work.errors[min(work.errors)]


class _Shared:
    """Jobs that several threads take from; none is taken any more once one has failed."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        # By the number of the job: the first of them is told of.
        self.errors: dict[int, BaseException] = {}
        self._jobs = enumerate(jobs)
        self._lock = threading.Lock()

    def run(self) -> None:
        number = -1
        try:
            while (taken := self._next()) is not None:
                number, job = taken
                job()
        except BaseException as error:
            self.errors[number] = error

    def stop(self, error: BaseException) -> None:
        self.errors[-1] = error

    def _next(self) -> tuple[int, Job] | None:
        with self._lock:
            return None if self.errors else next(self._jobs, None)


class MemoryReader:
    """Rows of an array in memory, copied: TensorFlow may write into what it is handed."""

    row_access = True
    chunk_rows: int | None = None
    chunk_origins: tuple[int, ...] = (0,)
    scratch_nbytes = 0
    mapped_nbytes = 0

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.shape = array.shape
        self.dtype = array.dtype.newbyteorder("=")

    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        row_nbytes = max(1, nbytes_of_row(self.shape, self.dtype))
        rows = max(1, JOB_NBYTES // row_nbytes)
        return [_copy_job(self._array, part, target) for span in spans for part in cut(span, rows)]

    def map(self, start: int, stop: int) -> np.ndarray | None:
        return None

    def view(self, spans: Sequence[RowSpan]) -> np.ndarray | None:
        return self._array if self._array.flags.c_contiguous and self._array.dtype == self.dtype else None

    def fresh_view(self) -> np.ndarray | None:
        return None

    def cost(self, spans: Sequence[RowSpan]) -> Cost:
        nbytes = row_count(spans) * nbytes_of_row(self.shape, self.dtype)
        return Cost(nbytes, nbytes, nbytes)

    @property
    def chunk_geometry(self) -> ChunkGeometry:
        strides = self._array.strides
        order = sorted(range(len(self.shape)), key=lambda axis: -abs(strides[axis]))
        return ChunkGeometry((1,) * len(self.shape), tuple(order))

    def read_box(self, box: Box, out: np.ndarray) -> None:
        out[...] = self._array[box].transpose(self.chunk_geometry.order)

    def close(self) -> None:
        pass


def gather_jobs(
    view: np.ndarray,
    spans: Sequence[RowSpan],
    out: np.ndarray,
    counters: Counters,
    *,
    again: Callable[[], np.ndarray | None] | None = None,
) -> list[Job]:
    """Jobs that copy the rows of `spans` from `view`, which holds all rows, to their places in `out`.

    Each writes a stretch of `out` from end to end: 1.6 times as fast as writing all over it. Where `again`
    makes the view anew, each job takes one of its own and lets go of it: of a mapping of files, little is
    resident then. (A mapping that jobs share can be told to forget its pages, but that looks through all
    of them, for every job.)
    """
    stored, dest_index = [], []
    for span in spans:
        rows = np.arange(span.start, span.stop) if span.row_index is None else span.start + span.row_index
        stored.append(rows)
        to = span.dest_index
        dest_index.append(np.arange(to.start, to.stop) if isinstance(to, slice) else to)
    # All of them at once: a window has tens of spans, and each array is gathered anew.
    places = np.concatenate(dest_index)
    at = int(places.min())
    wanted = np.empty(len(places), np.int64)
    wanted[places - at] = np.concatenate(stored)
    source, target = view.reshape(len(view), -1), out[at : at + len(wanted)].reshape(len(wanted), -1)
    row_nbytes = max(1, target[:1].nbytes)

    def gather(lo: int, hi: int) -> None:
        began = time.perf_counter()
        # With mode="raise" NumPy gathers to a buffer of its own first.
        own = None if again is None else again()
        rows = source if own is None else own.reshape(source.shape)
        np.take(rows, wanted[lo:hi], axis=0, out=target[lo:hi], mode="clip")
        counters.add(copied_bytes=(hi - lo) * row_nbytes, gather_s=time.perf_counter() - began)

    step = max(1, JOB_NBYTES // row_nbytes)
    if again is not None:
        step = max(1, GATHERED_NBYTES // (row_nbytes + FAULT_NBYTES))
    return [functools.partial(gather, lo, min(lo + step, len(wanted))) for lo in range(0, len(wanted), step)]


def _copy_job(array: np.ndarray, span: RowSpan, target: Target) -> Job:
    def copy() -> None:
        began = time.perf_counter()
        rows = array[span.start : span.stop]
        place(target.rows, span.dest_index, rows if span.row_index is None else rows[span.row_index])
        nbytes = target.rows[:1].nbytes * span.rows
        target.counters.add(copied_bytes=nbytes, gather_s=time.perf_counter() - began)

    return copy


class LibraryReader:
    """Rows that another library reads: `read_rows(start, stop, out)` fills `out`, by one thread at a time.

    Chunks are read whole, so that none is decoded twice in a pass; so are about four megabytes where
    there are no chunks. `read_box(box, out)` and the `chunk_geometry` of the array are given where the
    library can read boxes; else whole rows are read, and cut.
    """

    row_access = False
    chunk_origins: tuple[int, ...] = (0,)
    mapped_nbytes = 0

    def __init__(
        self,
        read_rows: Callable[[int, int, np.ndarray], None],
        *,
        shape: tuple[int, ...],
        dtype: np.dtype,
        chunk_rows: int | None,
        store: str,
        array: str,
        close: Callable[[], None] | None = None,
        chunk_geometry: ChunkGeometry | None = None,
        read_box: Callable[[Box, np.ndarray], None] | None = None,
    ) -> None:
        self._read_rows = read_rows
        self._grain = chunk_geometry
        self._read_box = read_box
        self._lock = Lock()
        self._store = store
        self.array = array
        self._close = close
        self.shape = shape
        self.dtype = dtype.newbyteorder("=")
        row_nbytes = max(1, nbytes_of_row(shape, self.dtype))
        self._band_rows = min(chunk_rows or max(1, JOB_NBYTES // row_nbytes), max(1, shape[0]))
        self.chunk_rows: int | None = self._band_rows
        # The library reads rows to memory of its own, and shuffled rows go through a buffer.
        self.scratch_nbytes = 2 * self._band_rows * row_nbytes

    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        return target.shared_chunks.jobs(
            spans,
            target.rows,
            rows=self.shape[0],
            band_rows=self._band_rows,
            decode=lambda band, lo, hi, out: [lambda: self._read(lo, hi, out, target.counters)],
        )

    @property
    def chunk_geometry(self) -> ChunkGeometry:
        whole = ChunkGeometry((self._band_rows, *self.shape[1:]), tuple(range(len(self.shape))))
        return self._grain or whole

    def read_box(self, box: Box, out: np.ndarray) -> None:
        rows = box[0]
        if self._read_box is not None:
            read = self._read_box
            self._guarded(rows.start, rows.stop, lambda: read(box, out))
        elif out.shape[1:] == self.shape[1:]:
            self._guarded(rows.start, rows.stop, lambda: self._read_rows(rows.start, rows.stop, out))
        else:
            whole = np.empty((rows.stop - rows.start, *self.shape[1:]), self.dtype)
            self._guarded(rows.start, rows.stop, lambda: self._read_rows(rows.start, rows.stop, whole))
            out[...] = whole[(slice(None), *box[1:])]

    def _read(self, lo: int, hi: int, out: np.ndarray, counters: Counters) -> None:
        took = self._guarded(lo, hi, lambda: self._read_rows(lo, hi, out))
        counters.add(read_calls=1, chunks_decoded=1, decoded_bytes=out.nbytes, library_s=took)

    def _guarded(self, lo: int, hi: int, read: Callable[[], None]) -> float:
        """Have the library read; the seconds that took. Its errors say where."""
        try:
            with self._lock:
                began = time.perf_counter()
                read()
                return time.perf_counter() - began
        except OocloaderError:
            raise
        except Exception as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise StoreError(
                f"{self._store}: array {self.array!r}, rows {lo} to {hi - 1}: cannot be read: {reason}",
                file=self._store,
                array=self.array,
                rows=(lo, hi),
            ) from error

    def map(self, start: int, stop: int) -> np.ndarray | None:
        return None

    def view(self, spans: Sequence[RowSpan]) -> np.ndarray | None:
        return None

    def fresh_view(self) -> np.ndarray | None:
        return None

    def cost(self, spans: Sequence[RowSpan]) -> Cost:
        row_nbytes = nbytes_of_row(self.shape, self.dtype)
        return banded_cost(spans, rows=self.shape[0], band_rows=self._band_rows, row_nbytes=row_nbytes)

    def close(self) -> None:
        if self._close is not None:
            with self._lock:
                self._close()


class JoinedReader:
    """Arrays of several stores, one behind the other along the rows."""

    mapped_nbytes = 0

    def __init__(self, readers: Sequence[RowReader]) -> None:
        self._readers = tuple(readers)
        lengths = [reader.shape[0] for reader in readers]
        self._first = np.concatenate([[0], np.cumsum(lengths)]).tolist()
        self.shape = (self._first[-1], *readers[0].shape[1:])
        self.dtype = readers[0].dtype
        chunks = [min(reader.chunk_rows or 0, reader.shape[0]) for reader in readers]
        self.chunk_rows = max(chunks) or None
        self.chunk_origins = self._cuts()
        self.scratch_nbytes = max(reader.scratch_nbytes for reader in readers)
        self.row_access = all(reader.row_access for reader in readers)

    @property
    def parts(self) -> list[tuple[int, RowReader]]:
        """The readers that are joined, each behind the number of its first row."""
        return list(zip(self._first, self._readers, strict=False))

    def _cuts(self) -> tuple[int, ...]:
        """Where chunks do not go on from the part before in steps of `chunk_rows`."""
        if self.chunk_rows is None:
            return (0,)
        chunk_origins: list[int] = []
        for first, reader in zip(self._first, self._readers, strict=False):
            own = min(reader.chunk_rows or 1, reader.shape[0])
            # The most rows up to `chunk_rows` that are whole chunks of this part.
            step = self.chunk_rows // own * own
            for start, stop in itertools.pairwise([*reader.chunk_origins, reader.shape[0]]):
                if step < self.chunk_rows:
                    chunk_origins += range(first + start, first + stop, step)
                elif not chunk_origins or (first + start - chunk_origins[-1]) % self.chunk_rows:
                    chunk_origins.append(first + start)
        return tuple(chunk_origins)

    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        jobs: list[Job] = []
        for first, reader, local in self._parts(spans):
            shared_chunks = target.shared_chunks.of_part(reader, first)
            jobs += reader.jobs(local, Target(target.rows, shared_chunks, target.counters))
        return jobs

    def cost(self, spans: Sequence[RowSpan]) -> Cost:
        return sum((reader.cost(local) for _, reader, local in self._parts(spans)), start=Cost(0, 0, 0))

    def _parts(self, spans: Sequence[RowSpan]) -> Iterator[tuple[int, RowReader, list[RowSpan]]]:
        """The parts that hold some of `spans`: first row, reader, and the spans as rows of the part."""
        for first, reader in zip(self._first, self._readers, strict=False):
            parts = [part for span in spans if (part := within(span, first, first + reader.shape[0]))]
            if parts:
                yield (
                    first,
                    reader,
                    [RowSpan(p.start - first, p.stop - first, p.row_index, p.dest_index) for p in parts],
                )

    def map(self, start: int, stop: int) -> np.ndarray | None:
        for first, reader in zip(self._first, self._readers, strict=False):
            if first <= start and stop <= first + reader.shape[0]:
                return reader.map(start - first, stop - first)
        return None

    def view(self, spans: Sequence[RowSpan]) -> np.ndarray | None:
        return None

    def fresh_view(self) -> np.ndarray | None:
        return None

    def close(self) -> None:
        for reader in self._readers:
            reader.close()
