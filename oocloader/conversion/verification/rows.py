"""Rows of a store, piece by piece, with the chunks named that cannot be read or are not what they were."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from oocloader.conversion.verification.manifest import ArrayManifest, checksum_of_rows
from oocloader.conversion.verification.verify_report import Damage
from oocloader.errors import ChangedError, StoreError
from oocloader.reading import ChunkReader
from oocloader.sizes import nbytes_of_row
from oocloader.stores import StoredArray

# A thread reads this much at once, or a chunk where that is larger; more where rows that are read at once
# lie in chunks larger than this, which would be decoded for every piece that has a part of them.
_PIECE_NBYTES = 8 << 20
_MOST_PIECE_NBYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """Rows `start` on, `None` where they could not be read, and what of them is damaged."""

    start: int
    rows: np.ndarray | None
    damaged: tuple[Damage, ...]


class RowChecker:
    """Reads rows of one array and holds them against its manifest, if it has one. Thread-safe.

    `beside` is the array that the same rows are read of, if any.
    """

    def __init__(
        self, array: StoredArray, manifest: ArrayManifest | None, beside: StoredArray | None = None
    ) -> None:
        self._array = array
        self._manifest = manifest
        info = array.info
        row_nbytes = max(1, nbytes_of_row(info.shape, info.dtype))
        if manifest is not None:
            self._step = manifest.chunk_rows
        elif info.chunk_shape is not None and info.chunk_shape[0] < info.shape[0]:
            self._step = info.chunk_shape[0]
        else:
            # One chunk is the whole array, or there are none.
            self._step = max(1, min(_PIECE_NBYTES // row_nbytes, info.shape[0]))
        decoded = [one.decoded_rows for one in (array, beside) if one is not None]
        wanted = max(_PIECE_NBYTES, min(2 * max(decoded) * row_nbytes, _MOST_PIECE_NBYTES))
        self._piece_rows = max(1, wanted // (self._step * row_nbytes)) * self._step

    @property
    def piece_nbytes(self) -> int:
        """Bytes of the rows of a whole piece."""
        return self._piece_rows * nbytes_of_row(self._array.info.shape, self._array.info.dtype)

    def pieces(self) -> Iterator[tuple[int, int]]:
        """Runs of rows, first and behind the last, that cover the array and are worth reading at once."""
        rows = self._array.info.shape[0]
        for start in range(0, rows, self._piece_rows):
            yield start, min(start + self._piece_rows, rows)

    def check(self, start: int, stop: int) -> list[CheckedRows]:
        """Rows of a piece: whole, or chunk by chunk where something of it cannot be read."""
        try:
            rows = self._array.read(start, stop)
        except ChangedError:
            raise
        except StoreError as error:
            if stop - start > self._step:
                return [found for at in self._steps(start, stop) for found in self.check(*at)]
            return [CheckedRows(start, None, (self._unreadable(start, stop, error),))]
        return [CheckedRows(start, rows, tuple(self._changed(start, rows)))]

    def _steps(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        for at in range(start, stop, self._step):
            yield at, min(at + self._step, stop)

    def _changed(self, start: int, rows: np.ndarray) -> Iterator[Damage]:
        if self._manifest is None:
            return
        for first, last in self._steps(start, start + len(rows)):
            found = checksum_of_rows(rows[first - start : last - start])
            expected = int(self._manifest.checksums[first // self._step])
            if found != expected:
                reason = f"its rows have the checksum {found:#010x} and had {expected:#010x} when written"
                yield self._damage(first, last, None, reason)

    def _unreadable(self, start: int, stop: int, error: StoreError) -> Damage:
        reason = error.message
        if error.chunk is not None:
            # The place is told beside it.
            reason = reason.partition(": damaged: ")[2].rpartition("; ")[0] or reason
        return self._damage(start, stop, error.chunk, reason)

    def _damage(self, start: int, stop: int, chunk: tuple[int, ...] | None, reason: str) -> Damage:
        axes = len(self._array.info.shape)
        named = chunk if chunk is not None else (start // self._step, *[0] * (axes - 1))
        return Damage(named, (start, stop), self._where(named), reason)

    def _where(self, chunk: tuple[int, ...]) -> str:
        """The file that holds a chunk, and the place in it."""
        reader = self._array.reader
        if not isinstance(reader, ChunkReader):
            return f"in {self._array.store}"
        layout = reader.layout
        if len(chunk) != len(layout.grid) or any(i >= n for i, n in zip(chunk, layout.grid, strict=True)):
            return f"in {self._array.store}"  # cut otherwise than when it was written
        number = int(np.ravel_multi_index(chunk, layout.grid))
        file = int(layout.file[number])
        if file < 0:
            return f"not in {self._array.store}, so that all its values are {layout.fill}"
        offset, nbytes = int(layout.offset[number]), int(layout.stored[number])
        path = layout.files.path(file)
        alone = offset == 0 and nbytes == int(layout.files.size[file])
        return f"in {path}" if alone else f"in {path} at bytes {offset} to {offset + nbytes - 1}"
