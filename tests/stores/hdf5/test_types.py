"""What datasets hold."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

import oocloader as ooc
from hdf5_checks import check_against_h5py, check_equal
from numbered import rows_array


class TestDatatypes:
    def test_enums_integers_of_odd_width_and_small_floats(self, tmp_path: Path) -> None:
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            space = h5py.h5s.create_simple((40,))
            twelve_bits = h5py.h5t.STD_U16BE.copy()
            twelve_bits.set_precision(12)
            twelve_bits.set_offset(3)
            bfloat16 = h5py.h5t.IEEE_F32LE.copy()
            bfloat16.set_fields(15, 7, 8, 0, 7)
            bfloat16.set_size(2)
            bfloat16.set_ebias(127)
            for name, kind in {
                "twelve": twelve_bits,
                "bfloat16": bfloat16,
                "bits": h5py.h5t.STD_B8LE,
                "more bits": h5py.h5t.STD_B16BE,
                "array": h5py.h5t.array_create(h5py.h5t.IEEE_F32BE, (3, 2)),
            }.items():
                made = h5py.Dataset(h5py.h5d.create(file.id, name.encode(), kind, space))
                x = np.arange(40) if name != "array" else rows_array(40, "f4", sample_shape=(3, 2))
                if "bits" in name:
                    made.id.write(h5py.h5s.ALL, h5py.h5s.ALL, x.astype(kind.dtype), kind)
                else:
                    made[...] = x
            enum = h5py.enum_dtype({"cat": 0, "dog": 40}, basetype=">i2")
            file.create_dataset("enum", data=np.arange(40), dtype=enum, chunks=(7,))
        check_against_h5py(path)
        with ooc.open_store(path) as store:
            readers = {name: info.reader for name, info in store.arrays.items()}
            assert readers == {**dict.fromkeys(readers, "library"), "enum": "direct"}
            assert store.arrays["array"].shape == (40, 3, 2)
            assert store.arrays["enum"].dtype == np.dtype("i2")
            assert store.arrays["enum"].dtype.metadata is None

    def test_complex_of_another_form(self, tmp_path: Path) -> None:
        """With a gap between the parts, which NumPy has not."""
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            kind = h5py.h5t.create(h5py.h5t.COMPOUND, 12)
            kind.insert(b"r", 0, h5py.h5t.IEEE_F32LE)
            kind.insert(b"i", 8, h5py.h5t.IEEE_F32LE)
            made = h5py.h5d.create(file.id, b"gap", kind, h5py.h5s.create_simple((20,)))
            h5py.Dataset(made)[...] = np.arange(20) + 1j
        with ooc.open_store(path) as store:
            assert store.arrays["gap"].reader == "library"
            check_equal(store, "gap", (np.arange(20) + 1j).astype("c8"))

    def test_is_listed_with_the_reason(self, tmp_path: Path) -> None:
        path = tmp_path / "x.h5"
        words = {
            "compound": "compound, with fields a, b",
            "null": r"empty \(null\)",
            "scalar": "0-d",
            "no rows": r"empty: shape \(0, 3\)",
            "text": "string.*integer codes",
            "bytes": "string.*integer codes",
            "vlen": "vlen.*int32",
            "reference": "reference",
            "opaque": "opaque",
            "time": "no NumPy equivalent",
            "long double": "float64",
            "times": r"datetime64\[s\]",
        }
        with h5py.File(path, "w") as file:
            compound = np.zeros(4, [("a", ">i4"), ("b", ">f8")])
            file.create_dataset("compound", data=compound, chunks=(2,))
            file["null"] = h5py.Empty("f4")
            file["scalar"] = 3.5
            file["no rows"] = np.zeros((0, 3))
            file["text"] = ["a", "bc"]
            file["bytes"] = np.array([b"abc", b"d"])
            file.create_dataset("vlen", (3,), h5py.vlen_dtype("i4"))
            file["reference"] = np.array([file["text"].ref], h5py.ref_dtype)
            file["opaque"] = np.zeros(4, "V3")
            h5py.h5d.create(file.id, b"time", h5py.h5t.UNIX_D32LE, h5py.h5s.create_simple((4,)))
            file["long double"] = np.zeros(4, np.longdouble)
            file["times"] = np.zeros(4, "M8[s]").astype(h5py.opaque_dtype("M8[s]"))
            file["x"] = rows_array(12)
            file["datatype"] = np.dtype("f4")
        with ooc.open_store(path) as store:
            assert set(store.arrays) == {*words, "x"}
            for name, pattern in words.items():
                with pytest.raises(
                    ooc.UnsupportedArrayError, match=f"'{name}' cannot be loaded: .*{pattern}"
                ):
                    store[name]
            check_equal(store, "x", rows_array(12))
