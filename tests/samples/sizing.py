"""Columns and options to size windows for: given ones, and any."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from oocloader.errors import SettingError
from oocloader.memory.alignment import Column
from oocloader.memory.budget import Sizes, choose
from oocloader.memory.window_size import RequestedRows, SizingInputs
from oocloader.sizes import MIB

IMAGES = Column("x", 12288, 12288, 256, 8 * MIB, row_access=False)


LABELS = Column("y", 8, 8, 5000, 1 * MIB, row_access=False)


RAW = Column("x", 12288, 12288, None, MIB // 2, row_access=True)


def sizes(rows: int, *columns: Column, **options: Any) -> Sizes:
    chosen: dict[str, Any] = {
        "batch_size": 128,
        "shuffle": True,
        "threads": 2,
        "free_host_memory": 8192 * MIB,
    }
    requests = {name: RequestedRows.parse(name, options.get(name)) for name in ("block", "window")}
    return choose(SizingInputs(rows=rows, columns=columns, **{**chosen, **options, **requests}))


def column(
    row_nbytes: int, chunk_rows: int | None, *, access: bool = False, chunk_origins: tuple[int, ...] = (0,)
) -> Column:
    return Column(
        "x", row_nbytes, row_nbytes, chunk_rows, 1000, row_access=access, chunk_origins=chunk_origins
    )


@st.composite
def columns(draw: st.DrawFn) -> Column:
    row_nbytes = draw(st.sampled_from([1, 8, 100, 3000, 12288, 1_000_000]))
    access = draw(st.booleans())
    return Column(
        "x",
        row_nbytes,
        row_nbytes * draw(st.sampled_from([1, 2, 4])),
        draw(st.integers(1, 3000)) if not access else draw(st.none() | st.integers(1, 3000)),
        draw(st.integers(0, 4 * MIB)),
        row_access=access,
        chunk_origins=draw(st.sampled_from([(0,), (0, 700)])),
    )


# Far more than any of these needs, as most machines have it, or rather little.
MEASURED = st.just(1 << 50) | st.integers(1, 4096 * MIB)


BUDGETS = st.none() | st.integers(1, 64 * MIB) | st.integers(1, 4096 * MIB)


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, list[Column], dict[str, Any]]:
    return (
        draw(st.integers(1, 2_000_000)),
        draw(st.lists(columns(), min_size=1, max_size=3)),
        {
            "batch_size": draw(st.integers(1, 4096)),
            "shuffle": draw(st.booleans()),
            "block": draw(st.none() | st.integers(1, 5000)),
            "window": draw(st.none() | st.integers(1, 5000)),
            "host_memory": draw(BUDGETS),
            "device_memory": draw(BUDGETS),
            "threads": draw(st.integers(1, 16)),
            "free_host_memory": draw(MEASURED),
            "cached_nbytes": draw(st.just(0) | st.integers(0, 64 * MIB)),
        },
    )


Request = tuple[int, list[Column], dict[str, Any]]


def accepted(rows: int, columns: list[Column], options: dict[str, Any]) -> Sizes | None:
    try:
        return sizes(rows, *columns, **options)
    except SettingError:
        return None


def named(error: BaseException, option: str) -> int:
    """The budget that an error says would work."""
    return int(str(error).partition(f"give at least {option}=")[2].split(",")[0])
