"""What the arrays of an element cost by row, and where their rows are cut into blocks and windows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from oocloader.sizes import MIB

# A window in stored order: large enough that its fixed cost vanishes, small enough to stay near the caches.
ORDERED_WINDOW = 32 * MIB
# Blocks of about a mebibyte, unless so many do not fit in a window.
BLOCK = MIB
# So many blocks reach 0.99 of the label entropy of a full shuffle: to have them, this may be kept decoded.
MIXING_BLOCKS = 32
DECODED_NBYTES = 16 * MIB
# Beside others this many times its size, an array may rather be kept decoded than decide how rows are cut.
LIGHT = 16


@dataclass(frozen=True, slots=True)
class Column:
    """What one array of the element costs: bytes per row as stored and as delivered, and as its reader has
    it working memory per thread, whether its rows can be read one by one, what a mapping to gather them
    from takes, rows per chunk and where these are counted from. `touched_nbytes`: the chunks that the rows
    of a pass lie in, decoded whole (0: no more than the rows)."""

    name: str
    row_nbytes: int
    delivered_row_nbytes: int
    chunk_rows: int | None
    scratch_nbytes: int
    row_access: bool
    mapped_nbytes: int = 0
    chunk_origins: tuple[int, ...] = (0,)
    touched_nbytes: int = 0

    def cut_by(self, block_rows: int, chunk_origins: tuple[int, ...]) -> bool:
        """Whether blocks of so many rows from `chunk_origins` on cut chunks that have to be decoded."""
        if self.row_access or self.chunk_rows is None:
            return False
        return block_rows % self.chunk_rows != 0 or self.chunk_origins != chunk_origins


@dataclass(frozen=True, slots=True)
class ChunkAlignment:
    """Multiples of `unit` rows from each of `chunk_origins` cut no chunk; `unit` is 1 where nothing is
    chunked.

    `smallest`: the rows that have to be read together, since chunks are decoded whole.
    """

    unit: int
    smallest: int
    chunk_origins: tuple[int, ...]


def chunk_alignment(
    columns: Sequence[Column], *, shuffle: bool, rows: int = 0, window_rows: int | None = None
) -> ChunkAlignment:
    """Where to cut, as far as that is cheap.

    Of the arrays decoded in chunks the one with the most bytes decides. Another's chunks join by the
    least common multiple while that stays near a megabyte: otherwise they are kept decoded until all
    their rows are used. So are those of an array that is small beside the others, such as labels. Chunks
    that need no decoding are kept whole where that is cheap. Where `window_rows` were asked for that would
    hold few blocks, blocks get finer if arrays whose `rows` take little can be kept decoded for it.
    """
    row_nbytes = max(1, sum(column.row_nbytes for column in columns))

    def optional(column: Column) -> bool:
        return column.row_access or LIGHT * column.row_nbytes <= row_nbytes

    alignment: ChunkAlignment | None = None
    for column in sorted(columns, key=lambda column: (optional(column), -column.row_nbytes)):
        chunk_rows, origins = column.chunk_rows, column.chunk_origins
        if chunk_rows is None:
            continue
        if alignment is not None:
            joined = math.lcm(alignment.unit, chunk_rows)
            if joined * row_nbytes <= BLOCK and origins == alignment.chunk_origins:
                smallest = alignment.smallest if optional(column) else joined
                alignment = ChunkAlignment(joined, smallest, origins)
        elif not optional(column):
            alignment = ChunkAlignment(chunk_rows, chunk_rows, origins)
        elif chunk_rows * row_nbytes <= (BLOCK if shuffle else ORDERED_WINDOW):
            alignment = ChunkAlignment(chunk_rows, 1, origins)
    alignment = alignment or ChunkAlignment(1, 1, (0,))
    if shuffle and window_rows is not None and MIXING_BLOCKS * alignment.unit > window_rows:
        return _finer(alignment, columns, rows=rows, window_rows=window_rows, row_nbytes=row_nbytes)
    return alignment


def _finer(
    alignment: ChunkAlignment, columns: Sequence[Column], *, rows: int, window_rows: int, row_nbytes: int
) -> ChunkAlignment:
    """Cuts at smaller chunks, or at any row, where it costs little to keep decoded what they cut."""
    decoded = [column for column in columns if not column.row_access and column.chunk_rows is not None]

    def decoded_nbytes(finer: ChunkAlignment) -> int:
        """Memory for the arrays whose chunks are cut, bytes."""
        cut = (column for column in decoded if column.cut_by(finer.unit, finer.chunk_origins))
        return sum(rows * column.row_nbytes for column in cut)

    candidates = [
        ChunkAlignment(column.chunk_rows or 1, column.chunk_rows or 1, column.chunk_origins)
        for column in decoded
    ]
    if len(decoded) < len(columns):
        candidates.append(ChunkAlignment(1, 1, (0,)))
    little = max(DECODED_NBYTES, window_rows * row_nbytes)
    finer = [cut for cut in candidates if cut.unit < alignment.unit and decoded_nbytes(cut) <= little]
    mixing = [cut for cut in finer if MIXING_BLOCKS * cut.unit <= window_rows]
    if mixing:
        return min(mixing, key=decoded_nbytes)
    return min(finer, key=lambda cut: cut.unit, default=alignment)
