"""How datasets are read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest

import oocloader as ooc
from hdf5_checks import DTYPES, FILTERS, PLUGINS, check_against_h5py, check_equal
from numbered import rows_array


class TestKindsOfStorage:
    def test_contiguous_and_compact(self, tmp_path: Path) -> None:
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            for dtype in DTYPES:
                file.create_dataset(f"contiguous/{dtype}", data=rows_array(30, dtype), dtype=dtype)
                file.create_dataset(f"never/{dtype}", (30, 3), dtype, fillvalue=np.array(1, dtype))
                properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
                properties.set_layout(h5py.h5d.COMPACT)
                compact = h5py.h5d.create(
                    file.create_group(f"compact/{dtype}").id,
                    b"x",
                    h5py.h5t.py_create(np.dtype(dtype), logical=True),
                    h5py.h5s.create_simple((30, 4, 4)),
                    properties,
                )
                h5py.Dataset(compact)[...] = rows_array(30, dtype)
        check_against_h5py(path, reader="direct")
        with ooc.open_store(path) as store:
            assert store.arrays["contiguous/u1"].chunk_shape is None
            assert store.arrays["contiguous/u1"].stored_nbytes == 30 * 16

    def test_fill_time_never_reads_as_zero(self, tmp_path: Path) -> None:
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            for name, options in {"direct": {}, "library": {"scaleoffset": 0}}.items():
                made = file.create_dataset(
                    name, (10, 2), "i4", chunks=(3, 2), fillvalue=7, fill_time="never", **options
                )
                made[:3] = 5
            file.create_dataset("contiguous", (10, 2), "i4", fillvalue=7, fill_time="never")
        check_against_h5py(path)

    def test_external_storage(self, tmp_path: Path) -> None:
        raw = tmp_path / "raw.bin"
        x = rows_array(40, "<i4")
        raw.write_bytes(x.tobytes())
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file.create_dataset("x", x.shape, x.dtype, external=[(str(raw), 0, h5py.h5f.UNLIMITED)])
        with ooc.open_store(tmp_path / "x.h5") as store:
            assert store.arrays["x"].reader == "library"
            assert "external" in store.arrays["x"].reason
            check_equal(store, "x", x)

    def test_virtual(self, tmp_path: Path) -> None:
        x = rows_array(40, "<i4")
        layout = h5py.VirtualLayout(x.shape, x.dtype)
        for part in range(2):
            with h5py.File(tmp_path / f"part{part}.h5", "w") as file:
                file["x"] = x[20 * part : 20 * part + 20]
            layout[20 * part : 20 * part + 20] = h5py.VirtualSource(f"part{part}.h5", "x", (20, 4, 4))
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file.create_virtual_dataset("x", layout, fillvalue=-1)
        with ooc.open_store(tmp_path / "x.h5") as store:
            assert store.arrays["x"].reader == "library"
            assert "virtual" in store.arrays["x"].reason
            check_equal(store, "x", x)
        (tmp_path / "part1.h5").unlink()
        with (
            ooc.open_store(tmp_path / "x.h5") as store,
            pytest.warns(UserWarning, match=r"part1\.h5.*fill value"),
        ):
            assert (store["x"].read(20, 40) == -1).all()

    @pytest.mark.parametrize(
        ("name", "stored"),
        [
            ("scaleoffset", {"scaleoffset": 0}),
            ("scaleoffset, gzip", {"scaleoffset": 0, "compression": "gzip"}),
            ("zfp", dict(hdf5plugin.Zfp(reversible=True))),
            ("sz3", dict(hdf5plugin.SZ3(absolute=0.1))),
        ],
    )
    def test_filters_that_only_the_library_undoes(self, tmp_path: Path, name: str, stored: Any) -> None:
        path = tmp_path / "x.h5"
        dtype = "f4" if name in ("zfp", "sz3") else "i4"
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=rows_array(40, dtype), chunks=(16, 4, 4), **stored)
        with ooc.open_store(path) as store:
            assert store.arrays["x"].reader == "library"
            assert name.split(",")[0] in store.arrays["x"].reason
            assert store.arrays["x"].codecs == tuple(name.split(", "))
        check_against_h5py(path)

    def test_incompressible_chunks_skip_their_filter(self, tmp_path: Path) -> None:
        path = tmp_path / "x.h5"
        noise = np.random.default_rng(0).integers(0, 256, (60, 40)).astype("u1")
        noise[20:40] = 7
        with h5py.File(path, "w") as file:
            for name in ("lzf", "gzip", "shuffle, lzf, fletcher32", *PLUGINS):
                file.create_dataset(name, data=noise, chunks=(10, 40), **FILTERS[name])
            tiny = file.create_dataset(
                "tiny", data=np.arange(24, dtype="i4"), chunks=(4,), **PLUGINS["blosc"]
            )
            masks = [tiny.id.get_chunk_info(i).filter_mask for i in range(6)]
            masks += [file["lzf"].id.get_chunk_info(i).filter_mask for i in range(6)]
        assert 0 in masks
        assert any(masks)
        check_against_h5py(path, reader="direct")


class TestMissingFilters:
    """In a process that did not import hdf5plugin, as users have it."""

    @staticmethod
    def run(code: str, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            for name, options in PLUGINS.items():
                file.create_dataset(name, data=rows_array(40, "u2"), chunks=(16, 4, 4), **options)
            zfp = hdf5plugin.Zfp(reversible=True)
            file.create_dataset("zfp", data=rows_array(40, "f4"), chunks=(16, 4, 4), **zfp)
        return str(path)

    def test_without_the_plugins(self, path: str) -> None:
        code = """if True:
            import sys
            sys.modules["hdf5plugin"] = None  # as if it were not installed
            import oocloader as ooc
            with ooc.open_store(sys.argv[1]) as store:
                for name, info in store.arrays.items():
                    total = store[name].read(0, 40).sum() if info.reader != "none" else info.reason
                    print(name, info.reader, total, sep="|")
        """
        found = dict(line.split("|", 1) for line in self.run(code, path).splitlines())
        total = rows_array(40, "u2").sum()
        reason = "its filter 32013 (zfp) cannot be decoded here; pip install hdf5plugin"
        assert found == {**dict.fromkeys(PLUGINS, f"direct|{total}"), "zfp": f"none|{reason}"}

    def test_the_plugins_are_loaded_where_only_they_decode(self, path: str) -> None:
        code = """if True:
            import sys
            import oocloader as ooc
            with ooc.open_store(sys.argv[1]) as store:
                print(store.arrays["zfp"].reader, int(store["zfp"].read(0, 40).sum()))
        """
        assert self.run(code, path) == f"library {int(rows_array(40, 'f4').sum())}"

    def test_unknown_filter(self, tmp_path: Path) -> None:
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            properties.set_chunk((4,))
            properties.set_filter(hdf5plugin.Zstd.filter_id, h5py.h5z.FLAG_OPTIONAL, (1,))
            h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I32LE, h5py.h5s.create_simple((8,)), properties)
            file["y"] = np.arange(8)
        raw = path.read_bytes()
        old = hdf5plugin.Zstd.filter_id.to_bytes(2, "little")
        assert raw.count(old) == 1
        path.write_bytes(raw.replace(old, (40_000).to_bytes(2, "little")))
        with ooc.open_store(path) as store:
            with pytest.raises(ooc.UnsupportedArrayError, match=r"'x'.*filter 40000"):
                store["x"]
            check_equal(store, "y", np.arange(8))
