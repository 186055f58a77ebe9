"""Reads a new store back before it gets its name: shapes, dtypes, size, and a sample of the values or all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, get_args

from oocloader.conversion.publish import DiscardedError, size_of
from oocloader.conversion.store_plan import ArrayPlan, Plan
from oocloader.conversion.verification.arrays import check_array
from oocloader.conversion.verification.compare import same_bits
from oocloader.errors import OocloaderError, SettingError
from oocloader.stores import StoredArray, open_store

Verify = Literal["sample", "full", "none"]

_SAMPLES = 8
_SAMPLE_NBYTES = 1 << 20


def checked_verify(verify: Any) -> Verify:
    """Raises `SettingError` where it is none of the three."""
    if verify not in get_args(Verify):
        raise SettingError(f"verify: expected 'sample', 'full' or 'none', got {verify!r}")
    found: Verify = verify
    return found


def check_store(
    path: str,
    plan: Plan,
    sources: Mapping[str, StoredArray],
    *,
    least_nbytes: int,
    destination: str,
    verify: Verify,
    advance: Callable[[int], object],
) -> None:
    """Compare the store at `path` with the plan, and rows of each array, bit by bit, with its source.

    `sources` has the arrays of the plan by their new names; `least_nbytes` were written. `advance` is told
    how many bytes of rows more were compared where `verify` is "full". Raises `DiscardedError`, naming
    `destination`, or what reading the source raises.
    """
    found = size_of(path)
    if found < least_nbytes:
        raise _wrong(destination, f"it has {found} bytes, but {least_nbytes} were written")
    with contextlib.ExitStack() as stack:
        with _blamed(path, destination):
            store = stack.enter_context(open_store(path))
            written = {array.name: store.find(array.name or store.only_array()) for array in plan.arrays}
        for array in plan.arrays:
            found_array, source = written[array.name], sources[array.name]
            _check_kind(found_array, array, destination)
            if verify == "sample":
                _check_sample(path, found_array, array, source, destination)
            elif verify == "full":
                _check_all(path, found_array, source, destination, advance)


@contextlib.contextmanager
def _blamed(path: str, destination: str) -> Iterator[None]:
    """Say of errors in reading the new store that it is the new store."""
    try:
        yield
    except OocloaderError as error:
        raise _wrong(destination, error.message.replace(path, "it")) from error


def _check_kind(written: StoredArray, plan: ArrayPlan, destination: str) -> None:
    info = written.info
    if info.shape != plan.shape or info.dtype != plan.dtype:
        what = f"array {info.name!r} is {info.dtype} {info.shape}, but {plan.dtype} {plan.shape} was written"
        raise _wrong(destination, what)


def _check_sample(
    path: str, written: StoredArray, plan: ArrayPlan, source: StoredArray, destination: str
) -> None:
    for start, stop in sample(plan):
        expected = source.read(start, stop)
        with _blamed(path, destination):
            got = written.read(start, stop)
        if not same_bits(expected, got):
            what = f"array {plan.name!r}: rows {start} to {stop - 1} differ from the source"
            raise _wrong(destination, what)


def _check_all(
    path: str,
    written: StoredArray,
    source: StoredArray,
    destination: str,
    advance: Callable[[int], object],
) -> None:
    found = check_array(written, source, advance)
    if not found.ok:
        raise _wrong(destination, " ".join(found.lines()[:2]).replace(path, "it"))


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


def _wrong(destination: str, what: str) -> DiscardedError:
    return DiscardedError(
        f"{destination}: the new store was read back and is wrong: {what}; it was discarded, try again or"
        " check the disk",
        file=destination,
    )
