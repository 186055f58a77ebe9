"""zarr-python as the reader of what is not decoded here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import zarr
import zarr.codecs

import oocloader as ooc
from numbered import rows_array
from oocloader.reading import LibraryReader


def test_rows_and_boxes(tmp_path: Path) -> None:
    x = rows_array(20, "int32", sample_shape=(8,))
    zarr.create_array(
        tmp_path / "x.zarr",
        shape=x.shape,
        dtype=x.dtype,
        chunks=(8, 8),
        filters=zarr.codecs.TransposeCodec(order=(1, 0)),
        serializer=zarr.codecs.ShardingCodec(chunk_shape=(4, 4)),
    )[...] = x
    with ooc.open_store(tmp_path / "x.zarr") as store:
        reader = store["x"].reader
        assert isinstance(reader, LibraryReader)
        assert np.array_equal(store["x"].read(3, 17), x[3:17])
        box = (slice(2, 9), slice(1, 6))
        out = np.empty((7, 5), "int32")
        reader.read_box(box, out)
        assert np.array_equal(out, x[box])
