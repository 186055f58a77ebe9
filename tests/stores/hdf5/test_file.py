"""HDF5 files that cannot be opened, or change."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import oocloader as ooc
from hdf5_checks import check_equal
from numbered import rows_array


class TestCannotBeOpened:
    def test_truncated(self, tmp_path: Path) -> None:
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=rows_array(400, "f4"), chunks=(50, 4, 4))
        size = os.path.getsize(path)
        os.truncate(path, size * 2 // 3)
        with pytest.raises(
            ooc.StoreError, match=rf"x\.h5: the file is truncated: it has {size * 2 // 3} bytes and {size}"
        ):
            ooc.open_store(path)

    @pytest.mark.parametrize("rest", [b"", bytes(600), b"\xff" * 600])
    def test_signature_and_nonsense(self, tmp_path: Path, rest: bytes) -> None:
        path = tmp_path / "x.h5"
        path.write_bytes(b"\x89HDF\r\n\x1a\n" + rest)
        with pytest.raises(ooc.StoreError, match=r"x\.h5: cannot be opened as HDF5: [a-z]") as caught:
            ooc.open_store(path)
        assert "\n" not in str(caught.value)

    def test_open_for_writing_in_this_process(self, tmp_path: Path) -> None:
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            file["x"] = np.arange(10)
            with pytest.raises(ooc.StoreError, match=r"x\.h5: is open for writing in this process; close it"):
                ooc.open_store(path)
        with ooc.open_store(path) as store:
            check_equal(store, "x", np.arange(10))

    @pytest.fixture
    def left_open(self, tmp_path: Path) -> Iterator[Path]:
        """A file that another process has open for writing, until the test ends."""
        path = tmp_path / "x.h5"
        code = """if True:
            import sys, h5py
            with h5py.File(sys.argv[1], "w") as file:
                file["x"] = [1, 2]
                file.flush()
                print("ready", flush=True)
                sys.stdin.read()
        """
        with subprocess.Popen(
            [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            yield path
            writer.communicate()

    def test_open_for_writing_in_another_program(self, left_open: Path) -> None:
        with pytest.raises(ooc.StoreError, match="open for writing in another program"):
            ooc.open_store(left_open)

    DIES = """if True:
        import os, sys, h5py, numpy as np
        file = h5py.File(sys.argv[1], "w", libver="latest")
        x = file.create_dataset("x", data=np.ones((8, 4), "f4"), maxshape=(None, 4), chunks=(4, 4))
        file.create_dataset("y", data=np.arange(8))
        if sys.argv[2] == "swmr":
            file.swmr_mode = True
        x.resize((20, 4))
        x[8:] = 2
        file.flush()
        os._exit(0)
    """

    def test_writer_died(self, tmp_path: Path) -> None:
        path = tmp_path / "x.h5"
        subprocess.run([sys.executable, "-c", self.DIES, str(path), "plain"], check=True)
        before = path.read_bytes()
        with pytest.raises(ooc.StoreError, match=r"x\.h5.*open for writing, or its writer ended.*h5clear"):
            ooc.open_store(path)
        assert path.read_bytes() == before

    def test_swmr_is_read_with_the_length_it_had(self, tmp_path: Path) -> None:
        path = tmp_path / "x.h5"
        subprocess.run([sys.executable, "-c", self.DIES, str(path), "swmr"], check=True)
        before = path.read_bytes()
        with ooc.open_store(path) as store:
            assert {info.reader for info in store.arrays.values()} == {"library"}
            assert "SWMR" in store.arrays["x"].reason
            check_equal(store, "x", np.repeat(np.array([[1], [2]], "f4"), [8, 12], axis=0).repeat(4, axis=1))
            check_equal(store, "y", np.arange(8))
        assert path.read_bytes() == before

    def test_file_system_that_cannot_lock(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            file["x"] = np.arange(10)
        opened = h5py.File

        def no_locks(*arguments: Any, **options: Any) -> Any:
            if options.get("locking") is not False:
                raise OSError(37, "Unable to synchronously open file (unable to lock file, errno = 37)")
            return opened(*arguments, **options)

        monkeypatch.setattr(h5py, "File", no_locks)
        with ooc.open_store(path) as store:
            check_equal(store, "x", np.arange(10))


class TestChanged:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            file.create_dataset("direct", data=np.arange(100), chunks=(10,))
            file.create_dataset("library", data=np.arange(100), chunks=(10,), scaleoffset=0)
        return path

    @pytest.mark.parametrize("name", ["direct", "library"])
    def test_before_the_first_read(self, path: Path, name: str) -> None:
        with ooc.open_store(path) as store:
            with h5py.File(path, "a") as file:
                file["more"] = 1
            with pytest.raises(ooc.ChangedError, match=r"x\.h5.*changed since"):
                store[name].read(0, 10)

    @pytest.mark.parametrize("name", ["direct", "library"])
    def test_removed(self, path: Path, name: str) -> None:
        with ooc.open_store(path) as store:
            path.unlink()
            with pytest.raises(ooc.ChangedError, match=r"x\.h5.*removed"):
                store[name].read(0, 10)

    def test_the_file_is_closed_between_uses(self, path: Path) -> None:
        with ooc.open_store(path) as store:
            store["direct"].read(0, 10)
            assert not h5py.h5f.get_obj_ids(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE)
            store["library"].read(0, 10)
            assert h5py.h5f.get_obj_ids(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE)
        assert not h5py.h5f.get_obj_ids(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE)
        store.close()

    @pytest.mark.parametrize("name", ["direct", "library"])
    def test_closed(self, path: Path, name: str) -> None:
        store = ooc.open_store(path)
        array = store[name]
        array.read(0, 10)
        store.close()
        with pytest.raises(ooc.ClosedError, match="closed"):
            array.read(0, 10)
