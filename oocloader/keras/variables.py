"""The variables of a model in training as arrays, and back."""

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from oocloader.errors import DataError, SettingError
from oocloader.keras.backup_file import restored


def optimizer_name(model: Any) -> str | None:
    """Class of the optimizer, such as ``Adam`` or, with loss scaling, ``LossScaleOptimizer(Adam)``."""
    optimizer = model.optimizer
    if optimizer is None:
        return None
    inner = getattr(optimizer, "inner_optimizer", None)
    name = type(optimizer).__name__
    return name if inner is None else f"{name}({type(inner).__name__})"


def variables_of(model: Any) -> dict[str, Any]:
    """Every variable that decides how training goes on, by a key that is the same in every process.

    Weights, the state of other layers (seeds of dropout and augmentation, moving means) and what the
    optimizer keeps; no metrics. Keras counts names up ("dense_7"), so a key is a number.
    """
    optimizer = model.optimizer
    parts = {"model": model.variables, "optimizer": [] if optimizer is None else optimizer.variables}
    return {f"{part}/{n:05}": each for part, group in parts.items() for n, each in enumerate(group)}


def descriptions(variables: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Path, dtype and shape of each, as JSON."""
    return {key: [each.path, str(each.dtype), list(each.shape)] for key, each in variables.items()}


def build(model: Any, element_spec: Any, where: str) -> None:
    """Make the variables of `model` and its optimizer where Keras would make them with the first step.

    A model without variables is called on one sample of zeros, shaped as in `element_spec`. Raises
    `SettingError` where that fails.
    """
    if not model.built:
        sample = element_spec[0] if isinstance(element_spec, tuple) else element_spec
        try:
            with _scope(model):
                model(keras.tree.map_structure(_row_of_zeros, sample))
        except Exception as error:
            what = f"{where}: the model has no variables yet to restore into, and cannot be called on"
            loaded = f"a sample of the loader ({type(error).__name__})"
            raise SettingError(f"{what} {loaded}; call it on a batch before fit") from error
    if model.optimizer is not None and not model.optimizer.built:
        with _scope(model):
            model.optimizer.build(model.trainable_variables)


def check(
    variables: Mapping[str, Any],
    saved: Mapping[str, Sequence[Any]],
    optimizers: Sequence[str | None],
    where: str,
) -> None:
    """Raise `DataError`, naming the first difference, where `saved` describes variables of another model.

    `optimizers`: class of the optimizer in the backup, and of this model.
    """
    remedy = "use the model and optimizer that were trained, or another folder"
    difference = _difference(descriptions(variables), saved)
    if optimizers[0] != optimizers[1]:
        difference = f"its optimizer is {optimizers[0]}, this one's {optimizers[1]}"
    if difference:
        raise DataError(f"{where}: is of another model: {difference}; {remedy}", file=where)


def _difference(present: Mapping[str, Sequence[Any]], saved: Mapping[str, Sequence[Any]]) -> str:
    for key in sorted(saved.keys() | present.keys()):
        ours, theirs = present.get(key), saved.get(key)
        if ours is None or theirs is None or not _matches(key, ours, theirs):
            return f"it has {_shown(theirs)} where this one has {_shown(ours)}"
    return ""


def assign(model: Any, variables: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Set each variable to the array of its key, bit by bit."""
    with _scope(model):
        for key, each in variables.items():
            each.assign(restored(arrays[key], np.dtype(each.dtype)))


def _matches(key: str, ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    # What stands before the last part of a path depends on how the model was built and on how many others
    # the process has made; an optimizer has it in the last part too.
    names = [re.sub(r"_\d+(?=_|$)", "", str(each[0]).rpartition("/")[2]) for each in (ours, theirs)]
    same = names[0] == names[1] or key.startswith("optimizer/")
    return same and list(ours[1:]) == list(theirs[1:])


def _shown(variable: Sequence[Any] | None) -> str:
    return "no variable" if variable is None else f"{variable[0]} {variable[1]}{tuple(variable[2])}"


def _row_of_zeros(spec: Any) -> np.ndarray:
    return np.zeros((1, *spec.shape[1:]), spec.dtype.as_numpy_dtype)


def _scope(model: Any) -> contextlib.AbstractContextManager[Any]:
    strategy = model.distribute_strategy
    return contextlib.nullcontext() if strategy is None else strategy.scope()
