"""Conversions that are broken off: killed, interrupted, without room, with another source; and going on."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from numbered import rows_array
from oocloader.conversion import convert, copying, hdf5_writer, journal, publish, read_back, run, store_plan
from oocloader.conversion.journal import FinishedPiece, Journal
from oocloader.conversion.publish import size_of
from oocloader.conversion.verification import verify
from oocloader.conversion.workspace import workspace_folder
from oocloader.errors import ChangedError, OocloaderError, SettingError, StoreError
from oocloader.stores import open_store

# Three here; all thirty with OOCLOADER_KILLS=30.
KILLS = int(os.environ.get("OOCLOADER_KILLS", "3"))
ROWS = 598
# Of x, rows are of 8 KiB, chunks of 5 rows, pieces of 3 chunks, shards of 4: forty pieces, the last of
# them not full. Of y, rows are of 2 KiB: ten pieces of 12 chunks.
CHUNK_ROWS = 5
X_ROW, Y_ROW = 8 << 10, 2 << 10
PIECE_NBYTES = 3 * CHUNK_ROWS * X_ROW
X_PIECES, Y_PIECES = 40, 10


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_plan, "_PIECE_NBYTES", PIECE_NBYTES)


@pytest.fixture
def source(tmp_path: Path) -> dict[str, Path]:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 50, (ROWS, 64, 32), dtype=np.uint32).astype("f4")
    x[:, 0, 0] = np.arange(len(x))
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", np.arange(ROWS * 256).reshape(ROWS, 256))
    return {"x": tmp_path / "x.npy", "y": tmp_path / "y.npy"}


def assert_same(destination: Path, source: dict[str, Path]) -> None:
    """By other libraries, as far as they can, and by the manifest."""
    for name, path in source.items():
        expected = np.load(path)
        with open_store(destination) as store:
            assert store[name].read(0, len(expected)).tobytes() == expected.tobytes()
        if destination.suffix == ".zarr":
            root: Any = zarr.open_group(destination, mode="r")
            assert root[name][:].tobytes() == expected.tobytes()
        else:
            with h5py.File(destination) as file:
                assert (file[name].shape, file[name].dtype) == (expected.shape, expected.dtype)
                if file[name].id.get_create_plist().get_nfilters() == 0:
                    assert file[name][:].tobytes() == expected.tobytes()
    assert verify(destination).ok


class Broken(Exception):
    """What a test breaks a conversion off with."""


def break_off(monkeypatch: pytest.MonkeyPatch, pieces: int, error: BaseException | None = None) -> list[int]:
    """Have the conversion fail once so many pieces are in the journal; the pieces read are listed."""
    read: list[int] = []
    real_read, real_add = copying._PieceBuffer.read, Journal.add

    def counted(self: Any, source: Any, number: int) -> None:
        read.append(number)
        real_read(self, source, number)

    def add(self: Journal, finished: FinishedPiece) -> None:
        if self.pieces == pieces:
            raise Broken if error is None else error
        real_add(self, finished)

    monkeypatch.setattr(copying._PieceBuffer, "read", counted)
    monkeypatch.setattr(Journal, "add", add)
    return read


def rows_done(pieces: int) -> tuple[int, int]:
    """Rows of x and of y in so many pieces."""
    return min(15 * pieces, ROWS), min(60 * max(0, pieces - X_PIECES), ROWS)


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.parametrize(
    ("codec", "checksum", "pieces"),
    [
        *(("none", False, pieces) for pieces in (1, 7, 39, 40, 43, 49)),
        *(("zstd", False, pieces) for pieces in (7, 43)),
        ("none", True, 22),
        ("zstd", True, 41),
    ],
)
def test_going_on(
    tmp_path: Path,
    source: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    suffix: str,
    codec: str,
    pieces: int,
    checksum: bool,
) -> None:
    destination = tmp_path / f"out{suffix}"
    options: Any = {"codec": codec, "chunk_rows": CHUNK_ROWS, "checksum": checksum}
    with monkeypatch.context() as patched:
        break_off(patched, pieces)
        with pytest.raises(Broken) as caught:
            convert(source, destination, **options)
    work = Path(workspace_folder(str(destination)))
    (note,) = caught.value.__notes__
    assert note == (
        f"{pieces} of 50 pieces are finished and kept in {work}: the same command with --resume"
        " (resume=True) goes on from there"
    )
    assert sorted(os.listdir(tmp_path)) == [work.name, "x.npy", "y.npy"]
    with monkeypatch.context() as patched:
        read = break_off(patched, -1)
        report = convert(source, destination, resume=True, **options)
    assert len(read) == X_PIECES + Y_PIECES - pieces
    x_rows, y_rows = rows_done(pieces)
    assert report.bytes_resumed == x_rows * X_ROW + y_rows * Y_ROW
    assert_same(destination, source)
    assert sorted(os.listdir(tmp_path)) == sorted([destination.name, "x.npy", "y.npy"])


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_going_on_again_and_again(
    tmp_path: Path, source: dict[str, Path], monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    destination = tmp_path / f"out{suffix}"
    for pieces in (3, 4, 20, 41):
        with monkeypatch.context() as patched:
            break_off(patched, pieces)
            with pytest.raises(Broken):
                convert(source, destination, codec="blosc", chunk_rows=CHUNK_ROWS, resume=True)
    report = convert(source, destination, codec="blosc", chunk_rows=CHUNK_ROWS, resume=True)
    assert report.bytes_resumed == ROWS * X_ROW + 60 * Y_ROW
    assert_same(destination, source)


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.parametrize("stage", ["check_store", "write_manifests", "sync", "publish"])
def test_broken_off_when_all_is_written(
    tmp_path: Path, source: dict[str, Path], monkeypatch: pytest.MonkeyPatch, suffix: str, stage: str
) -> None:
    destination = tmp_path / f"out{suffix}"

    def fail(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(run, stage, fail)
        with pytest.raises(KeyboardInterrupt) as caught:
            convert(source, destination, chunk_rows=CHUNK_ROWS)
    assert "50 of 50 pieces" in caught.value.__notes__[0]
    read = break_off(monkeypatch, -1)
    report = convert(source, destination, chunk_rows=CHUNK_ROWS, resume=True)
    assert read == []
    assert report.bytes_resumed == report.bytes_in
    assert_same(destination, source)
    assert sorted(os.listdir(tmp_path)) == sorted([destination.name, "x.npy", "y.npy"])


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_killed_between_rename_and_cleaning_up(
    tmp_path: Path, source: dict[str, Path], monkeypatch: pytest.MonkeyPatch, suffix: str, overwrite: bool
) -> None:
    destination = tmp_path / f"out{suffix}"
    if overwrite:
        convert({"x": np.arange(5)}, destination)
    real = publish.publish
    left = tmp_path / "left"

    def copied(path: str, *args: Any, **options: Any) -> None:
        # What a kill behind the rename leaves: the work, and the old store in it where folders are exchanged.
        shutil.copytree(os.path.dirname(path), left)
        shutil.rmtree(left / "store") if (left / "store").is_dir() else (left / "store").unlink()
        if overwrite and destination.is_dir():
            shutil.copytree(destination, left / "store")
        real(path, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(run, "publish", copied)
        convert(source, destination, chunk_rows=CHUNK_ROWS, overwrite=overwrite)
    os.rename(left, workspace_folder(str(destination)))
    read = break_off(monkeypatch, -1)
    report = convert(source, destination, chunk_rows=CHUNK_ROWS, overwrite=overwrite, resume=True)
    assert read == []
    assert report.bytes_resumed == report.bytes_in
    assert_same(destination, source)
    assert sorted(os.listdir(tmp_path)) == sorted([destination.name, "x.npy", "y.npy"])


def test_leftovers_of_a_store_that_was_moved_away_are_not_gone_on_with(
    tmp_path: Path, source: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = tmp_path / "out.zarr"
    real = publish.publish

    def copied(path: str, *args: Any, **options: Any) -> None:
        shutil.copytree(os.path.dirname(path), tmp_path / "left")
        shutil.rmtree(tmp_path / "left" / "store")
        # An old store that the new one took the place of.
        os.rename(tmp_path / "old.zarr", tmp_path / "left" / "store")
        real(path, *args, **options)

    convert(np.zeros((1000, 7)), tmp_path / "old.zarr", chunk_rows=1)
    with monkeypatch.context() as patched:
        patched.setattr(run, "publish", copied)
        convert(source, destination, chunk_rows=CHUNK_ROWS)
    os.rename(destination, tmp_path / "moved.zarr")
    os.rename(tmp_path / "left", workspace_folder(str(destination)))
    assert convert(source, destination, chunk_rows=CHUNK_ROWS, resume=True).bytes_resumed == 0
    assert_same(destination, source)
    assert sorted(os.listdir(destination)) == ["x", "y", "zarr.json"]


def test_resume_of_what_is_complete_or_was_never_begun(tmp_path: Path, source: dict[str, Path]) -> None:
    destination = tmp_path / "out.h5"
    first = convert(source, destination, resume=True)
    assert first.bytes_resumed == 0
    before = destination.stat()
    again = convert(source, destination, resume=True)
    assert again.bytes_resumed == again.bytes_in == first.bytes_in
    assert again.bytes_out == first.bytes_out
    assert destination.stat() == before
    with pytest.raises(StoreError, match="exists already"):
        convert(source, destination, resume=True, codec="zstd")
    with pytest.raises(StoreError, match="exists already"):
        convert(source, destination)


def _touch(source: dict[str, Path]) -> None:
    os.utime(source["x"], ns=(1, 1))


def _grow(source: dict[str, Path]) -> None:
    np.save(source["x"], np.zeros((ROWS + 1, 64, 32), "f4"))
    np.save(source["y"], np.zeros((ROWS + 1, 256), "i8"))


def _other_values(source: dict[str, Path]) -> None:
    x = np.load(source["x"])
    x[-1] = 0
    np.save(source["x"], x)


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (None, {}, "unfinished conversion"),
        (None, {"overwrite": True}, "go on with it by resume=True (--resume)"),
        (None, {"resume": True, "codec": "zstd:3"}, "codec was 'zstd:1' and is 'zstd:3' now"),
        (None, {"resume": True, "codec": "none"}, "codec was 'zstd:1' and is 'none' now"),
        (None, {"resume": True, "chunk_rows": 6}, "chunk_rows was 5 and is 6 now"),
        (None, {"resume": True, "checksum": True}, "checksum was False and is True now"),
        (_touch, {"resume": True}, "x.npy was modified since"),
        (_other_values, {"resume": True}, "x.npy was modified since"),
        (_grow, {"resume": True}, "x.npy had 4898944 bytes and has 4907136 now"),
    ],
)
def test_another_conversion_is_refused(
    tmp_path: Path,
    source: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    suffix: str,
    change: Any,
    options: dict[str, Any],
    words: str,
) -> None:
    destination = tmp_path / f"out{suffix}"
    begun: dict[str, Any] = {"codec": "zstd", "chunk_rows": CHUNK_ROWS}
    with monkeypatch.context() as patched:
        break_off(patched, 5)
        with pytest.raises(Broken):
            convert(source, destination, **begun)
    if change is not None:
        change(source)
    work = workspace_folder(str(destination))
    before = {path: path.stat().st_mtime_ns for path in Path(work).rglob("*")}
    with pytest.raises(StoreError) as caught:
        convert(source, destination, **{**begun, **options})
    line = str(caught.value)
    assert words in line
    assert line.startswith(f"{destination}: an unfinished conversion to it (5 ")
    assert f"rm -r {work}" in line
    assert "\n" not in line
    assert {path: path.stat().st_mtime_ns for path in Path(work).rglob("*")} == before
    assert not destination.exists()


def test_other_sources_and_arrays_are_refused(
    tmp_path: Path, source: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        break_off(patched, 5)
        with pytest.raises(Broken):
            convert(source, tmp_path / "out.h5")
    shutil.copy2(source["x"], tmp_path / "z.npy")
    with pytest.raises(StoreError, match=r"x\.npy was part of the source"):
        convert({"x": tmp_path / "z.npy", "y": source["y"]}, tmp_path / "out.h5", resume=True)
    with pytest.raises(StoreError, match=r"z\.npy was not part of the source"):
        convert({**source, "z": tmp_path / "z.npy"}, tmp_path / "out.h5", resume=True)
    with pytest.raises(StoreError, match=r"arrays were .*'x'.* and are .*'v'.* now"):
        convert({"v": source["x"], "y": source["y"]}, tmp_path / "out.h5", resume=True)
    with pytest.raises(SettingError, match="arrays in memory cannot be told"):
        convert({"x": np.arange(3)}, tmp_path / "out.h5", resume=True)
    with pytest.raises(StoreError, match="an unfinished conversion to it"):
        convert({"x": np.arange(3)}, tmp_path / "out.h5")
    # From another folder, by another way to the same file, it is the same.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.npy").symlink_to("x.npy")
    assert convert({"x": "link.npy", "y": "y.npy"}, "out.h5", resume=True).bytes_resumed > 0


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_after_a_reboot_what_the_disk_lost_is_done_again(
    tmp_path: Path, source: dict[str, Path], monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    destination = tmp_path / f"out{suffix}"
    with monkeypatch.context() as patched:
        break_off(patched, 30)
        with pytest.raises(Broken):
            convert(source, destination, chunk_rows=CHUNK_ROWS)
    store = Path(workspace_folder(str(destination))) / "store"
    # Piece 20 is zero: rows 300 to 314; of Zarr, shard 15 begins with row 300.
    path = store if store.is_file() else store / "x" / "c.15.0.0"
    content = path.read_bytes()
    row = np.load(source["x"])[302].tobytes()
    path.write_bytes(content.replace(row, bytes(len(row))))
    assert path.read_bytes() != content
    for file in store.rglob("zarr.json"):
        file.write_bytes(b"")
    monkeypatch.setattr(journal, "_boot", lambda: "another")
    read = break_off(monkeypatch, -1)
    report = convert(source, destination, chunk_rows=CHUNK_ROWS, resume=True)
    assert report.bytes_resumed == 300 * X_ROW
    assert len(read) == X_PIECES + Y_PIECES - 20
    assert_same(destination, source)


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_work_whose_files_are_gone_is_done_again(
    tmp_path: Path, source: dict[str, Path], monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    destination = tmp_path / f"out{suffix}"
    with monkeypatch.context() as patched:
        break_off(patched, 30)
        with pytest.raises(Broken):
            convert(source, destination, chunk_rows=CHUNK_ROWS)
    store = Path(workspace_folder(str(destination))) / "store"
    if store.is_file():
        os.truncate(store, store.stat().st_size // 2)
    else:
        (store / "x" / "c.10.0.0").unlink()
    report = convert(source, destination, chunk_rows=CHUNK_ROWS, resume=True)
    assert 0 < report.bytes_resumed < 30 * 15 * X_ROW
    assert_same(destination, source)


@pytest.mark.parametrize("number", [30, 31, 32])
def test_every_file_of_a_piece_has_to_be_there(
    tmp_path: Path, source: dict[str, Path], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    destination = tmp_path / "out.zarr"
    with monkeypatch.context() as patched:
        break_off(patched, 20)
        with pytest.raises(Broken):
            convert(source, destination, chunk_rows=CHUNK_ROWS, shards="none")
    # Of piece 10, by its number of the piece's three.
    path = Path(workspace_folder(str(destination))) / "store" / "x" / f"c.{number}.0.0"
    os.truncate(path, path.stat().st_size - 1)
    report = convert(source, destination, chunk_rows=CHUNK_ROWS, shards="none", resume=True)
    assert report.bytes_resumed == 10 * 15 * X_ROW
    assert_same(destination, source)


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_going_on_with_other_cores(
    tmp_path: Path, source: dict[str, Path], monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    destination = tmp_path / f"out{suffix}"
    with monkeypatch.context() as patched:
        patched.setattr(run, "usable_cores", lambda: 2)
        break_off(patched, 30)
        with pytest.raises(Broken):
            convert(source, destination, chunk_rows=CHUNK_ROWS)
    monkeypatch.setattr(run, "usable_cores", lambda: 1)
    report = convert(source, destination, chunk_rows=CHUNK_ROWS, resume=True)
    assert report.bytes_resumed == 30 * 15 * X_ROW
    assert_same(destination, source)
    monkeypatch.setattr(run, "usable_cores", lambda: 5)
    again = convert(source, destination, chunk_rows=CHUNK_ROWS, resume=True)
    assert again.bytes_resumed == again.bytes_in


def test_hdf5_that_lays_out_files_otherwise_is_refused(
    tmp_path: Path, source: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = tmp_path / "out.h5"
    with monkeypatch.context() as patched:
        break_off(patched, 30)
        with pytest.raises(Broken):
            convert(source, destination, chunk_rows=CHUNK_ROWS)
    monkeypatch.setattr("oocloader.conversion.hdf5_writer._PAGE", 8192)
    with pytest.raises(StoreError, match=r"HDF5 \S+ lays out files otherwise"):
        convert(source, destination, chunk_rows=CHUNK_ROWS, resume=True)


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_source_truncated_half_way_and_restored(
    tmp_path: Path, source: dict[str, Path], monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    destination = tmp_path / f"out{suffix}"
    shutil.copy2(source["x"], tmp_path / "copy.npy")
    real = Journal.add

    def truncating(self: Journal, finished: FinishedPiece) -> None:
        real(self, finished)
        if self.pieces == 12:
            os.truncate(source["x"], source["x"].stat().st_size // 2)

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "add", truncating)
        with pytest.raises(ChangedError) as caught:
            convert(source, destination, chunk_rows=CHUNK_ROWS)
    assert str(source["x"]) in str(caught.value)
    assert "once the source is restored" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not destination.exists()
    with pytest.raises(StoreError, match="truncated"):
        convert(source, destination, chunk_rows=CHUNK_ROWS, resume=True)
    os.replace(tmp_path / "copy.npy", source["x"])
    read = break_off(monkeypatch, -1)
    report = convert(source, destination, chunk_rows=CHUNK_ROWS, resume=True)
    assert report.bytes_resumed >= 12 * 15 * X_ROW
    assert len(read) <= 38
    assert_same(destination, source)


def test_source_that_changes_behind_the_last_read(
    tmp_path: Path, source: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = publish.sync

    def changing(path: str) -> None:
        real(path)
        _touch(source)

    monkeypatch.setattr(run, "sync", changing)
    with pytest.raises(
        ChangedError, match=r"x\.npy: the file changed while it was converted: it was modified"
    ):
        convert(source, tmp_path / "out.zarr")
    assert not (tmp_path / "out.zarr").exists()


def test_source_that_changes_while_it_is_compared(
    tmp_path: Path, source: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = read_back.check_store

    def changing(*args: Any, **options: Any) -> None:
        os.truncate(source["x"], 1000)
        real(*args, **options)

    for verify_what in ("sample", "full"):
        with monkeypatch.context() as patched:
            patched.setattr(run, "check_store", changing)
            content = source["x"].read_bytes()
            with pytest.raises(ChangedError, match=r"x\.npy"):
                convert(source, tmp_path / f"{verify_what}.h5", verify=verify_what)
            source["x"].write_bytes(content)
        assert not (tmp_path / f"{verify_what}.h5").exists()


def test_source_of_many_files_that_changes_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = rows_array(2000, "float32", sample_shape=(64, 64))
    zarr.create_array(tmp_path / "in.zarr", data=x, chunks=(20, 64, 64), compressors=None)
    real = Journal.add

    def changing(self: Journal, finished: FinishedPiece) -> None:
        real(self, finished)
        os.utime(tmp_path / "in.zarr" / "c" / "99" / "0" / "0", ns=(1, 1))

    monkeypatch.setattr(Journal, "add", changing)
    with pytest.raises(ChangedError, match="99"):
        convert(tmp_path / "in.zarr", tmp_path / "out.zarr")
    assert sorted(os.listdir(tmp_path)) == ["in.zarr"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of some five mebibytes, where the process may mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=5600k", "tmpfs", folder], capture_output=True, check=False
    )
    if made.returncode != 0:
        pytest.skip("this user may not mount a file system")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("cores", [1, 4])
@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_full_disk_and_then_room(
    small_disk: Path, source: dict[str, Path], monkeypatch: pytest.MonkeyPatch, suffix: str, cores: int
) -> None:
    monkeypatch.setattr(run, "usable_cores", lambda: cores)
    destination = small_disk / f"out{suffix}"
    options: Any = {"codec": "blosc:1", "chunk_rows": CHUNK_ROWS}
    (small_disk / "ballast").write_bytes(bytes(5 << 20))
    with pytest.raises(StoreError) as caught:
        convert(source, destination, **options)
    line = str(caught.value)
    assert line.startswith(f"{destination}: no space left on the disk")
    assert "\n" not in line
    kept = re.search(r" (\d+) of 50 pieces are finished and kept", line)
    # Of several threads, the one with the first piece may be the last that finds room, and has none.
    assert kept or cores > 1
    done = int(kept[1]) if kept else 0
    assert done > 0 or not kept
    assert not destination.exists()
    (small_disk / "ballast").unlink()
    subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
    read = break_off(monkeypatch, -1)
    report = convert(source, destination, resume=True, **options)
    assert len(read) == X_PIECES + Y_PIECES - done
    assert (report.bytes_resumed > 0) == (done > 0)
    assert_same(destination, source)
    assert os.listdir(small_disk) == [destination.name]


@pytest.mark.parametrize("stage", ["_create", "close"])
def test_full_disk_for_what_hdf5_itself_writes(
    tmp_path: Path, source: dict[str, Path], monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    destination = tmp_path / "out.h5"
    full = False
    write, act = os.pwrite, getattr(hdf5_writer.Hdf5Writer, stage)

    def pwrite(fd: int, data: Any, offset: int) -> int:
        if full and os.readlink(f"/proc/self/fd/{fd}").endswith("store"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data, offset)

    def acting(self: Any, *arguments: Any) -> Any:
        nonlocal full
        full = True
        return act(self, *arguments)

    def no_files_open() -> bool:
        links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        return not any(os.path.realpath(link).startswith(str(tmp_path)) for link in links)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", pwrite)
        patched.setattr(hdf5_writer.Hdf5Writer, stage, acting)
        with pytest.raises(StoreError, match=r"out\.h5: no space left on the disk") as caught:
            convert(source, destination, chunk_rows=CHUNK_ROWS)
    assert ("50 of 50 pieces" in str(caught.value)) == (stage == "close")
    assert no_files_open()
    assert not destination.exists()
    report = convert(source, destination, chunk_rows=CHUNK_ROWS, resume=True)
    assert report.bytes_resumed == (report.bytes_in if stage == "close" else 0)
    assert_same(destination, source)


def test_ctrl_c_while_hdf5_completes_the_file(
    tmp_path: Path, source: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = tmp_path / "out.h5"
    write, close = os.pwrite, hdf5_writer.Hdf5Writer.close
    closing = False

    def pwrite(fd: int, data: Any, offset: int) -> int:
        nonlocal closing
        if closing:
            closing = False
            signal.raise_signal(signal.SIGINT)
        return write(fd, data, offset)

    def closed(self: hdf5_writer.Hdf5Writer) -> None:
        nonlocal closing
        closing = True
        close(self)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", pwrite)
        patched.setattr(hdf5_writer.Hdf5Writer, "close", closed)
        with pytest.raises(KeyboardInterrupt) as caught:
            convert(source, destination, chunk_rows=CHUNK_ROWS)
    assert "50 of 50 pieces" in caught.value.__notes__[0]
    report = convert(source, destination, chunk_rows=CHUNK_ROWS, resume=True)
    assert report.bytes_resumed == report.bytes_in
    assert_same(destination, source)


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_limit_on_file_size_and_then_none(tmp_path: Path, source: dict[str, Path], suffix: str) -> None:
    destination = tmp_path / f"out{suffix}"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A file of Zarr is a shard of 4 chunks.
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000 if suffix == ".zarr" else 1_500_000, before[1]))
    try:
        with pytest.raises(StoreError, match=rf"out\{suffix}: no space: .*ulimit") as caught:
            convert(source, destination, chunk_rows=CHUNK_ROWS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "pieces are finished and kept" in str(caught.value)
    convert(source, destination, chunk_rows=CHUNK_ROWS, resume=True)
    assert_same(destination, source)


def test_room_is_asked_for_what_is_missing_only(
    tmp_path: Path, source: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        break_off(patched, 40)
        with pytest.raises(Broken):
            convert(source, tmp_path / "out.zarr", chunk_rows=CHUNK_ROWS)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=4_000_000))
    with pytest.raises(StoreError, match="no space: the store needs"):
        convert(source, tmp_path / "other.zarr", chunk_rows=CHUNK_ROWS)
    convert(source, tmp_path / "out.zarr", chunk_rows=CHUNK_ROWS, resume=True)
    assert_same(tmp_path / "out.zarr", source)


_CHILD = """
    import json, os, sys, time
    from oocloader.conversion import convert, copying, store_plan
    store_plan._PIECE_NBYTES = {piece_nbytes}
    read = copying._PieceBuffer.read
    log = os.open({log!r}, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    def slowly(self, source, number):
        os.write(log, b"%s %d\\n" % (self._plan.name.encode(), number))
        read(self, source, number)
        time.sleep(0.004)
    copying._PieceBuffer.read = slowly
    print("ready", flush=True)
    options = dict(codec={codec!r}, chunk_rows={chunk_rows}, overwrite={overwrite}, resume=True)
    report = convert({source!r}, {destination!r}, **options)
    print(json.dumps(report.as_dict()), flush=True)
"""


def start(**values: Any) -> subprocess.Popen[str]:
    code = textwrap.dedent(_CHILD).format(chunk_rows=CHUNK_ROWS, piece_nbytes=PIECE_NBYTES, **values)
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def finished_in(work: Path) -> set[tuple[str, int]]:
    """The pieces that the journal of a killed conversion calls finished."""
    if not (work / "journal").exists():
        return set()
    with contextlib.closing(Journal(os.open(work / "journal", os.O_RDWR))) as journal:
        begun = journal.read()
    return {("xy"[piece.array], piece.piece) for piece in begun.finished} if begun else set()


@pytest.mark.soak
@pytest.mark.parametrize("number", range(KILLS))
def test_killed_at_a_random_moment(tmp_path: Path, source: dict[str, Path], number: int) -> None:
    rng = random.Random(number if "CI" in os.environ else None)
    suffix = (".h5", ".zarr")[number % 2]
    codec = ("none", "zstd", "none")[number % 3]
    overwrite = number % 4 == 1
    destination = tmp_path / f"out{suffix}"
    old = {"old": tmp_path / "old.npy"}
    if overwrite:
        np.save(old["old"], np.arange(10))
        convert(old, destination)
    values = {
        "source": {name: str(path) for name, path in source.items()},
        "destination": str(destination),
        "codec": codec,
        "overwrite": overwrite,
        "log": str(tmp_path / "log"),
    }
    work = Path(workspace_folder(str(destination)))
    kills = 0
    while True:
        before = finished_in(work)
        child = start(**values)
        # A run takes a fifth of a second and more; a killed one is gone on with, and so comes to its end.
        moment = time.monotonic() + rng.uniform(0, 0.3)
        while kills < 3 and child.poll() is None and time.monotonic() < moment:
            assert_old_or_new(destination, source, old if overwrite else None)
        if kills < 3 and child.poll() is None:
            child.send_signal(signal.SIGKILL)
        assert child.stdout is not None
        with child.stdout:
            out = child.stdout.read()  # not communicate: it forgets what came with the first line
        child.wait(60)
        done_again = {
            (name, int(piece)) for name, piece in map(str.split, (tmp_path / "log").read_text().splitlines())
        }
        assert not done_again & before
        assert_old_or_new(destination, source, old if overwrite else None)
        if child.returncode == 0:
            break
        assert child.returncode == -signal.SIGKILL
        kills += 1
    assert json.loads(out)["rows"] == ROWS
    assert_same(destination, source)
    assert not work.exists()


def assert_old_or_new(destination: Path, source: dict[str, Path], old: dict[str, Path] | None) -> None:
    """Nothing has the name, or a store that is complete: the one before, or the new one."""
    for attempt in range(3):
        if not destination.exists():
            assert old is None
            return
        try:
            with open_store(destination) as store:
                names = list(store.arrays)
                rows = {info.shape[0] for info in store.arrays.values()}
            break
        except OocloaderError:
            # The new one took its name while the old one was being opened: that can be once.
            if attempt == 2:
                raise
    if old is not None and names == ["old"]:
        assert rows == {10}
    else:
        assert (sorted(names), rows) == (["x", "y"], {ROWS})


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_going_on_from_anywhere(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("any")
    rows = data.draw(st.integers(1, 400))
    dtypes = data.draw(st.lists(st.sampled_from(["u1", "f4", "c16", "?"]), min_size=1, max_size=3))
    source = {}
    for number, dtype in enumerate(dtypes):
        shape = (rows, *data.draw(st.lists(st.integers(1, 40), max_size=2)))
        values = np.random.default_rng(number).integers(0, 9, shape).astype(dtype)
        order: Any = data.draw(st.sampled_from("CF"))
        path = folder / f"{number}.npy"
        np.save(path, np.asarray(values, order=order))
        source[f"g/{number}" if number else "0"] = path
    suffix = data.draw(st.sampled_from([".h5", ".zarr"]))
    options: Any = {
        "codec": data.draw(st.sampled_from(["none", "zstd", "gzip:1"])),
        "chunk_rows": data.draw(st.none() | st.integers(1, 50)),
        "checksum": data.draw(st.booleans()),
    }
    with monkeypatch.context() as patched:
        patched.setattr(store_plan, "_PIECE_NBYTES", data.draw(st.sampled_from([1, 2000, 50_000])))
        for _ in range(data.draw(st.integers(1, 3))):
            with monkeypatch.context() as broken:
                break_off(broken, data.draw(st.integers(0, 60)))
                with contextlib.suppress(Broken):
                    convert(source, folder / f"out{suffix}", resume=True, **options)
        convert(source, folder / f"out{suffix}", resume=True, **options)
    assert_same(folder / f"out{suffix}", source)
    assert not Path(workspace_folder(str(folder / f"out{suffix}"))).exists()
    convert(source, folder / f"whole{suffix}", **options)
    assert verify(folder / f"out{suffix}", folder / f"whole{suffix}").ok
    assert size_of(str(folder / f"out{suffix}")) == size_of(str(folder / f"whole{suffix}"))
