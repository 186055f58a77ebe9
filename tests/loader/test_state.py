"""States: what they hold, who takes them, and what the others say."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from oocloader.errors import DataError, OocloaderError, SettingError
from oocloader.loader.state import Identity, identity, saved
from oocloader.order.order import Order, RowSet, Shuffle
from oocloader.order.resharding import Position
from oocloader.stores import open_store


def made(
    *,
    arrays: dict[str, Any] | None = None,
    rows: RowSet | None = None,
    shuffle: Shuffle = "window",
    seed: int = 5,
    block: int = 10,
    window: int = 100,
    chunk_origins: tuple[int, ...] = (0,),
    batch_size: int = 32,
    drop_remainder: bool = False,
) -> Identity:
    order = Order(
        rows or RowSet(0, 500),
        shuffle=shuffle,
        seed=seed,
        block=block,
        window=window,
        chunk_origins=chunk_origins,
    )
    held = arrays or {"x": np.zeros((500, 4), np.float32), "y": np.zeros(500, np.int64)}
    with open_store(held) as store:
        found = [store[name] for name in held]
    return identity(found, order, batch_size=batch_size, drop_remainder=drop_remainder)


def test_a_state_is_words_and_numbers() -> None:
    state = made().state(Position(3, 7, ((4, 2),)), 2)
    assert state == {
        "oocloader": 1,
        "epoch": 3,
        "batches": 7,
        "shards": 2,
        "history": [[4, 2]],
        "arrays": ["x float32 500x4", "y int64 500"],
        "rows": "0:500",
        "shuffle": "window",
        "seed": 5,
        "block": 10,
        "window": 100,
        "starts": "0",
        "batch_size": 32,
        "drop_remainder": False,
    }
    assert json.loads(json.dumps(state)) == state
    found = saved(state)
    assert (found.position, found.shards) == (Position(3, 7, ((4, 2),)), 2)
    found.refuse_other(made())


@pytest.mark.parametrize(
    ("shuffle", "names"),
    [
        (False, set()),
        ("global", {"seed"}),
        ("window", {"seed", "block", "window", "starts"}),
    ],
)
def test_only_what_the_order_depends_on(shuffle: Shuffle, names: set[str]) -> None:
    state = made(shuffle=shuffle).state(Position(0), 1)
    assert set(state) & {"seed", "block", "window", "starts"} == names


def test_under_a_kilobyte_whatever_the_names() -> None:
    arrays: dict[str, Any] = {f"{'träge' * 20}{at}": np.zeros((500, 3), np.int16) for at in range(30)}
    picked = np.arange(0, 500, 3)
    told = made(
        arrays=arrays, rows=RowSet(0, 499, picked), seed=2**64 - 1, chunk_origins=tuple(range(0, 500, 7))
    ).state(Position(2**32 - 1, 10**12, tuple((1000, 10**6) for _ in range(10))), 10**6)
    assert len(json.dumps(told)) < 1000
    renamed = {f"{name}!": array for name, array in arrays.items()}
    with pytest.raises(DataError):
        saved(told).refuse_other(
            made(
                arrays=renamed,
                rows=RowSet(0, 499, picked),
                seed=2**64 - 1,
                chunk_origins=tuple(range(0, 500, 7)),
            )
        )


Y = np.zeros(500, np.int64)
OTHERS: list[tuple[dict[str, Any], type[OocloaderError], str]] = [
    (
        {"arrays": {"x": np.zeros((500, 5), np.float32), "y": Y}},
        DataError,
        "x float32 500x4.*x float32 500x5",
    ),
    (
        {"arrays": {"x": np.zeros((500, 4), np.float64), "y": Y}},
        DataError,
        "x float32 500x4.*x float64 500x4",
    ),
    (
        {"arrays": {"z": np.zeros((500, 4), np.float32), "y": Y}},
        DataError,
        "x float32 500x4.*z float32 500x4",
    ),
    ({"arrays": {"x": np.zeros((500, 4), np.float32)}}, DataError, "y int64 500, this loader has"),
    ({"rows": RowSet(0, 499)}, DataError, "rows 0:500, this loader has rows 0:499"),
    ({"rows": RowSet(0, 500, np.arange(0, 500, 2))}, DataError, "rows 250 of 0:500, digest"),
    ({"chunk_origins": (0, 100)}, DataError, "starts 0, this loader has starts"),
    ({"shuffle": False}, SettingError, "shuffle='window', this loader has shuffle=False"),
    ({"shuffle": "global"}, SettingError, "shuffle='window', this loader has shuffle='global'"),
    ({"seed": 6}, SettingError, "seed=5, this loader has seed=6"),
    ({"block": 20}, SettingError, "block=10, this loader has block=20"),
    ({"window": 200}, SettingError, "window=100, this loader has window=200"),
    ({"batch_size": 64}, SettingError, "batch_size=32, this loader has batch_size=64"),
    ({"drop_remainder": True}, SettingError, "drop_remainder=False, this loader has drop_remainder=True"),
]


@pytest.mark.parametrize(("other", "kind", "words"), OTHERS, ids=[str(list(other)) for other, *_ in OTHERS])
def test_others_are_refused_saying_what_differs(
    other: dict[str, Any], kind: type[OocloaderError], words: str
) -> None:
    state = saved(made().state(Position(0, 1), 1))
    with pytest.raises(kind, match=words) as caught:
        state.refuse_other(made(**other))
    assert "\n" not in str(caught.value)


def test_block_and_window_may_be_excepted() -> None:
    state = saved(made().state(Position(0, 1), 1))
    state.refuse_other(made(block=20, window=200), besides=["block", "window"])
    with pytest.raises(SettingError, match="seed"):
        state.refuse_other(made(block=20, window=200, seed=1), besides=["block", "window"])


def test_the_name_of_a_file_is_no_part_of_it(tmp_path: Any) -> None:
    told = []
    for name in ("first.npy", "second.npy"):
        np.save(tmp_path / name, np.zeros((7, 2), np.int16))
        with open_store(str(tmp_path / name)) as store:
            order = Order(RowSet(0, 7), shuffle=False, seed=0, block=1, window=7)
            array = store[store.only_array()]
            told.append(identity([array], order, batch_size=2, drop_remainder=False).facts)
    assert told[0] == told[1]
    assert told[0]["arrays"] == ["int16 7x2"]


@pytest.mark.parametrize(
    ("at", "saved_by", "loaded_by", "expected"),
    [
        (Position(2, 5), 4, 4, Position(2, 5)),
        (Position(2, 5), 4, 2, Position(2, 0, ((4, 5),))),
        (Position(2, 5, ((4, 5),)), 2, 3, Position(2, 0, ((4, 5), (2, 5)))),
        (Position(2, 5, ((4, 5),)), 2, 2, Position(2, 5, ((4, 5),))),
        (Position(2, 0), 4, 2, Position(2)),
        (Position(2, 0, ((4, 5),)), 2, 3, Position(2, 0, ((4, 5),))),
    ],
)
def test_where_another_number_of_shards_goes_on(
    at: Position, saved_by: int, loaded_by: int, expected: Position
) -> None:
    assert saved(made().state(at, saved_by)).position_for(loaded_by) == expected


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"oocloader": 2}, "version 2, this oocloader reads 1"),
        ({"oocloader": None}, "version None"),
        ({"epoch": -1}, "epoch=-1"),
        ({"epoch": "3"}, "epoch='3'"),
        ({"epoch": True}, "epoch=True"),
        ({"batches": 1.5}, "batches=1.5"),
        ({"shards": 0}, "shards=0"),
        ({"history": None}, "history=None"),
        ({"history": [[1]]}, "history="),
        ({"history": [[1, 0]]}, "history="),
        ({"history": "ab"}, "history="),
    ],
)
def test_what_is_no_state_is_refused(change: dict[str, Any], words: str) -> None:
    state = {**made().state(Position(0, 1), 1), **change}
    with pytest.raises(SettingError, match=words):
        saved(state)


@pytest.mark.parametrize("state", [None, 3, "state", [], {}, {"epoch": 1}])
def test_no_state_at_all(state: Any) -> None:
    with pytest.raises(SettingError, match="state_dict"):
        saved(state)
