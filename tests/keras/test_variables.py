"""Variables of a model as arrays, and back."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from oocloader.errors import DataError, SettingError
from oocloader.keras import variables


def model_of(units: int) -> keras.Model:
    model = keras.Sequential([keras.layers.Dense(units), keras.layers.Dropout(0.5)])
    model.compile("adam", "mse")
    variables.build(model, {"x": tf.TensorSpec((None, 3))}["x"], "here")
    return model


def test_built_as_by_a_first_step_and_set_bit_by_bit() -> None:
    model = model_of(2)
    found = variables.variables_of(model)
    assert {key.partition("/")[0] for key in found} == {"model", "optimizer"}
    values = {key: np.full(each.shape, 3, each.dtype) for key, each in found.items()}
    variables.assign(model, found, values)
    assert all(np.array_equal(each.numpy(), values[key]) for key, each in found.items())


def test_another_model_or_optimizer_is_named() -> None:
    saved = variables.descriptions(variables.variables_of(model_of(2)))
    variables.check(variables.variables_of(model_of(2)), saved, ("Adam", "Adam"), "here")
    with pytest.raises(DataError, match=r"\(3, 2\).*where this one has.*\(3, 4\)"):
        variables.check(variables.variables_of(model_of(4)), saved, ("Adam", "Adam"), "here")
    with pytest.raises(DataError, match="its optimizer is SGD, this one's Adam"):
        variables.check(variables.variables_of(model_of(2)), saved, ("SGD", "Adam"), "here")


def test_a_model_that_takes_other_samples() -> None:
    model = keras.Sequential([keras.layers.Conv2D(2, 3)])
    model.compile("adam", "mse")
    with pytest.raises(SettingError, match="call it on a batch before fit"):
        variables.build(model, tf.TensorSpec((None, 3)), "here")
