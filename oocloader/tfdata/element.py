"""Arrays of a batch to an element, in one traced function: casts, weights by class, the transform."""

import itertools
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from oocloader.errors import SettingError
from oocloader.order import Cast
from oocloader.pipeline import ClassWeights

_NO_TABLE = (np.zeros(0, np.int64), np.zeros(0, np.float32))


@dataclass(frozen=True, slots=True)
class Element:
    """How the arrays of a batch become an element.

    The `structure` of array indices with each array's cast; then a weight by the class of each row; then the
    user's `transform` of the parts, which is given a seed where `seeded`.
    """

    structure: Any
    casts: tuple[Cast, ...]
    class_weights: ClassWeights | None = None
    transform: Callable[..., Any] | None = None
    seeded: bool = False

    @property
    def nothing(self) -> bool:
        """Whether arrays are delivered as stored."""
        return (
            self.class_weights is None and self.transform is None and all(cast.nothing for cast in self.casts)
        )

    def __call__(self, arrays: Sequence[Any]) -> Any:
        return _assembled(self.structure, arrays)


def _assembled(structure: Any, arrays: Sequence[Any]) -> Any:
    # Once a batch: tf.nest took 50 microseconds for it.
    if isinstance(structure, int):
        return arrays[structure]
    if isinstance(structure, tuple):
        return tuple([_assembled(part, arrays) for part in structure])
    return {key: arrays[index] for key, index in structure.items()}


class ElementMaker:
    """Arrays of a batch to an element, by one function that is traced once and runs where it is called.

    `specs` are those of the arrays of a batch. `table` reads the labels, and gives classes and their weights;
    it is asked with the first batch. Raises `SettingError` where the transform cannot be traced.
    """

    def __init__(
        self,
        element: Element,
        specs: Sequence[tf.TensorSpec],
        table: Callable[[], tuple[np.ndarray, np.ndarray]] | None,
    ) -> None:
        self._element = element
        self._table = table
        self._constants: dict[str, tuple[tf.Tensor, tf.Tensor]] = {}
        self._reading = threading.Lock()
        self._traced: Any = None
        if element.nothing:
            self.element_spec = element(specs)
            return
        extra = [tf.TensorSpec((None,), tf.int64), tf.TensorSpec((None,), tf.float32)]
        signature = [*extra, tf.TensorSpec((2,), tf.int32), *specs]
        traced = tf.function(self._work, input_signature=signature, autograph=False)
        self._traced = traced.get_concrete_function()
        self.element_spec = tf.nest.map_structure(
            lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), self._traced.structured_outputs
        )

    def __call__(self, arrays: Sequence[tf.Tensor], seed: Any, device: str) -> Any:
        """The element on `device`; `seed` is int32 (2,)."""
        if self._traced is None:
            return self._element(arrays)
        classes, weights = self._weights(device)
        with tf.device(device):
            return self._traced(classes, weights, seed, *arrays)

    def prepare(self, device: str) -> None:
        """Count what has to be counted, outside of any graph."""
        if self._traced is not None:
            self._weights(device)

    def _weights(self, device: str) -> tuple[tf.Tensor, tf.Tensor]:
        """Classes and weights on `device`, counted when they are first needed."""
        with self._reading:
            if device not in self._constants:
                classes, weights = _NO_TABLE if self._table is None else self._table()
                with tf.init_scope(), tf.device(device):
                    self._constants[device] = (tf.constant(classes), tf.constant(weights))
            return self._constants[device]

    def _work(self, classes: tf.Tensor, weights: tf.Tensor, seed: tf.Tensor, *arrays: tf.Tensor) -> Any:
        element = self._element
        parts = element(_cast(element.casts, arrays))
        if element.class_weights is not None:
            rows = _row_weights(arrays[element.class_weights.label], classes, weights)
            parts = (*parts[:2], rows if len(parts) == 2 else _multiplied(rows, parts[2]))
        return parts if element.transform is None else _transformed(element, parts, seed)


def _row_weights(labels: tf.Tensor, classes: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """The weight of each row, float32 (rows,). Every label is among `classes`: they have been checked."""
    labels = tf.cast(tf.reshape(labels, (-1,)), tf.int64)
    return tf.gather(weights, tf.searchsorted(classes, labels, out_type=tf.int64))


def _multiplied(rows: tf.Tensor, given: tf.Tensor) -> tf.Tensor:
    """Sample weights `(rows, ...)` times the weight of each row, in the dtype of floats, else float32."""
    if not given.dtype.is_floating:
        given = tf.cast(given, tf.float32)
    return given * tf.reshape(tf.cast(rows, given.dtype), (-1, *[1] * (given.shape.rank - 1)))


def _transformed(element: Element, parts: Any, seed: tf.Tensor) -> Any:
    """What the user's function makes of an element."""
    given = element.transform
    assert given is not None
    parts = parts if isinstance(parts, tuple) else (parts,)
    named = {"seed": seed} if element.seeded else {}
    # A function of its own, so that `if` and `for` over tensors work as they do in `Dataset.map`.
    converted = tf.function(lambda *parts: given(*parts, **named))
    try:
        with tf.name_scope("transform"):
            result = converted(*parts)
    except Exception as error:
        raise SettingError(f"transform= fails: {one_line(error)}") from error
    _check_element(result)
    return result


def _check_element(result: Any) -> None:
    """Raise `SettingError` where no element can be made of what a transform returned."""
    for part in [result] if not isinstance(result, tuple) else [result, *result]:
        if part is None or isinstance(part, list) or (isinstance(part, (tuple, dict)) and not part):
            raise SettingError(
                f"transform= must return x, (x, y) or (x, y, weight), each a tensor or a dict of tensors; it "
                f"returned {'a list' if isinstance(part, list) else repr(part)}"
            )


# What AutoGraph and the runtime put around the name of a function.
_NOISE = re.compile(
    r"outer_factory\.<locals>\.inner_factory\.<locals>\.(?:tf__)?|\{\{function_node [^}]*\}\} ?"
)


def one_line(error: BaseException) -> str:
    """What an error says, without the traceback that AutoGraph puts before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    said = lines[0]
    if said.startswith("in user code"):
        # Behind lines of files and code, which are indented further.
        said = next((line.strip() for line in str(error).splitlines() if _SAID.match(line)), lines[-1])
    elif said.startswith("Graph execution error"):
        # Between where a failed operation was made and where it is.
        said = next((line for line, below in itertools.pairwise(lines) if below.startswith("[[")), lines[-1])
    return _NOISE.sub("", said)


_SAID = re.compile(r"    \w+: ")


def _cast(casts: Sequence[Cast], arrays: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Each array cast, scaled and offset."""
    results = []
    for cast, tensor in zip(casts, arrays, strict=True):
        target = tf.dtypes.as_dtype(cast.delivered(np.dtype(tensor.dtype.as_numpy_dtype)))
        if tensor.dtype != target:
            tensor = tf.cast(tensor, target)
        if cast.scale is not None:
            tensor = tensor * tf.constant(cast.scale, target)
        if cast.offset is not None:
            tensor = tensor + tf.constant(cast.offset, target)
        results.append(tensor)
    return results
