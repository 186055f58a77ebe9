"""The errors oocloader raises: each is an `OocloaderError` and also the fitting builtin.

>>> issubclass(StoreError, OSError), issubclass(SettingError, ValueError)
(True, True)
"""

from typing import Any


class OocloaderError(Exception):
    """Base of every error that oocloader raises on purpose.

    The facts in the message are attributes too, `None` where they do not apply.

    Parameters
    ----------
    message : str
        One line: what is wrong, where, what was found and expected, what to do.
    file : str, optional
        Path of the store or file.
    array : str, optional
        Name of the array in the store.
    chunk : tuple of int, optional
        Index of the chunk in the grid of chunks.
    rows : tuple of int, optional
        `(start, stop)` of the rows concerned, as in a slice.

    Examples
    --------
    >>> try:
    ...     raise CorruptChunkError("train.h5: chunk (3, 0) of 'x' is damaged", array="x", chunk=(3, 0))
    ... except OocloaderError as error:
    ...     print(error.array, error.chunk, error.rows)
    x (3, 0) None
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
        # Exceptions are made anew from `args`, and then get these attributes.
        facts = {"file": self.file, "array": self.array, "chunk": self.chunk, "rows": self.rows}
        return type(self), self.args, facts


class StoreError(OocloaderError, OSError):
    """A store cannot be opened, read or written: missing, no store, truncated, no space, no rights."""


class CorruptChunkError(StoreError):
    """The bytes of a chunk are damaged: a checksum, a length or the compressed stream is wrong.

    `file`, `array` and `chunk` say which one, `rows` which rows it holds.
    """


class ChangedError(StoreError):
    """A file of a store shrank or changed while it was in use."""


class ArrayNotFoundError(OocloaderError, KeyError):
    """A store has no array of that name; the message lists those it has, or the nearest."""


class UnsupportedArrayError(OocloaderError, TypeError):
    """An array that cannot be loaded (`ArrayInfo.reader == "none"`) was asked for; the message says why."""


class SettingError(OocloaderError, ValueError):
    """An option has a value that cannot work, or a budget is too small; the message says what would do."""


class DataError(OocloaderError, ValueError):
    """Data do not fit together: unequal lengths, shapes or dtypes, or a state of other data."""


class ClosedError(OocloaderError, RuntimeError):
    """A store, loader or iterator was used after it was closed, or in a forked child."""


class StateError(OocloaderError, RuntimeError):
    """The position in an epoch is not known, or is not where it was expected."""


class TracingError(OocloaderError, RuntimeError):
    """Batches were asked for while a `tf.function` is traced."""

    # AutoGraph raises an error anew, with the place in the traced code, only if it is made like any
    # exception: of one message, without facts.
    __init__ = Exception.__init__


def in_forked_child(what: str) -> ClosedError:
    """The error for `what`, such as "a Loader cannot be used", in a process that was forked off."""
    return ClosedError(
        f"{what} in a forked child: neither its threads nor TensorFlow survive a fork; "
        'start the process with multiprocessing.get_context("spawn")'
    )
