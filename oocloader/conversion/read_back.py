"""Reads a new store back before it gets its name: shapes, dtypes, size, and a sample of the values or all."""

import contextlib
from collections.abc import Callable, Iterator, Mapping

from oocloader.conversion.options import Verify
from oocloader.conversion.publish import DiscardedError, size_of
from oocloader.conversion.store_plan import StoredArrayPlan, StorePlan
from oocloader.conversion.verification.arrays import check_array
from oocloader.conversion.verification.compare import same_bits
from oocloader.errors import OocloaderError
from oocloader.stores import StoredArray, open_store

_SAMPLES = 8
_SAMPLE_NBYTES = 1 << 20


def check_store(
    path: str,
    plan: StorePlan,
    sources: Mapping[str, StoredArray],
    *,
    least_nbytes: int,
    destination: str,
    verify: Verify,
    advance: Callable[[int], object],
) -> None:
    """Compare the store at `path` with the plan, and rows of each array, bit by bit, with its source.

    `sources` has the arrays of the plan by their new names; `least_nbytes` were written. `advance` is called
    with how many bytes of rows more were compared where `verify` is "full". Raises `DiscardedError`, naming
    `destination`, or what reading the source raises.
    """
    nbytes = size_of(path)
    if nbytes < least_nbytes:
        raise _wrong(destination, f"it has {nbytes} bytes, but {least_nbytes} were written")
    with contextlib.ExitStack() as stack:
        with _blamed(path, destination):
            store = stack.enter_context(open_store(path))
            written = {array.name: store.find(array.name or store.only_array()) for array in plan.arrays}
        for array in plan.arrays:
            stored, source = written[array.name], sources[array.name]
            if (stored.info.shape, stored.info.dtype) != (array.shape, array.dtype):
                what = f"array {stored.info.name!r} is {stored.info.dtype} {stored.info.shape}"
                raise _wrong(destination, f"{what}, but {array.dtype} {array.shape} was written")
            if verify == "sample":
                _check_sample(path, stored, array, source, destination)
            elif verify == "full":
                check = check_array(stored, source, advance)
                if not check.ok:
                    raise _wrong(destination, " ".join(check.lines()[:2]).replace(path, "it"))


@contextlib.contextmanager
def _blamed(path: str, destination: str) -> Iterator[None]:
    """Say of errors in reading the new store that it is the new store."""
    try:
        yield
    except OocloaderError as error:
        raise _wrong(destination, error.message.replace(path, "it")) from error


def _check_sample(
    path: str, written: StoredArray, plan: StoredArrayPlan, source: StoredArray, destination: str
) -> None:
    for start, stop in sample(plan):
        expected = source.read(start, stop)
        with _blamed(path, destination):
            got = written.read(start, stop)
        if not same_bits(expected, got):
            what = f"array {plan.name!r}: rows {start} to {stop - 1} differ from the source"
            raise _wrong(destination, what)


def sample(plan: StoredArrayPlan) -> Iterator[tuple[int, int]]:
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
