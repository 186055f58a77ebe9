"""Mistakes in a table: each with its place, what was expected and what was found."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocloader.loader.data_spec_errors import mistakes


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    batch_size: Annotated[Annotated[int, msgspec.Meta(ge=1)], msgspec.Meta(description="rows")] = 32
    names: str | list[str] | dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    pair: tuple[int, int] | msgspec.UnsetType = msgspec.UNSET
    weights: dict[int, float] | Literal["balanced"] = "balanced"
    size: int | Annotated[str, msgspec.Meta(pattern="^[0-9]+MiB$", extra={"words": "a size"})] = 1
    flags: list[int | bool] | msgspec.UnsetType = msgspec.UNSET
    parts: dict[str, str | list[str]] | msgspec.UnsetType = msgspec.UNSET
    share: float = 0.5
    fast: bool = True


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    needed: str
    inner: Inner | msgspec.UnsetType = msgspec.UNSET


GOOD: list[dict[str, Any]] = [
    {},
    {"batch_size": 1, "names": "a", "pair": [1, 2], "weights": {"0": 1, "-3": 2.5}, "size": 3, "share": 1},
    {"names": ["a", "b"], "weights": "balanced", "size": "3MiB", "flags": [1, 2, True], "fast": False},
    {"names": {"a": "b"}, "parts": {"x": "y", "z": ["1", "2"]}, "flags": []},
]
BAD: list[tuple[dict[str, Any], str]] = [
    ({"batch_size": "many"}, 'inner.batch_size: expected an integer, got "many"'),
    ({"batch_size": 0}, "inner.batch_size: expected an integer of at least 1, got 0"),
    ({"batch_size": True}, "inner.batch_size: expected an integer of at least 1, got true"),
    ({"batch_size": 1.0}, "inner.batch_size: expected an integer, got 1.0"),
    ({"names": 3}, "inner.names: expected a string or a list of strings or a table of strings, got 3"),
    ({"names": ["a", 3]}, "inner.names[1]: expected a string, got 3"),
    ({"names": {"a": "b", "c": []}}, "inner.names.c: expected a string, got []"),
    ({"pair": [1]}, "inner.pair: expected a list of 2 integers, got [1]"),
    ({"pair": [1, 2, 3]}, "inner.pair: expected a list of 2 integers, got [1, 2, 3]"),
    ({"pair": "1,2"}, 'inner.pair: expected a list of 2 integers, got "1,2"'),
    ({"weights": "fair"}, 'inner.weights: expected a table of numbers or "balanced", got "fair"'),
    ({"weights": {"0": "x"}}, 'inner.weights.0: expected a number, got "x"'),
    ({"weights": {"cat": 1}}, 'inner.weights: expected a table of numbers or "balanced", got {"cat": 1}'),
    ({"size": "3MB"}, 'inner.size: expected an integer or a size, got "3MB"'),
    ({"flags": [1, "x"]}, 'inner.flags[1]: expected an integer or true or false, got "x"'),
    ({"parts": {"x": ["a", 1]}}, "inner.parts.x[1]: expected a string, got 1"),
    ({"share": "half"}, 'inner.share: expected a number, got "half"'),
    ({"share": True}, "inner.share: expected a number, got true"),
    ({"fast": 1}, "inner.fast: expected true or false, got 1"),
    ({"batchsize": 3}, "inner.batchsize: no such option (did you mean batch_size?)"),
]


@pytest.mark.parametrize("table", GOOD)
def test_what_is_right(table: dict[str, Any]) -> None:
    assert mistakes({"needed": "x", "inner": table}, Outer) == []
    msgspec.convert({"needed": "x", "inner": table}, Outer, str_keys=True)


@pytest.mark.parametrize(("table", "said"), BAD)
def test_what_is_wrong(table: dict[str, Any], said: str) -> None:
    assert mistakes({"needed": "x", "inner": table}, Outer) == [said]


def test_every_mistake_is_told_in_the_order_written() -> None:
    table = {"inner": {"fast": 1, "share": "x", "nothing_like_it": 0}, "neded": "x"}
    assert mistakes(table, Outer) == [
        "inner.fast: expected true or false, got 1",
        'inner.share: expected a number, got "x"',
        f"inner.nothing_like_it: no such option (there are {', '.join(Inner.__struct_fields__)})",
        "neded: no such option (did you mean needed?)",
        "needed: is missing (expected a string)",
    ]


@pytest.mark.parametrize("inner", [3, [], "x"])
def test_no_table_where_one_belongs(inner: Any) -> None:
    (said,) = mistakes({"needed": "x", "inner": inner}, Outer)
    assert said.startswith("inner: expected a table")


def test_long_values_are_cut() -> None:
    (said,) = mistakes({"inner": {"fast": "x" * 1000}, "needed": "x"}, Outer)
    assert len(said) < 120


leaves = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False)
    | st.sampled_from(["a", "3MiB"])
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["0", "x"]), inner, max_size=2)
    ),
    max_leaves=6,
)


@given(name=st.sampled_from(list(Inner.__struct_fields__)), value=values)
def test_agrees_with_msgspec(name: str, value: Any) -> None:
    """What is found here is what msgspec refuses; nulls, which TOML has not, aside."""
    if "None" in repr(value):
        return
    table = {"needed": "x", "inner": {name: value}}
    try:
        msgspec.convert(table, Outer, str_keys=True)
        refused = False
    except msgspec.ValidationError:
        refused = True
    assert bool(mistakes(table, Outer)) == refused
