"""Rows that lie in files as they are, as mappings of these files."""

import contextlib
from collections.abc import Callable, Sequence

import numpy as np

from oocloader.errors import CorruptChunkError
from oocloader.order import RowSpan
from oocloader.reading.buffers import ALIGNMENT, PAGE, map_private, map_shared, on_local_file_system
from oocloader.reading.byte_ranges import RowRun, RowRuns
from oocloader.reading.files import FileReader
from oocloader.reading.layout import Layout
from oocloader.reading.locks import Lock
from oocloader.reading.read_errors import error_context

# The system allows a process some 65,000 mappings, and often no more than 1024 open files.
_MOST_MAPPED = 1024
_MOST_FILES = 256

_Map = Callable[[Sequence[tuple[int, int, int]]], np.ndarray | None]


class MappedRows:
    """The rows of one array of raw chunks of whole rows, in native byte order. Thread-safe."""

    def __init__(self, layout: Layout, files: FileReader, runs: RowRuns) -> None:
        self._layout = layout
        self._runs = runs
        self._files = files
        self._view: np.ndarray | None = None
        self._view_runs: Sequence[RowRun] = ()
        self._viewing = Lock()

    def private(self, start: int, stop: int) -> np.ndarray | None:
        """Rows `start:stop`, copied on write, None where they cannot be mapped."""
        with error_context(self._layout, (start, stop)):
            runs = self._runs.of(start, stop)
            # Known before files are opened: rows of many stores lie at odd addresses.
            mapped = None if runs[0].offset % ALIGNMENT else self._mapped(runs, map_private)
        if mapped is None:
            return None
        for run in runs:
            self._files.will_need(run.file, [(run.offset, run.nbytes)])
        return mapped.reshape(stop - start, *self._layout.shape[1:])

    def view(self, spans: Sequence[RowSpan]) -> np.ndarray | None:
        """All rows, the same mapping each time; None where that cannot be, which does not change.

        Raises where a file that holds rows of `spans` is not what it was.
        """
        with self._viewing:
            if self._view is None:
                self._view = self._map_all()
                if self._view is None:
                    return None
        for index in self._files_of(spans):
            with error_context(self._layout, (spans[0].start, spans[-1].stop)):
                self._files.check(index)
        return self._view

    def fresh_view(self) -> np.ndarray | None:
        """What `view` has given, as a mapping of its own."""
        with error_context(self._layout, (0, self._layout.shape[0])):
            mapped = self._mapped(self._view_runs, map_shared)
        return None if mapped is None else mapped.reshape(self._layout.shape)

    def close(self) -> None:
        """Let go of the view."""
        self._view = None

    def _map_all(self) -> np.ndarray | None:
        """All rows as one shared mapping, None where they do not lie evenly, or too widely spread."""
        if (self._layout.file < 0).any():
            return None
        try:
            runs = self._runs.of(0, self._layout.shape[0])
        except CorruptChunkError:
            return None  # the rows before it are read, and the error comes in its place
        self._view_runs = runs
        mapped = self._mapped(runs, map_shared) if len(runs) <= _MOST_MAPPED else None
        return None if mapped is None else mapped.reshape(self._layout.shape)

    def _mapped(self, runs: Sequence[RowRun], how: _Map) -> np.ndarray | None:
        """Runs of bytes as one mapping, values in a row; None where they cannot be mapped."""
        # Bytes behind the end of a file can be mapped, and then end the process when they are touched.
        size = self._layout.files.size
        if any(run.file < 0 or run.offset + run.nbytes > size[run.file] for run in runs):
            return None
        if not on_local_file_system(self._layout.files.root):
            return None
        # Known before the files are opened: most stores whose chunks are files end here.
        if any(run.offset % PAGE for run in runs[1:]):
            return None
        numbers = {run.file for run in runs}
        if len(numbers) > _MOST_FILES:
            return None
        with contextlib.ExitStack() as stack:
            fds = {file: stack.enter_context(self._files.opened(file)) for file in numbers}
            mapped = how([(fds[run.file], run.offset, run.nbytes) for run in runs])
        return None if mapped is None else mapped.view(self._layout.dtype)

    def _files_of(self, spans: Sequence[RowSpan]) -> list[int]:
        """The files that hold rows of `spans`."""
        if len(self._layout.files.names) == 1:
            return [0]
        chunk_rows = self._layout.chunk_shape[0]
        touched = [
            self._layout.file[span.start // chunk_rows : (span.stop - 1) // chunk_rows + 1] for span in spans
        ]
        return [int(index) for index in np.unique(np.concatenate(touched))]
