"""The elements of a loader as an ordinary tf.data pipeline, and what tf.data builds on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import oocloader as ooc
from numbered import Numbered
from recorded import eventually, ids_of, our_threads

pytestmark = pytest.mark.usefixtures("tf")


ROWS = 1000


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert eventually(lambda: not our_threads())


def loader_of(store: Numbered, **options: Any) -> ooc.Loader:
    return ooc.Loader(store.source, "x", "y", **{"batch_size": 32, "window": 130, **options})


PIPELINES: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "map": (lambda tf, ds: ds.map(lambda x, y: (x, y)), 1),
    "parallel map": (
        lambda tf, ds: ds.map(lambda x, y: (x, y), num_parallel_calls=2, deterministic=False),
        1,
    ),
    "shuffle": (lambda tf, ds: ds.shuffle(10_000), 1),
    "cache": (lambda tf, ds: ds.cache(), 1),
    "repeat": (lambda tf, ds: ds.repeat(2), 2),
    "concatenate": (lambda tf, ds: ds.concatenate(ds), 2),
    "filter": (lambda tf, ds: ds.filter(lambda x, y: tf.shape(x)[0] > 0), 1),
    "unbatch, batch": (lambda tf, ds: ds.unbatch().batch(7), 1),
    "rebatch": (lambda tf, ds: ds.rebatch(64), 1),
    "prefetch": (lambda tf, ds: ds.map(lambda x, y: (x, y)).prefetch(2), 1),
    "zip": (lambda tf, ds: tf.data.Dataset.zip(ds, tf.data.Dataset.range(32)).map(lambda e, n: e), 1),
    "enumerate": (lambda tf, ds: ds.enumerate().map(lambda n, e: e), 1),
    "interleave": (lambda tf, ds: tf.data.Dataset.range(3).interleave(lambda n: ds, cycle_length=3), 3),
    "flat_map": (lambda tf, ds: tf.data.Dataset.range(2).flat_map(lambda n: ds), 2),
    "with_options": (lambda tf, ds: ds.with_options(tf.data.Options()), 1),
    "apply": (lambda tf, ds: ds.apply(lambda ds: ds.take(100)), 1),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_every_row_once_in_pipelines(tf: Any, make_store: Callable[..., Numbered], name: str) -> None:
    build, times = PIPELINES[name]
    with loader_of(make_store("h5"), shuffle=True) as loader:
        pipeline = build(tf, loader.dataset())
        for _ in range(2):
            assert sorted(ids_of(pipeline)) == sorted(list(range(ROWS)) * times)


def test_take_and_skip_make_two_halves_of_stored_order(make_store: Callable[..., Numbered]) -> None:
    with loader_of(make_store("zarr")) as loader:
        ds = loader.dataset()
        assert ids_of(ds.take(3)) == list(range(96))
        assert ids_of(ds.skip(3)) == list(range(96, ROWS))


@pytest.mark.parametrize("passes", [1, 2, None])
@pytest.mark.parametrize(
    ("shards", "windows", "drop_remainder", "expected"),
    [
        (1, [5, 1, 4], False, [4, 4, 2]),  # windows need not be whole batches
        (1, [5, 1, 4], True, [4, 4]),
        (2, [8, 2, 2], False, [4, 4, 2, 2]),  # a batch that was halved stays halved
    ],
)
def test_batches_of_windows(
    tf: Any,
    passes: int | None,
    shards: int,
    windows: list[int],
    drop_remainder: bool,
    expected: list[int],
) -> None:
    from oocloader.tfdata.host_pipeline import host_pipeline

    def made() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        ends = np.cumsum(windows)
        for end, rows in zip(ends, windows, strict=True):
            numbers = np.arange(end - rows, end)
            yield numbers, numbers * 10.0

    specs = (tf.TensorSpec((None,), tf.int64), tf.TensorSpec((None,), tf.float64))
    config = SimpleNamespace(
        batch_size=4, drop_remainder=drop_remainder, shards=shards, batches=len(expected)
    )
    ds = host_pipeline(
        tf.data.Dataset.from_generator(made, output_signature=specs),
        config,  # type: ignore[arg-type]  # as much of one as is looked at
        lambda x, y: {"x": x, "y": y + 1},
        passes=passes,
        name=None,
    )
    assert int(ds.cardinality()) == (
        tf.data.INFINITE_CARDINALITY if passes is None else len(expected) * passes
    )
    found = list(ds.take(2 * len(expected)))
    assert [len(batch["x"]) for batch in found] == expected * (passes or 2)
    for at in range(0, len(found), len(expected)):
        x = np.concatenate([batch["x"] for batch in found[at : at + len(expected)]])
        np.testing.assert_array_equal(x, np.arange(sum(expected)))
        y = np.concatenate([batch["y"] for batch in found[at : at + len(expected)]])
        np.testing.assert_array_equal(y, x * 10.0 + 1)
