"""Arrays that are kept column by column."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import oocloader as ooc
from npy_checks import check_reads, save
from numbered import rows_array
from oocloader.reading.files import FileReader
from oocloader.stores.numpy import fortran


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
