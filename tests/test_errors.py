"""Every error is ours and the fitting builtin, is one line, and carries its facts."""

from __future__ import annotations

import copy
import inspect
import pickle
import traceback
from collections.abc import Callable

import pytest

from oocloader import errors
from oocloader.errors import (
    ArrayNotFoundError,
    ChangedError,
    ClosedError,
    CorruptChunkError,
    DataError,
    OocloaderError,
    SettingError,
    StateError,
    StoreError,
    TracingError,
    UnsupportedArrayError,
)

BUILTINS: dict[type[OocloaderError], type[Exception]] = {
    StoreError: OSError,
    CorruptChunkError: OSError,
    ChangedError: OSError,
    ArrayNotFoundError: KeyError,
    UnsupportedArrayError: TypeError,
    SettingError: ValueError,
    DataError: ValueError,
    ClosedError: RuntimeError,
    StateError: RuntimeError,
    TracingError: RuntimeError,
}
WITH_FACTS = [kind for kind in BUILTINS if kind is not TracingError]


def test_all_are_listed_here() -> None:
    defined = {
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, OocloaderError) and value is not OocloaderError
    }
    assert defined == set(BUILTINS)


@pytest.mark.parametrize("kind", BUILTINS)
def test_kinds(kind: type[OocloaderError]) -> None:
    error = kind("data.h5: no array 'x'")
    assert isinstance(error, OocloaderError)
    assert isinstance(error, BUILTINS[kind])
    assert str(error) == error.message == "data.h5: no array 'x'"
    assert (error.file, error.array, error.chunk, error.rows) == (None, None, None, None)
    assert traceback.format_exception_only(error)[-1].endswith("Error: data.h5: no array 'x'\n")


@pytest.mark.parametrize("kind", [StoreError, CorruptChunkError, ChangedError])
def test_errors_of_stores_are_store_errors(kind: type[OocloaderError]) -> None:
    assert issubclass(kind, StoreError)


@pytest.mark.parametrize("kind", WITH_FACTS)
@pytest.mark.parametrize("through", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy])
def test_facts_survive_the_way_to_another_process(
    kind: type[OocloaderError], through: Callable[[OocloaderError], OocloaderError]
) -> None:
    error = kind("it is damaged", file="data.h5", array="g/x", chunk=(3, 0), rows=(300, 400))
    again = through(error)
    assert type(again) is kind
    assert str(again) == "it is damaged"
    assert (again.file, again.array, again.chunk, again.rows) == ("data.h5", "g/x", (3, 0), (300, 400))


def test_a_tracing_error_goes_to_another_process_too() -> None:
    again = pickle.loads(pickle.dumps(TracingError("next() in a tf.function")))
    assert type(again) is TracingError
    assert str(again) == "next() in a tf.function"


def test_a_tracing_error_is_made_like_any_exception() -> None:
    """AutoGraph raises such errors anew, with one more line; not those with a constructor of their own."""
    assert TracingError.__init__ is Exception.__init__


@pytest.mark.parametrize("kind", BUILTINS)
def test_caught_as_ours_and_as_the_builtin(kind: type[OocloaderError]) -> None:
    for caught in (OocloaderError, BUILTINS[kind]):
        with pytest.raises(caught, match="this"):
            raise kind("this")
