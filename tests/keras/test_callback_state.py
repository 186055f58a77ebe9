"""The state of callbacks as JSON and arrays, and back."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from oocloader.errors import SettingError
from oocloader.keras.callback_state import check_supported, restore_states, states_of


class Remembers:
    def __init__(self, state: Any = None) -> None:
        self.state = state

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state


class EarlyStopping:
    """As Keras has it, for what is asked of it."""

    def __init__(self, wait: int = 0, best: Any = None, best_weights: Any = None) -> None:
        self.wait = wait
        self.stopped_epoch = 0
        self.best = best
        self.best_weights = best_weights
        self.best_epoch = 0


class Mine(EarlyStopping):
    pass


STATES: dict[str, Any] = {
    "JSON": {"a": 1, "b": [1.5, None, "x"], "c": {"d": True}},
    "infinite": float("-inf"),
    "nothing": None,
    "arrays": {"w": [np.arange(3, dtype=np.int8), np.float32(2.5)]},
    "bfloat16": [np.array([1, 2], ml_dtypes.bfloat16)],
}


@pytest.mark.parametrize("name", STATES)
def test_there_and_back(name: str) -> None:
    state = STATES[name]
    states, arrays = states_of([Remembers(state)])
    other = Remembers()
    restore_states([other], json.loads(json.dumps(states)), arrays)
    np.testing.assert_equal(other.state, state)
    if name == "bfloat16":
        assert other.state[0].dtype == ml_dtypes.bfloat16


def test_known_classes_and_their_children() -> None:
    weights = [np.arange(4.0), np.array(1)]
    check_supported([EarlyStopping(), Mine()])
    states, arrays = states_of([EarlyStopping(2, np.float32(0.5), weights), Mine(7)])
    first, second = EarlyStopping(), Mine()
    # By class, whichever stands first.
    restore_states([second, first], json.loads(json.dumps(states)), arrays)
    assert (first.wait, float(first.best), second.wait, second.best) == (2, 0.5, 7, None)
    for found, expected in zip(first.best_weights, weights, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_two_of_a_class_and_one_that_is_new() -> None:
    states, arrays = states_of([Remembers(1), Remembers(2)])
    found: list[Any] = [Remembers(), Remembers(), Remembers("new"), EarlyStopping(5)]
    restore_states(found, states, arrays)
    assert [found[0].state, found[1].state, found[2].state] == [1, 2, "new"]
    assert found[3].wait == 5


@pytest.mark.parametrize(
    "state",
    [{"a": {1: 2}}, object(), {"x": {"array": 1}}, np.array([None])],
    ids=["number as key", "object", "reserved", "array of objects"],
)
def test_what_cannot_be_kept(state: Any) -> None:
    with pytest.raises(SettingError, match="the state of Remembers has a "):
        states_of([Remembers(state)])


def test_unknown() -> None:
    with pytest.raises(SettingError, match="callbacks=object: its state is not known; known are Early"):
        check_supported([Remembers(), object()])
