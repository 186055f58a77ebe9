"""Windows of the host as an ordinary tf.data pipeline of batches."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from oocloader.pipeline import ReadConfig


def host_pipeline(
    windows: tf.data.Dataset,
    read_config: ReadConfig,
    element_of: Callable[..., Any],
    *,
    passes: int | None,
    name: str | None,
) -> tf.data.Dataset:
    """Elements of the batches in `windows`, of so many passes; errors in `element_of` say its `name`."""

    def rebatched(rows: tf.data.Dataset) -> tf.data.Dataset:
        return rows.rebatch(read_config.batch_size, drop_remainder=read_config.drop_remainder)

    if read_config.shards == 1:
        batches = rebatched(windows)
    else:
        # The last batch of a shard may have been halved: it must not be put together again.
        batches = windows.flat_map(lambda *window: rebatched(tf.data.Dataset.from_tensors(window)))
    mapped = tf.autograph.experimental.do_not_convert(lambda arrays, _: element_of(*arrays))
    elements = _numbered(batches, read_config.batches).map(mapped, name=name)
    if passes != 1:
        elements = elements.repeat(passes)
    return elements.prefetch(1)


def _numbered(batches: tf.data.Dataset, count: int) -> tf.data.Dataset:
    """`batches` with their numbers, and a cardinality of `count`. It may end before.

    A pass that starts in the middle does, and an asserted cardinality would fail there.
    """
    # tf.data takes a choice to be without end where one of its datasets is, so that the length of a zip is
    # known. That one is never chosen, and starts nothing.
    first = tf.data.Dataset.from_tensors(tf.constant(0, tf.int64)).repeat()
    endless = tf.data.Dataset.choose_from_datasets(
        [batches, batches.repeat()], first, stop_on_empty_dataset=True
    )
    return tf.data.Dataset.zip(endless, tf.data.Dataset.range(count))
