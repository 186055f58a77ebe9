"""Plans of new stores of one array."""

from __future__ import annotations

from typing import Any

import numpy as np

from oocloader.conversion.encode import Codec
from oocloader.conversion.options import ConvertOptions
from oocloader.conversion.store_plan import (
    ReadPlan,
    StoredArrayPlan,
    StorePlan,
    make_plan,
)
from oocloader.stores import ArrayInfo


def planned(
    shape: tuple[int, ...],
    dtype: str = "u1",
    *,
    to: Any = "zarr",
    codec: str = "none",
    chunk_rows: int | None = None,
    reading: ReadPlan | None = None,
    cores: int = 64,
) -> StoredArrayPlan:
    source = (ArrayInfo("x", shape, np.dtype(dtype)), reading or ReadPlan())
    options = ConvertOptions(chunk_rows=chunk_rows)
    plan = make_plan({"x": source}, options, store_format=to, codec=Codec.parse(codec), cores=cores)
    return plan.arrays[0]


def planned_store(shape: tuple[int, ...], **options: Any) -> StorePlan:
    store_format = options.pop("store_format", "zarr")
    source = (ArrayInfo("x", shape, np.dtype("u1")), ReadPlan())
    chosen = ConvertOptions(**options)
    return make_plan({"x": source}, chosen, store_format=store_format, codec=Codec("none"), cores=2)
