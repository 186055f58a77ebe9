"""The manifest of a store: where it lies, what it survives, and that its own damage is seen."""

from __future__ import annotations

import base64
import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

from numbered import rows_array
from oocloader.conversion import convert
from oocloader.conversion.verification.manifest import (
    FILE_NAME,
    ArrayManifest,
    checksum_of_rows,
    read_manifest,
)
from oocloader.errors import StoreError
from oocloader.stores import open_store


def manifest_of(path: Path, name: str) -> ArrayManifest | None:
    with open_store(path) as store:
        return read_manifest(store[name])


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_checksums_are_of_the_rows(tmp_path: Path, suffix: str, codec: str) -> None:
    x, y = rows_array(103, "float32"), np.arange(103)
    convert({"x": x, "deep/y": y}, tmp_path / f"out{suffix}", codec=codec, chunk_rows=10)
    for name, rows in (("x", x), ("deep/y", y)):
        found = manifest_of(tmp_path / f"out{suffix}", name)
        assert found is not None
        assert (found.shape, found.dtype, found.chunk_rows) == (rows.shape, rows.dtype, 10)
        # zlib is the second opinion.
        expected = [zlib.crc32(rows[at : at + 10].tobytes()) for at in range(0, 103, 10)]
        assert found.checksums.tolist() == expected


def test_the_same_rows_have_the_same_digest_in_either_format(tmp_path: Path) -> None:
    x = rows_array(100, "int16")
    for name, codec in (("a.h5", "none"), ("b.h5", "zstd"), ("c.zarr", "none"), ("d.zarr", "lz4")):
        convert({"x": x}, tmp_path / name, codec=codec, chunk_rows=7)
    convert({"x": x[::-1].copy()}, tmp_path / "e.zarr", chunk_rows=7)
    digests = [manifest_of(tmp_path / name, "x") for name in ("a.h5", "b.h5", "c.zarr", "d.zarr", "e.zarr")]
    found = [manifest.digest for manifest in digests if manifest is not None]
    assert len(found) == 5
    assert len(set(found[:4])) == 1
    assert found[4] != found[0]


def test_other_readers_do_not_see_it(tmp_path: Path) -> None:
    convert({"x": np.arange(9), "y": np.arange(9)}, tmp_path / "out.h5")
    convert({"x": np.arange(9), "y": np.arange(9)}, tmp_path / "out.zarr")
    with h5py.File(tmp_path / "out.h5") as file:
        assert list(file) == ["x", "y"]
        assert not file.attrs
        assert not file["x"].attrs
    root: Any = zarr.open(tmp_path / "out.zarr", mode="r")
    assert sorted(root) == [
        "x",
        "y",
    ]  # zarr-python warns of files that it does not know, which is an error here
    assert not dict(root.attrs)
    assert not dict(root["x"].attrs)
    convert(np.arange(9), tmp_path / "root.zarr")
    array: Any = zarr.open(tmp_path / "root.zarr", mode="r")
    assert np.array_equal(array[:], np.arange(9))
    assert manifest_of(tmp_path / "root.zarr", "root") is not None


def test_whatever_writes_to_an_hdf5_file_cuts_it_off(tmp_path: Path) -> None:
    convert({"x": np.arange(9)}, tmp_path / "out.h5")
    with h5py.File(tmp_path / "out.h5", "r+") as file:
        file["x"][3] = 7
    assert manifest_of(tmp_path / "out.h5", "x") is None
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["x"][3] == 7


def test_zarr_in_a_zip_keeps_it(tmp_path: Path) -> None:
    convert({"x": np.arange(9)}, tmp_path / "out.zarr")
    shutil.make_archive(str(tmp_path / "out"), "zip", tmp_path / "out.zarr")
    found = manifest_of(tmp_path / "out.zip", "x")
    assert found is not None
    assert found.checksums.tolist() == [checksum_of_rows(np.arange(9))]


@pytest.mark.parametrize("kind", ["npy", "h5", "zarr", "npz"])
def test_stores_of_others_have_none(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"x.{kind}"
    match kind:
        case "npy":
            np.save(path, np.arange(5))
        case "npz":
            np.savez(path, x=np.arange(5))
        case "h5":
            with h5py.File(path, "w") as file:
                file["x"] = np.arange(5)
        case _:
            zarr.create_array(path, data=np.arange(5))
    assert manifest_of(path, "x") is None


def test_none_in_memory_and_of_joined_parts(tmp_path: Path) -> None:
    convert({"x": np.arange(9)}, tmp_path / "a.zarr")
    with open_store(np.arange(3)) as store:
        assert read_manifest(store["array"]) is None
    with open_store([tmp_path / "a.zarr", tmp_path / "a.zarr"]) as store:
        assert read_manifest(store[store.only_array()]) is None


def _flip(text: bytes) -> bytes:
    found = json.loads(text)
    sums = bytearray(base64.b64decode(found["arrays"][0]["crc32"]))
    sums[0] ^= 1
    found["arrays"][0]["crc32"] = base64.b64encode(sums).decode()
    return json.dumps(found).encode()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: text[:-9], "manifest is damaged"),
        (lambda text: b"", "manifest is damaged"),
        (lambda text: b"[]", "manifest is damaged"),
        (_flip, "its digest is wrong"),
        (lambda text: text.replace(b'_manifest": 1', b'_manifest": 2'), "of version 2, which a later"),
    ],
)
def test_its_own_damage_is_known(tmp_path: Path, damage: Any, words: str) -> None:
    convert({"x": np.arange(9)}, tmp_path / "out.zarr")
    path = tmp_path / "out.zarr" / "x" / FILE_NAME
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StoreError, match=words) as caught:
        manifest_of(tmp_path / "out.zarr", "x")
    assert str(path) in str(caught.value)


def test_damage_behind_an_hdf5_file(tmp_path: Path) -> None:
    convert({"x": np.arange(9)}, tmp_path / "out.h5")
    text = (tmp_path / "out.h5").read_bytes()
    at = text.rindex(b"crc32")
    (tmp_path / "out.h5").write_bytes(text[:at] + b"c" + text[at + 1 :].replace(b"blake2b", b"blake2c"))
    with pytest.raises(StoreError, match=r"out\.h5: the manifest is damaged"):
        manifest_of(tmp_path / "out.h5", "x")


@pytest.mark.parametrize("nbytes", [b"\xff" * 8, b"\0\0\0\0\0\0\0\x80", b"\0\0\1\0\0\0\0\0"])
def test_more_bytes_than_an_hdf5_file_has(tmp_path: Path, nbytes: bytes) -> None:
    convert({"x": np.arange(9)}, tmp_path / "out.h5")
    text = (tmp_path / "out.h5").read_bytes()
    (tmp_path / "out.h5").write_bytes(text[:-32] + nbytes + text[-24:])
    with pytest.raises(StoreError, match=r"out\.h5: the manifest is damaged: it cannot have \d+ bytes"):
        manifest_of(tmp_path / "out.h5", "x")
