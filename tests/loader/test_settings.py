"""Options of a Loader: bad ones are refused in words before any work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import oocloader as ooc
from left_over import leaving_nothing, open_files
from numbered import Numbered
from oocloader.loader.settings import parse_budget, parse_flag, parse_mapping, parse_threads

pytestmark = pytest.mark.usefixtures("tf")


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    with leaving_nothing():
        yield


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"batch_size": 0}, "batch_size=0 must be a whole number, at least 1"),
    ({"batch_size": -3}, "batch_size=-3"),
    ({"batch_size": 2.5}, "batch_size=2.5"),
    ({"batch_size": "32"}, "batch_size='32'"),
    ({"batch_size": True}, "batch_size=True"),
    ({"batch_size": None}, "batch_size=None"),
    ({"threads": 0}, "threads=0"),
    ({"seed": -1}, "seed=-1"),
    ({"seed": 2**64}, "seed=18446744073709551616"),
    ({"shuffle": "global", "block": 5}, "block=5 means nothing"),
    ({"shuffle": 3}, "shuffle=3"),
    ({"window": 0}, "window=0 must be at least 1 row"),
    ({"window": "many"}, "window='many'"),
    ({"window": 1.5}, "window=1.5"),
    ({"block": -1, "shuffle": True}, "block=-1"),
    ({"host_memory": "lots"}, "host_memory='lots'"),
    ({"host_memory": 0}, "host_memory=0"),
    ({"host_memory": 100}, "host_memory=100 is too small"),
    ({"device_memory": "1KiB"}, "device_memory=1024 is too small"),
    ({"device": "/GPU:7"}, "device='/GPU:7' is not there; TensorFlow sees /CPU:0, /CPU:1"),
    ({"device": 3}, "device=3"),
    ({"dtype": "float33"}, "dtype='float33'"),
    ({"dtype": "object"}, "dtype='object'"),
    ({"dtype": "str"}, "dtype='str'"),
    ({"scale": "big"}, "scale='big' must be a finite number"),
    ({"offset": [1, 2]}, r"offset=\[1, 2\] must be a finite number"),
    ({"dtype": "uint8", "scale": 2.0}, "scale"),
    ({"dtype": {"z": "float32"}}, "dtype has the key 'z'; keys of this element are 'x', 'y'"),
    ({"sample_weight": "y", "labels": None}, "sample_weight needs labels"),
    ({"features": 5}, "features=5"),
    ({"features": []}, "features="),
    ({"features": {}}, "features="),
    ({"labels": ["y", 3]}, "labels="),
]


@pytest.mark.parametrize(("options", "told"), BAD_OPTIONS, ids=[str(options) for options, _ in BAD_OPTIONS])
def test_bad_options(make_store: Callable[..., Numbered], options: dict[str, Any], told: str) -> None:
    store = make_store("h5")
    with pytest.raises(ooc.SettingError, match=told) as caught:
        ooc.Loader(store.source, **{"features": "x", "labels": "y", **options})
    assert "\n" not in str(caught.value)
    assert open_files() == []


@pytest.mark.parametrize(
    ("parse", "given", "expected"),
    [
        (partial(parse_flag, "f"), True, True),
        (partial(parse_flag, "f"), False, False),
        (partial(parse_flag, "f"), 1, "f=1 must be True or False"),
        (partial(parse_flag, "f"), None, "f=None must be True or False"),
        (parse_mapping, None, True),
        (parse_mapping, False, False),
        (parse_mapping, True, "mmap=True must be None"),
        (parse_mapping, 0, "mmap=0 must be None"),
        (partial(parse_budget, "b"), None, None),
        (partial(parse_budget, "b"), "1.5GiB", 3 << 29),
        (partial(parse_budget, "b"), 7, 7),
        (partial(parse_budget, "b"), -7, "b=-7"),
        (parse_threads, 3, 3),
        (parse_threads, 0, "threads=0"),
    ],
)
def test_parsed(parse: Callable[[Any], object], given: object, expected: object) -> None:
    if isinstance(expected, str):
        with pytest.raises(ooc.SettingError, match=f"^{expected}"):
            parse(given)
    else:
        assert parse(given) == expected


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (5, 5), (64, 8)])
def test_threads_where_none_are_given(monkeypatch: pytest.MonkeyPatch, cores: int, threads: int) -> None:
    monkeypatch.setattr("oocloader.loader.settings.usable_cores", lambda: cores)
    assert parse_threads(None) == threads
