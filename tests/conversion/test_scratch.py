"""Rows laid aside in a file without a name."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numbered import rows_array
from oocloader.conversion import convert, shuffling, transposing
from oocloader.conversion.scratch import Scratch
from oocloader.errors import ChangedError


@pytest.mark.parametrize("options", [{"shuffle": 1}, {"axis": 1}])
def test_a_source_that_shrinks_in_the_first_pass(tmp_path: Path, options: Any) -> None:
    np.save(tmp_path / "x.npy", rows_array(100, "uint8", sample_shape=(300, 300)))
    original = Scratch.write

    def cutting(self: Scratch, data: np.ndarray, offset: int) -> None:
        os.truncate(tmp_path / "x.npy", 1000)
        original(self, data, offset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scratch, "write", cutting)
        patch.setattr(transposing, "BOX_NBYTES", 1_000_000)
        patch.setattr(shuffling, "BLOCK_NBYTES", 1_000_000)
        with pytest.raises(ChangedError, match=r"x\.npy"):
            convert(tmp_path / "x.npy", tmp_path / "out.zarr", **options)
    assert os.listdir(tmp_path) == ["x.npy"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("oocloader")]
