"""Byte ranges of files to rows in a buffer.

- `layout`: where every chunk of an array lies
- `locks`, `page_cache`, `files`: byte ranges read, fetched ahead, from files that must not have changed
- `read_errors`: what is said of rows that cannot be read
- `byte_ranges`: which of them are read with one call
- `buffers`, `mapped_rows`: aligned memory, and private mappings of files
- `jobs`, `shared_chunks`, `row_reader`: what threads carry out, who decodes what, and what every reader is
- `raw_rows`: rows that lie in files as they are
- `tiles`, `chunk_bytes`, `decoded_chunks`: rows of chunks that have to be decoded, or put together
- `chunk_reader`, `library_reader`, `memory_reader`, `joined_reader`: the readers
- `gather`, `read_rows`: rows from one array that holds all of them, and rows at once
- `boxes`: parts of an array that span some of every axis
"""

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
from oocloader.reading.read_errors import damaged_chunk
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
    "damaged_chunk",
    "gather_jobs",
    "in_order",
    "read_rows",
    "runs_of",
    "then",
    "within_rows",
]
