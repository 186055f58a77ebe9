"""Loaders in their process: closed before it exits, refused in its forked children."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from numbered import write_npz
from oocloader.errors import ClosedError
from oocloader.loader import process
from recorded import finished, started

ENDINGS = {
    "a live device iterator": "batches = iter(loader.dataset()); next(batches)",
    "a live pipeline": "batches = iter(loader.dataset().map(lambda x, y: x)); next(batches)",
    "a live host iterator": (
        "host = ooc.Loader(sys.argv[1], 'x', 'y', window=64); batches = iter(host); next(batches)"
    ),
    "an iterator never started": "batches = iter(loader.dataset())",
    "two iterators": "one = iter(loader); two = iter(loader); next(one), next(two)",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_npz(tmp_path_factory.mktemp("process"))


@pytest.mark.alone
def test_the_interpreter_ends(data: Path) -> None:
    """Within two seconds, whatever is alive, with nothing said."""

    def ending(code: str) -> tuple[int, str, float]:
        program = started(
            f"loader = ooc.Loader(sys.argv[1], 'x', 'y', window=64, device='/CPU:1')\n{code}\n"
            "print(time.time(), flush=True)",
            data,
        )
        returned, out, err = finished(program)
        return returned, err, time.time() - float(out or "nan")

    # No more at once than there are processors to expect: each is timed.
    with ThreadPoolExecutor(2) as pool:
        endings = dict(zip(ENDINGS, pool.map(ending, ENDINGS.values()), strict=True))
    for name, (returned, err, took_s) in endings.items():
        assert (name, returned, err) == (name, 0, "")
        assert took_s < 15, name  # two seconds on a quiet machine


@pytest.mark.alone
def test_forked_children_are_refused_and_never_hang(data: Path) -> None:
    program = started(
        """
        import signal, warnings
        warnings.simplefilter("ignore")
        loader = ooc.Loader(sys.argv[1], "x", "y", window=64)
        next(iter(loader))
        for what in ("parent's", "own"):
            child = os.fork()
            if child == 0:
                signal.alarm(30)
                try:
                    used = loader if what == "parent's" else ooc.Loader(sys.argv[1], "x", "y")
                    next(iter(used))
                except ooc.ClosedError as error:
                    print(what, "refused", flush=True)
                    os._exit(0)
                os._exit(5)
            assert os.waitpid(child, 0)[1] == 0, what
        assert sum(len(y) for _, y in loader) == 5000
        """,
        data,
    )
    code, out, err = finished(program)
    assert code == 0, err
    assert out.splitlines() == ["parent's refused", "own refused"]


@pytest.mark.alone
def test_forked_children_collect_an_iterator_in_a_cycle(data: Path) -> None:
    """What a thread of the parent had locked in that moment stays locked in the child."""
    program = started(
        """
        import gc, signal, threading, warnings
        warnings.simplefilter("ignore")
        loader = ooc.Loader(sys.argv[1], "x", "y", window=64)
        batches = iter(loader)
        next(batches)
        cycle = [batches]
        cycle.append(cycle)
        held, over = threading.Event(), threading.Event()

        def hold(lock):
            with lock:
                held.set()
                over.wait()

        threading.Thread(target=hold, args=(batches._running[0]._prefetcher._changed,)).start()
        held.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            del batches, cycle
            gc.collect()
            os._exit(0)
        over.set()
        assert os.waitpid(child, 0)[1] == 0
        assert sum(len(y) for _, y in batches) == 5000 - 32
        """,
        data,
    )
    code, _, err = finished(program)
    assert code == 0, err


@pytest.mark.parametrize("forked", [False, True])
def test_whoever_was_forked_is_refused(monkeypatch: pytest.MonkeyPatch, forked: bool) -> None:
    monkeypatch.setattr(process, "_forked_in_use", forked)
    if forked:
        with pytest.raises(ClosedError, match="a Loader cannot be used"):
            process.refuse_forked(os.getpid())
    else:
        process.refuse_forked(os.getpid())
    with pytest.raises(ClosedError, match="a Loader cannot be used"):
        process.refuse_forked(os.getppid())


def test_what_lives_at_exit_is_closed_before_what_was_registered_earlier() -> None:
    program = started(
        """
        import atexit, gc
        from oocloader.loader.process import close_at_exit
        class Told:
            def __init__(self, name):
                self.name = name
            def close(self):
                print("closed", self.name, flush=True)
        atexit.register(print, "a library", flush=True)
        living, gone = Told("the living"), Told("what is gone")
        close_at_exit(living)
        close_at_exit(gone)
        del gone
        gc.collect()
        """,
        prologue="",
    )
    assert finished(program) == (0, "closed the living\na library\n", "")
