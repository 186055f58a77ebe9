"""Sizes of windows and blocks, and budgets kept: arithmetic alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from oocloader.errors import SettingError
from oocloader.machine import available_host_memory
from oocloader.memory.alignment import ORDERED_WINDOW, Column
from oocloader.memory.budget import host_share
from oocloader.memory.window_size import LARGEST_WINDOW, SHUFFLED_WINDOW
from oocloader.sizes import MIB
from sizing import (
    IMAGES,
    LABELS,
    MEASURED,
    RAW,
    Request,
    accepted,
    column,
    named,
    requests,
    sizes,
)


@pytest.mark.parametrize(
    ("columns", "options", "window", "block"),
    [
        ([IMAGES], {}, 21 * 256, 256),
        ([IMAGES, LABELS], {}, 21 * 256, 256),
        ([RAW], {}, SHUFFLED_WINDOW // 12288, 85),
        ([RAW, LABELS], {}, SHUFFLED_WINDOW // 12296, 85),
        ([dataclasses.replace(IMAGES, chunk_rows=682)], {}, 16 * 682, 682),  # sixteen blocks of 8 MiB
        ([dataclasses.replace(IMAGES, chunk_rows=10_000)], {}, 20_000, 10_000),
        ([dataclasses.replace(IMAGES, chunk_rows=30_000)], {}, 30_000, 30_000),  # over 256 MiB
        ([IMAGES], {"device_memory": 20 * MIB}, 256, 256),
        ([IMAGES], {"device_memory": 120 * MIB}, 6 * 256, 256),
        ([IMAGES], {"host_memory": 120 * MIB}, 10 * 256, 256),
        ([IMAGES], {"host_memory": 4096 * MIB}, LARGEST_WINDOW // 12288 // 256 * 256, 256),
        ([IMAGES], {"shuffle": False}, ORDERED_WINDOW // 12288 // 256 * 256, 256),
        ([RAW], {"shuffle": False}, ORDERED_WINDOW // 12288, 42),
        ([IMAGES], {"window": 1000}, 1000, 256),
        ([IMAGES], {"window": "16MiB"}, 5 * 256, 256),
        ([IMAGES], {"window": 100}, 100, 100),
        ([IMAGES], {"window": 100_000}, 80_000, 256),
        ([IMAGES], {"block": 512}, 21 * 256, 512),
        ([IMAGES], {"block": "12MiB", "window": 500}, 500, 500),
    ],
)
def test_window_and_block(columns: list[Column], options: dict[str, Any], window: int, block: int) -> None:
    found = sizes(80_000, *columns, **options)
    assert (found.window, found.block) == (window, block)


def test_small_data_is_one_window() -> None:
    assert sizes(50, IMAGES).window == 50
    assert sizes(50, IMAGES).block == 50
    assert sizes(1, IMAGES, batch_size=1).window == 1


@given(request=requests())
def test_written_budgets_are_kept(request: Request) -> None:
    rows, columns, options = request
    found = accepted(*request)
    assume(found is not None)
    assert found is not None
    assert 1 <= found.block <= found.window <= rows
    assert 1 <= found.threads <= options["threads"]
    assert 1 <= found.prefetch_windows <= 3
    for name, nbytes in (("host_memory", found.host_nbytes), ("device_memory", found.device_nbytes)):
        assert options[name] is None or nbytes <= options[name]
    # What was measured bounds as well.
    assert found.host_nbytes <= (options["host_memory"] or options["free_host_memory"])
    # The sums are what the parts come to.
    row_nbytes = sum(column.row_nbytes for column in columns)
    staged = found.window_nbytes + options["batch_size"] * row_nbytes
    assert found.window_nbytes == found.window * row_nbytes
    assert (found.host.prefetched, found.host.in_use) == (found.prefetch_windows * staged, staged)
    assert found.host.decoding == found.threads * max(column.scratch_nbytes for column in columns)
    assert found.host.mapped == (sum(c.mapped_nbytes for c in columns) if found.gather else 0)
    assert found.host_nbytes == sum(dataclasses.astuple(found.host))
    assert found.device.windows == 3 * staged
    assert found.device.batches == 2 * options["batch_size"] * sum(c.delivered_row_nbytes for c in columns)
    assert found.device_nbytes == found.device.windows + found.device.batches


@given(request=requests(), data=st.data())
def test_what_makes_the_order_is_the_same_everywhere(request: Request, data: st.DataObject) -> None:
    """Whatever the batch, the threads and the machine's memory, where no written budget refuses."""
    rows, columns, options = request
    other = {
        **options,
        "batch_size": data.draw(st.integers(1, 4096)),
        "threads": data.draw(st.integers(1, 16)),
        "free_host_memory": data.draw(MEASURED),
        "free_device_memory": data.draw(st.none() | MEASURED),
    }
    here, there = accepted(rows, columns, options), accepted(rows, columns, other)
    assume(here is not None and there is not None)
    assert here is not None
    assert there is not None
    assert (here.block, here.window, here.chunk_origins) == (there.block, there.window, there.chunk_origins)


@given(request=requests())
def test_chunks_stay_whole_or_are_counted(request: Request) -> None:
    rows, columns, options = request
    options = {**options, "shuffle": True, "host_memory": None, "device_memory": None, "window": None}
    found = sizes(rows, *columns, **{**options, "free_host_memory": 1 << 50})
    row_nbytes = sum(column.row_nbytes for column in columns)
    kept = sum(
        rows * column.row_nbytes
        for column in columns
        if not column.row_access
        and (found.block % (column.chunk_rows or 1) or column.chunk_origins != found.chunk_origins)
        and found.window < rows
    )
    assert found.host.shared_chunks == kept
    if options["block"] is None and found.window < rows:
        heaviest = max((c for c in columns if not c.row_access), key=lambda c: c.row_nbytes, default=None)
        if heaviest is not None and heaviest.row_nbytes * 16 > row_nbytes:
            assert found.block % (heaviest.chunk_rows or 1) == 0


def test_chunks_of_parts_that_begin_elsewhere_are_counted() -> None:
    alike = [column(300, 64, chunk_origins=(0, 100)), column(200, 64, chunk_origins=(0, 100))]
    apart = [column(300, 64, chunk_origins=(0, 100)), column(200, 64)]
    kept = sizes(10**6, *apart).host_nbytes - sizes(10**6, *alike).host_nbytes
    assert kept == 10**6 * 200
    assert sizes(10**6, *apart).chunk_origins == (0, 100)


def test_fewer_threads_where_memory_is_short() -> None:
    def threads(host_memory: int | None) -> int:
        return sizes(80_000, IMAGES, threads=8, host_memory=host_memory, window=256).threads

    assert [threads(nbytes) for nbytes in (None, 20 * MIB, 40 * MIB, 70 * MIB, 200 * MIB)] == [8, 1, 3, 7, 8]


def test_memory_decides_how_far_to_read_ahead() -> None:
    def prefetch_windows(nbytes: int) -> int:
        return sizes(80_000, RAW, window=1365, free_host_memory=nbytes).prefetch_windows

    assert [prefetch_windows(nbytes) for nbytes in (37 * MIB, 40 * MIB, 60 * MIB, 4096 * MIB)] == [1, 1, 2, 3]


def test_rows_that_few_of_a_chunk_are_wanted_of_keep_the_whole_chunk() -> None:
    few = dataclasses.replace(column(300, 5000), touched_nbytes=500 * MIB)
    assert sizes(10_000, RAW, few, block=100, window=1000).host.shared_chunks == 500 * MIB


def test_rows_that_are_cached_count() -> None:
    found = sizes(80_000, IMAGES, cached_nbytes=900 * MIB)
    plain = sizes(80_000, IMAGES)
    assert found.host.cached == 900 * MIB
    assert found.host_nbytes - plain.host_nbytes == 900 * MIB
    assert (found.window, found.block) == (plain.window, plain.block)
    message = (
        r"more than the 943718400 bytes .* that are taken unasked: give at least host_memory=.*, or cache= a"
    )
    with pytest.raises(SettingError, match=message) as caught:
        sizes(80_000, IMAGES, cached_nbytes=900 * MIB, free_host_memory=900 * MIB)
    needed = named(caught.value, "host_memory")
    assert sizes(80_000, IMAGES, cached_nbytes=900 * MIB, host_memory=needed).host_nbytes <= needed


def test_host_share() -> None:
    assert MIB <= host_share(available_host_memory()) <= 2048 * MIB
    assert host_share(3 * MIB) == 3 * MIB // 4
