"""What it takes to shuffle single rows: arrays that can be read row by row."""

from collections.abc import Sequence
from dataclasses import replace

from oocloader.errors import SettingError
from oocloader.memory import LIGHT, Column
from oocloader.reading import GATHERED_NBYTES

# Of the memory for reading ahead, what each thread may make resident of a mapping is this part at most.
_SHARE = 8


def gathered(columns: Sequence[Column], budget_nbytes: int) -> tuple[tuple[Column, ...], bool]:
    """Arrays as they are budgeted for, and whether their rows are copied from mappings, of which each thread
    makes some resident. Where the budget is too small for that, rows are read by a call each."""
    resident = [min(column.mapped_nbytes, GATHERED_NBYTES) for column in columns]
    if sum(resident) == 0 or max(resident) > budget_nbytes // _SHARE:
        return tuple(columns), False
    return tuple(
        replace(column, scratch_nbytes=max(column.scratch_nbytes, nbytes))
        for column, nbytes in zip(columns, resident, strict=True)
    ), True


def refuse_costly(columns: Sequence[Column]) -> None:
    """Raise where rows of an array cannot be read alone.

    One that is small beside the others, such as labels, may be: it is kept decoded for the pass.
    """
    row_nbytes = sum(column.row_nbytes for column in columns)
    for column in columns:
        if not column.row_access and LIGHT * column.row_nbytes > row_nbytes:
            rows = column.chunk_rows or 1
            raise SettingError(
                f'shuffle="global" reads single rows, but those of array {column.name!r} lie in chunks that '
                f"are decoded whole: each row would cost {rows} rows ({rows * column.row_nbytes:,} bytes); "
                'give shuffle="window", or convert in shuffled order (oocloader convert --shuffle SEED)'
            )
