"""The only room with TensorFlow: windows to the device, batches cut there, the dataset that Keras gets."""

from __future__ import annotations

from oocloader.tfdata.dataset import Element, LoaderDataset, Source
from oocloader.tfdata.device import Batches, expected, is_host, memory_nbytes, resolve

__all__ = [
    "Batches",
    "Element",
    "LoaderDataset",
    "Source",
    "expected",
    "is_host",
    "memory_nbytes",
    "resolve",
]
