"""What imagecodecs lacks."""

from __future__ import annotations

import imagecodecs
import numpy as np
import pytest

from oocloader.codecs.chain import NoChain
from oocloader.codecs.zarr import v2


def test_what_this_build_of_imagecodecs_lacks_is_left_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imagecodecs.LZ4, "available", False)
    with pytest.raises(NoChain, match="lz4 is missing") as caught:
        v2(None, {"id": "lz4"}, dtype=np.dtype("u1"), order="C", chunk_shape=(4,))
    assert caught.value.package == "imagecodecs"
