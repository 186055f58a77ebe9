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
from oocloader.loader.plan import MemoryPlan
from oocloader.pipeline import Residency
from oocloader.pipeline import residency as residency
from recorded import device_of, eventually, finished, ids_of, our_threads, started, storage_bytes

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
@pytest.mark.parametrize(
    "dtype",
    [
        *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    ],
)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kept", ["stream", "device"])
def test_every_dtype_to_the_bit(dtype: str, device: str, kept: Residency) -> None:
    """Some travel as bytes of another type, where NaN payloads and negative zeros must survive."""
    rng = np.random.default_rng(0)
    kind = np.dtype(dtype)
    raw = rng.integers(0, 256, 90 * 3 * kind.itemsize, np.uint8)
    x = (raw % 2).astype(bool).reshape(90, 3) if dtype == "bool" else raw.view(kind).reshape(90, 3)
    with ooc.Loader(x, batch_size=16, device=device, residency=kept, shuffle=True) as loader:
        for _ in range(2):
            seen = list(loader)
            assert {device_of(rows) for rows in seen} == {device}
            assert {rows.dtype.as_numpy_dtype for rows in seen} == {kind.type}
            found = sorted(row.tobytes() for rows in seen for row in rows.numpy())
            assert found == sorted(row.tobytes() for row in x)


@pytest.mark.usefixtures("tf")
@pytest.mark.parametrize("device", DEVICES)
def test_every_batch_lies_on_the_device_as_the_element_says(tf: Any, device: str) -> None:
    arrays = {"x": rows_array(100, "float32"), "y": np.arange(100), "w": np.linspace(0, 1, 100)}
    with ooc.Loader(
        arrays,
        {"image": "x"},
        "y",
        sample_weight="w",
        device=device,
        residency="device",
        scale={"image": 0.5},
        transform=lambda x, y, w: ({"image": x["image"] + 1.0}, y, w),
        drop_remainder=True,
    ) as loader:
        elements = list(loader.dataset())
        for number, element in enumerate(elements):
            for tensor, spec in zip(
                tf.nest.flatten(element), tf.nest.flatten(loader.element_spec), strict=True
            ):
                assert device_of(tensor) == device
                assert spec.is_compatible_with(tensor)
            x, y, w = element
            np.testing.assert_array_equal(y, np.arange(100)[32 * number :][:32])
            np.testing.assert_array_equal(x["image"], arrays["x"][32 * number :][:32] * 0.5 + 1)
            np.testing.assert_array_equal(w, arrays["w"][32 * number :][:32])


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
@pytest.mark.parametrize("kept", ["stream", "device"])
def test_what_crosses_to_the_device_is_the_stored_size(
    make_store: Callable[..., Numbered], kept: Residency
) -> None:
    """Whatever is made of it there."""
    store = make_store("h5", label_dtype="int16")
    with ooc.Loader(
        store.source,
        "x",
        "y",
        device="/CPU:1",
        residency=kept,
        dtype="float64",
        scale=1 / 255,
        class_weight="balanced",
        transform=lambda x, y, w: (x * 2, y, w),
    ) as loader:
        assert [x.dtype.name for x, _, _ in loader][:1] == ["float64"]
        assert loader.counters is not None
        stored = ROWS * (16 + 2)
        # Kept, the number of each row crosses besides.
        assert loader.counters.sent_bytes == stored + (8 * ROWS if kept == "device" else 0)
        list(loader)
        assert loader.counters.sent_bytes == (8 * ROWS if kept == "device" else stored)


@pytest.mark.usefixtures("tf")
def test_rows_kept_on_the_device_are_not_kept_in_memory_besides(
    make_store: Callable[..., Numbered], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(nbytes: int) -> np.ndarray:
        raise AssertionError(f"{nbytes} bytes were taken on the host")

    store = make_store("h5")
    options: dict[str, Any] = {"cache": "memory", "shuffle": True, "device": "/CPU:1"}
    with ooc.Loader(store.source, "x", "y", window=500, **options) as streamed:
        plan = streamed.plan()
        assert {"rows kept for later passes": ROWS * 24}.items() <= _parts(plan.host).items()
        next(iter(streamed))
        state = streamed.state_dict()
    monkeypatch.setattr("oocloader.pipeline.row_storage.allocate", refuse)
    with ooc.Loader(store.source, "x", "y", device_memory="1GiB", **options) as loader:
        plan = loader.plan()
        assert _parts(plan.device_memory)["rows"] == ROWS * 24
        assert _parts(plan.host)["rows kept for later passes"] == 0
        assert loader.element_spec  # whoever reads is decided on now
        loader.load_state_dict(state)
        assert len(ids_of(loader)) == ROWS - 32
        assert sorted(ids_of(loader)) == list(range(ROWS))


def _parts(memory: MemoryPlan) -> dict[str, int]:
    return {part.name: part.nbytes for part in memory.parts}


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


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_memory_is_that_of_the_rows_and_goes_with_the_loader(tmp_path: Path, device: str) -> None:
    """256 MiB of rows, sparse on the disk: never twice in memory, neither on the host nor on the device."""
    path = tmp_path / "x.npy"
    np.lib.format.open_memmap(path, mode="w+", dtype="u1", shape=(1 << 14, 1 << 14)).flush()
    program = started(
        """
        def now(field):
            with open("/proc/self/status") as status:
                return next(int(line.split()[1]) for line in status if line.startswith(field)) // 1024

        with ooc.Loader(np.zeros((100, 4), "u1"), residency="device", device=sys.argv[2]) as warm:
            list(warm), list(warm)
        before = now("VmRSS")
        peaks, held, left = [], [], []
        for _ in range(4):
            loader = ooc.Loader(sys.argv[1], residency="device", device=sys.argv[2], shuffle=True,
                                threads=1, mmap=False, window="8MiB", host_memory="64MiB")
            for _ in range(2):
                assert sum(int(x.shape[0]) for x in loader) == 1 << 14
            peaks.append(now("VmHWM") - before)
            held.append(now("VmRSS") - before)
            loader.close()
            left.append(now("VmRSS") - before)
        print(peaks[0], held[0], left[0], held[3] - held[1])
        """,
        path,
        device,
    )
    code, out, err = finished(program)
    assert code == 0, err
    peak, held, left, growth = map(int, out.split())
    assert held >= 250
    assert peak < 256 + 130
    assert growth < 50
    # TensorFlow keeps memory that was freed for what it allocates next.
    assert left < 130 or device == "/CPU:1"


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
