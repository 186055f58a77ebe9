"""Train Keras models on arrays that fit neither the GPU nor the RAM.

`open_store` looks into HDF5, Zarr and NumPy files, `Loader` turns their rows into a `tf.data.Dataset`
whose batches lie on the device, `convert` makes chunked stores of large `.npy` files.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from oocloader import keras as keras
    from oocloader.conversion import ConvertReport, convert
    from oocloader.loader import DataSpec, Loader, Plan
    from oocloader.metrics import Report
    from oocloader.stores import ArrayInfo, Store, StoredArray, open_store

__version__ = "0.1.0"

# Loaded when one of their names is first used, so that importing the package costs nothing.
_LAZY = {
    "oocloader.conversion": ("ConvertReport", "convert"),
    "oocloader.loader": ("DataSpec", "Loader", "Plan"),
    "oocloader.metrics": ("Report",),
    "oocloader.stores": ("ArrayInfo", "Store", "StoredArray", "open_store"),
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
        return import_module("oocloader.keras")
    for module, names in _LAZY.items():
        if name in names:
            value = globals()[name] = getattr(import_module(module), name)
            return value
    raise AttributeError(f"module 'oocloader' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
