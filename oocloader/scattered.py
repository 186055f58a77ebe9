"""What it takes to shuffle single rows: arrays that can be read row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oocloader.budget import LIGHT, Column
from oocloader.errors import SettingError
from oocloader.read import GATHERED_NBYTES


def column(found: Column) -> Column:
    """An array as it is budgeted for: a thread may make some of its mapping resident."""
    if not found.gathered_nbytes:
        return found
    resident = min(found.gathered_nbytes, GATHERED_NBYTES)
    return replace(found, scratch_nbytes=max(found.scratch_nbytes, resident))


def refuse_costly(columns: Sequence[Column]) -> None:
    """Raise where rows of an array cannot be read alone.

    One that is small beside the others, such as labels, may be: it is kept decoded for the pass.
    """
    row_nbytes = sum(found.row_nbytes for found in columns)
    for found in columns:
        if not found.row_access and LIGHT * found.row_nbytes > row_nbytes:
            rows = found.chunk_rows or 1
            raise SettingError(
                f'shuffle="global" reads single rows, but those of array {found.name!r} lie in chunks that '
                f"are decoded whole: each row would cost {rows} rows ({rows * found.row_nbytes:,} bytes); "
                'give shuffle="window", or convert in shuffled order (oocloader convert --shuffle SEED)'
            )
