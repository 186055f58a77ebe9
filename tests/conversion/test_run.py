"""Whole conversions: values, formats, memory, failures, interruptions."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from numbered import rows_array
from oocloader.conversion import convert
from oocloader.conversion.publish import remove
from oocloader.errors import DataError, SettingError, StoreError, UnsupportedArrayError
from oocloader.stores import open_store
from stored import bits, files_of, reference, same_bits

CODECS = ("none", "zstd", "gzip:1", "lz4", "blosc")
DTYPES = ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16")


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_codec_keeps_its_bits(tmp_path: Path, suffix: str, codec: str, dtype: str) -> None:
    expected = bits((103, 5, 3), dtype)
    np.save(tmp_path / "x.npy", expected)
    report = convert(tmp_path / "x.npy", tmp_path / f"out{suffix}", codec=codec, chunk_rows=10)
    assert same_bits(reference(tmp_path / f"out{suffix}"), expected)
    with open_store(tmp_path / f"out{suffix}") as store:
        info = store.arrays[store.only_array()]
        assert info.reader == "direct"
        assert info.chunk_shape == (10, 5, 3)
    assert (report.rows, report.bytes_in) == (103, expected.nbytes)
    assert sorted(os.listdir(tmp_path)) == [f"out{suffix}", "x.npy"]


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@settings(max_examples=60)
@given(
    data=st.data(),
    shape=hnp.array_shapes(min_dims=1, max_dims=5, max_side=40).filter(lambda shape: np.prod(shape) < 50_000),
    dtype=st.sampled_from(DTYPES),
    codec=st.sampled_from(CODECS),
    order=st.sampled_from("CF"),
)
def test_any_shape_and_chunk(
    tmp_path_factory: pytest.TempPathFactory,
    suffix: str,
    data: st.DataObject,
    shape: tuple[int, ...],
    dtype: str,
    codec: str,
    order: Any,
) -> None:
    folder = tmp_path_factory.mktemp("any")
    chunk_rows = data.draw(st.none() | st.integers(1, shape[0] + 3))
    swapped = data.draw(st.booleans())
    expected = bits(shape, dtype)
    source = np.asarray(expected, np.dtype(dtype).newbyteorder(">" if swapped else "<"), order=order)
    np.save(folder / "x.npy", source)
    convert(folder / "x.npy", folder / f"out{suffix}", codec=codec, chunk_rows=chunk_rows)
    assert same_bits(reference(folder / f"out{suffix}"), expected)


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((3, 56, 64, 256), "u1"), ((1, 50_000), "f4"), ((50_000, 1), "f4"), ((50_000,), "i8")],
)
def test_default_chunks_of_thin_arrays(
    tmp_path: Path, suffix: str, shape: tuple[int, ...], dtype: str
) -> None:
    expected = (np.arange(np.prod(shape)) % 251).reshape(shape).astype(dtype)
    convert(expected, tmp_path / f"out{suffix}")
    assert same_bits(reference(tmp_path / f"out{suffix}"), expected)
    with open_store(tmp_path / f"out{suffix}") as store:
        chunk_shape = store.arrays[store.only_array()].chunk_shape
    assert chunk_shape is not None
    assert all(c <= n for c, n in zip(chunk_shape, shape, strict=True))


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_many_pieces_and_threads(tmp_path: Path, suffix: str, codec: str) -> None:
    expected = rows_array(40_000, "uint8", sample_shape=(32, 32))
    report = convert({"x": expected}, tmp_path / f"out{suffix}", codec=codec)
    assert same_bits(reference(tmp_path / f"out{suffix}", "x"), expected)
    assert report.bytes_in == expected.nbytes
    assert report.ratio == pytest.approx(1.0, rel=0.01) if codec == "none" else report.ratio > 2


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_several_arrays_keep_their_names_and_order(tmp_path: Path, suffix: str) -> None:
    y, x, deep = np.arange(70), rows_array(70, "int16"), np.linspace(0, 1, 70, dtype="f4")
    np.save(tmp_path / "labels.npy", y)
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["images/raw"] = x
    source = {"y": tmp_path / "labels.npy", "x": f"{tmp_path}/in.h5::images/raw", "more/deep": deep}
    report = convert(source, tmp_path / f"out{suffix}", codec="zstd", chunk_rows=16)
    assert report.arrays == ("y", "x", "more/deep")
    with open_store(tmp_path / f"out{suffix}") as store:
        assert sorted(store.arrays) == ["more/deep", "x", "y"]
    for name, expected in (("x", x), ("y", y), ("more/deep", deep)):
        assert same_bits(reference(tmp_path / f"out{suffix}", name), expected)
    if suffix == ".h5":
        with h5py.File(tmp_path / "out.h5") as file:
            assert list(file) == ["y", "x", "more"]


@pytest.mark.parametrize("source", [".h5", ".zarr"])
@pytest.mark.parametrize("destination", [".h5", ".zarr"])
def test_from_store_to_store(tmp_path: Path, source: str, destination: str) -> None:
    x, y = rows_array(1000, "float32"), np.arange(1000)
    convert({"x": x, "y": y}, tmp_path / f"in{source}", codec="gzip", chunk_rows=64)
    convert(tmp_path / f"in{source}", tmp_path / f"out{destination}", codec="lz4", chunk_rows=100)
    assert same_bits(reference(tmp_path / f"out{destination}", "x"), x)
    assert same_bits(reference(tmp_path / f"out{destination}", "y"), y)


def test_existing_destination(tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", rows_array(40, "float32", sample_shape=(4,)))
    old = zarr.create_array(tmp_path / "out.zarr", shape=(500, 9), chunks=(10, 9), dtype="i8")
    old[:] = 7
    with pytest.raises(StoreError, match=r"out\.zarr: exists already.*overwrite"):
        convert(tmp_path / "in.npy", tmp_path / "out.zarr")
    assert (reference(tmp_path / "out.zarr") == np.full((500, 9), 7)).all()
    convert(tmp_path / "in.npy", tmp_path / "out.zarr", overwrite=True)
    assert same_bits(reference(tmp_path / "out.zarr"), np.load(tmp_path / "in.npy"))
    assert files_of(tmp_path / "out.zarr") == [".oocloader-manifest", "c.0.0", "zarr.json"]
    assert sorted(os.listdir(tmp_path)) == ["in.npy", "out.zarr"]


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_a_store_may_replace_itself(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    x = rows_array(500, "int32")
    convert({"x": x}, path, codec="gzip", chunk_rows=7)
    convert(path, path, overwrite=True)
    assert same_bits(reference(path, "x"), x)


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_new_stores_follow_the_umask(tmp_path: Path, suffix: str) -> None:
    before = os.umask(0o027)
    try:
        convert(np.arange(10), tmp_path / f"out{suffix}")
    finally:
        os.umask(before)
    path = tmp_path / f"out{suffix}"
    files = [path] if path.is_file() else [path / name for name in files_of(path)]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o640}


def _objects(tmp_path: Path) -> Any:
    class Evil:
        def __reduce__(self) -> Any:
            return open, (str(tmp_path / "pwned"), "w")

    np.save(tmp_path / "in.npy", np.array([[1, 2], Evil(), None], dtype=object), allow_pickle=True)
    return tmp_path / "in.npy"


def _datetimes(tmp_path: Path) -> Any:
    np.save(tmp_path / "in.npy", (np.datetime64("2020-01-01", "ns") + np.arange(100)).reshape(50, 2))
    return tmp_path / "in.npy"


def _strings(tmp_path: Path) -> Any:
    np.save(tmp_path / "in.npy", np.array(["кошка", "dog", "poisson-lune", ""] * 10))
    return tmp_path / "in.npy"


def _scalar(tmp_path: Path) -> Any:
    np.save(tmp_path / "in.npy", np.float32(3.5))
    return tmp_path / "in.npy"


def _empty(tmp_path: Path) -> Any:
    np.save(tmp_path / "in.npy", np.zeros((0, 4)))
    return tmp_path / "in.npy"


def _empty_rows(tmp_path: Path) -> Any:
    return {"x": np.zeros((4, 0)), "y": np.arange(4)}


def _compound(tmp_path: Path) -> Any:
    np.save(tmp_path / "in.npy", np.zeros(3, [("left", "f4"), ("right", "i4")]))
    return tmp_path / "in.npy"


def _unequal(tmp_path: Path) -> Any:
    return {"x": np.zeros((1000, 5)), "y": np.arange(999)}


def _missing(tmp_path: Path) -> Any:
    return tmp_path / "in.npy"


def _unknown_name(tmp_path: Path) -> Any:
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["images"] = np.arange(3)
    return f"{tmp_path}/in.h5::image"


def _mixed_store(tmp_path: Path) -> Any:
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["mean"] = np.float32(1)
        file["x"] = np.arange(3)
    return tmp_path / "in.h5"


def _folder(tmp_path: Path) -> Any:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.parametrize(
    ("prepare", "kind", "words"),
    [
        (_objects, UnsupportedArrayError, ("in.npy", "object")),
        (_datetimes, UnsupportedArrayError, ("in.npy", "datetime64[ns]")),
        (_strings, UnsupportedArrayError, ("in.npy", "<U12")),
        (_scalar, UnsupportedArrayError, ("in.npy", "0-d")),
        (_empty, UnsupportedArrayError, ("in.npy", "empty", "(0, 4)")),
        (_empty_rows, UnsupportedArrayError, ("empty", "(4, 0)")),
        (_compound, UnsupportedArrayError, ("in.npy", "compound", "left, right")),
        (_unequal, DataError, ("'x' has 1000", "'y' has 999")),
        (_missing, StoreError, ("in.npy",)),
        (_unknown_name, KeyError, ("in.h5", "'image'", "'images'")),
        (_mixed_store, UnsupportedArrayError, ("in.h5", "'mean'", "0-d")),
        (_folder, StoreError, ("in: ",)),
    ],
)
def test_bad_sources_are_refused_before_anything_is_written(
    tmp_path: Path, prepare: Any, kind: type[Exception], words: tuple[str, ...], suffix: str
) -> None:
    source = prepare(tmp_path)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(kind) as caught:
        convert(source, tmp_path / f"out{suffix}")
    assert all(word in str(caught.value) for word in words)
    assert "\n" not in str(caught.value)
    assert sorted(os.listdir(tmp_path)) == before


def test_destination_must_be_a_path() -> None:
    with pytest.raises(SettingError, match="destination: expected a path, got 3"):
        convert(np.arange(10), 3)  # type: ignore[arg-type] # that is what is tested


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_unwritable_destination(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(StoreError, match=r"/proc/out.*cannot be written"):
        convert(np.arange(10), f"/proc/out{suffix}")
    with pytest.raises(StoreError, match="does not exist; create it first"):
        convert(np.arange(10), tmp_path / "nowhere" / f"out{suffix}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB, where the process may mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True, check=False
    )
    if made.returncode != 0:
        pytest.skip("this user may not mount a file system")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_full_disk(small_disk: Path, suffix: str, codec: str) -> None:
    with pytest.raises(StoreError, match=rf"out\{suffix}: no space"):
        convert(bits((3000, 8000), "u1"), small_disk / f"out{suffix}", codec=codec)
    assert os.listdir(small_disk) == []
    convert(np.arange(1000), small_disk / f"out{suffix}", codec=codec)
    assert same_bits(reference(small_disk / f"out{suffix}"), np.arange(1000))


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_two_conversions_to_one_destination(tmp_path: Path, suffix: str) -> None:
    # Often, as threads that met inside HDF5 ended the process only now and then.
    for attempt in range(20):
        _convert_at_once(tmp_path / f"out{attempt}{suffix}")
    assert sorted(os.listdir(tmp_path)) == sorted(f"out{attempt}{suffix}" for attempt in range(20))


def _convert_at_once(destination: Path) -> None:
    sources = [np.full((200, 100), number) for number in range(4)]
    won: list[int] = []
    lost: list[str] = []

    def run_one(number: int) -> None:
        try:
            convert(sources[number], destination)
            won.append(number)
        except Exception as error:
            lost.append(str(error))

    threads = [threading.Thread(target=run_one, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1, lost
    ways = ("another conversion is writing it", "someone else made it", "exists already")
    assert all(any(way in why for way in ways) for why in lost), lost
    assert same_bits(reference(destination), sources[won[0]])


_PEAK = """
    import resource, sys
    import h5py, imagecodecs, tqdm, zarr
    from oocloader.conversion import convert
    import oocloader.conversion.hdf5_writer, oocloader.conversion.zarr_writer
    import oocloader.stores.hdf5.store, oocloader.stores.zarr.store
    def peak():
        lines = open("/proc/self/status").read().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) >> 10
    before = peak()
    convert(sys.argv[1], sys.argv[2], codec=sys.argv[3])
    print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "codec"), [(".h5", "none"), (".zarr", "zstd")])
def test_memory_stays_small(tmp_path: Path, suffix: str, codec: str) -> None:
    # 2 GiB of zeros that take no room on the disk, and a 9 at the end.
    source = np.lib.format.open_memmap(tmp_path / "big.npy", mode="w+", dtype="f4", shape=(8192, 256, 256))
    source[-1, -1, -1] = 9
    source.flush()
    del source
    command: list[str | Path] = [
        sys.executable,
        "-c",
        textwrap.dedent(_PEAK),
        tmp_path / "big.npy",
        tmp_path / f"out{suffix}",
        codec,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 200
    with open_store(tmp_path / f"out{suffix}") as store:
        rows = store[store.only_array()].read(8190, 8192)
    assert rows.sum() == rows[-1, -1, -1] == 9
    remove(str(tmp_path / f"out{suffix}"))  # pytest keeps the folder


_INTERRUPTED = """
    import sys, threading
    import numpy as np
    from oocloader.conversion import convert
    from oocloader.conversion import run, write
    stage = sys.argv[2]
    module = write if stage == "copy_array" else run
    real = getattr(module, stage)
    def reached(*args, **options):
        threading.Timer(0.2, lambda: print("now", flush=True)).start()
        if stage != "copy_array":
            import time
            time.sleep(60)
        return real(*args, **options)
    setattr(module, stage, reached)
    source = np.random.default_rng(0).integers(0, 4, (4000, 100_000), dtype=np.uint8)
    try:
        convert({"x": source}, sys.argv[1], codec="gzip:9", chunk_rows=1, overwrite=True)
    except KeyboardInterrupt:
        ours = [thread.name for thread in threading.enumerate() if thread.name.startswith("oocloader")]
        print("interrupted", ours, flush=True)
"""


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.parametrize("stage", ["copy_array", "check_store", "sync"])
def test_interruption_leaves_nothing_of_arrays_in_memory(tmp_path: Path, suffix: str, stage: str) -> None:
    destination = tmp_path / f"out{suffix}"
    convert({"x": np.arange(5)}, destination)
    code = textwrap.dedent(_INTERRUPTED)
    if stage != "copy_array":
        code = code.replace("4000", "40")
    process = subprocess.Popen(
        [sys.executable, "-c", code, destination, stage],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "now\n"
    assert len(os.listdir(tmp_path)) == 2
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert time.monotonic() - started < 2
    assert (out, err, process.returncode) == ("interrupted []\n", "", 0)
    assert os.listdir(tmp_path) == [destination.name]
    assert np.array_equal(reference(destination, "x"), np.arange(5))
