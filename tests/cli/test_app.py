"""What every command does: help, one line of error, exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from oocloader.cli import app
from oocloader.errors import DataError, OocloaderError, SettingError, StoreError


def failing(error: BaseException) -> Any:
    def run(arguments: list[str]) -> None:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (OocloaderError("went wrong"), 1, "error: went wrong"),
        (StoreError("out.h5: no space"), 1, "error: out.h5: no space"),
        (DataError("x has 3, y has 4"), 1, "error: x has 3, y has 4"),
        (SettingError("codec: what?"), 2, "error: codec: what?"),
        (MemoryError(), 1, "error: out of memory"),
        (ZeroDivisionError("several\nlines"), 1, "error: ZeroDivisionError: several lines"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_errors_are_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    line: str,
) -> None:
    monkeypatch.setattr(app, "_run", failing(error))
    assert app.main([]) == code
    assert capsys.readouterr() == ("", f"oocloader: {line}\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["convert", "--nonsense"], "No such option: --nonsense"),
        (["convert", "a.npy", "a.zarr", "--chunk-rows", "many"], "'--chunk-rows'"),
        (["convert"], "convert takes a source and a destination, got 0 paths"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    assert app.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("oocloader: error: ")
    assert words in err
    assert err.count("\n") == 1


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {name} " in out for name in ("convert", "demo"))


@pytest.mark.parametrize("command", ["convert", "demo"])
def test_help_of_a_command_has_an_example(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert app.main([command, "--help"]) == 0
    assert f"Example: oocloader {command} " in capsys.readouterr().out


def test_no_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main([]) == 2
    out, err = capsys.readouterr()
    assert "Usage: oocloader" in out + err


def test_help_loads_nothing_large() -> None:
    code = """
        import sys
        from oocloader.cli import main
        main(["convert", "--help"])
        print(sorted({"tensorflow", "h5py", "zarr", "imagecodecs"} & set(sys.modules)), file=sys.stderr)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"


@pytest.mark.parametrize(("number", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
def test_signals_end_a_command_in_order(number: signal.Signals, word: str) -> None:
    code = """
        import sys, time
        from oocloader.cli import app
        def run(arguments):
            try:
                print("now", flush=True)
                time.sleep(60)
            finally:
                print("cleaned up", flush=True)
        app._run = run
        sys.exit(app.main([]))
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "now\n"
    process.send_signal(number)
    assert process.communicate(timeout=20) == ("cleaned up\n", f"oocloader: {word}\n")
    assert process.returncode == 128 + number


def test_handler_of_the_caller_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(app, "_run", failing(StoreError("no")))
    app.main([])
    assert signal.getsignal(signal.SIGTERM) == before


def test_reader_of_the_output_that_goes_away() -> None:
    code = """
        import sys
        from oocloader.cli import app
        def run(arguments):
            for line in range(100_000):
                print(line)
        app._run = run
        sys.exit(app.main([]))
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    os.read(process.stdout.fileno(), 10)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=20) == 1
