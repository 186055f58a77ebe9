"""What the metadata of an array says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
import zarr.codecs
import zarr.storage
from hypothesis import given
from hypothesis import strategies as st

import oocloader as ooc
from oocloader.stores.zarr import metadata
from oocloader.stores.zarr.metadata import BadMetadata, Keys
from zarr_checks import bits


class TestFill:
    @pytest.mark.parametrize(
        ("dtype", "value"),
        [
            ("float32", "0x7fc00001"),
            ("float32", "0xffa00001"),
            ("float64", "0x7ff4000000000001"),
            ("float16", "0x7e01"),
            ("float32", "NaN"),
            ("float64", "-Infinity"),
            ("float32", -0.0),
            ("float32", 0.1),
            ("int8", -128),
            ("uint64", 2**64 - 1),
            ("bool", True),
            ("complex64", ["NaN", 1.5]),
            ("complex128", ["0x7ff8000000000001", "Infinity"]),
        ],
    )
    @pytest.mark.parametrize("endian", ["little", "big"])
    def test_bits_are_kept(self, tmp_path: Path, dtype: str, value: Any, endian: Any) -> None:
        path = tmp_path / "x.zarr"
        serializer = zarr.codecs.BytesCodec(endian=endian)
        zarr.create_array(path, shape=(12, 3), chunks=(5, 3), dtype=dtype, serializer=serializer)[:5] = 1
        file = path / "zarr.json"
        document = json.loads(file.read_text())
        document["fill_value"] = value
        file.write_text(json.dumps(document))
        expected = metadata.fill_value(value, np.dtype(dtype))
        with ooc.open_store(path) as store:
            found = store["x"].read(0, 12)
        assert (found[:5] == 1).all()
        assert {bits(item) for item in found[5:].reshape(-1)} == {expected.tobytes()}
        if not any("0x" in str(part) for part in np.ravel(value)):
            assert bits(found) == bits(np.asarray(zarr.open_array(path, mode="r")[...]))

    def test_hexadecimal_by_hand(self) -> None:
        found = metadata.fill_value("0x7fc00001", np.dtype(">f4"))
        assert found.tobytes().hex() == "7fc00001"
        assert metadata.fill_value(None, np.dtype("i4")) == 0

    @pytest.mark.parametrize(
        ("value", "dtype"),
        [
            ("abc", "f4"),
            (1.5, "i4"),
            (300, "u1"),
            (-1, "u1"),
            (True, "f4"),
            ([1, 2, 3], "c8"),
            ("0x1ffffffff", "f4"),
            ({}, "?"),
        ],
    )
    def test_nonsense(self, value: Any, dtype: str) -> None:
        with pytest.raises(BadMetadata, match="fill value"):
            metadata.fill_value(value, np.dtype(dtype))


@given(
    st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 30)), max_size=5),
    st.sampled_from([Keys("c/", "/"), Keys("c.", "."), Keys("", "."), Keys("", "/")]),
)
def test_keys_give_back_their_indices(cells: list[tuple[int, int]], keys: Keys) -> None:
    named = [keys.prefix + keys.separator.join(map(str, cell)) for cell in cells]
    strays = ["zarr.json", "c", "0", "c/0", "0.0.0", "c/01/2", "c/1/-2", "c/1/2/3", "1/2/"]
    strays = [stray for stray in strays if stray not in named]
    which, found = keys.indices([*strays, *named], 2)
    assert which.tolist() == list(range(len(strays), len(strays) + len(named)))
    assert found.tolist() == [list(cell) for cell in cells]
