"""Byte ranges of files to rows in a buffer."""

from __future__ import annotations

from oocloader.reading.boxes import (
    Box,
    BoxReader,
    ChunkGeometry,
    box_shape,
    cut_boxes,
    in_order,
    runs_of,
    within_rows,
)
from oocloader.reading.buffers import ALIGNMENT, Pool, allocate
from oocloader.reading.chunk_reader import ChunkReader
from oocloader.reading.files import FileReader
from oocloader.reading.layout import Files, Layout
from oocloader.reading.locks import Lock
from oocloader.reading.row_reader import (
    GATHERED_NBYTES,
    JOB_NBYTES,
    Job,
    JoinedReader,
    LibraryReader,
    MemoryReader,
    RowReader,
    Target,
    gather_jobs,
    read_rows,
)
from oocloader.reading.shared_chunks import SharedChunks

__all__ = [
    "ALIGNMENT",
    "GATHERED_NBYTES",
    "JOB_NBYTES",
    "Box",
    "BoxReader",
    "ChunkGeometry",
    "ChunkReader",
    "FileReader",
    "Files",
    "Job",
    "JoinedReader",
    "Layout",
    "LibraryReader",
    "Lock",
    "MemoryReader",
    "Pool",
    "RowReader",
    "SharedChunks",
    "Target",
    "allocate",
    "box_shape",
    "cut_boxes",
    "gather_jobs",
    "in_order",
    "read_rows",
    "runs_of",
    "within_rows",
]
