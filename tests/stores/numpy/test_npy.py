"""`.npy` and `.npz` files against NumPy."""

from __future__ import annotations

import io
import os
import struct
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import oocloader as ooc
from numbered import rows_array
from oocloader.reading.files import FileReader
from oocloader.reading.layout import Files
from oocloader.stores.base import zipped
from oocloader.stores.numpy import fortran, inflate, npz
from oocloader.stores.numpy.npy import read_header

DTYPES = (
    "?",
    "u1",
    "i1",
    "<u2",
    ">i2",
    "<i4",
    ">u4",
    ">i8",
    "<f2",
    ">f2",
    "<f4",
    ">f4",
    "<f8",
    ">f8",
    "<c8",
    ">c16",
)


def save(path: Path, array: np.ndarray, version: tuple[int, int] | None = None) -> str:
    with warnings.catch_warnings(), open(path, "wb") as stream:
        warnings.simplefilter("ignore")  # NumPy says that format 2 and 3 are new
        np.lib.format.write_array(stream, array, version=version)
    return str(path)


def check_reads(store: ooc.Store, name: str, expected: np.ndarray) -> None:
    """Every third range of rows, and the whole, against `expected`."""
    array = store[name]
    assert array.info.shape == expected.shape
    assert array.info.dtype == expected.dtype.newbyteorder("=")
    for start in range(0, len(expected), 3):
        for stop in {start, start + 1, min(start + 5, len(expected)), len(expected)}:
            found = array.read(start, stop)
            assert found.dtype == array.info.dtype
            assert found.flags.c_contiguous
            assert found.tobytes() == np.ascontiguousarray(expected[start:stop], array.info.dtype).tobytes()


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


@pytest.mark.parametrize("gap_nbytes", [0, 1 << 20])
def test_column_order_is_read_in_bands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gap_nbytes: int
) -> None:
    """Small limits stand for large files: several bands and jobs, with and without gaps read."""
    monkeypatch.setattr(fortran, "_BAND_NBYTES", 4000)
    monkeypatch.setattr(fortran, "JOB_NBYTES", 1000)
    monkeypatch.setattr(fortran, "_GAP_NBYTES", gap_nbytes)
    array = np.asfortranarray(rows_array(101, "<i4", sample_shape=(5, 7)))
    with ooc.open_store(save(tmp_path / "x.npy", array)) as store:
        assert store["x"].reader.chunk_rows == 4000 // (35 * 4)
        check_reads(store, "x", array)


def test_column_order_does_not_pass_over_the_file_for_every_band(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fortran, "_GAP_NBYTES", 0)
    monkeypatch.setattr(fortran, "_BAND_NBYTES", 40 * 35)
    array = np.asfortranarray(rows_array(200, "u1", sample_shape=(5, 7)))
    path = save(tmp_path / "x.npy", array)
    read: list[int] = []
    whole = FileReader.read

    def recorded(self: FileReader, fd: int, index: int, offset: int, out: np.ndarray) -> int:
        read.append(out.nbytes)
        return whole(self, fd, index, offset, out)

    monkeypatch.setattr(FileReader, "read", recorded)
    with ooc.open_store(path) as store:
        for start in range(0, 200, 40):
            store["x"].read(start, start + 40)
    assert sum(read) == array.nbytes


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


class TestNpz:
    @pytest.mark.parametrize("dtype", ["u1", ">f4", "?", "<c8"])
    @pytest.mark.parametrize("order", "CF")
    @pytest.mark.parametrize("save_as", [np.savez, np.savez_compressed])
    def test_values_equal_numpy(self, tmp_path: Path, save_as: Any, order: Any, dtype: str) -> None:
        path = tmp_path / "pack.npz"
        x = np.asarray(rows_array(31, dtype, sample_shape=(4, 5)), dtype=dtype, order=order)
        save_as(path, **{"x": x, "deep/y": np.arange(31), "words": np.array(["a", "b"])})
        with ooc.open_store(path) as store, np.load(path) as expected:
            assert list(store.arrays) == ["x", "deep/y", "words"]
            direct = save_as is np.savez
            assert store.arrays["x"].reader == ("direct" if direct else "library")
            assert bool(store.arrays["x"].reason) != direct
            assert store.arrays["x"].codecs == (() if direct else ("deflate",))
            assert store.arrays["words"].reader == "none"
            check_reads(store, "x", expected["x"])
            check_reads(store, "deep/y", expected["deep/y"])
            with pytest.raises(ooc.DataError, match=r"several arrays: 'x', 'deep/y', 'words'"):
                store.only_array()

    def test_objects_are_listed_and_never_unpickled(self, tmp_path: Path) -> None:
        path = tmp_path / "pack.npz"
        np.savez(path, o=np.array([[1], {}], object), x=np.arange(3), allow_pickle=True)
        with ooc.open_store(path) as store:
            assert store.arrays["o"].reader == "none"
            assert "object" in store.arrays["o"].reason
            check_reads(store, "x", np.arange(3))

    def test_another_compression_is_listed_with_the_remedy(self, tmp_path: Path) -> None:
        path = tmp_path / "pack.npz"
        member = io.BytesIO()
        np.save(member, np.arange(5))
        with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
            archive.writestr("x.npy", member.getvalue())
        with (
            ooc.open_store(path) as store,
            pytest.raises(ooc.UnsupportedArrayError, match=r"bzip2.*numpy\.savez"),
        ):
            store["x"]

    def test_truncated_archive(self, tmp_path: Path) -> None:
        path = tmp_path / "pack.npz"
        np.savez(path, x=rows_array(50))
        os.truncate(path, os.path.getsize(path) - 10)
        with pytest.raises(ooc.StoreError, match=r"pack\.npz.*truncated"):
            ooc.open_store(path)

    def test_member_shorter_than_its_header_says(self, tmp_path: Path) -> None:
        path = tmp_path / "pack.npz"
        whole = io.BytesIO()
        np.save(whole, np.arange(100))
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", whole.getvalue()[:-8])
            archive.writestr("y.npy", b"not a header at all")
        with ooc.open_store(path) as store:
            assert "truncated" in store.arrays["x"].reason
            assert "not a .npy" in store.arrays["y"].reason

    def test_damaged_deflate_stream(self, tmp_path: Path) -> None:
        path = tmp_path / "pack.npz"
        np.savez_compressed(path, x=np.random.default_rng(0).integers(0, 4, 40_000).astype("u1"))
        member = zipped.members(str(path))["x.npy"]
        raw = bytearray(path.read_bytes())
        raw[member.header_offset + member.stored // 2] ^= 0x10
        path.write_bytes(raw)
        with (
            ooc.open_store(path) as store,
            pytest.raises(ooc.CorruptChunkError, match=r"pack\.npz.*'x'.*damaged"),
        ):
            store["x"].read(0, 40_000)

    def test_column_order_in_pieces(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fortran, "_BAND_NBYTES", 1000)
        monkeypatch.setattr(npz, "_PIECE_NBYTES", 700)
        x = np.asfortranarray(rows_array(50, "<i4", sample_shape=(3, 4)))
        np.savez_compressed(tmp_path / "pack.npz", x=x)
        with ooc.open_store(tmp_path / "pack.npz") as store:
            check_reads(store, "x", x)


class TestInflatedBytes:
    @pytest.fixture
    def plain(self) -> np.ndarray:
        """300 KB that deflate makes smaller, no two pieces alike."""
        return np.random.default_rng(5).integers(0, 32, 300_000).astype(np.uint8)

    @pytest.fixture
    def inflated(
        self, tmp_path: Path, plain: np.ndarray, monkeypatch: pytest.MonkeyPatch
    ) -> inflate.InflatedBytes:
        monkeypatch.setattr(inflate, "_MIN_SPACING_NBYTES", 20_000)
        monkeypatch.setattr(inflate, "_INPUT_NBYTES", 1_000)
        monkeypatch.setattr(inflate, "_OUTPUT_NBYTES", 7_000)
        path = tmp_path / "x.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x", plain.tobytes())
        return self.open(path)

    @staticmethod
    def open(path: Path, crc: int | None = None) -> inflate.InflatedBytes:
        member = zipped.members(str(path))["x"]
        if crc is not None:
            member = replace(member, crc=crc)
        with open(path, "rb") as stream:
            offset = zipped.data_offset(stream.fileno(), member, str(path))
        file = FileReader(Files.of(str(path)))
        return inflate.InflatedBytes(file, member, offset, store=str(path), array="x")

    def test_any_order_of_reads(self, inflated: inflate.InflatedBytes, plain: np.ndarray) -> None:
        places = [(0, 10), (299_990, 10), (5, 100_000), (150_000, 1), (20_000, 20_000), (0, 300_000), (1, 1)]
        for start, count in places:
            out = np.zeros(count, np.uint8)
            inflated.read(start, out)
            assert np.array_equal(out, plain[start : start + count])

    def test_going_back_costs_no_more_than_the_spacing(
        self, inflated: inflate.InflatedBytes, plain: np.ndarray, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inflated.read(0, np.zeros(300_000, np.uint8))
        taken: list[int] = []
        pread = os.pread

        def recorded(fd: int, count: int, at: int) -> bytes:
            taken.append(count)
            return pread(fd, count, at)

        monkeypatch.setattr(os, "pread", recorded)
        out = np.zeros(10, np.uint8)
        inflated.read(250_000, out)
        assert np.array_equal(out, plain[250_000:250_010])
        assert sum(taken) < 25_000

    def test_wrong_checksum(self, tmp_path: Path, inflated: inflate.InflatedBytes) -> None:
        wrong = self.open(tmp_path / "x.zip", crc=1)
        wrong.read(200_000, np.zeros(10, np.uint8))
        with pytest.raises(ooc.CorruptChunkError, match="checksum"):
            wrong.read(299_000, np.zeros(1000, np.uint8))
        with pytest.raises(ooc.CorruptChunkError, match="expected 300000"):
            inflated.read(299_999, np.zeros(2, np.uint8))
