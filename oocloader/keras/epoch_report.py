"""`EpochReport`: a line an epoch on how fast the rows came, and what to change."""

from collections.abc import Callable
from functools import partial
from typing import Any

import keras

from oocloader.errors import SettingError
from oocloader.loader import Loader


class EpochReport(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no type information
    """Print one line an epoch: how fast the rows of a loader came, and what to change (`loader.report()`).

    Parameters
    ----------
    loader : oocloader.Loader
        The loader that `fit` trains on.
    write : callable, optional
        Gets each line; by default it goes to standard output, below what Keras prints of the epoch.

    Raises
    ------
    SettingError
        `loader` is no Loader, or `write` cannot be called.

    Examples
    --------
    ::

        model.fit(loader.dataset(), epochs=3, callbacks=[ooc.keras.EpochReport(loader)])
    """

    def __init__(self, loader: Loader, *, write: Callable[[str], object] | None = None) -> None:
        super().__init__()
        if not isinstance(loader, Loader):
            raise SettingError(f"loader={loader!r} must be the oocloader.Loader that fit trains on")
        if write is not None and not callable(write):
            raise SettingError(f"write={write!r} must be a function of one line")
        self._loader = loader
        self._write = write or partial(print, flush=True)
        self._line: str | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        self._line = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._write_line()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        # Keras ends the line of its progress bar after this call.
        self._line = f"epoch {epoch + 1}: {self._loader.report().summary}"

    def on_train_end(self, logs: Any = None) -> None:
        self._write_line()

    def _write_line(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            self._write(line)
