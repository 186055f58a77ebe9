"""Train Keras models on arrays that fit neither the GPU nor the RAM.

`open_store` looks into HDF5, Zarr and NumPy files, `Loader` turns their rows into a `tf.data.Dataset`
whose batches lie on the device, `convert` makes chunked stores of large `.npy` files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oocloader import keras as keras
    from oocloader.conversion import ConvertReport, convert
    from oocloader.errors import (
        ArrayNotFoundError,
        ChangedError,
        ClosedError,
        CorruptChunkError,
        DataError,
        OocloaderError,
        SettingError,
        StateError,
        StoreError,
        TracingError,
        UnsupportedArrayError,
    )
    from oocloader.loader import Loader
    from oocloader.loader.data_spec import DataSpec
    from oocloader.loader.plan import Plan
    from oocloader.metrics.report import Report
    from oocloader.stores import ArrayInfo, Store, StoredArray, open_store

__version__ = "0.1.0"

# Each name is loaded from its module when it is first used, so that importing the package costs nothing.
_HOMES = {
    "ArrayInfo": "oocloader.stores",
    "ArrayNotFoundError": "oocloader.errors",
    "ChangedError": "oocloader.errors",
    "ClosedError": "oocloader.errors",
    "ConvertReport": "oocloader.conversion",
    "CorruptChunkError": "oocloader.errors",
    "DataError": "oocloader.errors",
    "DataSpec": "oocloader.loader.data_spec",
    "Loader": "oocloader.loader",
    "OocloaderError": "oocloader.errors",
    "Plan": "oocloader.loader.plan",
    "Report": "oocloader.metrics.report",
    "SettingError": "oocloader.errors",
    "StateError": "oocloader.errors",
    "Store": "oocloader.stores",
    "StoreError": "oocloader.errors",
    "StoredArray": "oocloader.stores",
    "TracingError": "oocloader.errors",
    "UnsupportedArrayError": "oocloader.errors",
    "convert": "oocloader.conversion",
    "open_store": "oocloader.stores",
}

__all__ = [
    "ArrayInfo",
    "ArrayNotFoundError",
    "ChangedError",
    "ClosedError",
    "ConvertReport",
    "CorruptChunkError",
    "DataError",
    "DataSpec",
    "Loader",
    "OocloaderError",
    "Plan",
    "Report",
    "SettingError",
    "StateError",
    "Store",
    "StoreError",
    "StoredArray",
    "TracingError",
    "UnsupportedArrayError",
    "__version__",
    "convert",
    "open_store",
]


def __getattr__(name: str) -> Any:
    if name == "keras":  # a module, and not among all names, since it brings Keras with it
        import importlib

        return importlib.import_module("oocloader.keras")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'oocloader' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
