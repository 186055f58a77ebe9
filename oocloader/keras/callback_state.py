"""What other callbacks have to remember, as JSON and arrays."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from oocloader.errors import SettingError
from oocloader.keras.backup_file import restored

# By class name, so that Keras need not be imported to ask.
_STATE_ATTRIBUTES = {
    "EarlyStopping": ("wait", "stopped_epoch", "best", "best_weights", "best_epoch"),
    "ReduceLROnPlateau": ("wait", "cooldown_counter", "best"),
    "ModelCheckpoint": ("best",),
}
_ARRAY = "array"


def check_supported(callbacks: Sequence[Any]) -> None:
    """Raise `SettingError` for a callback whose state cannot be saved."""
    for callback in callbacks:
        if not _has_methods(callback) and not _attributes(callback):
            what = f"callbacks={type(callback).__name__}: its state is not known; known are"
            known = f"{', '.join(_STATE_ATTRIBUTES)} and callbacks with state_dict() and"
            raise SettingError(f"{what} {known} load_state_dict(state)")


def states_of(callbacks: Sequence[Any]) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """The state of each as JSON, and the arrays that it refers to by their names."""
    arrays: dict[str, np.ndarray] = {}
    states = []
    for callback in callbacks:
        name = type(callback).__name__
        if _has_methods(callback):
            state = callback.state_dict()
        else:
            state = {key: getattr(callback, key) for key in _attributes(callback)}
        states.append({"class": name, "state": _packed(state, arrays, name)})
    return states, arrays


def restore_states(
    callbacks: Sequence[Any], states: Sequence[Mapping[str, Any]], arrays: Mapping[str, np.ndarray]
) -> None:
    """Give each callback the saved state of its class, the first of a class to the first.

    One whose class has none starts afresh.
    """
    remaining = list(states)
    for callback in callbacks:
        saved = next((each for each in remaining if each["class"] == type(callback).__name__), None)
        if saved is None:
            continue
        remaining.remove(saved)
        state = _unpacked(saved["state"], arrays)
        if _has_methods(callback):
            callback.load_state_dict(state)
        else:
            for key, value in state.items():
                setattr(callback, key, value)


def _has_methods(callback: Any) -> bool:
    return all(callable(getattr(callback, name, None)) for name in ("state_dict", "load_state_dict"))


def _attributes(callback: Any) -> tuple[str, ...]:
    names = (_STATE_ATTRIBUTES.get(kind.__name__, ()) for kind in type(callback).__mro__)
    return next(filter(None, names), ())


def _packed(value: Any, arrays: dict[str, np.ndarray], owner: str) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value) and _ARRAY not in value:
        return {key: _packed(each, arrays, owner) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_packed(each, arrays, owner) for each in value]
    array = np.asarray(value) if hasattr(value, "__array__") else None
    if array is None or array.dtype.hasobject:
        what = f"the state of {owner} has a {type(value).__name__}"
        allowed = f"JSON values with names for keys ({_ARRAY!r} excepted), and arrays"
        raise SettingError(f"{what}; it can have {allowed}")
    key = f"callbacks/{len(arrays):05}"
    arrays[key] = array
    return {_ARRAY: key, "dtype": str(array.dtype)}


def _unpacked(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_unpacked(each, arrays) for each in value]
    if isinstance(value, dict):
        if _ARRAY in value:
            return restored(arrays[value[_ARRAY]], np.dtype(value["dtype"]))
        return {key: _unpacked(each, arrays) for key, each in value.items()}
    return value
