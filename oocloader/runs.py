"""Runs of bytes in files, each read with one call: of rows that lie there as they are, and of chunks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from oocloader.damage import damaged
from oocloader.layout import Layout

# Rows and chunks this close in a file are read with one call: reading the gap costs less than another call.
GAP_NBYTES = 64 << 10
# Chunks are read together up to this many bytes: more saves few calls, and each thread holds as many.
TOGETHER_NBYTES = 256 << 10

# File (-1 where nothing is stored), offset, bytes, row in the buffer of the rows asked for.
RowRun = tuple[int, int, int, int]


@dataclass(slots=True)
class ChunkRun:
    """Chunks that are read with one call: bytes `begin:end` of file number `file`, -1 where none are stored.

    `chunks`: number, band, first byte in the run and stored bytes of each.
    """

    file: int
    begin: int
    end: int
    chunks: list[tuple[int, int, int, int]] = field(default_factory=list)


def row_runs(layout: Layout, start: int, stop: int) -> list[RowRun]:
    """Where rows `start:stop` lie, of raw chunks of whole rows. Raises for a chunk of another size."""
    row_nbytes, chunk_rows = layout.row_nbytes, layout.chunk_shape[0]
    first, last = start // chunk_rows, (stop - 1) // chunk_rows + 1
    if last - first == 1 and layout.stored[first] == layout.chunk_nbytes:
        begin = int(layout.offset[first]) + (start - first * chunk_rows) * row_nbytes
        return [(int(layout.file[first]), begin, (stop - start) * row_nbytes, 0)]
    file, offset = layout.file[first:last], layout.offset[first:last]
    held = (layout.stored[first:last] != layout.chunk_nbytes) & (file >= 0)
    if held.any():
        chunk = first + int(np.flatnonzero(held)[0])
        found = int(layout.stored[chunk])
        raise damaged(layout, chunk, f"it has {found} stored bytes, expected {layout.chunk_nbytes}")
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


def in_file_order(layout: Layout, bands: np.ndarray) -> np.ndarray:
    """The chunks of `bands` (int64), file by file as they lie there.

    Files come in the order of their rows, so that of several that are damaged the first is told of.
    """
    across = math.prod(layout.grid[1:])
    chunks = (bands[:, np.newaxis] * across + np.arange(across)).reshape(-1)
    _, first, which = np.unique(layout.file[chunks], return_index=True, return_inverse=True)
    return chunks[np.lexsort((layout.offset[chunks], first[which]))]


def chunk_runs(layout: Layout, chunks: list[int]) -> Iterator[ChunkRun]:
    """Chunks in file order, cut where they are no neighbours in a file, or would be too much for one call."""
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
    run: ChunkRun | None = None
    last = 0
    for chunk, file, offset, stored, band in columns:
        if run is not None:
            # Between others may lie chunks that nobody wants.
            near = abs(band - last) <= 1 and offset - run.end <= GAP_NBYTES
            if not (file == run.file and near and offset + stored - run.begin <= TOGETHER_NBYTES):
                yield run
                run = None
        if run is None:
            run = ChunkRun(file, offset, offset)
        run.chunks.append((chunk, band, offset - run.begin, stored))
        run.end = max(run.end, offset + stored)
        last = band
    if run is not None:
        yield run


def stretches(layout: Layout, chunks: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """What to have fetched ahead for chunks, in files where they lie near each other: file, offset, bytes."""
    at = np.asarray(chunks)
    file = layout.file[at]
    for index in np.unique(file[file >= 0]).tolist():
        held = at[file == index]
        begin = int(layout.offset[held].min())
        nbytes = int((layout.offset[held] + layout.stored[held]).max()) - begin
        if nbytes <= 2 * int(layout.stored[held].sum()):
            yield index, begin, nbytes
