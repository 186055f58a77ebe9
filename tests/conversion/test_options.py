"""What `convert` is asked for: bad options are refused before anything is written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oocloader.conversion import convert
from oocloader.errors import SettingError


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("out", {}, (".zarr, .h5 or .hdf5", "'none'")),
        ("out.tfrecord", {}, (".zarr, .h5 or .hdf5", "'.tfrecord'")),
        ("out.h5", {"codec": "zip"}, ("'zip' is unknown",)),
        ("out.h5", {"chunk_rows": 0}, ("chunk_rows", "at least 1", "got 0")),
        ("out.h5", {"chunk_rows": 2.5}, ("chunk_rows", "got 2.5")),
        ("out.h5", {"chunk_rows": "8MiB"}, ("chunk_rows", "got '8MiB'")),
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
def test_bad_options(tmp_path: Path, name: str, options: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(SettingError) as caught:
        convert(np.arange(10), tmp_path / name, **options)
    assert all(word in str(caught.value) for word in words)
    assert os.listdir(tmp_path) == []
