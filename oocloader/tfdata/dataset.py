"""The `tf.data.Dataset` of a Loader: device batches to whoever iterates it, a host pipeline to tf.data."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from oocloader.tfdata.loader_pipeline import LoaderPipeline


class LoaderDataset(tf.data.Dataset):  # type: ignore[misc]  # tensorflow has no type information
    """Batches of a Loader. Iterated, in a loop or by Keras, they lie on the loader's device.

    Whatever tf.data builds on top of it (`map`, `take`, a strategy) gets an ordinary host pipeline with the
    same values, built when it is first asked for.
    """

    def __init__(self, loader: object, pipeline: LoaderPipeline, *, epochs: int | None) -> None:
        # The loader must live as long as its dataset.
        self._loader = loader
        self._pipeline = pipeline
        self._epochs = epochs
        self._host_pipeline: tf.data.Dataset | None = None
        self._spec = pipeline.element_spec
        super().__init__(None)

    @property
    def _variant_tensor(self) -> tf.Tensor:
        self._pipeline.refuse()
        if self._host_pipeline is None:
            with tf.init_scope():
                self._host_pipeline = self._pipeline.host_pipeline(self._epochs)
        return self._host_pipeline._variant_tensor

    def _inputs(self) -> list[Any]:
        return []

    @property
    def element_spec(self) -> Any:
        return self._spec

    def __iter__(self) -> Any:
        if tf.executing_eagerly():
            return self._pipeline.batches(self._epochs, self._loader)
        return super().__iter__()

    def __len__(self) -> int:
        if self._epochs is None:
            raise TypeError("The dataset is infinite.")
        return self._pipeline.read_config.batches * self._epochs

    def cardinality(self, name: str | None = None) -> tf.Tensor:
        del name
        size = tf.data.INFINITE_CARDINALITY if self._epochs is None else len(self)
        return tf.constant(size, tf.int64)

    def prefetch(self, buffer_size: int, name: str | None = None) -> LoaderDataset:
        """The dataset itself: it prefetches already."""
        del buffer_size, name
        return self
