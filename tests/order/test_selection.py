"""What a user names, brought to one form or refused with what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocloader.errors import SettingError
from oocloader.order.order import RowSet
from oocloader.order.selection import Cast, dtype_nbytes, fields, row_set, shard_of, shuffled, whole


def members(rows: RowSet) -> list[int]:
    return list(range(rows.start, rows.stop)) if rows.picked is None else rows.picked.tolist()


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (None, range(25)),
        (slice(None), range(25)),
        (slice(10, None), range(10, 25)),
        (slice(-5, None), range(20, 25)),
        (slice(3, 100), range(3, 25)),
        (slice(20, 10), range(0)),
        (slice(np.int64(2), np.int64(5)), range(2, 5)),
        (slice(None, None, 7), range(0, 25, 7)),
        ([], range(0)),
        ([24], range(24, 25)),
        ([0, 3, 4], [0, 3, 4]),
        ((5, 6, 7), [5, 6, 7]),
        (range(2, 9, 3), [2, 5, 8]),
        (np.array([1, 9], np.uint8), [1, 9]),
        (np.arange(25) % 2 == 0, range(0, 25, 2)),
        (np.zeros(25, bool), range(0)),
        ([True, False] * 12 + [True], range(0, 25, 2)),
    ],
)
def test_row_set(rows: Any, expected: Any) -> None:
    found = row_set(rows, 25)
    assert members(found) == list(expected)
    assert len(found) == len(expected)


@given(mask=st.lists(st.booleans(), min_size=1, max_size=60))
def test_a_mask_and_its_numbers_are_the_same_rows(mask: list[bool]) -> None:
    numbers = np.flatnonzero(mask)
    by_mask, by_number = row_set(np.array(mask), len(mask)), row_set(numbers, len(mask))
    assert members(by_mask) == members(by_number) == numbers.tolist()
    # Neighbours are a stretch, whoever names them one by one.
    stretch = len(numbers) == 0 or numbers[-1] - numbers[0] + 1 == len(numbers)
    assert (by_mask.picked is None) == (by_number.picked is None) == stretch


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (slice(None, None, -1), "must go upwards; shuffle="),
        (slice(None, None, 0), "slice step cannot be zero"),
        (slice("a", None), "is no slice of rows"),
        (slice(0.5, None), "is no slice of rows"),
        (5, "one-dimensional, got an array of shape ()"),
        ([[1, 2]], "one-dimensional, got an array of shape (1, 2)"),
        ([0.0, 1.0], "got dtype float64"),
        (["a"], "must be integers, a boolean mask or a slice"),
        (np.ones(24, bool), "a mask of 24 values, but the arrays have 25 rows"),
        ([-1, 3], "run from -1 to 3, but the arrays have rows 0 to 24"),
        ([3, 25], "run from 3 to 25, but the arrays have rows 0 to 24"),
        (np.array([2**63 + 5], np.uint64), "but the arrays have rows 0 to 24"),
        ([3, 2], "sorted and unique: rows[0] is 3, rows[1] is 2"),
        ([1, 4, 4], "sorted and unique: rows[1] is 4, rows[2] is 4; use np.unique"),
        ([5, 100, 6], "sorted and unique: rows[1] is 100, rows[2] is 6"),
    ],
)
def test_row_set_refuses(rows: Any, words: str) -> None:
    with pytest.raises(SettingError) as caught:
        row_set(rows, 25)
    assert str(caught.value).startswith("rows")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (False, False),
        (None, False),
        (True, "window"),
        (np.bool_(True), "window"),
        ("window", "window"),
        ("global", "global"),
    ],
)
def test_shuffled(value: Any, expected: bool | str) -> None:
    assert shuffled(value) == expected


@pytest.mark.parametrize("value", ["yes", 1, 0, 2.0, [True]])
def test_shuffled_refuses(value: Any) -> None:
    with pytest.raises(SettingError, match=r'^shuffle=.* must be False, True, "window" or "global"$'):
        shuffled(value)


@pytest.mark.parametrize(
    ("value", "expected"), [(None, (0, 1)), ((0, 1), (0, 1)), ([2, 3], (2, 3)), ((np.int64(1), 4), (1, 4))]
)
def test_shard_of(value: Any, expected: tuple[int, int]) -> None:
    assert shard_of(value) == expected


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (3, "shard=3 must be (index, count)"),
        ("01", "shard='01' must be (index, count)"),
        ((1, 2, 3), "shard=(1, 2, 3) must be (index, count)"),
        ((2, 2), "shard index=2 must be a whole number, from 0 to 1"),
        ((-1, 2), "shard index=-1 must be a whole number, from 0 to 1"),
        ((0, 0), "shard count=0 must be a whole number, at least 1"),
        ((0.5, 2), "shard index=0.5 must be a whole number"),
        ((0, True), "shard count=True must be a whole number"),
    ],
)
def test_shard_of_refuses(value: Any, words: str) -> None:
    with pytest.raises(SettingError) as caught:
        shard_of(value)
    assert words in str(caught.value)


def test_whole() -> None:
    assert whole("seed", np.uint64(2**64 - 1), least=0, most=2**64 - 1) == 2**64 - 1
    assert type(whole("seed", np.int8(3), least=0)) is int


@pytest.mark.parametrize("value", [0, -3, 1.0, "1", True, None, np.float32(2), [1]])
def test_whole_refuses(value: Any) -> None:
    with pytest.raises(SettingError, match=r"^batch_size=.* must be a whole number, at least 1$"):
        whole("batch_size", value, least=1)
    with pytest.raises(SettingError, match=r"^seed=.* must be a whole number, from 1 to 9$"):
        whole("seed", 10, least=1, most=9)


@pytest.mark.parametrize(
    ("features", "labels", "weight", "names", "structure"),
    [
        ("x", None, None, ["x"], 0),
        ("x", "y", None, ["x", "y"], (0, 1)),
        ("x", "y", "w", ["x", "y", "w"], (0, 1, 2)),
        (["a", "b"], None, None, ["a", "b"], {"a": 0, "b": 1}),
        (("a", "b"), "y", None, ["a", "b", "y"], ({"a": 0, "b": 1}, 2)),
        (
            {"left": "g/a", "right": "g/b"},
            ["y"],
            None,
            ["g/a", "g/b", "y"],
            ({"left": 0, "right": 1}, {"y": 2}),
        ),
        ({"one": "x", "two": "x"}, "x", None, ["x", "x", "x"], ({"one": 0, "two": 1}, 2)),
    ],
)
def test_fields(features: Any, labels: Any, weight: Any, names: list[str], structure: Any) -> None:
    found = fields(features, labels, weight)
    assert list(found.names) == names
    assert found.structure == structure
    count = 1 if isinstance(features, str) else len(features)
    assert found.feature == tuple(at < count for at in range(len(names)))
    assert len(found.keys) == len(names)


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ([], "must name at least one array, by strings"),
        ({}, "must name at least one array, by strings"),
        ([1], "must name at least one array, by strings"),
        ([["x"]], "must name at least one array, by strings"),
        ({"a": 1}, "must name at least one array, by strings"),
        ({1: "a"}, "must name at least one array, by strings"),
        (b"x", "must name at least one array, by strings"),
        (5, "must be a name, a list of names or a dict of names by key"),
        ({"a", "b"}, "must be a name, a list of names or a dict of names by key"),
        (["x", "x"], "names an array twice; a dict gives each its own key"),
    ],
)
def test_fields_refuses(features: Any, words: str) -> None:
    for option, named in (("features", (features, None, None)), ("labels", ("x", features, None))):
        with pytest.raises(SettingError) as caught:
            fields(*named)
        assert str(caught.value).startswith(f"{option}=")
        assert words in str(caught.value)


def test_weights_need_labels() -> None:
    with pytest.raises(SettingError, match="sample_weight needs labels"):
        fields("x", None, "w")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [Cast(), Cast(), Cast()]),
        ({"dtype": "float16"}, [Cast("float16"), Cast("float16"), Cast()]),
        ({"dtype": np.float32}, [Cast("float32"), Cast("float32"), Cast()]),
        ({"dtype": np.dtype(">f4")}, [Cast("float32"), Cast("float32"), Cast()]),
        ({"dtype": float}, [Cast("float64"), Cast("float64"), Cast()]),
        ({"scale": 2, "offset": np.float32(-1)}, [Cast(None, 2.0, -1.0), Cast(None, 2.0, -1.0), Cast()]),
        ({"scale": {"b": 0.5}}, [Cast(), Cast(None, 0.5), Cast()]),
        (
            {"dtype": {"a": "bfloat16", "y": "int32"}, "scale": {"a": None}},
            [Cast("bfloat16"), Cast(), Cast("int32")],
        ),
    ],
)
def test_casts(options: dict[str, Any], expected: list[Cast]) -> None:
    given = {"dtype": None, "scale": None, "offset": None, **options}
    assert list(fields(["a", "b"], "y", None).casts(**given)) == expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dtype": "string"}, "dtype='string' is no number type"),
        ({"dtype": "U5"}, "is no number type"),
        ({"dtype": "datetime64[s]"}, "is no number type"),
        ({"dtype": object}, "is no number type"),
        ({"dtype": 5}, "is no number type"),
        ({"dtype": np.longdouble}, "is no number type"),
        ({"dtype": np.clongdouble}, "is no number type"),
        ({"dtype": {"a": "nothing"}}, "dtype='nothing' is no number type"),
        ({"scale": "2"}, "scale='2' must be a finite number"),
        ({"offset": [1, 2]}, "offset=[1, 2] must be a finite number"),
        ({"offset": 1j}, "offset=1j must be a finite number"),
        ({"scale": {"c": 1.0}}, "scale has the key 'c'; keys of this element are 'a', 'b', 'y'"),
        ({"dtype": "int32", "scale": 0.5}, "dtype='int32' takes no scale or offset"),
        ({"dtype": "bool", "offset": 1}, "dtype='bool' takes no scale or offset"),
    ],
)
def test_casts_refuses(options: dict[str, Any], words: str) -> None:
    given = {"dtype": None, "scale": None, "offset": None, **options}
    with pytest.raises(SettingError) as caught:
        fields(["a", "b"], "y", None).casts(**given)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("cast", "stored", "delivered"),
    [
        (Cast(), "uint8", "uint8"),
        (Cast(), ">f4", "float32"),
        (Cast("float16"), "uint8", "float16"),
        (Cast("bfloat16", 2.0), "uint8", "bfloat16"),
        (Cast(None, 0.5), "uint8", "float32"),
        (Cast(None, None, 1.0), "float64", "float32"),
        (Cast(None, 0.5), "complex64", "complex64"),
    ],
)
def test_delivered_dtype(cast: Cast, stored: str, delivered: str) -> None:
    assert cast.delivered(np.dtype(stored)) == delivered
    assert cast.nothing == (cast == Cast())


@pytest.mark.parametrize(
    ("name", "nbytes"), [("bool", 1), ("bfloat16", 2), ("float32", 4), ("complex128", 16)]
)
def test_dtype_nbytes(name: str, nbytes: int) -> None:
    assert dtype_nbytes(name) == nbytes
