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
from oocloader.reading.gather import GATHERED_NBYTES, gather_jobs
from oocloader.reading.jobs import JOB_NBYTES, Job, then
from oocloader.reading.joined_reader import JoinedReader
from oocloader.reading.layout import Files, Layout
from oocloader.reading.library_reader import LibraryReader
from oocloader.reading.locks import Lock
from oocloader.reading.memory_reader import MemoryReader
from oocloader.reading.read_rows import read_rows
from oocloader.reading.row_reader import RowReader, Target
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
    "then",
    "within_rows",
]
