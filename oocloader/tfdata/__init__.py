"""The only package with TensorFlow: windows to the device, batches cut there, the dataset that Keras gets.

- `dataset`: what `Loader.dataset()` gives, device batches or a pipeline of tf.data's
- `loader_pipeline`: the passes of one loader: which begins when, and where its windows go
- `device`: which device is used; `gpu_memory`: how much memory a GPU has in all, from NVML
- `crossing`: windows of NumPy arrays to the device
- `batches`: the iterator that waits for windows, has them cut and makes elements
- `slicing`: a window cut into batches on its device
- `device_rows`: rows that stay on the device, gathered in place of crossing
- `element`: arrays of a batch to what the model gets, in one traced function
- `host_pipeline`: the same as an ordinary tf.data pipeline
"""

from oocloader.tfdata.batches import Batches, settle
from oocloader.tfdata.dataset import LoaderDataset
from oocloader.tfdata.device import expected, is_host, memory_nbytes, resolve
from oocloader.tfdata.element import Element
from oocloader.tfdata.loader_pipeline import LoaderPipeline

__all__ = [
    "Batches",
    "Element",
    "LoaderDataset",
    "LoaderPipeline",
    "expected",
    "is_host",
    "memory_nbytes",
    "resolve",
    "settle",
]
