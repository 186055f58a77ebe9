"""Two sets of rows from one: to train on, and held out."""

import math
import numbers
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from oocloader.errors import SettingError
from oocloader.loader.loaded_arrays import LoadedArrays, common_rows
from oocloader.loader.settings import Rows
from oocloader.memory import BLOCK, Column
from oocloader.order import SPLIT, RowSet, permutation, row_set, whole
from oocloader.stores import Store, StoredArray


def split_rows(
    store: Store,
    data: LoadedArrays,
    fraction: float,
    *,
    by: Literal["row", "block"],
    seed: int,
    stratify: str | None,
) -> tuple[Rows, Rows]:
    """The rows of `data` to train on, and those held out, as the option `rows` of a loader."""
    rows, total = data.rows, data.stored_rows
    seed = whole("seed", seed, least=0, most=2**64 - 1)
    held = held_rows(fraction, len(rows))
    if by not in ("row", "block"):
        raise SettingError(f'by={by!r} must be "row" or "block"')
    if by == "block":
        if stratify is not None:
            raise SettingError(f'stratify={stratify!r} holds out single rows: give by="row"')
        block, origins = block_of(data.columns)
        parts = by_block(rows, held, seed=seed, total=total, block=block, chunk_origins=origins)
    elif stratify is not None:
        labels = store[stratify]
        common_rows([data.arrays[0], labels])
        parts = stratified(rows, held, labels_of(labels, rows), seed=seed, total=total)
    else:
        parts = by_row(rows, held, seed=seed, total=total)
    train, val = (slice(part.start, part.stop) if part.picked is None else part.picked for part in parts)
    return train, val


def held_rows(fraction: Any, rows: int) -> int:
    """How many of `rows` are held out: `SettingError` where that leaves one side empty."""
    valid = isinstance(fraction, numbers.Real) and not isinstance(fraction, bool)
    if not valid or not 0 < float(fraction) < 1:
        raise SettingError(
            f"split({fraction!r}): the fraction held out must lie between 0 and 1, such as 0.1"
        )
    held = round(float(fraction) * rows)
    if not 0 < held < rows:
        side = "held out" if held == 0 else "left to train on"
        raise SettingError(
            f"split({fraction!r}) of {rows} rows: no row would be {side}; give another fraction"
        )
    return held


def by_row(rows: RowSet, held: int, *, seed: int, total: int) -> tuple[RowSet, RowSet]:
    """Any `held` rows of a set, and the others first. `total`: rows of the arrays."""
    out = np.zeros(len(rows), np.bool_)
    out[permutation(seed, 0, 0, len(rows), domain=SPLIT)[:held]] = True
    return _parted(rows, out, total)


def block_of(columns: Sequence[Column]) -> tuple[int, tuple[int, ...]]:
    """Rows of a block, and the rows from which blocks are counted: the chunks of the array with most bytes.

    Of those that are decoded, else of those with chunks; without any, about a megabyte of rows.
    """
    chunked = [column for column in columns if column.chunk_rows is not None]
    if not chunked:
        return max(1, BLOCK // max(1, sum(column.row_nbytes for column in columns))), (0,)
    largest = max(chunked, key=lambda column: (not column.row_access, column.row_nbytes))
    return largest.chunk_rows or 1, largest.chunk_origins


def by_block(
    rows: RowSet, held: int, *, seed: int, total: int, block: int, chunk_origins: tuple[int, ...]
) -> tuple[RowSet, RowSet]:
    """Whole blocks of `block` stored rows, counted from the last of `chunk_origins`: about `held` rows of
    them.

    Raises `SettingError` where there is one block only.
    """
    stored = rows.members(np.arange(len(rows)))
    first = np.asarray(chunk_origins, np.int64)[np.searchsorted(chunk_origins, stored, side="right") - 1]
    begins = np.flatnonzero(np.diff(first + (stored - first) // block * block, prepend=-1))
    if len(begins) < 2:
        raise SettingError(
            f'split(by="block"): the {len(rows)} rows lie in one block of {block}; use by="row", or convert '
            "to smaller chunks (oocloader convert --chunk-rows)"
        )
    sizes = np.diff(begins, append=len(rows))
    chosen = permutation(seed, 0, 0, len(begins), domain=SPLIT)
    sums = np.cumsum(sizes[chosen])
    # As near to the rows wanted as whole blocks come, and one at least on either side.
    count = int(np.argmin(np.abs(sums[:-1] - held))) + 1
    out = np.zeros(len(begins), np.bool_)
    out[chosen[:count]] = True
    return _parted(rows, np.repeat(out, sizes), total)


def stratified(
    rows: RowSet, held: int, labels: np.ndarray, *, seed: int, total: int
) -> tuple[RowSet, RowSet]:
    """Any `held` rows of a set so that each class has its share among them, to a row.

    `labels`: of the rows of the set, (rows,).
    """
    _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    exact = counts * (held / len(rows))
    shares = np.floor(exact).astype(np.int64)
    # What is left over goes to the classes that lost most by rounding, the first of those alike.
    missing = held - int(shares.sum())
    shares[np.argsort(shares - exact, kind="stable")[:missing]] += 1
    shuffled = permutation(seed, 0, 0, len(rows), domain=SPLIT)
    grouped = shuffled[np.argsort(codes[shuffled], kind="stable")]
    place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    out = np.zeros(len(rows), np.bool_)
    out[grouped[place < np.repeat(shares, counts)]] = True
    return _parted(rows, out, total)


def labels_of(array: StoredArray, rows: RowSet) -> np.ndarray:
    """The labels of a set of rows, (rows,), read in one pass a megabyte at a time.

    Raises `SettingError` where the array does not hold one whole number a row.
    """
    info = array.info
    if math.prod(info.shape[1:]) != 1 or info.dtype.kind not in "iub":
        raise SettingError(
            f"stratify={info.name!r}: classes are told by one whole number a row, but the array is "
            f"{info.dtype} of shape {info.shape}"
        )
    chunk = array.reader.chunk_rows or 1
    step = max(1, BLOCK // info.dtype.itemsize // chunk) * chunk
    labels = np.empty(len(rows), info.dtype)
    at = 0
    for start in range(rows.start // step * step, rows.stop, step):
        lo, hi = max(start, rows.start), min(start + step, rows.stop)
        wanted = rows.count(lo, hi)
        if wanted:
            read = array.read(lo, hi).reshape(hi - lo)
            rows.span(at, at + wanted, slice(at, at + wanted)).copy(read, labels, first=lo)
            at += wanted
    return labels


def _parted(rows: RowSet, out: np.ndarray, total: int) -> tuple[RowSet, RowSet]:
    rest, held = (row_set(rows.members(np.flatnonzero(side)), total) for side in (~out, out))
    return rest, held
