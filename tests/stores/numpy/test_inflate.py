"""Deflated members read from any position."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

import oocloader as ooc
from oocloader.reading.files import FileReader
from oocloader.reading.layout import Files
from oocloader.stores.base import zipped
from oocloader.stores.numpy import inflate


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
            member.CRC = crc
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
