"""A file without a name, for rows on their way: gone with the process, however that ends."""

from __future__ import annotations

import os
import secrets

import numpy as np

from oocloader.errors import ClosedError, StoreError


class Scratch:
    """Bytes at any place of a file in `folder`, which is made when the first are written. Thread-safe.

    Raises `OSError` where the disk is full.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        # Made at once, so that threads need not agree on who does.
        path = os.path.join(folder, f".oocloader-scratch-{secrets.token_hex(4)}")
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
        os.unlink(path)

    def write(self, data: np.ndarray, offset: int) -> None:
        """Put `data`, C-contiguous, at byte `offset`."""
        view = data.reshape(-1).view(np.uint8).data
        while view:
            written = os.pwrite(self._open(), view, offset)
            view, offset = view[written:], offset + written

    def read(self, out: np.ndarray, offset: int) -> None:
        """Fill `out`, C-contiguous, from byte `offset`."""
        view = out.reshape(-1).view(np.uint8).data
        while view:
            got = os.preadv(self._open(), [view], offset)
            if got == 0:
                raise StoreError(
                    f"{self._folder}: the temporary file there ends at byte {offset}; check the disk",
                    file=self._folder,
                )
            view, offset = view[got:], offset + got

    def _open(self) -> int:
        if self._fd < 0:
            raise ClosedError("the conversion was given up")
        return self._fd

    def close(self) -> None:
        """Let go of the file and its room; safe to call twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
