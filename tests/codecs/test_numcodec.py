"""Codecs of numcodecs, by their settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oocloader.codecs.chain import NoChain
from oocloader.codecs.numcodec import package_for, step_for


@pytest.mark.parametrize(
    ("codec", "config", "name"),
    [
        ("zlib", {}, "zlib"),
        ("bz2", {}, "bz2"),
        ("crc32", {}, "crc32"),
        ("shuffle", {"elementsize": 2}, "shuffle"),
        ("shuffle", {"elementsize": 1}, None),
        ("bitround", {"keepbits": 3}, None),
        ("astype", {"encode_dtype": "<i4", "decode_dtype": "<i4"}, None),
    ],
)
def test_steps(codec: str, config: dict[str, Any], name: str | None) -> None:
    step = step_for(codec, config, np.dtype("<i4"))
    assert (None if step is None else step.name) == name


@pytest.mark.parametrize(
    ("codec", "config"),
    [("pcodec", {}), ("blosc", {"cname": "snappy"}), ("shuffle", {"elementsize": -1}), ("delta", {"x": 1})],
)
def test_refused(codec: str, config: dict[str, Any]) -> None:
    with pytest.raises(NoChain) as caught:
        step_for(codec, config, np.dtype("<i4"))
    assert (caught.value.codec, caught.value.package) == (codec, package_for(codec))
