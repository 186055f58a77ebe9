"""Nothing hangs and nothing is left: at the interpreter's end, after errors, of iterators given up."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numbered import rows_array, write_npz
from recorded import finished, started

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_npz(tmp_path_factory.mktemp("lifecycle"))


@pytest.mark.parametrize("use", ["fit", "for"])
def test_interrupted(data: Path, use: str) -> None:
    program = started(
        """
        import keras
        loader = ooc.Loader(sys.argv[1], "x", "y", window=64, device="/CPU:1")
        model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(loader.dataset(), epochs=1, verbose=0)
        print("ready", flush=True)
        if sys.argv[2] == "fit":
            model.fit(loader.dataset(), epochs=100_000, verbose=0)
        for x, y in loader.dataset(epochs=None):
            pass
        """,
        data,
        use,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    time.sleep(0.5)
    program.send_signal(signal.SIGINT)
    began = time.monotonic()
    code, _, err = finished(program, timeout_s=20)
    assert time.monotonic() - began < 15  # two seconds on a quiet machine
    assert code in (1, -signal.SIGINT, 130)
    assert err.splitlines()[-1].startswith("KeyboardInterrupt")


def test_an_error_of_the_consumer(data: Path) -> None:
    program = started(
        """
        loader = ooc.Loader(sys.argv[1], "x", "y", window=64, device="/CPU:1")
        for x, y in loader:
            raise ZeroDivisionError("mine")
        """,
        data,
    )
    code, _, err = finished(program, timeout_s=60)
    assert code == 1
    assert err.splitlines()[-1] == "ZeroDivisionError: mine"
    assert err.count("Traceback") == 1


@pytest.mark.parametrize("options", [{}, {"mmap": False}, {"device": "/CPU:1"}], ids=str)
def test_a_pass_that_failed_leaves_nothing_open(tf: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    """The file changes while the pass that fails is read ahead already."""
    import os

    import oocloader as ooc
    from chunked import open_files
    from recorded import ids_of, our_threads

    np.save(tmp_path / "x.npy", rows_array(2000))
    np.save(tmp_path / "y.npy", np.arange(2000))
    source = {"x": tmp_path / "x.npy", "y": tmp_path / "y.npy"}
    loader = ooc.Loader(source, "x", "y", window=64, **options)
    assert ids_of(loader) == list(range(2000))
    os.truncate(tmp_path / "x.npy", 10_000)
    delivered: list[int] = []

    def take_all() -> None:
        for batch in loader:
            delivered.extend(ids_of([batch]))

    with pytest.raises(ooc.OocloaderError, match="the file changed"):
        take_all()
    assert delivered == list(range(len(delivered)))
    assert loader.state_dict() == loader.state_at(1, len(delivered) // 32)
    loader.close()
    assert our_threads() == []
    assert not [name for name in open_files() if name.startswith(str(tmp_path))]


def test_given_up_iterators_leave_nothing(tf: Any, tmp_path: Path) -> None:
    import gc
    import os

    import oocloader as ooc
    from recorded import eventually, ids_of, our_threads

    np.save(tmp_path / "x.npy", rows_array(2000))
    np.save(tmp_path / "y.npy", np.arange(2000))
    source = {"x": tmp_path / "x.npy", "y": tmp_path / "y.npy"}

    def held() -> tuple[int, int]:
        with open("/proc/self/maps") as maps:
            mapped = sum(str(tmp_path) in line for line in maps)
        return len(os.listdir("/proc/self/fd")), mapped

    for options in ({"device": "/CPU:1"}, {"shuffle": True}):
        with ooc.Loader(source, "x", "y", window=100, batch_size=10, **options) as loader:
            dataset = loader.dataset()
            for _ in range(5):
                next(iter(dataset))
            gc.collect()
            assert eventually(lambda: not our_threads())
            before = held()
            for _ in range(200):
                next(iter(dataset))
            gc.collect()
            assert eventually(lambda: not our_threads())
            after = held()
            assert after[0] <= before[0]
            assert after[1] <= before[1] + 8  # windows that TensorFlow lets go of with its next call
            assert sorted(ids_of(dataset)) == list(range(2000))


@pytest.mark.parametrize("options", [{"device": "/CPU:1"}, {"shuffle": True}], ids=["device", "shuffled"])
def test_two_iterators_at_once(tf: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    """Each has its own pass, also where one is far ahead, and where a budget leaves room for one thread."""
    import oocloader as ooc
    from recorded import eventually, ids_of, our_threads

    np.savez_compressed(tmp_path / "data.npz", x=rows_array(3000), y=np.arange(3000))
    path = tmp_path / "data.npz"
    with ooc.Loader(path, "x", "y", window=100, batch_size=10, threads=1, **options) as loader:
        first, second = iter(loader), iter(loader)
        ahead = ids_of(next(first) for _ in range(150))
        pairs = list(zip(first, second, strict=False))
        here = ahead + ids_of(one for one, _ in pairs)
        there = ids_of(two for _, two in pairs) + ids_of(second)
        assert sorted(here) == sorted(there) == list(range(3000))
        assert (here == there) is ("shuffle" not in options)
        assert eventually(lambda: not our_threads())


@pytest.mark.parametrize("device", ["/CPU:0", "/CPU:1"])
def test_threads_that_share_an_iterator_get_every_row_once(tf: Any, tmp_path: Path, device: str) -> None:
    import oocloader as ooc
    from recorded import ids_of

    np.savez_compressed(tmp_path / "data.npz", x=rows_array(3000), y=np.arange(3000))
    with ooc.Loader(tmp_path / "data.npz", "x", "y", window=100, batch_size=10, device=device) as loader:
        shared = iter(loader)
        with ThreadPoolExecutor(3) as pool:
            parts = list(pool.map(lambda _: list(shared), range(3)))
        assert sorted(ids_of(batch for part in parts for batch in part)) == list(range(3000))


@pytest.mark.parametrize("keep", ["cache", "list", "shuffle"])
def test_whoever_keeps_every_batch_is_not_waited_for(tf: Any, tmp_path: Path, keep: str) -> None:
    import oocloader as ooc
    from recorded import ids_of

    arrays = {"x": rows_array(3000), "y": np.arange(3000)}
    with ooc.Loader(arrays, "x", "y", window=40, batch_size=10, host_memory="64KiB") as loader:
        dataset = loader.dataset()
        if keep == "list":
            assert ids_of(list(dataset)) == list(range(3000))
            return
        kept = dataset.cache() if keep == "cache" else dataset.shuffle(10_000)
        for _ in range(2):
            assert sorted(ids_of(kept)) == list(range(3000))
