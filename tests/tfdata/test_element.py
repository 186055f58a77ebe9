"""Casts, `class_weight`, `transform`: one traced function on the device, the same values on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import oocloader as ooc
from numbered import Numbered, rows_array
from oocloader.pipeline import Residency
from oocloader.pipeline.transform_seeds import batch_seed
from recorded import device_of, keras, recorder, watching

pytestmark = pytest.mark.usefixtures("tf")

ROWS = 100
DEVICES = ("/CPU:0", "/CPU:1")
RESIDENCIES = ("stream", "device")


def arrays() -> dict[str, np.ndarray]:
    return {
        "x": rows_array(ROWS),
        "y": np.arange(ROWS, dtype=np.int32) % 3,
        "w": np.linspace(0, 1, ROWS, dtype="f8"),
    }


def both(loader: ooc.Loader, device: str) -> list[Any]:
    """The elements of the first pass, which are the same on the device and in a host pipeline."""
    import tensorflow as tf

    on_device = list(loader.dataset())
    loader.epoch = 0
    on_host = list(loader.dataset().map(lambda *parts: parts if len(parts) > 1 else parts[0]))
    assert len(on_device) == len(on_host) == len(loader)
    for found, other in zip(on_device, on_host, strict=True):
        tf.nest.assert_same_structure(found, other)
        tf.nest.assert_same_structure(found, loader.element_spec)
        parts = zip(tf.nest.flatten(found), tf.nest.flatten(other), strict=True)
        for (one, two), spec in zip(parts, tf.nest.flatten(loader.element_spec), strict=True):
            np.testing.assert_array_equal(one, two)
            assert spec.is_compatible_with(one)
            assert spec.is_compatible_with(two)
            assert device_of(one) == device
            assert device_of(two) == "/CPU:0"
    return on_device


# -- transform


@pytest.mark.parametrize("drop_remainder", [False, True])
@pytest.mark.parametrize("kept", RESIDENCIES)
@pytest.mark.parametrize("device", DEVICES)
def test_elements_are_what_the_transform_returns(
    tf: Any, device: str, kept: Residency, drop_remainder: bool
) -> None:
    """Another structure, other dtypes and shapes; behind dtype, scale and offset."""

    def transform(x: Any, y: Any, w: Any) -> Any:
        return {"image": tf.reshape(x, (-1, 16)), "more": x[:, :1]}, tf.one_hot(y, 3), tf.cast(w, tf.float32)

    with ooc.Loader(
        arrays(),
        "x",
        "y",
        sample_weight="w",
        scale=0.5,
        offset=1.0,
        transform=transform,
        device=device,
        residency=kept,
        drop_remainder=drop_remainder,
    ) as loader:
        x, y, w = loader.element_spec
        rows = 32 if drop_remainder else None
        assert x["image"] == tf.TensorSpec((rows, 16), tf.float32)
        assert y == tf.TensorSpec((rows, 3), tf.float32)
        assert w == tf.TensorSpec((rows,), tf.float32)
        at = 0
        for features, labels, weights in both(loader, device):
            part = slice(at, at + len(labels))
            expected = arrays()["x"][part].astype("f4") * 0.5 + 1.0
            np.testing.assert_array_equal(features["image"], expected.reshape(len(labels), 16))
            np.testing.assert_array_equal(features["more"], expected[:, :1])
            np.testing.assert_array_equal(labels, np.eye(3)[arrays()["y"][part]])
            np.testing.assert_array_equal(weights, arrays()["w"][part].astype("f4"))
            at += len(labels)


@pytest.mark.parametrize("kept", RESIDENCIES)
@pytest.mark.parametrize("device", DEVICES)
def test_the_seed_is_that_of_the_batch(tf: Any, device: str, kept: Residency) -> None:
    options: dict[str, Any] = {
        "device": device,
        "residency": kept,
        "shuffle": True,
        "seed": 11,
        "batch_size": 7,
    }
    with ooc.Loader(
        arrays(),
        "x",
        "y",
        transform=lambda x, y, seed: (x, y, tf.tile(seed[None], (tf.size(y), 1))),
        **options,
    ) as loader:
        both(loader, device)
        for epoch in (1, 2):
            for number, (_, _, seeds) in enumerate(loader):
                assert seeds.dtype == tf.int32
                expected = batch_seed(11, epoch, number)
                assert (seeds.numpy() == expected).all()


def test_random_numbers_come_again_in_another_run(tf: Any) -> None:
    def noisy(x: Any, *, seed: Any) -> Any:
        return tf.cast(x, tf.float32) + tf.random.stateless_uniform(tf.shape(x), seed)

    def run(seed: int) -> list[bytes]:
        with ooc.Loader(rows_array(ROWS), transform=noisy, seed=seed, shuffle=True) as loader:
            return [x.numpy().tobytes() for _ in range(2) for x in loader]

    first = run(3)
    assert run(3) == first
    assert run(4) != first
    assert len(set(first)) == len(first)


def test_a_model_as_transform(tf: Any) -> None:
    """Layers that hold variables and seeds of their own."""
    layer = keras().layers.RandomFlip(seed=1)
    with ooc.Loader(
        {"x": rows_array(ROWS, sample_shape=(4, 4, 1)), "y": np.arange(ROWS)},
        "x",
        "y",
        device="/CPU:1",
        transform=lambda x, y: (layer(x, training=True), y),
    ) as loader:
        for x, y in loader:
            np.testing.assert_array_equal(
                np.sort(x.numpy().ravel()), np.sort(rows_array(y.numpy().tolist()).ravel())
            )


def returning(value: Any) -> Callable[..., Any]:
    return lambda x, y: value


def raising(error: Exception) -> Callable[..., Any]:
    def transform(x: Any, y: Any) -> Any:
        raise error

    return transform


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (
            lambda x: x,
            r"transform= fails: TypeError: <lambda>\(\) takes 1 positional argument but 2 were",
        ),
        (
            lambda x, y: (x + "a", y),
            "transform= fails: TypeError: Input 'y' of 'AddV2' Op has type string",
        ),
        (raising(KeyError("left")), "transform= fails: KeyError: 'left'"),
        (raising(ValueError("two\nlines")), "transform= fails: ValueError: two$"),
        (raising(ValueError()), "transform= fails: ValueError"),
        (returning(None), r"transform= must return x, \(x, y\) or \(x, y, weight\).*; it returned None"),
        (lambda x, y: [x, y], "it returned a list"),
        (lambda x, y: (x, [y]), "it returned a list"),
        (lambda x, y: (x, None), "it returned None"),
        (returning(object()), "transform= fails: "),
    ],
)
def test_a_transform_that_fails_is_told_before_anything_is_read(
    transform: Callable[..., Any], message: str
) -> None:
    with ooc.Loader(arrays(), "x", "y", transform=transform) as loader:
        for use in (lambda: loader.element_spec, loader.dataset, lambda: next(iter(loader))):
            with pytest.raises(ooc.SettingError, match=message) as caught:
                use()
            assert "\n" not in str(caught.value)
        assert loader.counters is None


def test_what_is_no_function() -> None:
    with pytest.raises(ooc.SettingError, match="transform=3 must be a function of the parts of an element"):
        ooc.Loader(arrays(), "x", transform=3)  # type: ignore[arg-type]  # that is refused


# -- class weights


@pytest.mark.parametrize("kept", RESIDENCIES)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("label_shape", [(ROWS,), (ROWS, 1)])
def test_class_weights_become_the_sample_weight(
    tf: Any, device: str, kept: Residency, label_shape: tuple[int, ...]
) -> None:
    source = {**arrays(), "y": (np.arange(ROWS) % 3).astype("u1").reshape(label_shape)}
    given = {0: 0.5, 1: 2.0, 2: 0.0, 9: 100.0}
    with ooc.Loader(
        source, "x", "y", class_weight=given, device=device, residency=kept, shuffle=True
    ) as loader:
        assert loader.element_spec[2] == tf.TensorSpec((None,), tf.float32)
        seen = both(loader, device)
        labels = np.concatenate([y.numpy().ravel() for _, y, _ in seen])
        assert sorted(labels) == sorted(source["y"].ravel())
        np.testing.assert_array_equal(
            np.concatenate([w for _, _, w in seen]), np.array([0.5, 2.0, 0.0], "f4")[labels]
        )


@pytest.mark.parametrize(
    ("weight", "dtype"),
    [
        (np.linspace(0, 1, ROWS, dtype="f4"), "float32"),
        (np.linspace(0, 1, ROWS, dtype="f8"), "float64"),
        (np.arange(ROWS) % 5, "float32"),
        (np.linspace(0, 1, 2 * ROWS).reshape(ROWS, 2), "float64"),
    ],
)
def test_class_weights_multiply_the_sample_weight(weight: np.ndarray, dtype: str) -> None:
    source = {**arrays(), "w": weight}
    with ooc.Loader(
        source,
        "x",
        "y",
        sample_weight="w",
        class_weight={0: 1, 1: 2, 2: 3},
        drop_remainder=True,
        batch_size=50,
    ) as loader:
        found = np.concatenate([w for _, _, w in both(loader, "/CPU:0")])
        assert found.dtype == dtype
        assert loader.element_spec[2].shape.as_list() == [50, *weight.shape[1:]]
        of_class = (1.0 + source["y"]).reshape(ROWS, *[1] * (weight.ndim - 1))
        np.testing.assert_allclose(found, weight * of_class, rtol=1e-6)


@pytest.mark.parametrize("kind", ["h5", "zarr", "memory"])
def test_balanced_counts_the_rows_selected(make_store: Callable[..., Numbered], kind: Any) -> None:
    """And is the same for every part of an epoch."""
    store = make_store(kind, 1000)
    rows = np.r_[np.arange(100), np.arange(500, 530)]
    source = store.source if kind != "memory" else {"x": store.x, "y": store.y}
    with ooc.Loader(source, "x", "y", class_weight="balanced", rows=rows) as loader:
        # Every row is a class of its own.
        assert np.concatenate([w for _, _, w in loader]).tolist() == [1.0] * 130
    labels = (store.y >= 90).astype("i8")
    with ooc.Loader(
        {"x": store.x, "y": labels}, "x", "y", class_weight="balanced", rows=rows, shuffle=True
    ) as loader:
        for _, y, w in loader:
            expected = np.where(y.numpy() == 0, 130 / (2 * 90), 130 / (2 * 40))
            np.testing.assert_allclose(w, expected, rtol=1e-6)


def test_the_transform_sees_the_weights(tf: Any) -> None:
    with ooc.Loader(
        arrays(),
        "x",
        "y",
        class_weight={0: 1.0, 1: 2.0, 2: 3.0},
        transform=lambda x, y, w: (x, tf.one_hot(y, 3), w * 10),
    ) as loader:
        for _, y, w in both(loader, "/CPU:0"):
            np.testing.assert_allclose(w, 10 * (1 + np.argmax(y, axis=1)))


@pytest.mark.parametrize("device", DEVICES)
def test_a_class_without_weight_is_told_before_the_first_batch(device: str) -> None:
    with ooc.Loader(arrays(), "x", "y", class_weight={0: 1.0, 1: 1.0}, device=device) as loader:
        with pytest.raises(
            ooc.DataError, match=r"array 'y' has the class 2 \(first in row 2\), for which cl"
        ):
            next(iter(loader))
        with pytest.raises(ooc.DataError, match="has the class 2"):
            loader.dataset().map(lambda x, y, w: x)


def test_labels_that_are_no_classes() -> None:
    source = {**arrays(), "z": np.linspace(0, 1, ROWS)}
    with pytest.raises(ooc.SettingError, match=r"needs integer labels, one a row; array 'z' of .* has dtype"):
        ooc.Loader(source, "x", "z", class_weight="balanced")
    with pytest.raises(ooc.SettingError, match="class_weight needs labels"):
        ooc.Loader(source, "x", class_weight="balanced")


@pytest.mark.parametrize("device", DEVICES)
def test_fit_gets_both_on_the_device(make_store: Callable[..., Numbered], device: str) -> None:
    store = make_store("h5", 200)
    labels = {number: 0.5 + number % 2 for number in range(200)}
    watch = watching()
    model = recorder()
    with ooc.Loader(
        store.source,
        "x",
        "y",
        class_weight=labels,
        transform=lambda x, y, w: (x, y, w * 2),
        device=device,
        residency="device",
        shuffle=True,
    ) as loader:
        model.fit(loader.dataset(), epochs=2, verbose=0, shuffle=False, callbacks=[watch])
        assert set(watch.devices) == {device}
        assert sorted(model.trained) == sorted([*range(200)] * 2)
        assert model.weights_seen == [2 * labels[number] for number in model.trained]


def loader_of(store: Numbered, **options: Any) -> ooc.Loader:
    return ooc.Loader(store.source, "x", "y", **{"batch_size": 32, "window": 130, **options})


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
