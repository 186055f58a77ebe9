"""Residency: whether all rows stay on the device, and what that takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import oocloader as ooc
from numbered import Numbered
from oocloader.loader import assembly
from oocloader.loader.plan import MemoryPlan
from oocloader.memory.alignment import Column
from oocloader.pipeline import residency as residency
from oocloader.pipeline.residency import Resident, parse_residency
from recorded import eventually, ids_of, our_threads

ROWS = 1000


DEVICES = ("/CPU:0", "/CPU:1")


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert eventually(lambda: not our_threads())


def column(row_nbytes: int, chunk_rows: int | None = None, *, row_access: bool = True) -> Column:
    return Column("x", row_nbytes, 4 * row_nbytes, chunk_rows, 0, row_access)


@pytest.mark.parametrize(
    ("asked", "on_host", "device_budget", "expected"),
    [
        ("stream", False, 10**9, False),
        ("device", False, None, True),
        ("device", True, None, True),
        ("auto", True, 10**9, False),
        ("auto", False, None, False),
        ("auto", False, 2000, True),
        ("auto", False, 1999, False),
    ],
)
def test_what_is_kept(asked: str, on_host: bool, device_budget: int | None, expected: bool) -> None:
    what = Resident(rows_nbytes=1000, device_nbytes=1500, window=10, chunk_origins=(0,))
    assert what.stays(asked, on_host=on_host, device_budget=device_budget) is expected


def test_auto_needs_room_for_windows_and_batches_too() -> None:
    what = Resident(rows_nbytes=1000, device_nbytes=2500, window=10, chunk_origins=(0,))
    assert not what.stays("auto", on_host=False, device_budget=2400)
    assert what.stays("auto", on_host=False, device_budget=2500)


@pytest.mark.parametrize("bad", ["gpu", None, True, 1, ""])
def test_other_names(bad: Any) -> None:
    with pytest.raises(ooc.SettingError, match='must be "auto", "stream" or "device"'):
        parse_residency(bad)


@given(
    rows=st.integers(1, 10**9),
    row_nbytes=st.integers(1, 10**7),
    chunk_rows=st.one_of(st.none(), st.integers(1, 10**5)),
    batch_size=st.integers(1, 1024),
    chosen=st.integers(1, 10**6),
)
def test_the_sum(rows: int, row_nbytes: int, chunk_rows: int | None, batch_size: int, chosen: int) -> None:
    columns = [column(row_nbytes, chunk_rows, row_access=False)]
    what = Resident.of(rows, columns, batch_size=batch_size, window=None, chosen=chosen)
    assert what.rows_nbytes == rows * row_nbytes
    assert 1 <= what.window <= min(chosen, rows)
    # Rows, a window that arrives beside one in use, and the batches.
    least = what.rows_nbytes + 2 * what.window * row_nbytes + 2 * batch_size * 5 * row_nbytes
    assert what.device_nbytes >= least
    # What is loaded at once is bounded, or one row of chunks.
    assert what.window * row_nbytes <= max(residency.LOAD_NBYTES, (chunk_rows or 1) * row_nbytes)
    # The budget that chose the window does not change what is needed, so the sum is the smallest that works.
    other = Resident.of(rows, columns, batch_size=batch_size, window=None, chosen=max(1, chosen // 7))
    assert other.device_nbytes == what.device_nbytes
    what.check_fits(what.device_nbytes)
    with pytest.raises(ooc.SettingError, match=f"give at least device_memory={what.device_nbytes}, or resid"):
        what.check_fits(what.device_nbytes - 1)


def test_a_host_without_the_memory() -> None:
    what = Resident(rows_nbytes=1000, device_nbytes=1500, window=10, chunk_origins=(0,))
    what.check_host(None)
    what.check_host(1000)
    with pytest.raises(ooc.SettingError, match="keeps 1000 bytes of rows, and 999 bytes of memory are free"):
        what.check_host(999)


def _parts(memory: MemoryPlan) -> dict[str, int]:
    return {part.name: part.nbytes for part in memory.parts}


@pytest.mark.usefixtures("tf")
@pytest.mark.parametrize("given", [1, 20_000, 300_000])
@pytest.mark.parametrize("batch_size", [1, 32, 5000])
@pytest.mark.parametrize("window", [None, 10, "1MiB"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_the_smallest_budget_is_told_at_once(
    make_store: Callable[..., Numbered],
    given: int,
    batch_size: int,
    window: int | str | None,
    shuffle: bool,
) -> None:
    """However small the one given: also where not even the windows of a stream would fit in."""
    store = make_store("h5", 5000)
    options: dict[str, Any] = {"batch_size": batch_size, "window": window, "shuffle": shuffle}

    def loader(nbytes: int) -> ooc.Loader:
        return ooc.Loader(store.source, "x", "y", residency="device", device_memory=nbytes, **options)

    with pytest.raises(ooc.SettingError, match=f"device_memory={given} is too small for residency") as caught:
        loader(given)
    needed = int(str(caught.value).partition("give at least device_memory=")[2].partition(",")[0])
    with pytest.raises(ooc.SettingError, match=f"give at least device_memory={needed}, or residency"):
        loader(needed - 1)
    with loader(needed) as fits:
        assert fits.plan().device_nbytes <= needed


@pytest.mark.usefixtures("tf")
@pytest.mark.parametrize("device", [None, "/CPU:1"])
def test_a_budget_that_is_too_small_names_one_that_works(
    make_store: Callable[..., Numbered], device: str | None
) -> None:
    store = make_store("h5", 20_000)
    with pytest.raises(ooc.SettingError, match="device_memory=300000 is too small for residency") as caught:
        ooc.Loader(store.source, "x", "y", residency="device", device_memory=300_000, device=device)
    needed = int(str(caught.value).partition("give at least device_memory=")[2].partition(",")[0])
    assert needed > 20_000 * 24
    with pytest.raises(ooc.SettingError):
        ooc.Loader(store.source, "x", "y", residency="device", device_memory=needed - 1, device=device)
    with ooc.Loader(
        store.source, "x", "y", residency="device", device_memory=needed, device=device
    ) as loader:
        assert ids_of(loader) == list(range(20_000))


@pytest.mark.usefixtures("tf")
def test_auto_keeps_what_fits_in_half_the_budget(make_store: Callable[..., Numbered]) -> None:
    store = make_store("h5", label_dtype="uint8", rows=250)
    for memory, kept in (("100MiB", True), (None, False)):
        with ooc.Loader(store.source, "x", "y", device="/CPU:1", device_memory=memory) as loader:
            list(loader)
            list(loader)
            assert loader.counters is not None
            assert (loader.counters.read_bytes == 0) is kept
    # On the host it streams.
    with ooc.Loader(store.source, "x", "y", device_memory="100MiB") as loader:
        list(loader)
        list(loader)
        assert loader.counters is not None
        assert loader.counters.read_bytes > 0


@pytest.mark.usefixtures("tf")
def test_a_host_that_is_full(make_store: Callable[..., Numbered], monkeypatch: pytest.MonkeyPatch) -> None:
    with ooc.Loader(make_store("h5").source, "x", "y", residency="device") as loader:
        # Full by the time that rows are to be kept.
        monkeypatch.setattr(assembly, "available_host_memory", lambda: 1000)
        with pytest.raises(ooc.SettingError, match="and 1000 bytes of memory are free; use residency="):
            list(loader)
