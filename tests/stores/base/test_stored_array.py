"""One array: its reader is made when it is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import oocloader as ooc
from oocloader.reading.memory_reader import MemoryReader
from oocloader.stores import StoredArray


class TestReader:
    @staticmethod
    def array(make: Any) -> StoredArray:
        info = ooc.ArrayInfo("x", (3,), np.dtype("i8"))
        return StoredArray(info, make, store="a store")

    def test_is_made_once_and_when_it_is_needed(self) -> None:
        made: list[MemoryReader] = []

        def make() -> MemoryReader:
            made.append(MemoryReader(np.arange(3)))
            return made[-1]

        array = self.array(make)
        assert not made
        assert array.reader is array.reader is made[0]
        array.read(0, 3)
        assert len(made) == 1

    def test_failure_is_raised_each_time(self) -> None:
        def make() -> MemoryReader:
            raise ooc.StoreError("no")

        array = self.array(make)
        for _ in range(2):
            with pytest.raises(ooc.StoreError, match="no"):
                array.read(0, 1)
