"""What every test may use; TensorFlow is imported by the tests that ask for it alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from numbered import KINDS, Kind, Numbered, write_store

# Read by TensorFlow when it is loaded, in this process and in those that tests start.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

# The machine decides how long an example takes; CI draws the same examples every time.
hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, database=None, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that measure time, or all others, as OOCLOADER_ALONE says ("without", "only")."""
    wanted = os.environ.get("OOCLOADER_ALONE")
    if wanted is None:
        return
    left_out = [item for item in items if (item.get_closest_marker("alone") is None) == (wanted == "only")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


@pytest.fixture(scope="session")
def tf() -> Any:
    """TensorFlow with the CPU split in two: /CPU:1 stands for the GPU.

    Every test that runs TensorFlow asks for it (`pytestmark = pytest.mark.usefixtures("tf")`), since
    the split must come before TensorFlow's first operation in the process.
    """
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    halves = [tf.config.LogicalDeviceConfiguration() for _ in range(2)]
    tf.config.set_logical_device_configuration(cpu, halves)
    assert len(tf.config.list_logical_devices("CPU")) == 2
    return tf


@pytest.fixture(scope="session")
def mirrored(tf: Any) -> Any:
    """A strategy of two replicas. One for all: TensorFlow mixes up the reductions of two in a process."""
    return tf.distribute.MirroredStrategy(["/CPU:0", "/CPU:1"])


@pytest.fixture
def make_store(tmp_path: Path) -> Callable[..., Numbered]:
    """`write_store` into a folder of this test's own: `make_store("h5", 1000, dtype="int16")`."""
    made = 0

    def make(kind: Kind, rows: int = 1000, **options: Any) -> Numbered:
        nonlocal made
        made += 1
        return write_store(tmp_path / f"store{made}", kind, rows, **options)

    return make


@pytest.fixture(scope="session", params=KINDS)
def any_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Numbered:
    """1000 rows of uint8 with int64 labels, in each kind of store; chunks of 64 and of 100 rows.

    One for all tests, which must only read it.
    """
    return write_store(tmp_path_factory.mktemp(request.param), request.param)
