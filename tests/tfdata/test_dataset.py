"""The dataset of a Loader: a `tf.data.Dataset` like any other, whose own batches lie on the device."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
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


CASTS = [
    ({"dtype": "float32"}, lambda x: x.astype("f4")),
    ({"dtype": "bfloat16"}, lambda x: x.astype("f4")),
    ({"dtype": np.float16}, lambda x: x.astype("f2")),
    ({"dtype": "int32"}, lambda x: x.astype("i4")),
    ({"scale": 0.5}, lambda x: x.astype("f4") * np.float32(0.5)),
    ({"offset": -1}, lambda x: x.astype("f4") - np.float32(1)),
    ({"scale": 1 / 255, "offset": -0.5}, lambda x: x.astype("f4") * np.float32(1 / 255) + np.float32(-0.5)),
    ({"dtype": "float64", "scale": 3}, lambda x: x.astype("f8") * 3),
    ({"dtype": {"x": "float32"}, "scale": {"x": 2.0}, "offset": {"x": 1}}, lambda x: x.astype("f4") * 2 + 1),
]


@pytest.mark.parametrize("device", ["/CPU:0", "/CPU:1"])
@pytest.mark.parametrize(("options", "expected"), CASTS, ids=[str(options) for options, _ in CASTS])
def test_casts(
    tf: Any,
    make_store: Callable[..., Numbered],
    options: dict[str, Any],
    expected: Callable[[np.ndarray], np.ndarray],
    device: str,
) -> None:
    store = make_store("npy", 100)
    with loader_of(store, device=device, **options) as loader:
        ds = loader.dataset()
        for elements, where in ((list(ds), device), (list(ds.map(lambda x, y: (x, y))), "/CPU:0")):
            assert {device_of(tensor) for element in elements for tensor in element} == {where}
            assert {(x.dtype, y.dtype) for x, y in elements} == {(ds.element_spec[0].dtype, tf.int64)}
            found = np.concatenate([tf.cast(x, tf.float64) for x, _ in elements])
            np.testing.assert_allclose(found, expected(store.x).astype("f8"), rtol=1e-6)
            assert np.concatenate([y for _, y in elements]).tolist() == list(range(100))


def test_casts_by_key_leave_the_others_alone(tf: Any) -> None:
    arrays = {"a": rows_array(20), "b": rows_array(20), "y": np.arange(20)}
    with ooc.Loader(
        arrays, ["a", "b"], {"t": "y"}, scale={"b": 2, "t": 10}, dtype={"t": "float64"}
    ) as loader:
        ((features, labels),) = list(loader)
        assert (features["a"].dtype, features["b"].dtype, labels["t"].dtype) == (
            "uint8",
            "float32",
            "float64",
        )
        np.testing.assert_array_equal(features["a"], arrays["a"])
        np.testing.assert_array_equal(features["b"], arrays["b"] * 2.0)
        np.testing.assert_array_equal(labels["t"], np.arange(20) * 10.0)


# -- what tf.data builds on it

PIPELINES: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "map": (lambda tf, ds: ds.map(lambda x, y: (x, y)), 1),
    "parallel map": (
        lambda tf, ds: ds.map(lambda x, y: (x, y), num_parallel_calls=2, deterministic=False),
        1,
    ),
    "shuffle": (lambda tf, ds: ds.shuffle(10_000), 1),
    "cache": (lambda tf, ds: ds.cache(), 1),
    "repeat": (lambda tf, ds: ds.repeat(2), 2),
    "concatenate": (lambda tf, ds: ds.concatenate(ds), 2),
    "filter": (lambda tf, ds: ds.filter(lambda x, y: tf.shape(x)[0] > 0), 1),
    "unbatch, batch": (lambda tf, ds: ds.unbatch().batch(7), 1),
    "rebatch": (lambda tf, ds: ds.rebatch(64), 1),
    "prefetch": (lambda tf, ds: ds.map(lambda x, y: (x, y)).prefetch(2), 1),
    "zip": (lambda tf, ds: tf.data.Dataset.zip(ds, tf.data.Dataset.range(32)).map(lambda e, n: e), 1),
    "enumerate": (lambda tf, ds: ds.enumerate().map(lambda n, e: e), 1),
    "interleave": (lambda tf, ds: tf.data.Dataset.range(3).interleave(lambda n: ds, cycle_length=3), 3),
    "flat_map": (lambda tf, ds: tf.data.Dataset.range(2).flat_map(lambda n: ds), 2),
    "with_options": (lambda tf, ds: ds.with_options(tf.data.Options()), 1),
    "apply": (lambda tf, ds: ds.apply(lambda ds: ds.take(100)), 1),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_every_row_once_in_pipelines(tf: Any, make_store: Callable[..., Numbered], name: str) -> None:
    build, times = PIPELINES[name]
    with loader_of(make_store("h5"), shuffle=True) as loader:
        pipeline = build(tf, loader.dataset())
        for _ in range(2):
            assert sorted(ids_of(pipeline)) == sorted(list(range(ROWS)) * times)


def test_take_and_skip_make_two_halves_of_stored_order(make_store: Callable[..., Numbered]) -> None:
    with loader_of(make_store("zarr")) as loader:
        ds = loader.dataset()
        assert ids_of(ds.take(3)) == list(range(96))
        assert ids_of(ds.skip(3)) == list(range(96, ROWS))


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


@pytest.mark.parametrize("kind", ["npy", "h5", "memory"])
def test_memory_that_was_handed_out_is_not_used_again_while_it_is_held(
    make_store: Callable[..., Numbered], kind: Any
) -> None:
    with loader_of(make_store(kind), batch_size=10, window=10) as loader:
        held = [list(loader) for _ in range(3)]
        assert [ids_of(elements) for elements in held] == [list(range(ROWS))] * 3


# -- nothing before its time


@pytest.mark.parametrize("device", ["/CPU:0", "/CPU:1"])
def test_nothing_is_read_before_the_first_batch_is_asked_for(
    make_store: Callable[..., Numbered], device: str
) -> None:
    with loader_of(make_store("zarr"), device=device) as loader:
        batches = iter(loader.dataset())
        pipeline = loader.dataset().map(lambda x, y: x)
        assert loader.counters is None
        assert our_threads() == []
        assert loader.epoch == 0
        next(batches)
        assert loader.epoch == 1
        next(iter(pipeline))
        assert loader.epoch == 2


def test_only_what_is_ahead_is_read(make_store: Callable[..., Numbered]) -> None:
    """Not the whole array, whatever its consumer does not take."""
    with loader_of(make_store("memory", 10_000), window=32, batch_size=32, host_memory="100KiB") as loader:
        batches = iter(loader.dataset())
        next(batches)
        counters = loader.counters
        assert counters is not None
        assert not eventually(lambda: counters.copied_bytes > 20 * 32 * 24, within_s=0.3)
        assert counters.copied_bytes >= 2 * 32 * 24


# -- messages


def test_the_host_pipeline_is_said_once(
    make_store: Callable[..., Numbered], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="oocloader")
    with loader_of(make_store("memory")) as loader:
        ds = loader.dataset()
        ids_of(ds)
        ids_of(ds.prefetch(2))
        assert caplog.messages == []
        for _ in range(2):
            ids_of(ds.map(lambda x, y: (x, y)))
            ids_of(loader.dataset().take(2))
        (message,) = caplog.messages
        assert "batches arrive on the host" in message
        assert "class_weight= or transform= to the Loader" in message
        assert "\n" not in message


def test_the_message_of_an_error_leads_the_text_in_a_pipeline(
    tf: Any, make_store: Callable[..., Numbered]
) -> None:
    store = make_store("npy")
    path = Path(store.source["x"])
    with loader_of(store) as loader:
        pipeline = loader.dataset().map(lambda x, y: (x, y))
        path.write_bytes(path.read_bytes()[:5000])
        with pytest.raises(tf.errors.UnknownError) as caught:
            list(pipeline)
        first = str(caught.value).splitlines()[0]
        assert f"}}}} ChangedError: {path}: array 'x', rows 0 to " in first
        assert first.endswith("open the store again")
        # Where in TensorFlow and here it was raised again tells a user nothing.
        assert "During handling" not in str(caught.value)
        assert "direct cause" not in str(caught.value)


def test_a_pipeline_outlives_the_loaders_name(make_store: Callable[..., Numbered]) -> None:
    ds = loader_of(make_store("h5")).dataset()
    assert ids_of(ds) == list(range(ROWS))
    pipeline = ds.map(lambda x, y: (x, y))
    del ds
    assert ids_of(pipeline) == list(range(ROWS))
    batches = iter(pipeline)
    del pipeline
    assert ids_of(batches) == list(range(ROWS))


def test_closing_the_loader_is_an_error_in_a_pipeline_and_not_its_end(
    tf: Any, make_store: Callable[..., Numbered]
) -> None:
    loader = loader_of(make_store("h5"), batch_size=10, window=10)
    ds = loader.dataset()
    pipeline = ds.map(lambda x, y: (x, y))
    running, later = iter(pipeline), iter(pipeline)
    next(running)
    loader.close()
    for batches in (running, later):
        with pytest.raises(tf.errors.OpError, match="ClosedError: the Loader is closed"):
            list(batches)
    with pytest.raises(ooc.ClosedError):
        ds.map(lambda x, y: x)
    with pytest.raises(ooc.ClosedError):
        iter(ds)
