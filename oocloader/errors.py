"""The errors oocloader raises: each is an `OocloaderError` and also the fitting builtin."""

from __future__ import annotations

from typing import Any


class OocloaderError(Exception):
    """Base of every error raised on purpose.

    The message is one line: what is wrong, where, what was found and expected, what to do.
    The facts are attributes too, `None` where they do not apply:

    - `file`: path of the store or file
    - `array`: name of the array in the store
    - `chunk`: grid index of the chunk, a tuple of ints
    - `rows`: `(start, stop)` of the rows concerned
    """

    file: str | None = None
    array: str | None = None
    chunk: tuple[int, ...] | None = None
    rows: tuple[int, int] | None = None

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        array: str | None = None,
        chunk: tuple[int, ...] | None = None,
        rows: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.file = file
        self.array = array
        self.chunk = chunk
        self.rows = rows

    @property
    def message(self) -> str:
        """The one line."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.file, self.array, self.chunk, self.rows)


def _rebuild(
    kind: type[OocloaderError],
    message: str,
    file: str | None,
    array: str | None,
    chunk: tuple[int, ...] | None,
    rows: tuple[int, int] | None,
) -> OocloaderError:
    return kind(message, file=file, array=array, chunk=chunk, rows=rows)


class StoreError(OocloaderError, OSError):
    """A store cannot be opened, read or written: missing, no store, truncated, no space, no rights."""


class CorruptChunkError(StoreError):
    """The bytes of a chunk are damaged: a checksum, a length or the compressed stream is wrong."""


class ChangedError(StoreError):
    """A file of the store shrank or changed while it was in use."""


class ArrayNotFoundError(OocloaderError, KeyError):
    """A store has no array of that name."""


class UnsupportedArrayError(OocloaderError, TypeError):
    """An array that cannot be loaded (`reader == "none"`) was asked for; the message says why."""


class SettingError(OocloaderError, ValueError):
    """An option has a value that cannot work, or a budget is too small."""


class DataError(OocloaderError, ValueError):
    """The data does not fit together: unequal lengths, shapes or dtypes."""


class ClosedError(OocloaderError, RuntimeError):
    """Something closed, or used in a forked child, was used again."""


class StateError(OocloaderError, RuntimeError):
    """The position in a pass cannot be told, or is not where it was expected."""


def in_forked_child(what: str) -> ClosedError:
    """The error for `what`, such as "a Loader cannot be used", in a process that was forked off."""
    return ClosedError(
        f"{what} in a forked child: neither its threads nor TensorFlow survive a fork; "
        'start the process with multiprocessing.get_context("spawn")'
    )


class TracingError(OocloaderError, RuntimeError):
    """Batches were asked for while a `tf.function` is traced."""

    # AutoGraph raises an error anew, with the place in the traced code, only if it is made like any
    # exception: of one message, without facts.
    __init__ = Exception.__init__

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args
