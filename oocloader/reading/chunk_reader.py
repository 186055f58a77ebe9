"""Chunks read as byte ranges of files and brought straight to their rows."""

from collections.abc import Callable, Sequence

import numpy as np

from oocloader.memory import Cost
from oocloader.order import RowSpan
from oocloader.reading.boxes import Box, ChunkGeometry
from oocloader.reading.byte_ranges import RowRuns
from oocloader.reading.decoded_chunks import DecodedRows
from oocloader.reading.files import FileReader
from oocloader.reading.jobs import Job
from oocloader.reading.layout import Layout
from oocloader.reading.mapped_rows import MappedRows
from oocloader.reading.raw_rows import RawRows
from oocloader.reading.row_reader import RowReader, Target


class ChunkReader(RowReader):
    """Rows of one array by its `layout`.

    `ask_fill` gives the fill value where `layout` does not say it, since nothing is missing.
    """

    def __init__(self, layout: Layout, *, ask_fill: Callable[[], np.ndarray] | None = None) -> None:
        self._layout = layout
        self._ask_fill = ask_fill
        self._files = FileReader(layout.files)
        self.shape = layout.shape
        self.dtype = layout.dtype.newbyteorder("=")
        self._row_access = layout.chain.raw and layout.whole_rows
        runs = RowRuns(layout)
        self._rows: RawRows | DecodedRows
        if self._row_access:
            self._rows = RawRows(layout, self._files, runs)
        else:
            self._rows = DecodedRows(layout, self._files)
        mapping = self._row_access and layout.dtype.isnative
        self._mapped = MappedRows(layout, self._files, runs) if mapping else None
        self.mapped_nbytes = layout.row_nbytes * self.shape[0] if mapping else 0
        single = layout.chunk_shape == layout.shape
        self.chunk_rows = None if single and self._row_access else layout.chunk_shape[0]
        self.scratch_nbytes = self._rows.scratch_nbytes

    @property
    def row_access(self) -> bool:
        return self._row_access

    @property
    def layout(self) -> Layout:
        """Where the chunks lie."""
        return self._layout

    def jobs(self, spans: Sequence[RowSpan], target: Target) -> list[Job]:
        return self._rows.jobs(spans, target)

    def map(self, start: int, stop: int) -> np.ndarray | None:
        return None if self._mapped is None else self._mapped.private(start, stop)

    def view(self, spans: Sequence[RowSpan]) -> np.ndarray | None:
        if self._mapped is None or not self.mapped_nbytes:
            return None
        view = self._mapped.view(spans)
        if view is None:
            self.mapped_nbytes = 0
        return view

    def fresh_view(self) -> np.ndarray | None:
        return None if self._mapped is None else self._mapped.fresh_view()

    def cost(self, spans: Sequence[RowSpan]) -> Cost:
        return self._rows.cost(spans)

    def close(self) -> None:
        if self._mapped is not None:
            self._mapped.close()
        self._files.close()

    # Boxes are read for a conversion, where rows are spread over more than memory holds.

    @property
    def chunk_geometry(self) -> ChunkGeometry:
        return ChunkGeometry(self._rows.unit, tuple(range(len(self.shape))))

    @property
    def fill(self) -> np.ndarray:
        """What stands for values that are not stored: 0-d, native byte order."""
        missing = (self._layout.file < 0).any()
        fill = self._layout.fill if missing or self._ask_fill is None else self._ask_fill()
        return fill if self._layout.dtype.isnative else fill.byteswap().view(self.dtype)

    def read_box(self, box: Box, out: np.ndarray) -> None:
        self._rows.read_box(box, out)
