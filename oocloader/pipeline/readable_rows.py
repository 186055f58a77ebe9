"""The rows before the first that cannot be read, where reading a window has failed."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from oocloader.errors import StoreError
from oocloader.metrics import Counters
from oocloader.order import Batching, Window, split
from oocloader.reading import RowReader, SharedChunks, Target


def readable_batches(
    readers: Sequence[RowReader],
    windows: Iterable[Window],
    batching: Batching,
    counters: Counters,
    *,
    position: int,
    most_rows: int,
) -> Iterator[tuple[np.ndarray, ...]]:
    """The whole batches from row `position` of a pass up to the first row that cannot be read; raises why.

    `windows` are those from there on: they are read again, chunk by chunk, as what failed first need not come
    first. Ends without an error where all of it can be read now, or `StoreError` is not what is wrong.
    """
    # Beyond that lies nothing that had been asked for together with what failed.
    end = position + most_rows
    leftover = [np.empty((0, *reader.shape[1:]), reader.dtype) for reader in readers]
    for window in windows:
        columns = [_up_to_error(reader, window, batching.batch_size, counters) for reader in readers]
        used = window.rows - window.unused
        readable, error = min(((rows, error) for _, rows, error in columns), key=lambda column: column[0])
        begin = window.begin + max(0, position + len(leftover[0]) - window.first)
        held = [
            np.concatenate([tail, array[begin : min(used, readable)]])
            for tail, (array, _, _) in zip(leftover, columns, strict=True)
        ]
        while (stop := batching.whole(position, position + len(held[0]))) > position:
            yield tuple(array[: stop - position] for array in held)
            held = [array[stop - position :] for array in held]
            position = stop
        leftover = held
        if readable < used:
            if isinstance(error, StoreError):
                raise error
            return
        if window.first + used - window.begin >= end:
            return


def _up_to_error(
    reader: RowReader, window: Window, batch_size: int, counters: Counters
) -> tuple[np.ndarray, int, Exception | None]:
    """The rows of a window, how many of them come before the first that cannot be read, and why not."""
    array = np.empty((window.rows, *reader.shape[1:]), reader.dtype)
    target = Target(array, SharedChunks(lambda lo, hi: 0), counters)
    readable, first_error = window.rows, None
    at_once = batch_size if reader.row_access or reader.chunk_rows is None else reader.chunk_rows
    for _, spans in split(window.spans, at_once):
        try:
            for job in reader.jobs(spans, target):
                job()
        except Exception as error:
            first = min(int(span.dest_rows().min()) for span in spans)
            if first < readable:
                readable, first_error = first, error
    return array, readable, first_error
