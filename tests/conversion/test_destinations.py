"""What is written besides the rows: Zarr 2, shards, fill values, attributes; what is chosen for the user."""

from __future__ import annotations

import json
import math
import os
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from numbered import rows_array
from oocloader.conversion import auto_codec, convert, store_plan
from oocloader.conversion.auto_codec import Trial, fastest, take_sample, try_codec
from oocloader.conversion.chunking import default_chunk_rows
from oocloader.conversion.encode import Codec
from oocloader.conversion.new_array import new_arrays
from oocloader.conversion.options import ConvertOptions
from oocloader.conversion.store_plan import ReadPlan, StorePlan, make_plan
from oocloader.errors import SettingError
from oocloader.stores import ArrayInfo, open_store

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
CODECS = ("none", "zstd:3", "gzip:1", "lz4", "blosc")


def opened(path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Numcodecs codecs are not in the Zarr version 3")
        return zarr.open(path, mode="r")


# -- Zarr


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("dtype", ["?", "u1", "i2", "f4", "f8", "c8"])
def test_zarr_2(tmp_path: Path, codec: str, dtype: str) -> None:
    x = rows_array(130, dtype if dtype != "c8" else "f4").astype(dtype)
    convert({"x": x}, tmp_path / "g.zarr", zarr_format=2, codec=codec, chunk_rows=30)
    convert(x, tmp_path / "a.zarr", zarr_format=2, codec=codec)
    for path, name in (("g.zarr", "x"), ("a.zarr", "")):
        found = opened(tmp_path / path)
        found = found[name] if name else found
        assert found.metadata.zarr_format == 2
        assert found.dtype == x.dtype
        assert np.array_equal(found[:], x)
        with open_store(tmp_path / path) as store:
            array = store[store.only_array()]
            assert array.info.reader == "direct"
            assert np.array_equal(array.read(0, 130), x)
    assert sorted(os.listdir(tmp_path / "g.zarr/x")) == [
        *([".oocloader-manifest", ".zarray", ".zattrs"]),
        *(f"{n}.0.0" for n in range(5)),
    ]


@pytest.mark.parametrize(
    ("shards", "chunk_rows", "chunk", "shard"),
    [
        ("auto", 10, 10, 40),
        ("auto", 100, 100, None),
        ("none", 10, 10, None),
        (200, 10, 10, 200),
        ("200", 10, 10, 200),
        (5000, 10, 10, 1000),
        (300, None, 300, 300),
    ],
)
def test_shards(tmp_path: Path, shards: Any, chunk_rows: int | None, chunk: int, shard: int | None) -> None:
    x = rows_array(1000, "uint8")
    convert({"x": x}, tmp_path / "o.zarr", shards=shards, chunk_rows=chunk_rows)
    found = opened(tmp_path / "o.zarr")["x"]
    assert found.chunks[0] == chunk
    assert found.shards == (None if shard is None else (shard, 4, 4))
    assert np.array_equal(found[:], x)
    assert len(os.listdir(tmp_path / "o.zarr/x")) == 2 + math.ceil(1000 / (shard or chunk))


def planned(shape: tuple[int, ...], **options: Any) -> StorePlan:
    store_format = options.pop("store_format", "zarr")
    source = (ArrayInfo("x", shape, np.dtype("u1")), ReadPlan())
    chosen = ConvertOptions(**options)
    return make_plan({"x": source}, chosen, store_format=store_format, codec=Codec("none"), cores=2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shards": 7, "chunk_rows": 2}, ("7 rows", "chunks of 2", "a multiple")),
        ({"shards": 10, "zarr_format": 2}, ("shards", "Zarr format 2")),
        ({"shards": 10, "store_format": "hdf5"}, ("shards", "HDF5")),
        ({"zarr_format": 2, "store_format": "hdf5"}, ("zarr_format", "HDF5")),
    ],
)
def test_what_a_format_has_not(options: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(SettingError) as caught:
        planned((100, 4), **options)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("o.zarr", {"shards": 0}, ("shards", "auto, none", "got 0")),
        ("o.zarr", {"shards": "many"}, ("shards", "'many'")),
        ("o.zarr", {"zarr_format": 1}, ("zarr_format", "2 or 3", "got 1")),
        ("o.zarr", {"for_memory": "much"}, ("for_memory", "'much'")),
        ("o.h5", {"zarr_format": 2}, ("zarr_format", "HDF5")),
        *(
            ("o.zarr", {flag: value}, (f"{flag}: expected True or False, got {value!r}",))
            for flag in ("lossy", "overwrite", "resume", "checksum", "progress")
            for value in ("no", 0, None)
        ),
    ],
)
def test_bad_settings(tmp_path: Path, name: str, options: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(SettingError) as caught:
        convert(np.arange(10), tmp_path / name, **options)
    assert all(word in str(caught.value) for word in words)
    assert os.listdir(tmp_path) == []


def test_no_flood_of_files() -> None:
    rows = 400_000
    assert planned((rows, 16)).arrays[0].files <= 36
    assert planned((rows, 16), zarr_format=2).arrays[0].files <= 256
    assert planned((rows, 16), shards="none").arrays[0].files <= 256
    # Beyond chunks of 64 MiB they may be more.
    large = planned((1 << 20, MIB), zarr_format=2).arrays[0]
    assert large.chunk_nbytes == 64 * MIB
    for options in ({"shards": "none"}, {"zarr_format": 2}):
        flood = planned((rows, 16), chunk_rows=1, **options)
        assert "400,000 files" in flood.warning
        assert ("--shards" in flood.warning) == ("shards" in options)
    assert planned((rows, 16), chunk_rows=1).warning == ""
    assert planned((rows, 16), chunk_rows=1, store_format="hdf5").warning == ""


def test_a_flood_that_was_asked_for_is_warned_of_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_plan, "_FILE_FLOOD", 100)
    convert(np.zeros((100, 1), "u1"), tmp_path / "few.zarr", chunk_rows=1, shards="none")
    with pytest.warns(UserWarning, match=r"o\.zarr: .* 101 files"):
        convert(np.zeros((101, 1), "u1"), tmp_path / "o.zarr", chunk_rows=1, shards="none")


@pytest.mark.parametrize(
    ("for_memory", "expected"),
    [(None, 8 * MIB), (8 * GIB, 8 * MIB), (GIB, MIB), (80 * GIB, 32 * MIB), (MIB, 64 * KIB)],
)
def test_chunks_for_the_memory_of_a_device(for_memory: int | None, expected: int) -> None:
    assert default_chunk_rows(10**9, 1024, for_memory=for_memory) * 1024 == expected


@given(rows=st.integers(1, 10**9), row_nbytes=st.integers(1, 10**8), most=st.integers(1, 1000))
def test_few_chunks_where_each_is_a_file(rows: int, row_nbytes: int, most: int) -> None:
    taken = default_chunk_rows(rows, row_nbytes, most_chunks=most)
    assert 1 <= taken <= rows
    assert -(-rows // taken) <= most or (taken + 1) * row_nbytes > 64 * MIB


# -- fill values


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        ("<f4", "000080bf"),
        ("<f4", "00000080"),  # -0.0
        ("<f4", "2301c07f"),  # a NaN with a payload
        ("<f4", "0000c0ff"),  # a negative NaN
        ("<f8", "010000000000f87f"),
        ("<f2", "017e"),
        ("<i8", "ffffffffffffff7f"),
        ("<u8", "ffffffffffffffff"),
        ("|b1", "01"),
        ("<f4", "0000807f"),
        ("<c8", "2301c07f00000080"),
        ("<f4", "00000000"),
    ],
)
@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
def test_fill_values_keep_their_bits(tmp_path: Path, dtype: str, bits: str, suffix: str) -> None:
    fill = np.frombuffer(bytes.fromhex(bits), dtype)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_fill_value(fill.reshape(()))
        made = file.create_dataset("x", (100, 3), dtype, chunks=(10, 3), dcpl=properties)
        made[:50] = np.ones((50, 3), dtype)
    convert(tmp_path / "x.h5", tmp_path / f"a{suffix}")
    # Over and over, so that what is written is read.
    convert(tmp_path / f"a{suffix}", tmp_path / "b.zarr")
    convert(tmp_path / "b.zarr", tmp_path / "c.h5")
    with h5py.File(tmp_path / "c.h5") as file:
        assert np.asarray(file["x"].fillvalue).tobytes() == fill.tobytes()
        rows = file["x"][:]
    assert rows[:50].tobytes() == np.ones((50, 3), dtype).tobytes()
    assert rows[50:].tobytes() == fill.tobytes() * 150
    found = opened(tmp_path / "b.zarr")["x"]
    assert np.array_equal(found[:].view(np.uint8), rows.view(np.uint8))
    assert np.array_equal(found.fill_value, fill[0], equal_nan=fill.dtype.kind in "fc")


def test_fill_values_are_cast_with_the_rows(tmp_path: Path) -> None:
    for fill, expected in ((-1.0, -1), (0.5, 0)):
        store = tmp_path / f"{fill}.zarr"
        zarr.create_array(store, data=np.ones((9, 2), "f4"), chunks=(3, 2), fill_value=fill)
        convert(store, tmp_path / f"{fill}.h5", dtype="i2")
        with h5py.File(tmp_path / f"{fill}.h5") as file:
            assert file[f"{fill}".partition(".")[0]].fillvalue == expected


# -- attributes


@pytest.mark.parametrize("source", [".zarr", ".h5"])
@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
@pytest.mark.parametrize("version", [2, 3])
def test_attributes_come_along(tmp_path: Path, source: str, suffix: str, version: Any) -> None:
    attrs: dict[str, Any] = {
        "units": "Kelvin",
        "é": "ü",
        "count": 3,
        "scale": 0.25,
        "names": ["a", "b"],
        "numbers": [1.5, 2.5],
        "yes": True,
        "long": "x" * 70_000,
    }
    if source == ".h5":
        with h5py.File(tmp_path / "in.h5", "w", libver="v110") as file:
            file["x"] = np.arange(10)
            for name, value in attrs.items():
                file["x"].attrs[name] = value
            file["y"] = np.arange(10)
            file["y"].attrs["only"] = "y"
            file["x"].make_scale("time")
            file["y"].dims[0].attach_scale(file["x"])
    else:
        group = zarr.create_group(tmp_path / "in.zarr")
        group.create_array("x", data=np.arange(10), attributes=attrs)
        group.create_array("y", data=np.arange(10), attributes={"only": "y"})
    if suffix == ".h5" and version == 2:
        version = 3
    convert(tmp_path / f"in{source}", tmp_path / f"out{suffix}", zarr_format=version)
    with open_store(tmp_path / f"out{suffix}") as store:
        assert dict(store.arrays["x"].attrs) == attrs
        assert dict(store.arrays["y"].attrs) == {"only": "y"}
    if suffix == ".h5":
        with h5py.File(tmp_path / "out.h5") as file:
            assert file["x"].attrs["units"] == "Kelvin"
            assert list(file["x"].attrs["names"]) == ["a", "b"]
            assert not h5py.h5ds.is_scale(file["x"].id)
    else:
        assert dict(opened(tmp_path / "out.zarr")["x"].attrs) == attrs


def test_attributes_that_hdf5_has_no_type_for_are_json(tmp_path: Path) -> None:
    attrs: dict[str, Any] = {"nothing": None, "tree": {"a": [1, {"b": 2}]}, "mixed": [1, "a", None]}
    zarr.create_array(tmp_path / "x.zarr", data=np.arange(5), attributes=attrs)
    convert(tmp_path / "x.zarr", tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5") as file:
        assert {name: json.loads(value) for name, value in file["x"].attrs.items()} == attrs


@pytest.mark.parametrize("version", [2, 3])
def test_numbers_that_json_has_not(tmp_path: Path, version: Any) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.arange(5)
        file["x"].attrs.update({"c": 1 + 2j, "cs": np.array([1j, 2]), "long": np.longdouble(0.5)})
    convert(tmp_path / "x.h5", tmp_path / "o.zarr", zarr_format=version)
    found = dict(opened(tmp_path / "o.zarr")["x"].attrs)
    assert found == {"c": [1, 2], "cs": [[0, 1], [2, 0]], "long": 0.5}
    convert(tmp_path / "x.h5", tmp_path / "o.h5")
    with h5py.File(tmp_path / "o.h5") as file:
        assert file["x"].attrs["c"] == 1 + 2j
        assert file["x"].attrs["cs"].tolist() == [1j, 2]


@pytest.mark.parametrize("name", ["", "a\0b", "a\udcff"])
def test_names_of_attributes_that_hdf5_has_not(tmp_path: Path, name: str) -> None:
    zarr.create_array(tmp_path / "x.zarr", data=np.arange(5), attributes={"good": 1, name: 2})
    with pytest.raises(SettingError, match="HDF5 has no attributes of the name"):
        convert(tmp_path / "x.zarr", tmp_path / "x.h5")
    convert(tmp_path / "x.zarr", tmp_path / "y.zarr")
    assert sorted(os.listdir(tmp_path)) == ["x.zarr", "y.zarr"]


def test_names_of_axes_follow_the_axes(tmp_path: Path) -> None:
    attrs: dict[str, Any] = {"_ARRAY_DIMENSIONS": ["time", "y", "x"], "other": ["time", "y", "x"]}
    zarr.create_array(tmp_path / "x.zarr", data=np.zeros((2, 3, 4)), attributes=attrs, zarr_format=2)
    convert(tmp_path / "x.zarr", tmp_path / "o.zarr", axis=2)
    found = opened(tmp_path / "o.zarr")
    assert dict(found.attrs) == {"_ARRAY_DIMENSIONS": ["x", "time", "y"], "other": ["time", "y", "x"]}


# -- codecs


def _noise(rows: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (rows, 1000), np.uint8)


@pytest.mark.parametrize("store_format", ["zarr", "hdf5"])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("dtype", ["u1", "f4"])
def test_a_trial_is_of_what_is_written(store_format: Any, codec: str, dtype: str) -> None:
    sample = [np.arange(50_000).astype(dtype), np.zeros(3000, dtype)]
    trial = try_codec(Codec.parse(codec), sample, store_format, cores=2)
    assert trial.ratio == 1 if codec == "none" else 0 < trial.ratio < 1
    assert trial.decode_rate > 0


def test_the_codec_is_weighed_by_size_and_speed() -> None:
    def trial(name: str, ratio: float, rate: float) -> Trial:
        return Trial(Codec.parse(name), ratio, rate)

    none = trial("none", 1, float("inf"))
    assert fastest([none, trial("zstd", 0.5, 2e9)]).codec.name == "zstd"
    assert fastest([none, trial("zstd", 0.5, 0.9e9)]).codec.name == "none"  # decoding is slower than the disk
    assert fastest([none, trial("zstd", 0.99, 9e9)]).codec.name == "none"  # hardly smaller
    assert fastest([none, trial("blosc", 0.5, 9e9), trial("zstd", 0.49, 3e9)]).codec.name == "blosc"
    assert fastest([none, trial("blosc", 0.5, 9e9), trial("zstd", 0.3, 3e9)]).codec.name == "zstd"


@pytest.mark.parametrize("suffix", [".zarr", ".h5"])
def test_codec_auto(tmp_path: Path, suffix: str) -> None:
    noise, smooth = _noise(2000), np.repeat(np.arange(4000, dtype="u1"), 1000).reshape(4000, 1000)
    report = convert(noise, tmp_path / f"noise{suffix}", codec="auto")
    assert report.codec == "none"
    report = convert({"x": smooth, "y": np.arange(4000)}, tmp_path / f"smooth{suffix}", codec="auto")
    assert report.codec != "none"
    assert report.ratio > 5
    assert report.codec.startswith("lz4") is False or suffix == ".h5"
    chosen = report.choices[0]
    assert all(word in chosen for word in (f"codec {report.codec}:", "'x'", "none 1.00", "GB/s", "--codec"))


@pytest.mark.parametrize("options", [{}, {"axis": 1}, {"dtype": "f4"}, {"rows": "100:200"}])
def test_a_sample_is_bounded_and_from_all_over(options: Any) -> None:
    x = np.repeat(np.arange(500, dtype="i4"), 90_000).reshape(500, 300, 300)
    with open_store(x) as store:
        wanted = new_arrays(store, {"x": "array"}, ConvertOptions(**options))["x"]
        sample = take_sample(wanted, None)
    assert 2 <= len(sample) <= 8
    assert sum(values.nbytes for values in sample) <= 16 * MIB
    assert {values.dtype for values in sample} == {np.dtype(options.get("dtype", "i4"))}
    low, high = (100, 200) if "rows" in options else (0, 500)
    rows = [int(values.min()) for values in sample]
    if "axis" not in options:
        assert rows[0] == low
        assert rows == sorted(rows)
        assert high - 10 <= int(sample[-1].max()) < high


def test_choices_are_shown(tmp_path: Path) -> None:
    x = rows_array(100_000, "uint8", sample_shape=(10,))
    report = convert({"x": x}, tmp_path / "o.zarr", chunk_rows=50, shuffle=1)
    assert any(
        "2,000 chunks of 50 rows (500 B): as asked for (--chunk-rows)" in line for line in report.choices
    )
    assert any("x: 32 files, shards of 3,150 rows" in line for line in report.choices)
    assert any("976.6 KiB of temporary files" in line for line in report.choices)
    report = convert({"x": x}, tmp_path / "o.h5", for_memory="1GiB")
    assert any("a 1024th of the 1 GiB of the device" in line for line in report.choices)
    assert not any("--shards" in line for line in report.choices)
    assert auto_codec.DISK_RATE == 1e9  # as the documentation says
