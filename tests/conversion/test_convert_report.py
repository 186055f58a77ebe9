"""What a conversion says of itself: numbers, one line, and a line for each choice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from numbered import rows_array
from oocloader.conversion import auto_codec, convert
from stored import files_of


def test_report(tmp_path: Path) -> None:
    report = convert({"x": np.zeros((1000, 125)), "y": np.zeros(1000)}, tmp_path / "out.zarr", codec="zstd:2")
    assert (report.format, report.codec, report.arrays) == ("zarr", "zstd:2", ("x", "y"))
    assert (report.rows, report.bytes_in) == (1000, 1_008_000)
    assert report.bytes_out == sum(
        (tmp_path / "out.zarr" / name).stat().st_size for name in files_of(tmp_path / "out.zarr")
    )
    assert report.ratio == report.bytes_in / report.bytes_out > 100
    assert report.gb_per_s == report.bytes_in / report.seconds / 1e9
    parts = (report.seconds_writing, report.seconds_checking, report.seconds_syncing)
    assert report.seconds == pytest.approx(sum(parts))
    line, *chosen = str(report).splitlines()
    assert [choice.strip() for choice in chosen] == list(report.choices)
    assert len(chosen) == 5
    assert all(
        word in line for word in (f"{tmp_path}/out.zarr", "1,000 rows", "984.4 KiB in", "zstd:2", "GB/s")
    )
    assert report.as_dict() == {
        "destination": str(tmp_path / "out.zarr"),
        "format": "zarr",
        "codec": "zstd:2",
        "arrays": ["x", "y"],
        "rows": 1000,
        "bytes_in": 1_008_000,
        "bytes_out": report.bytes_out,
        "bytes_resumed": 0,
        "verify": "sample",
        "choices": list(report.choices),
        "ratio": report.ratio,
        "seconds": report.seconds,
        "seconds_writing": report.seconds_writing,
        "seconds_checking": report.seconds_checking,
        "seconds_syncing": report.seconds_syncing,
        "gb_per_s": report.gb_per_s,
    }


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
