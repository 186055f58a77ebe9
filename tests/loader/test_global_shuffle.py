"""Which arrays rows can be shuffled one by one of, and what is said of the others."""

from __future__ import annotations

import pytest

from oocloader.errors import SettingError
from oocloader.loader.global_shuffle import gathered, refuse_costly
from oocloader.memory.alignment import Column
from oocloader.reading.gather import GATHERED_NBYTES


def made(
    name: str, row_nbytes: int, *, row_access: bool, chunk_rows: int | None = 64, mapped: int = 0
) -> Column:
    return Column(name, row_nbytes, row_nbytes, chunk_rows, 1000, row_access, mapped_nbytes=mapped)


@pytest.mark.parametrize(
    "columns",
    [
        [made("x", 3072, row_access=True)],
        [made("x", 3072, row_access=True), made("y", 8, row_access=True)],
        [made("x", 3072, row_access=True), made("y", 8, row_access=False)],  # kept decoded
    ],
)
def test_allowed(columns: list[Column]) -> None:
    refuse_costly(columns)


@pytest.mark.parametrize(
    "columns",
    [
        [made("x", 3072, row_access=False)],
        [made("m", 3000, row_access=True), made("x", 3072, row_access=False)],
        [made("x", 3072, row_access=False), made("y", 8, row_access=True)],
    ],
)
def test_refused_with_what_it_would_cost(columns: list[Column]) -> None:
    with pytest.raises(SettingError) as caught:
        refuse_costly(columns)
    said = str(caught.value)
    assert "array 'x'" in said
    assert "64 rows (196,608 bytes)" in said
    assert 'shuffle="window"' in said
    assert "oocloader convert --shuffle SEED" in said


GIB = 1 << 30


@pytest.mark.parametrize(
    ("mapped", "budget_nbytes", "scratch", "bounded"),
    [
        (0, GIB, 1000, False),  # in memory, or not to be mapped
        (500, GIB, 1000, True),
        (10**6, GIB, 10**6, True),
        (10**12, GIB, GATHERED_NBYTES, True),
        (10**12, 8 * GATHERED_NBYTES, GATHERED_NBYTES, True),
        (10**12, 8 * GATHERED_NBYTES - 1, 1000, False),
        (10**6, 10**6, 1000, False),
    ],
)
def test_a_thread_may_make_some_of_a_mapping_resident(
    mapped: int, budget_nbytes: int, scratch: int, bounded: bool
) -> None:
    labels = made("y", 8, row_access=True)
    (x, y), found = gathered([made("x", 8, row_access=True, mapped=mapped), labels], budget_nbytes)
    assert (x.scratch_nbytes, x.mapped_nbytes, found) == (scratch, mapped, bounded)
    assert y == labels
