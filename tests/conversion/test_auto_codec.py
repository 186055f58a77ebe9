"""The codec that is chosen: trials on a sample, weighed by size and speed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oocloader.conversion import convert
from oocloader.conversion.auto_codec import Trial, fastest, take_sample, try_codec
from oocloader.conversion.encode import Codec
from oocloader.conversion.new_array import new_arrays
from oocloader.conversion.options import ConvertOptions
from oocloader.stores import open_store

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


CODECS = ("none", "zstd:3", "gzip:1", "lz4", "blosc")


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
