"""Reads a new store back before it gets its name: shapes, dtypes, size and a sample of the values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import numpy as np

from oocloader.conversion.plan import ArrayPlan, Plan
from oocloader.conversion.publish import size_of
from oocloader.errors import OocloaderError, StoreError
from oocloader.stores import StoredArray, open_store

_SAMPLES = 8
_SAMPLE_NBYTES = 1 << 20


def check_store(
    path: str, plan: Plan, sources: Mapping[str, StoredArray], *, least_nbytes: int, destination: str
) -> None:
    """Compare the store at `path` with the plan, and some rows of each array, bit by bit, with its source.

    `sources` has the arrays of the plan by their new names; `least_nbytes` were written.
    Raises `StoreError`, naming `destination`.
    """
    found = size_of(path)
    if found < least_nbytes:
        raise _wrong(destination, f"it has {found} bytes, but {least_nbytes} were written")
    with contextlib.ExitStack() as stack:
        with _blamed(path, destination):
            store = stack.enter_context(open_store(path))
            written = {array.name: store.find(array.name or store.only_array()) for array in plan.arrays}
        for array in plan.arrays:
            _check_array(path, written[array.name], array, sources[array.name], destination)


@contextlib.contextmanager
def _blamed(path: str, destination: str) -> Iterator[None]:
    """Say of errors in reading the new store that it is the new store."""
    try:
        yield
    except OocloaderError as error:
        raise _wrong(destination, error.message.replace(path, "it")) from error


def _check_array(
    path: str, written: StoredArray, plan: ArrayPlan, source: StoredArray, destination: str
) -> None:
    info = written.info
    if info.shape != plan.shape or info.dtype != plan.dtype:
        what = f"array {info.name!r} is {info.dtype} {info.shape}, but {plan.dtype} {plan.shape} was written"
        raise _wrong(destination, what)
    for start, stop in sample(plan):
        expected = source.read(start, stop)
        with _blamed(path, destination):
            got = written.read(start, stop)
        # Bytes, not values: a NaN equals nothing, and -0.0 equals 0.0.
        if not np.array_equal(_bytes(expected), _bytes(got)):
            what = f"array {info.name!r}: rows {start} to {stop - 1} differ from the source"
            raise _wrong(destination, what)


def _bytes(rows: np.ndarray) -> np.ndarray:
    return rows.reshape(-1).view(np.uint8)


def sample(plan: ArrayPlan) -> Iterator[tuple[int, int]]:
    """Runs of rows from the first chunk to the last, whose end is the end of the array.

    At most 8 runs of a mebibyte, or of a row where that is larger.
    """
    rows = max(1, min(_SAMPLE_NBYTES // plan.row_nbytes, plan.chunk_rows))
    last = plan.chunks - 1
    count = min(_SAMPLES, plan.chunks)
    chunks = sorted({last * number // max(1, count - 1) for number in range(count)})
    for chunk in chunks:
        start = chunk * plan.chunk_rows
        if chunk == last:
            start = max(start, plan.rows - rows)
        yield start, min(start + rows, plan.rows)


def _wrong(destination: str, what: str) -> StoreError:
    return StoreError(
        f"{destination}: the new store was read back and is wrong: {what}; it was discarded, try again or"
        " check the disk",
        file=destination,
    )
