"""The chunks of one array: read from files, those that lie near each other with one call, and decoded."""

import itertools
import time
from collections.abc import Callable

import numpy as np

from oocloader.codecs import CodecError, scratch
from oocloader.metrics import Counters
from oocloader.reading.byte_ranges import ChunkRun, chunk_runs
from oocloader.reading.files import FileReader
from oocloader.reading.layout import Layout
from oocloader.reading.read_errors import damaged, error_context

# Called with the number of a chunk, its band and its stored bytes (None: nothing is stored), to decode it.
Take = Callable[[int, int, np.ndarray | None], None]


class ChunkBytes:
    """Reads and decodes the chunks of a layout. Thread-safe. What it does is added to `counters`."""

    def __init__(self, layout: Layout, files: FileReader) -> None:
        self._layout = layout
        self._files = files
        self._raw = layout.chain.raw

    def read(self, chunks: list[int], take: Take, counters: Counters) -> None:
        """Read chunks, which are in file order, and have `take` decode each."""
        for file, group in itertools.groupby(chunk_runs(self._layout, chunks), lambda run: run.file):
            runs = list(group)
            if file < 0:
                for chunk, band, _, _ in itertools.chain.from_iterable(run.chunks for run in runs):
                    take(chunk, band, None)
                continue
            with error_context(self._layout, runs[0].chunks[0][0]), self._files.opened(file) as fd:
                for run in runs:
                    self._read_run(fd, run, take, counters)

    def _read_run(self, fd: int, run: ChunkRun, take: Take, counters: Counters) -> None:
        if run.end > self._layout.files.size[run.file]:
            for chunk, *_ in run.chunks:
                self._check_end(chunk)  # raises for one of them
        began = time.perf_counter()
        stored = scratch("stored", run.end - run.begin)
        with error_context(self._layout, run.chunks[0][0]):
            counters.read_calls += self._files.read(fd, run.file, run.begin, stored)
        ready = time.perf_counter()
        placing = counters.gather_s
        for chunk, band, at, nbytes in run.chunks:
            take(chunk, band, stored[at : at + nbytes])
        counters.read_bytes += run.end - run.begin
        counters.chunks_decoded += len(run.chunks)
        counters.read_s += ready - began
        counters.decode_s += time.perf_counter() - ready - (counters.gather_s - placing)

    def read_raw(self, first: int, count: int, out: np.ndarray, counters: Counters) -> None:
        """Read `count` raw chunks, from number `first` on, that lie one behind the other."""
        layout = self._layout
        file, begin = int(layout.file[first]), int(layout.offset[first])
        if begin + out.nbytes > layout.files.size[file]:
            for chunk in range(first, first + count):
                self._check_end(chunk)  # raises for one of them
        began = time.perf_counter()
        with error_context(layout, first):
            counters.read_calls += self._files.read_at(file, begin, out)
        counters.read_s += time.perf_counter() - began
        counters.read_bytes += out.nbytes
        counters.chunks_decoded += count

    def read_one(self, chunk: int) -> np.ndarray:
        """The decoded bytes of a chunk that is stored, in this thread's scratch memory."""
        layout = self._layout
        self._check_end(chunk)
        stored = scratch("stored", int(layout.stored[chunk]))
        with error_context(layout, chunk):
            self._files.read_at(int(layout.file[chunk]), int(layout.offset[chunk]), stored)
        return self.decoded(chunk, stored, scratch("decoded", layout.chunk_nbytes))

    def decoded(self, chunk: int, stored: np.ndarray, out: np.ndarray) -> np.ndarray:
        """The bytes of a chunk: where they are, or in `out` if they had to be decoded."""
        if self._raw and stored.nbytes == out.nbytes:
            return stored
        self.decode(chunk, stored, out)
        return out

    def decode(self, chunk: int, stored: np.ndarray, out: np.ndarray) -> None:
        """Decode a chunk to `out`. Raises `CorruptChunkError`."""
        try:
            self._layout.chain.decode(stored, out, int(self._layout.mask[chunk]))
        except CodecError as error:
            raise damaged(self._layout, chunk, str(error)) from error

    def _check_end(self, chunk: int) -> None:
        """Raise where the bytes of a chunk end behind the end of its file."""
        layout = self._layout
        end = int(layout.offset[chunk] + layout.stored[chunk])
        size = int(layout.files.size[layout.file[chunk]])
        if end > size:
            raise damaged(layout, chunk, f"it ends at byte {end} of a file of {size} bytes")
