"""Work beside a destination: one at a time, kept where something is finished, gone where nothing is."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import multiprocessing
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oocloader.conversion import convert, read_back, run, workspace
from oocloader.conversion.identity import digest
from oocloader.conversion.journal import FinishedPiece
from oocloader.conversion.publish import DiscardedError
from oocloader.conversion.workspace import (
    Workspace,
    begun_codec,
    begun_nbytes,
    open_workspace,
    workspace_folder,
)
from oocloader.errors import SettingError, StoreError

JOB: dict[str, Any] = {
    "options": {"codec": "none"},
    "files": {"/x.npy": [10, 20]},
    "arrays": {"x": "x"},
    "plan": {"arrays": [{"name": "x"}]},
    "codec": "zstd:1",
}
PIECE = FinishedPiece(0, 0, [0], [4], [1], [1])


def begin(destination: Path, job: dict[str, Any] | None = JOB, **options: Any) -> Any:
    chosen = {"resume": False, "overwrite": False, "pieces": 9, **options}
    return open_workspace(str(destination), job, **chosen)


def finish_one(found: Workspace) -> None:
    Path(found.store).write_bytes(b"data")
    assert found.journal is not None
    found.journal.add(PIECE)


def break_off(destination: Path, error: BaseException, *, pieces: int = 1, **options: Any) -> None:
    """Work that ends by `error`."""
    with contextlib.suppress(type(error)), begin(destination, **options) as found:
        Path(found.store).write_bytes(b"data")
        for _ in range(pieces):
            finish_one(found)
        raise error


def test_work_that_is_done_leaves_nothing(tmp_path: Path) -> None:
    with begin(tmp_path / "out.h5") as found:
        assert os.path.dirname(found.store) == workspace_folder(str(tmp_path / "out.h5"))
        finish_one(found)
        os.rename(found.store, tmp_path / "out.h5")
    assert os.listdir(tmp_path) == ["out.h5"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("disk"), MemoryError(), StoreError("x")])
def test_what_is_finished_is_kept_whatever_ends_the_work(tmp_path: Path, error: BaseException) -> None:
    break_off(tmp_path / "out.h5", error)
    assert os.listdir(tmp_path) == [".out.h5.oocloader"]
    said = str(error) if isinstance(error, StoreError) else error.__notes__[0]
    assert "1 of 9 pieces are finished and kept" in said
    with begin(tmp_path / "out.h5", resume=True) as found:
        assert found.finished == (PIECE,)
        assert Path(found.store).read_bytes() == b"data"


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (KeyboardInterrupt(), {"pieces": 0}),
        (DiscardedError("wrong"), {}),
    ],
)
def test_what_nobody_wants_is_removed(tmp_path: Path, error: BaseException, options: dict[str, Any]) -> None:
    break_off(tmp_path / "out.h5", error, **options)
    assert os.listdir(tmp_path) == []


def test_what_has_no_identity_is_removed(tmp_path: Path) -> None:
    with contextlib.suppress(ValueError), begin(tmp_path / "out.h5", None) as found:
        assert found.journal is None
        Path(found.store).write_bytes(b"data")
        raise ValueError
    assert os.listdir(tmp_path) == []


def _hold(destination: str, ready: Any, leave: Any) -> None:
    with open_workspace(destination, JOB, resume=False, overwrite=False, pieces=9):
        ready.set()
        leave.wait(30)


@pytest.mark.parametrize("resume", [False, True])
def test_another_process_is_writing(tmp_path: Path, resume: bool) -> None:
    context = multiprocessing.get_context("spawn")
    ready, leave = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(str(tmp_path / "out.h5"), ready, leave))
    other.start()
    try:
        assert ready.wait(30)
        with (
            pytest.raises(StoreError, match=r"out\.h5: another conversion is writing it at this moment"),
            begin(tmp_path / "out.h5", resume=resume),
        ):
            pass
        assert os.listdir(tmp_path) == [".out.h5.oocloader"]
    finally:
        leave.set()
        other.join(30)
    assert other.exitcode == 0
    assert os.listdir(tmp_path) == []


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, leave = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(str(tmp_path / "out.h5"), ready, leave))
    other.start()
    assert ready.wait(30)
    other.kill()
    other.join(30)
    # It had finished nothing, so that there is nothing to say.
    with begin(tmp_path / "out.h5") as found:
        assert not found.finished


def test_many_at_once(tmp_path: Path) -> None:
    inside = done = 0
    guard = threading.Lock()

    def one() -> None:
        nonlocal inside, done
        for _ in range(50):
            with contextlib.suppress(StoreError), begin(tmp_path / "out.h5"):
                with guard:
                    inside += 1
                    assert inside == 1
                    done += 1
                with guard:
                    inside -= 1

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done > 0
    assert os.listdir(tmp_path) == []


def test_the_destination_that_came_to_be_meanwhile_is_kept(tmp_path: Path) -> None:
    (tmp_path / "out.h5").write_bytes(b"theirs")
    with pytest.raises(StoreError, match="someone else made it in the meantime"), begin(tmp_path / "out.h5"):
        pass
    assert os.listdir(tmp_path) == ["out.h5"]
    with begin(tmp_path / "out.h5", overwrite=True):
        assert (tmp_path / "out.h5").read_bytes() == b"theirs"


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP])
def test_file_systems_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def no_locks(fd: int, how: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with begin(tmp_path / "out.h5") as found:
        # Whether that one is still at work cannot be known: it is not taken over unasked.
        with pytest.raises(StoreError, match="unfinished conversion"), begin(tmp_path / "out.h5"):
            pass
        finish_one(found)
        os.rename(found.store, tmp_path / "out.h5")
    assert os.listdir(tmp_path) == ["out.h5"]
    break_off(tmp_path / "b.h5", ValueError())
    with begin(tmp_path / "b.h5", resume=True) as found:
        assert found.finished == (PIECE,)


def test_names_that_a_shell_would_take_apart(tmp_path: Path) -> None:
    destination = tmp_path / "my file.h5"
    break_off(destination, ValueError())
    with pytest.raises(StoreError) as caught, begin(destination):
        pass
    assert str(caught.value).endswith(f"or begin anew: rm -r '{tmp_path}/.my file.h5.oocloader'")


def test_bytes_begun(tmp_path: Path) -> None:
    assert begun_nbytes(str(tmp_path / "out.h5")) == 0
    break_off(tmp_path / "out.h5", ValueError())
    assert begun_nbytes(str(tmp_path / "out.h5")) == 4


def test_the_codec_that_was_begun_with(tmp_path: Path) -> None:
    destination = str(tmp_path / "out.h5")
    assert begun_codec(destination) is None
    break_off(tmp_path / "out.h5", ValueError(), pieces=0)
    assert begun_codec(destination) is None
    break_off(tmp_path / "out.h5", ValueError())
    journal = Path(workspace_folder(destination)) / "journal"
    before = journal.read_bytes()
    journal.write_bytes(before + b"cut off")
    assert begun_codec(destination) == "zstd:1"
    assert journal.read_bytes() == before + b"cut off"  # whoever has the lock may be writing there
    other = {**JOB, "codec": "lz4:1"}
    with (
        pytest.raises(StoreError, match="the codec was 'zstd:1' and is 'lz4:1' now"),
        begin(tmp_path / "out.h5", other, resume=True),
    ):
        pass
    assert digest(other) == digest(JOB)  # measured, where it is not asked for
    assert digest({**JOB, "options": {"codec": "lz4"}}) != digest(JOB)


@pytest.mark.parametrize("verify", ["some", True, None, ""])
def test_verify_is_one_of_three(tmp_path: Path, verify: Any) -> None:
    with pytest.raises(SettingError, match="verify: expected 'sample', 'full' or 'none', got"):
        convert(np.arange(3), tmp_path / "out.h5", verify=verify)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.parametrize(("verify", "found"), [("full", True), ("sample", False), ("none", False)])
def test_what_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, verify: Any, found: bool
) -> None:
    x = np.arange(2_000_000).reshape(20_000, 100)
    real = read_back.check_store

    def damaged(path: str, *args: Any, **options: Any) -> None:
        # A value that no sample meets.
        target = path if os.path.isfile(path) else f"{path}/c.4.0"
        with open(target, "r+b") as file:
            content = file.read()
            file.seek(content.index(x[4321].tobytes()))
            file.write(b"\1")
        real(path, *args, **options)

    monkeypatch.setattr(run, "check_store", damaged)
    if not found:
        assert convert(x, tmp_path / f"out{suffix}", chunk_rows=1000, verify=verify).verify == verify
        return
    with pytest.raises(StoreError, match=r"is wrong: .*1 value differs, first at row 4321, index \(0,\)"):
        convert(x, tmp_path / f"out{suffix}", chunk_rows=1000, verify=verify)
    assert os.listdir(tmp_path) == []


def test_verifying_nothing_reads_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert workspace.workspace_folder("/a/b.h5") == "/a/.b.h5.oocloader"
    monkeypatch.setattr("oocloader.conversion.read_back._check_sample", lambda *args: 1 / 0)
    convert(np.arange(3), tmp_path / "out.h5", verify="none")
