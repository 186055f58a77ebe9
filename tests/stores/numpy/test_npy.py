"""`.npy` and `.npz` files against NumPy."""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import oocloader as ooc
from npy_checks import DTYPES, check_reads, save
from numbered import rows_array
from oocloader.stores.numpy.npy import read_header


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_equal_numpy(tmp_path: Path, dtype: str, order: Any) -> None:
    array = np.asarray(rows_array(23, dtype, sample_shape=(3, 5)), dtype=dtype, order=order)
    path = save(tmp_path / "x.npy", array)
    with ooc.open_store(path) as store:
        assert list(store.arrays) == ["x"]
        assert store.arrays["x"].reader == "direct"
        assert store.arrays["x"].nbytes == store.arrays["x"].stored_nbytes == array.nbytes
        check_reads(store, "x", np.load(path))


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_format_version(tmp_path: Path, version: tuple[int, int]) -> None:
    array = rows_array(7)
    with ooc.open_store(save(tmp_path / "x.npy", array, version)) as store:
        check_reads(store, "x", array)


def test_header_of_python_2(tmp_path: Path) -> None:
    text = b"{'descr': '<i4', 'fortran_order': False, 'shape': (3L, 2L), }".ljust(117) + b"\n"
    array = np.arange(6, dtype="<i4").reshape(3, 2)
    path = tmp_path / "old.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + array.tobytes())
    with ooc.open_store(path) as store:
        check_reads(store, "old", array)


@given(
    array=hnp.arrays(
        hnp.scalar_dtypes().filter(lambda dtype: dtype.kind in "biufc" and dtype.itemsize <= 8),
        hnp.array_shapes(min_dims=1, max_dims=4, max_side=6),
    ),
    order=st.sampled_from("CF"),
)
def test_any_array(tmp_path_factory: pytest.TempPathFactory, array: np.ndarray, order: Any) -> None:
    path = save(tmp_path_factory.mktemp("npy") / "x.npy", np.asarray(array, order=order))
    with ooc.open_store(path) as store:
        check_reads(store, "x", array)


class TestRefused:
    def test_objects_are_refused_when_opened_and_never_unpickled(self, tmp_path: Path) -> None:
        marker = tmp_path / "unpickled"

        class Marks:
            def __reduce__(self) -> tuple[Any, ...]:
                return open, (str(marker), "w")

        array = np.empty(2, object)
        array[0], array[1] = Marks(), [1, 2]
        path = tmp_path / "objects.npy"
        np.save(path, array, allow_pickle=True)
        with pytest.raises(ooc.UnsupportedArrayError, match=r"objects\.npy.*object"):
            ooc.open_store(path)
        assert not marker.exists()

    @pytest.mark.parametrize(
        ("array", "words"),
        [
            (np.zeros(4, [("größe", "f4"), ("класс", "i4")]), "compound.*größe, класс"),
            (np.array(["кошка", "dog"]), "string.*integer codes"),
            (np.array([b"cat", b"dog"]), "string.*integer codes"),
            (np.arange(4).astype("M8[ns]"), r"datetime64\[ns\]"),
            (np.arange(4).astype("m8[s]"), r"timedelta64\[s\]"),
            (np.zeros(4, "V3"), "opaque"),
            (np.zeros(4, np.longdouble), "float64"),
            (np.float32(3.5), "0-d"),
            (np.zeros((0, 3)), r"empty.*\(0, 3\)"),
            (np.zeros((3, 0)), r"empty.*\(3, 0\)"),
        ],
        ids=str,
    )
    def test_is_listed_with_the_reason(self, tmp_path: Path, array: Any, words: str) -> None:
        path = save(tmp_path / "x.npy", np.asarray(array))
        with ooc.open_store(path) as store:
            assert store.arrays["x"].reader == "none"
            assert store.arrays["x"].shape == np.shape(array)
            for name_it in (lambda: store["x"], store.only_array):
                with pytest.raises(ooc.UnsupportedArrayError, match=rf"x\.npy.*'x'.*{words}") as caught:
                    name_it()
                assert caught.value.file == path
                assert caught.value.array == "x"
                assert "\n" not in str(caught.value)


class TestDamaged:
    def test_truncated(self, tmp_path: Path) -> None:
        path = save(tmp_path / "x.npy", rows_array(10))
        size = os.path.getsize(path)
        os.truncate(path, size - 1)
        with pytest.raises(ooc.StoreError, match=f"truncated.*{size - 1} bytes.*{size} are expected"):
            ooc.open_store(path)

    @pytest.mark.parametrize("kept", [7, 9, 40, 100])
    def test_truncated_header(self, tmp_path: Path, kept: int) -> None:
        path = save(tmp_path / "x.npy", rows_array(10))
        os.truncate(path, kept)
        with pytest.raises(ooc.StoreError, match="cut short"):
            ooc.open_store(path)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "nonsense",
            "[1, 2]",
            "{'descr': '<f4', 'fortran_order': False}",
            "{'descr': '<f4', 'fortran_order': 3, 'shape': (1,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': 5}",
            "{'descr': 'wat', 'fortran_order': False, 'shape': (1,)}",
            "{'descr': __import__('os'), 'fortran_order': False, 'shape': (1,)}",
            "(" * 5000,
        ],
    )
    def test_nonsense_in_the_header(self, text: str) -> None:
        header = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()
        with pytest.raises(ooc.StoreError, match="damaged"):
            read_header(io.BytesIO(header), "x.npy")

    def test_unknown_version(self) -> None:
        with pytest.raises(ooc.StoreError, match=r"version 9\.0"):
            read_header(io.BytesIO(b"\x93NUMPY\x09\x00" + bytes(100)), "x.npy")

    def test_header_of_gigabytes_is_not_read(self) -> None:
        with pytest.raises(ooc.StoreError, match="claims 4294967295 bytes"):
            read_header(io.BytesIO(b"\x93NUMPY\x02\x00" + b"\xff" * 100), "x.npy")

    @given(st.data())
    def test_flipped_bits_raise_or_load(self, tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
        path = tmp_path_factory.mktemp("npy") / "x.npy"
        save(path, rows_array(5))
        raw = bytearray(path.read_bytes())
        for place in data.draw(st.lists(st.integers(0, 127), min_size=1, max_size=4)):
            raw[place] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(raw)
        error = None
        try:
            with ooc.open_store(path) as store:
                array = store[store.only_array()]
                array.read(0, array.info.shape[0])
        except ooc.OocloaderError as raised:
            error = raised
        assert "\n" not in str(error)
