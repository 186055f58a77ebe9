"""The passes of one loader for TensorFlow: begun when they are asked for, ended with the loader."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oocloader as ooc
from numbered import Numbered, rows_array
from oocloader.pipeline.transform_seeds import batch_seed
from recorded import eventually, finished, ids_of, our_threads, started

pytestmark = pytest.mark.usefixtures("tf")


ROWS = 1000


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert eventually(lambda: not our_threads())


def loader_of(store: Numbered, **options: Any) -> ooc.Loader:
    return ooc.Loader(store.source, "x", "y", **{"batch_size": 32, "window": 130, **options})


@pytest.mark.parametrize("kind", ["npy", "h5", "memory"])
def test_memory_that_was_handed_out_is_not_used_again_while_it_is_held(
    make_store: Callable[..., Numbered], kind: Any
) -> None:
    with loader_of(make_store(kind), batch_size=10, window=10) as loader:
        held = [list(loader) for _ in range(3)]
        assert [ids_of(elements) for elements in held] == [list(range(ROWS))] * 3


@pytest.mark.parametrize("device", ["/CPU:0", "/CPU:1"])
def test_nothing_is_read_before_the_first_batch_is_asked_for(
    make_store: Callable[..., Numbered], device: str
) -> None:
    with loader_of(make_store("zarr"), device=device) as loader:
        batches = iter(loader.dataset())
        pipeline = loader.dataset().map(lambda x, y: x)
        assert loader.counters is None
        assert our_threads() == []
        assert loader.epoch == 0
        next(batches)
        assert loader.epoch == 1
        next(iter(pipeline))
        assert loader.epoch == 2


def test_only_what_is_ahead_is_read(make_store: Callable[..., Numbered]) -> None:
    """Not the whole array, whatever its consumer does not take."""
    with loader_of(make_store("memory", 10_000), window=32, batch_size=32, host_memory="100KiB") as loader:
        batches = iter(loader.dataset())
        next(batches)
        counters = loader.counters
        assert counters is not None
        assert not eventually(lambda: counters.copied_bytes > 20 * 32 * 24, within_s=0.3)
        assert counters.copied_bytes >= 2 * 32 * 24


def test_the_host_pipeline_is_said_once(
    make_store: Callable[..., Numbered], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="oocloader")
    with loader_of(make_store("memory")) as loader:
        ds = loader.dataset()
        ids_of(ds)
        ids_of(ds.prefetch(2))
        assert caplog.messages == []
        for _ in range(2):
            ids_of(ds.map(lambda x, y: (x, y)))
            ids_of(loader.dataset().take(2))
        (message,) = caplog.messages
        assert "batches arrive on the host" in message
        assert "class_weight= or transform= to the Loader" in message
        assert "\n" not in message


def test_the_message_of_an_error_leads_the_text_in_a_pipeline(
    tf: Any, make_store: Callable[..., Numbered]
) -> None:
    store = make_store("npy")
    path = Path(store.source["x"])
    with loader_of(store) as loader:
        pipeline = loader.dataset().map(lambda x, y: (x, y))
        path.write_bytes(path.read_bytes()[:5000])
        with pytest.raises(tf.errors.UnknownError) as caught:
            list(pipeline)
        first = str(caught.value).splitlines()[0]
        assert f"}}}} ChangedError: {path}: array 'x', rows 0 to " in first
        assert first.endswith("open the store again")
        # Where in TensorFlow and here it was raised again tells a user nothing.
        assert "During handling" not in str(caught.value)
        assert "direct cause" not in str(caught.value)


def test_a_pipeline_outlives_the_loaders_name(make_store: Callable[..., Numbered]) -> None:
    ds = loader_of(make_store("h5")).dataset()
    assert ids_of(ds) == list(range(ROWS))
    pipeline = ds.map(lambda x, y: (x, y))
    del ds
    assert ids_of(pipeline) == list(range(ROWS))
    batches = iter(pipeline)
    del pipeline
    assert ids_of(batches) == list(range(ROWS))


def test_closing_the_loader_is_an_error_in_a_pipeline_and_not_its_end(
    tf: Any, make_store: Callable[..., Numbered]
) -> None:
    loader = loader_of(make_store("h5"), batch_size=10, window=10)
    ds = loader.dataset()
    pipeline = ds.map(lambda x, y: (x, y))
    running, later = iter(pipeline), iter(pipeline)
    next(running)
    loader.close()
    for batches in (running, later):
        with pytest.raises(tf.errors.OpError, match="ClosedError: the Loader is closed"):
            list(batches)
    with pytest.raises(ooc.ClosedError):
        ds.map(lambda x, y: x)
    with pytest.raises(ooc.ClosedError):
        iter(ds)


def test_it_is_traced_once(tf: Any) -> None:
    """Over passes, iterators, pipelines and a shorter last batch; `if` over tensors works."""
    traced: list[int] = []

    def transform(x: Any, y: Any) -> Any:
        traced.append(1)
        if tf.reduce_max(y) > 50:
            x = x + tf.constant(1, tf.uint8)
        return x, y

    with ooc.Loader({"x": rows_array(100), "y": np.arange(100)}, "x", "y", transform=transform) as loader:
        for _ in range(2):
            found = np.concatenate([x for x, _ in loader])
            np.testing.assert_array_equal(found, rows_array(100) + (np.arange(100) >= 32)[:, None, None])
        list(loader.dataset().map(lambda x, y: x))
    assert len(traced) == 1


@pytest.mark.parametrize("device", ["/CPU:0", "/CPU:1"])
def test_a_transform_that_fails_at_some_batch(tf: Any, device: str) -> None:
    """After every batch before it; and nothing comes behind it."""

    def transform(x: Any, y: Any) -> Any:
        tf.debugging.assert_less(y, tf.constant(70, tf.int64), message="too much")
        return x, y

    source = {"x": rows_array(100), "y": np.arange(100)}
    with ooc.Loader(source, "x", "y", transform=transform, device=device) as loader:
        batches = iter(loader)
        assert ids_of([next(batches), next(batches)]) == list(range(64))
        with pytest.raises(
            ooc.DataError, match=r"transform= fails in batch 2 of pass 0: .*too much"
        ) as caught:
            next(batches)
        assert "\n" not in str(caught.value)
        assert isinstance(caught.value.__cause__, tf.errors.InvalidArgumentError)
        # The batch was not delivered: whoever mends the transform goes on with it.
        assert loader.state_dict() == loader.state_at(0, 2)
        with pytest.raises(StopIteration):
            next(batches)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"function passed to transform.*too much"):
            list(loader.dataset().map(lambda x, y: x))


def test_labels_are_counted_once_and_with_the_first_batch(make_store: Callable[..., Numbered]) -> None:
    store = make_store("h5")
    # Shuffled: the labels of a loader that is not are looked at, for their order.
    with ooc.Loader(store.source, "x", "y", class_weight="balanced", shuffle=True) as loader:
        asked: list[int] = []
        reader = loader._assembly.data.readers[1]
        jobs = reader.jobs
        reader.jobs = lambda spans, target: (asked.append(len(spans)), jobs(spans, target))[1]  # type: ignore[method-assign,func-returns-value]
        batches = iter(loader.dataset())
        assert loader.element_spec[2].dtype.name == "float32"
        assert asked == []
        next(batches)
        before = len(asked)
        assert before >= 1
        list(batches)
        streamed = len(asked)
        list(loader)
        # A later pass asks for its windows alone.
        assert len(asked) - streamed < streamed


@pytest.mark.slow
def test_another_process_has_the_same_seeds() -> None:
    program = started(
        """
        with ooc.Loader(np.arange(100), transform=lambda x, seed: seed, seed=5, batch_size=30) as loader:
            print([seed.numpy().tolist() for _ in range(2) for seed in loader])
        """
    )
    code, out, err = finished(program)
    assert (code, err) == (0, "")
    seeds = [batch_seed(5, epoch, batch).tolist() for epoch in (0, 1) for batch in range(4)]
    assert out.strip() == str(seeds)
