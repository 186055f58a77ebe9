"""The dataset of a Loader: a `tf.data.Dataset` like any other, whose own batches lie on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import oocloader as ooc
from numbered import Numbered, numbers_of, rows_array
from recorded import device_of, eventually, ids_of, our_threads

pytestmark = pytest.mark.usefixtures("tf")

ROWS = 1000


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert eventually(lambda: not our_threads())


def loader_of(store: Numbered, **options: Any) -> ooc.Loader:
    return ooc.Loader(store.source, "x", "y", **{"batch_size": 32, "window": 130, **options})


# -- a dataset


@pytest.mark.parametrize("epochs", [1, 3, None])
def test_length(tf: Any, make_store: Callable[..., Numbered], epochs: int | None) -> None:
    with loader_of(make_store("memory")) as loader:
        ds = loader.dataset(epochs=epochs)
        assert isinstance(ds, tf.data.Dataset)
        if epochs is None:
            assert int(ds.cardinality()) == tf.data.INFINITE_CARDINALITY
            with pytest.raises(TypeError, match="infinite"):
                len(ds)
        else:
            assert len(ds) == int(ds.cardinality()) == 32 * epochs
        # What is built on it knows it too.
        assert int(ds.map(lambda x, y: x).cardinality()) == int(ds.cardinality())


@pytest.mark.parametrize("drop_remainder", [False, True])
@pytest.mark.parametrize("device", ["/CPU:0", "/CPU:1"])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"features": "x"}, "x"),
        ({"features": "x", "labels": "y"}, ("x", "y")),
        ({"features": "x", "labels": "y", "sample_weight": "w"}, ("x", "y", "w")),
        ({"features": ["x"], "labels": "y"}, ({"x": "x"}, "y")),
        ({"features": {"b": "x", "a": "w"}, "labels": ["y"]}, ({"b": "x", "a": "w"}, {"y": "y"})),
        (
            {"features": ["x", "w"], "labels": {"u": "y", "v": "x"}},
            ({"x": "x", "w": "w"}, {"u": "y", "v": "x"}),
        ),
    ],
)
def test_elements(tf: Any, options: dict[str, Any], expected: Any, device: str, drop_remainder: bool) -> None:
    """Values, structure, device and spec, through the device and through a host pipeline."""
    arrays = {"x": rows_array(50, "int16"), "y": np.arange(50), "w": np.linspace(0, 1, 50, dtype="f4")}
    with ooc.Loader(arrays, **options, batch_size=16, drop_remainder=drop_remainder, device=device) as loader:
        ds = loader.dataset()
        pipeline = ds.map(lambda *element: element if len(element) > 1 else element[0])
        assert loader.element_spec == ds.element_spec == pipeline.element_spec
        sizes = [16, 16, 16] if drop_remainder else [16, 16, 16, 2]
        for elements, where in ((list(ds), device), (list(pipeline), "/CPU:0")):
            assert len(elements) == len(ds) == len(sizes)
            for number, element in enumerate(elements):
                tf.nest.assert_same_structure(element, expected)
                for tensor, name in zip(tf.nest.flatten(element), tf.nest.flatten(expected), strict=True):
                    rows = arrays[name][16 * number : 16 * number + sizes[number]]
                    np.testing.assert_array_equal(tensor.numpy(), rows)
                    assert device_of(tensor) == where
                specs = tf.nest.flatten(ds.element_spec)
                for tensor, spec in zip(tf.nest.flatten(element), specs, strict=True):
                    assert spec.is_compatible_with(tensor)
                    assert spec.shape.as_list() == [16 if drop_remainder else None, *tensor.shape[1:]]


# -- what tf.data builds on it


def test_prefetch_is_the_dataset_itself(tf: Any, make_store: Callable[..., Numbered]) -> None:
    with loader_of(make_store("memory"), device="/CPU:1") as loader:
        ds = loader.dataset()
        assert ds.prefetch(tf.data.AUTOTUNE) is ds
        assert ds.prefetch(buffer_size=2, name="ahead") is ds


def test_a_function_of_tensorflows_loops_over_it(tf: Any, make_store: Callable[..., Numbered]) -> None:
    with loader_of(make_store("npy"), device="/CPU:1") as loader:
        ds = loader.dataset()

        def total(batches: Any) -> Any:
            labels = tf.constant(0, tf.int64)
            for _, y in batches:
                labels += tf.reduce_sum(y)
            return labels

        assert int(tf.function(lambda: total(ds))()) == ROWS * (ROWS - 1) // 2
        assert int(tf.function(total)(ds)) == ROWS * (ROWS - 1) // 2
        reduced = ds.reduce(np.int64(0), lambda so_far, element: so_far + tf.reduce_sum(element[1]))
        assert int(reduced) == ROWS * (ROWS - 1) // 2


@pytest.mark.parametrize("over", ["loader", "batches"])
def test_a_graph_never_keeps_one_batch(tf: Any, make_store: Callable[..., Numbered], over: str) -> None:
    with loader_of(make_store("memory")) as loader:
        batches = iter(loader.dataset())

        def step() -> Any:
            return next(batches if over == "batches" else iter(loader))

        with pytest.raises(ooc.TracingError):
            tf.function(step)()
        assert ids_of(batches) == list(range(ROWS))


@pytest.mark.parametrize("device", ["/CPU:0", "/CPU:1"])
@pytest.mark.parametrize("scope", ["/CPU:0", "/CPU:1"])
def test_a_device_scope_around_it_changes_nothing(
    tf: Any, make_store: Callable[..., Numbered], device: str, scope: str
) -> None:
    with tf.device(scope), loader_of(make_store("h5"), device=device, dtype="float32") as loader:
        elements = list(loader.dataset())
        assert {device_of(tensor) for element in elements for tensor in element} == {device}
        assert [number for x, _ in elements for number in numbers_of(x, stored="uint8")] == list(range(ROWS))
        assert sum(1 for _ in loader.dataset().map(lambda x, y: x)) == 32


# -- who writes to what


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("device", ["/CPU:0", "/CPU:1"])
@pytest.mark.parametrize("kind", ["npy", "h5", "zarr", "memory"])
def test_a_consumer_that_writes_hurts_nobody(
    tf: Any, make_store: Callable[..., Numbered], kind: Any, device: str, shuffle: bool
) -> None:
    """TensorFlow writes a result over its operand where nobody else holds that.

    It does so in `map` for the last batch of a window, of features alone; rows have 64 bytes, so that no
    batch is copied for its address.
    """
    rows = 4000
    store = make_store(kind, rows, dtype="float32")
    options: dict[str, Any] = {"batch_size": 100, "window": 400, "shuffle": shuffle, "device": device}
    with ooc.Loader(store.source, "x", **options) as loader:
        ds = loader.dataset()
        added = ds.map(lambda x: x + 1.0)

        @tf.function  # type: ignore[untyped-decorator]  # tensorflow has no type information
        def doubled(x: Any) -> Any:
            x *= 2.0
            return x

        for _ in range(3):
            numbers = [number for x in added for number in numbers_of(x, stored="f4", offset=1.0)]
            assert sorted(numbers) == list(range(rows))
            numbers = []
            for x in ds:
                numbers += numbers_of(x)
                x *= 3.0
                numbers_of(doubled(x), stored="f4", scale=6.0)
            assert sorted(numbers) == list(range(rows))
    np.testing.assert_array_equal(store.x, rows_array(rows, "float32"))
    if kind == "npy":
        np.testing.assert_array_equal(np.load(store.source["x"]), store.x)
