"""All rows read once and held on the device: the same batches as when they are streamed."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import oocloader as ooc
from numbered import Numbered, numbers_of, rows_array
from oocloader.pipeline import residency as residency
from recorded import eventually, ids_of, our_threads, storage_bytes

ROWS = 1000


DEVICES = ("/CPU:0", "/CPU:1")


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert eventually(lambda: not our_threads())


OPTIONS: list[dict[str, Any]] = [
    {},
    {"shuffle": True},
    {"shuffle": True, "batch_size": 7, "drop_remainder": True},
    {"shuffle": True, "batch_size": 300, "window": 64, "block": 5},
    {"rows": slice(100, 777), "shuffle": True},
    {"rows": np.arange(0, ROWS, 3), "batch_size": 50},
    {"rows": np.r_[np.arange(5, 300), np.arange(500, 999, 2)], "shuffle": True, "window": 100},
]


def batches_of(loader: Any) -> list[list[int]]:
    return [ids_of([element]) for element in loader]


@pytest.mark.usefixtures("tf")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", OPTIONS, ids=[str(number) for number in range(len(OPTIONS))])
def test_the_same_batches_as_streamed(any_store: Numbered, device: str, options: dict[str, Any]) -> None:
    merged = {"seed": 7, "window": 200, "block": 10, "batch_size": 90, "device": device, **options}
    with ooc.Loader(any_store.source, "x", "y", residency="stream", **merged) as loader:
        expected = [batches_of(loader) for _ in range(3)]
    with ooc.Loader(any_store.source, "x", "y", residency="device", **merged) as loader:
        assert [batches_of(loader) for _ in range(2)] == expected[:2]
        # Two at a time, and a host pipeline.
        loader.epoch = 0
        first, second = iter(loader.dataset()), iter(loader.dataset())
        pairs = [(ids_of([next(first)]), ids_of([next(second)])) for _ in range(len(loader))]
        assert [list(side) for side in zip(*pairs, strict=True)] == expected[:2]
        assert batches_of(loader.dataset().map(lambda x, y: (x, y))) == expected[2]


@pytest.mark.usefixtures("tf")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("kind", ["npy", "h5", "zarr"])
def test_later_passes_read_nothing(
    make_store: Callable[..., Numbered], kind: Any, shuffle: bool, device: str
) -> None:
    rows = 4000
    store = make_store(kind, rows)
    with ooc.Loader(
        store.source, "x", "y", batch_size=100, shuffle=shuffle, device=device, residency="device", mmap=False
    ) as loader:
        before = storage_bytes()
        assert sorted(ids_of(loader)) == list(range(rows))
        first = loader.counters
        assert first is not None
        if kind == "zarr":
            # Compressed: every chunk once.
            assert first.chunks_decoded == -(-rows // 64) + rows // 100
        else:
            # Every byte once: 16 a row of features, 8 a row of labels.
            assert first.read_bytes == rows * 24
        assert storage_bytes() - before >= first.read_bytes > 0
        assert first.wait_s > 0
        for _ in range(2):
            before = storage_bytes()
            assert sorted(ids_of(loader)) == list(range(rows))
            again = loader.counters
            assert again is not None
            assert (again.read_bytes, again.read_calls, again.chunks_decoded) == (0, 0, 0)
            assert again.mapped_bytes == 0
            assert storage_bytes() - before < 5000


@pytest.mark.usefixtures("tf")
def test_nothing_crosses_where_the_host_is_the_device(make_store: Callable[..., Numbered]) -> None:
    with ooc.Loader(make_store("h5").source, "x", "y", residency="device") as loader:
        ids_of(loader)
        assert loader.counters is not None
        assert loader.counters.sent_bytes == 0


@pytest.mark.usefixtures("tf")
def test_arrays_in_memory_are_not_copied_to_be_kept() -> None:
    x = rows_array(5000)
    with ooc.Loader(x, residency="device", shuffle=True) as loader:
        x[:] = rows_array(range(10_000, 15_000))
        assert sorted(number for rows in loader for number in numbers_of(rows)) == list(range(10_000, 15_000))
        assert loader.counters is not None
        assert loader.counters.copied_bytes == 5000 * 16
    assert x.flags.writeable


@pytest.mark.usefixtures("tf")
@pytest.mark.parametrize("device", DEVICES)
def test_nothing_is_kept_before_the_first_batch(make_store: Callable[..., Numbered], device: str) -> None:
    store = make_store("h5", 20_000)
    with ooc.Loader(store.source, "x", "y", device=device, residency="device", mmap=False) as loader:
        before = storage_bytes()
        batches = iter(loader.dataset())
        assert storage_bytes() - before < 10_000
        assert our_threads() == []
        next(batches)
        assert storage_bytes() - before >= 20_000 * 24
        # All of it, with the first batch: no thread reads on.
        assert loader.counters is not None
        assert loader.counters.read_bytes == 20_000 * 24


@pytest.mark.usefixtures("tf")
def test_kept_twice(make_store: Callable[..., Numbered]) -> None:
    with pytest.raises(ooc.SettingError, match="keeps what residency='device' keeps already"):
        ooc.Loader(make_store("h5").source, "x", residency="device", cache="memory")


@pytest.mark.usefixtures("tf")
@pytest.mark.parametrize("device", DEVICES)
def test_a_chunk_that_is_damaged_is_told_and_the_next_try_reads_again(tmp_path: Path, device: str) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=rows_array(1000), chunks=(100, 4, 4), fletcher32=True)
        place = file["x"].id.get_chunk_info(7).byte_offset
    good = path.read_bytes()
    path.write_bytes(good[: place + 5] + bytes([good[place + 5] ^ 1]) + good[place + 6 :])
    with ooc.Loader(path, residency="device", device=device) as loader:
        for _ in range(2):
            with pytest.raises(ooc.CorruptChunkError, match=r"chunk \(7, 0, 0\), rows 700 to 799"):
                next(iter(loader))
    assert eventually(lambda: not our_threads())


@pytest.mark.usefixtures("tf")
@pytest.mark.parametrize("device", DEVICES)
def test_closed_while_rows_are_read(
    make_store: Callable[..., Numbered], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The half that is there is not taken for all."""
    monkeypatch.setattr(residency, "LOAD_NBYTES", 24 * 64)
    loader = ooc.Loader(make_store("h5", 5000).source, "x", "y", residency="device", device=device)
    put = threading.Event()
    raised: list[BaseException] = []
    from oocloader.pipeline.resident_rows import HostRows
    from oocloader.tfdata.device_rows import DeviceRows

    def stop(self: Any, first: int, arrays: Any) -> None:
        put.set()
        closing.join(10)

    for kind in (DeviceRows, HostRows):
        monkeypatch.setattr(kind, "put", stop)

    def close() -> None:
        put.wait(10)
        loader.close()

    closing = threading.Thread(target=close)

    def take() -> None:
        try:
            next(iter(loader))
        except BaseException as error:
            raised.append(error)

    taking = threading.Thread(target=take)
    # It is waited for by the other, so it runs first.
    closing.start()
    taking.start()
    taking.join(20)
    assert [type(error) for error in raised] == [ooc.ClosedError]


@pytest.mark.usefixtures("tf")
def test_closed_in_the_middle_of_a_pass(make_store: Callable[..., Numbered]) -> None:
    loader = ooc.Loader(make_store("h5").source, "x", "y", residency="device", device="/CPU:1")
    batches = iter(loader)
    next(batches)
    loader.close()
    with pytest.raises(ooc.ClosedError):
        next(batches)
    with pytest.raises(ooc.ClosedError):
        iter(loader)


@pytest.mark.usefixtures("tf")
@pytest.mark.parametrize("device", DEVICES)
def test_a_consumer_that_writes_hurts_nobody(tf: Any, device: str) -> None:
    """TensorFlow writes results over operands that nobody else holds; what is kept is held."""
    x = rows_array(4000, "float32")
    with ooc.Loader(x, batch_size=100, window=400, device=device, residency="device") as loader:

        @tf.function  # type: ignore[untyped-decorator]  # tensorflow has no type information
        def doubled(rows: Any) -> Any:
            rows *= 2.0
            return rows

        for _ in range(3):
            for number, rows in enumerate(loader):
                np.testing.assert_array_equal(rows, rows_array(range(100 * number, 100 * number + 100), "f4"))
                rows *= 3.0
                doubled(rows)
    np.testing.assert_array_equal(x, rows_array(4000, "float32"))


@pytest.mark.usefixtures("tf")
def test_many_loaders_leave_nothing(make_store: Callable[..., Numbered]) -> None:
    from oocloader.tfdata.device_rows import DeviceRows

    store = make_store("h5")
    for _ in range(5):
        with ooc.Loader(store.source, "x", "y", device="/CPU:1", residency="device") as loader:
            next(iter(loader))
    del loader
    gc.collect()
    assert not [thing for thing in gc.get_objects() if isinstance(thing, DeviceRows)]
