"""`oocloader convert` and `tools/npy_to_store.py`."""

from __future__ import annotations

import inspect
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

import oocloader as ooc
from numbered import rows_array
from oocloader.cli import main
from oocloader.cli.convert import convert as command_convert

TOOL = Path(__file__).resolve().parents[2] / "tools" / "npy_to_store.py"


def test_one_array(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = rows_array(1000, "float32")
    np.save(tmp_path / "x.npy", x)
    assert main(["convert", f"{tmp_path}/x.npy", f"{tmp_path}/x.zarr", "--codec", "zstd:3"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{tmp_path}/x.zarr: 1,000 rows, 62.5 KiB in, ")
    assert "1 chunk of 1,000 rows" in out
    assert err == ""  # no bar where stderr is no terminal
    found: Any = zarr.open_array(tmp_path / "x.zarr", mode="r")
    assert np.array_equal(found[:], x)


@pytest.mark.filterwarnings("always::UserWarning")
def test_what_a_user_must_know_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with h5py.File(tmp_path / "packed.h5", "w") as file:
        file["x"] = np.arange(10, dtype="u1")
        file["x"].attrs["scale_factor"] = 0.5
    assert main(["convert", f"{tmp_path}/packed.h5", f"{tmp_path}/x.zarr"]) == 0
    err = capsys.readouterr().err
    assert err.startswith("oocloader: note: ")
    assert "scale_factor" in err
    assert err.count("\n") == 1


def test_several_arrays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = rows_array(100, "uint8"), np.arange(100)
    np.save(tmp_path / "images=1.npy", x)
    np.save(tmp_path / "y.npy", y)
    arrays = [f"--array=x={tmp_path}/images=1.npy", "--array", f"y={tmp_path}/y.npy"]
    assert main(["convert", *arrays, f"{tmp_path}/train.h5", "--chunk-rows", "8", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["arrays"], report["rows"], report["bytes_in"]) == (["x", "y"], 100, 2400)
    assert {"ratio", "seconds", "gb_per_s", "bytes_out", "codec"} <= set(report)
    with h5py.File(tmp_path / "train.h5") as file:
        assert np.array_equal(file["x"][:], x)
        assert np.array_equal(file["y"][:], y)
        assert file["x"].chunks == (8, 4, 4)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["x.npy"], 2, ("a source and a destination, got 1",)),
        (["x.npy", "a.zarr", "b.zarr"], 2, ("a source and a destination, got 3",)),
        (["--array", "x=x.npy", "x.npy", "a.zarr"], 2, ("the destination alone, got 2",)),
        (["--array", "x.npy", "a.zarr"], 2, ("--array", "NAME=SOURCE", "'x.npy'")),
        (["--array", "x=x.npy", "--array", "x=y.npy", "a.zarr"], 2, ("'x' is given twice",)),
        (["x.npy", "a.txt"], 2, ("a.txt", ".zarr, .h5 or .hdf5")),
        (["x.npy", "a.zarr", "--codec", "zip"], 2, ("'zip' is unknown", "zstd")),
        (["x.npy", "a.zarr", "--chunk-rows", "0"], 2, ("chunk_rows", "got 0")),
        (["x.npy", "a.zarr", "--dtype", "x"], 2, ("dtype", "'x'")),
        (["x.npy", "a.zarr", "--dtype", "i1", "--dtype", "i2"], 2, ("--dtype", "NAME=VALUE", "'i1'")),
        (["x.npy", "a.zarr", "--dtype", "x=i1", "--dtype", "x=i2"], 2, ("--dtype", "'x' is given twice")),
        (["x.npy", "a.zarr", "--axis", "x=a"], 2, ("--axis", "'a'")),
        (["x.npy", "a.zarr", "--rows", "1-2"], 2, ("rows", "'1-2'")),
        (["x.npy", "a.zarr", "--shape", "5,2"], 2, ("dtype", "x.npy")),
        (["x.npy", "a.zarr", "--shards", "some"], 2, ("shards", "'some'")),
        (["x.npy", "a.zarr", "--zarr-format", "1"], 2, ("zarr_format", "got 1")),
        (["half.npy", "a.zarr", "--dtype", "i1"], 1, ("half.npy", "row 1 ", "0.5", "--lossy")),
        (["none.npy", "a.zarr"], 1, ("none.npy",)),
        (["x.npy", "old.h5"], 1, ("old.h5", "exists already", "--overwrite")),
        (["x.npy", "nowhere/a.h5"], 1, ("nowhere", "does not exist")),
        (["--array", "x=x.npy", "--array", "y=y.npy", "a.h5"], 1, ("'x' has 10", "'y' has 9")),
        (["strings.npy", "a.h5"], 1, ("strings.npy", "<U3")),
        (["large.npy", "a.h5", "--chunk-rows", "5"], 2, ("4 GiB", "at most 3 rows")),
    ],
)
def test_what_is_wrong_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    words: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.arange(10))
    np.save("y.npy", np.arange(9))
    np.save("half.npy", np.arange(5) / 2)
    np.save("strings.npy", np.array(["one", "two"]))
    np.lib.format.open_memmap("large.npy", mode="w+", dtype="u1", shape=(5, 1 << 30))  # sparse
    (tmp_path / "old.h5").write_bytes(b"old")
    before = sorted(os.listdir())
    assert main(["convert", *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("oocloader: error: ")
    assert err.count("\n") == 1
    assert all(word in err for word in words)
    assert sorted(os.listdir()) == before
    assert (tmp_path / "old.h5").read_bytes() == b"old"


def test_every_option_reaches_the_conversion(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = rows_array(120, "uint8"), np.arange(240)
    x.tofile(tmp_path / "x.bin")
    np.save(tmp_path / "y.npy", y.reshape(2, 120))
    arguments = [
        f"--array=x={tmp_path}/x.bin",
        f"--array=y={tmp_path}/y.npy",
        "--shape=x=-1,4,4",
        "--dtype=x=u1",
        "--dtype=y=f4",
        "--lossy",
        "--axis=y=1",
        "--rows=10:110",
        "--shuffle=3",
        "--shuffle-index=from",
        "--codec=auto",
        "--shards=20",
        "--chunk-rows=5",
        "--zarr-format=3",
        "--for-memory=1GiB",
    ]
    assert main(["convert", *arguments, f"{tmp_path}/o.zarr", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["arrays"], report["rows"]) == (["x", "y", "from"], 100)
    assert len(report["choices"]) == 8
    found: Any = zarr.open_group(tmp_path / "o.zarr", mode="r")
    order = found["from"][:]
    assert sorted(order) == list(range(10, 110))
    assert np.array_equal(found["x"][:], x[order])
    assert np.array_equal(found["y"][:], y.reshape(2, 120).T[order])
    assert (found["x"].shards, found["x"].chunks) == ((20, 4, 4), (5, 4, 4))
    assert found["y"].dtype == np.float32


def test_one_value_for_all_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", rows_array(50, "float32"))
    options = ["--dtype", "int16", "--axis", "2", "--zarr-format", "2", "--shards", "none"]
    assert main(["convert", f"{tmp_path}/x.npy", f"{tmp_path}/x.zarr", *options]) == 0
    found: Any = zarr.open_array(tmp_path / "x.zarr", mode="r")
    assert (found.dtype, found.metadata.zarr_format) == (np.int16, 2)
    assert np.array_equal(found[:], np.moveaxis(rows_array(50, "int16"), 2, 0))


def test_options_are_the_keywords_of_the_function() -> None:
    # What only the command has: its ways to name arrays, and to print; it always shows progress.
    own = {"context", "paths", "array", "spec", "as_json"}
    command = set(inspect.signature(command_convert).parameters) - own
    function = set(inspect.signature(ooc.convert).parameters) - {"source", "destination", "progress"}
    assert command == function


def test_overwrite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.arange(10))
    (tmp_path / "old.h5").write_bytes(b"old")
    assert main(["convert", f"{tmp_path}/x.npy", f"{tmp_path}/old.h5", "--overwrite"]) == 0
    with h5py.File(tmp_path / "old.h5") as file:
        assert np.array_equal(file["x"][:], np.arange(10))
    assert "10 rows" in capsys.readouterr().out


def test_tool_is_the_same_command(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(10))
    command = [sys.executable, str(TOOL), "x.npy", "x.zarr"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("x.zarr: 10 rows")
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert again.stderr.startswith("oocloader: error: x.zarr: exists already")


def read_terminal(fd: int) -> bytes:
    try:
        return os.read(fd, 10_000)
    except OSError:  # how Linux says that the other end was closed
        return b""


def shown_on_a_terminal(folder: Path, *arguments: str) -> str:
    """What a command draws on a terminal."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(ours, (24, 80))
    code = "import sys; from oocloader.cli import main; sys.exit(main())"
    subprocess.run([sys.executable, "-c", code, *arguments], cwd=folder, stderr=theirs, check=True)
    os.close(theirs)
    shown = b"".join(iter(lambda: read_terminal(ours), b"")).decode()
    os.close(ours)
    return shown


def test_progress_on_a_terminal(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(100_000))
    for command in (["convert", "x.npy", "x.zarr"], ["verify", "x.zarr"], ["verify", "x.zarr", "x.npy"]):
        shown = shown_on_a_terminal(tmp_path, *command)
        assert "100%" in shown
        assert "800k/800k" in shown
    shown = shown_on_a_terminal(tmp_path, "convert", "x.npy", "y.zarr", "--verify", "full")
    assert shown.count("800k/800k") >= 2  # once for writing, once for comparing


@pytest.mark.parametrize(
    ("number", "line"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")], ids=["INT", "TERM"]
)
@pytest.mark.parametrize("name", ["out.h5", "out.zarr"])
def test_signal_while_writing(tmp_path: Path, name: str, number: signal.Signals, line: str) -> None:
    # 4 GiB that take no room, slow enough to pack that no machine has finished when the signal comes.
    np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype="u1", shape=(1 << 20, 1 << 12))
    command = [sys.executable, str(TOOL), "x.npy", name, "--codec", "zstd:19"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    work = tmp_path / f".{name}.oocloader"
    deadline = time.monotonic() + 30
    while pieces_in(work) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None
    started = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert time.monotonic() - started < 2
    assert process.returncode == 128 + number
    assert out == ""
    assert err == (
        f"oocloader: {line}; {pieces_in(work)} of 1001 pieces are finished and kept in {work}:"
        " the same command with --resume (resume=True) goes on from there\n"
    )
    assert sorted(os.listdir(tmp_path)) == [work.name, "x.npy"]
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "--resume" in again.stderr
    assert again.stderr.count("\n") == 1
    assert sorted(os.listdir(tmp_path)) == [work.name, "x.npy"]


def pieces_in(work: Path) -> int:
    journal = work / "journal"
    return max(0, journal.read_bytes().count(b"\n") - 1) if journal.exists() else 0


@pytest.mark.parametrize("name", ["out.h5", "out.zarr"])
def test_the_same_command_with_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    from oocloader.conversion.journal import FinishedPiece, Journal

    np.save(tmp_path / "x.npy", rows_array(20_000, "float32", sample_shape=(32, 32)))
    command = [
        "convert",
        f"{tmp_path}/x.npy",
        f"{tmp_path}/{name}",
        "--verify",
        "full",
        "--checksum",
        "--json",
    ]
    real = Journal.add

    def interrupted(self: Journal, finished: FinishedPiece) -> None:
        real(self, finished)
        if self.pieces == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Journal, "add", interrupted)
    assert main(command) == 130
    assert "oocloader: interrupted; 3 of 40 pieces are finished and kept" in capsys.readouterr().err
    monkeypatch.undo()
    assert main(command) == 1
    assert "--resume" in capsys.readouterr().err
    assert main([*command, "--codec", "zstd", "--resume"]) == 1
    assert "codec was 'none' and is 'zstd:1' now" in capsys.readouterr().err
    assert main([*command, "--resume"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verify"] == "full"
    assert 0 < report["bytes_resumed"] < report["bytes_in"]
    assert main(["verify", f"{tmp_path}/{name}", f"{tmp_path}/x.npy"]) == 0
    assert sorted(os.listdir(tmp_path)) == sorted([name, "x.npy"])


def test_verify_is_checked_before_anything_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "x.npy", np.arange(10))
    assert main(["convert", f"{tmp_path}/x.npy", f"{tmp_path}/x.zarr", "--verify", "half"]) == 2
    assert "'sample', 'full' or 'none', got 'half'" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["x.npy"]
