"""The command program: parse, call, print, exit code."""

import contextlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from types import FrameType

import typer

from oocloader.cli.convert import convert
from oocloader.cli.demo_command import demo
from oocloader.cli.inspect import inspect
from oocloader.cli.verify import verify
from oocloader.errors import OocloaderError, SettingError

_DONE, _FAILED, _WRONG_USAGE = 0, 1, 2

app = typer.Typer(
    name="oocloader",
    help="Train Keras models on arrays that do not fit in GPU memory or RAM.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(convert)
app.command()(inspect)
app.command()(verify)
app.command()(demo)


@app.callback()
def _commands() -> None:
    """Without this a single command would lose its name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit code: 0 done, 1 failed, 2 wrong usage, 128 + the number of a signal.

    An error is one line on stderr.
    """
    try:
        with _sigterm_raises(), warnings.catch_warnings():
            warnings.showwarning = _note
            _run(sys.argv[1:] if arguments is None else list(arguments))
        return _DONE
    except typer.Exit as leave:
        return leave.exit_code
    except KeyboardInterrupt as error:
        return _say(_with_notes("interrupted", error), 128 + signal.SIGINT)
    except _Terminated as error:
        return _say(_with_notes("terminated", error), 128 + signal.SIGTERM)
    except BrokenPipeError:
        # Whoever read our output is gone; nor may the interpreter complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _FAILED
    except OocloaderError as error:
        return _say(f"error: {error}", _WRONG_USAGE if isinstance(error, SettingError) else _FAILED)
    except MemoryError as error:
        return _say(_with_notes("error: out of memory", error), _FAILED)
    except Exception as error:
        # Typer's own errors know their exit code; which module defines them depends on its version.
        usage = getattr(error, "format_message", None)
        if usage is not None:
            return _say(f"error: {usage()} (see oocloader --help)", getattr(error, "exit_code", _WRONG_USAGE))
        return _say(_with_notes(f"error: {type(error).__name__}: {error}", error), _FAILED)


def _run(arguments: list[str]) -> None:
    # Not app(): it would keep Ctrl-C to itself.
    command = typer.main.get_command(app)
    with command.make_context("oocloader", arguments) as context:
        command.invoke(context)


def _note(message: Warning | str, *place: object, **more: object) -> None:
    """A warning as one line on stderr."""
    _say(f"note: {message}", _DONE)


def _with_notes(line: str, error: BaseException) -> str:
    """A line that also says what is left of the work."""
    return "; ".join((line, *getattr(error, "__notes__", ())))


def _say(line: str, code: int) -> int:
    typer.echo(f"oocloader: {' '.join(line.split())}", err=True)
    return code


class _Terminated(BaseException):
    """SIGTERM arrived: leave as Ctrl-C does, cleaning up on the way."""


@contextlib.contextmanager
def _sigterm_raises() -> Iterator[None]:
    def terminate(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
