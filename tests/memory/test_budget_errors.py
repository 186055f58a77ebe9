"""Budgets that are too small: what is refused, in which words, and that what these name works."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocloader.errors import SettingError
from oocloader.memory.alignment import Column
from oocloader.sizes import MIB
from sizing import (
    IMAGES,
    LABELS,
    RAW,
    Request,
    accepted,
    named,
    requests,
    sizes,
)


@given(request=requests(), data=st.data())
def test_a_refusal_names_the_smallest_budget_that_works(request: Request, data: st.DataObject) -> None:
    """Exactly that works, and so does any more; a byte less does not."""
    rows, columns, options = request
    options["free_host_memory"] = 1 << 50
    for option in ("host_memory", "device_memory"):
        other = "device_memory" if option == "host_memory" else "host_memory"
        options = {**options, other: None, option: 1}
        with pytest.raises(
            SettingError, match=rf"^{option}=1 is too small (for windows of|to leave half of it to windows)"
        ) as caught:
            sizes(rows, *columns, **options)
        needed = named(caught.value, option)
        found = accepted(rows, columns, {**options, option: needed})
        assert found is not None
        assert getattr(found, option.replace("memory", "nbytes")) <= needed
        assert accepted(rows, columns, {**options, option: needed - 1}) is None
        more = data.draw(st.integers(needed, 2 * needed) | st.integers(needed, needed + 4096))
        assert accepted(rows, columns, {**options, option: more}) is not None


@given(request=requests(), device=st.booleans(), given=st.integers(1, 256 * MIB))
def test_a_measured_budget_names_what_would_work(request: Request, device: bool, given: int) -> None:
    rows, columns, options = request
    option = "device_memory" if device else "host_memory"
    free = {"free_host_memory": 1 << 50, f"free_{option}": given}
    options = {**options, "host_memory": None, "device_memory": None, **free}
    found = accepted(rows, columns, options)
    if found is None:
        with pytest.raises(SettingError, match=rf"bytes of {option}, more than the {given} bytes ") as caught:
            sizes(rows, *columns, **options)
        needed = named(caught.value, option)
        assert accepted(rows, columns, {**options, option: needed}) is not None
        assert accepted(rows, columns, {**options, option: needed - 1}) is None
        named_window = str(caught.value).partition(", or window=")[2]
        if named_window:
            assert accepted(rows, columns, {**options, "window": int(named_window)}) is not None
    else:
        assert getattr(found, option.replace("memory", "nbytes")) <= given
        written = sizes(rows, *columns, **{**options, f"free_{option}": 1 << 50})
        assert (found.block, found.window) == (written.block, written.window)


@given(batch_size=st.integers(1, 4096), chunk_rows=st.integers(1, 500), part=st.floats(0.5, 1))
def test_a_window_that_is_named_fits(batch_size: int, chunk_rows: int, part: float) -> None:
    """Where batches take more than half, a window that somebody asks for may do."""
    images = dataclasses.replace(IMAGES, chunk_rows=chunk_rows)
    batches = 5 * batch_size * 12288
    given = int(batches + 3 * chunk_rows * 12288 + part * batches)
    try:
        sizes(80_000, images, device_memory=given, batch_size=batch_size)
    except SettingError as error:
        window = int(str(error).partition(", or window=")[2])
        assert sizes(80_000, images, device_memory=given, batch_size=batch_size, window=window)
    else:
        assert given >= 2 * batches


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (
            [IMAGES],
            {"host_memory": MIB},
            (
                "host_memory=1048576 is too small to leave half of it to windows: 11534336 bytes are needed "
                "besides them: give at least host_memory=23068672, or convert to smaller chunks than 256 "
                "rows (oocloader convert --chunk-rows)"
            ),
        ),
        (
            [IMAGES],
            {"host_memory": 24 * MIB, "window": 1000},
            (
                "host_memory=25165824 is too small for windows of 1000 rows: give at least "
                "host_memory=36110336, or window=512"
            ),
        ),
        (
            [IMAGES],
            {"host_memory": MIB, "window": 1000},
            (
                "host_memory=1048576 is too small for windows of 1000 rows: give at least "
                "host_memory=36110336, or a smaller window"
            ),
        ),
        (
            [RAW],
            {"device_memory": MIB},
            (
                "device_memory=1048576 is too small to leave half of it to windows: 7864320 bytes are needed "
                "besides them: give at least device_memory=15728640, or a smaller batch_size"
            ),
        ),
        (
            [RAW],
            {"device_memory": 8 * MIB},
            (
                "device_memory=8388608 is too small to leave half of it to windows: 7864320 bytes are needed "
                "besides them: give at least device_memory=15728640, or window=14"
            ),
        ),
        (
            [IMAGES, dataclasses.replace(LABELS, row_nbytes=600)],
            {"host_memory": 40 * MIB},
            (
                "host_memory=41943040 is too small to leave half of it to windows: 59687936 bytes are needed "
                "besides them: give at least host_memory=119375872, or convert 'y', kept decoded for all "
                "windows, to chunks of 256 rows (oocloader convert --chunk-rows 256)"
            ),
        ),
        (
            [RAW],
            {"window": 80_000, "free_host_memory": 200 * MIB},
            (
                "windows of 80000 rows need 1969750016 bytes of host_memory, more than the 209715200 bytes "
                "(a quarter of the free memory, 2 GiB at most) that are taken unasked: "
                "give at least host_memory=1969750016, or window=8384"
            ),
        ),
        (
            [RAW],
            {"free_device_memory": 100 * MIB},
            (
                "windows of 5461 rows need 209178624 bytes of device_memory, more than the 104857600 bytes "
                "(half of the GPU's memory, the rest being for the model) that are taken unasked: "
                "give at least device_memory=15728640, or window=2631"
            ),
        ),
    ],
)
def test_refusals_say_what_to_do(columns: list[Column], options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError) as caught:
        sizes(80_000, *columns, **options)
    assert str(caught.value) == message
