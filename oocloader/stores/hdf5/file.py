"""Opening HDF5 files: why one cannot be opened, and when it may be opened again."""

import functools
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import h5py
import numpy as np
from h5py._objects import phil  # h5py's own lock, which it names nowhere else

from oocloader.errors import ChangedError, ClosedError, StoreError
from oocloader.local_files import FileState
from oocloader.reading import Lock

_TRUNCATED = re.compile(r"truncated file: eof = \d+, .*stored_eof = (\d+)")
_OPEN_FOR_WRITING = "already open for write"
_LOCKED = "unable to lock file"


def open_for_reading(path: str) -> tuple[h5py.File, bool]:
    """The file, and whether it is read in SWMR mode: its writer is at work, or ended without closing it.

    Raises `StoreError` that says why it cannot be opened. Nothing is written to the file.
    """
    _refuse_open_here(path)
    try:
        return h5py.File(path, "r", locking="best-effort"), False
    except OSError as error:
        why = str(error)
        swmr = _OPEN_FOR_WRITING in why
        # Read-only and network file systems that cannot lock: nobody can write there under a lock either.
        written = "errno = 11" in why or isinstance(error, BlockingIOError)
        if not swmr and (_LOCKED not in why or written):
            raise _cannot_open(path, error) from error
        options = {"libver": "latest", "swmr": True, "locking": "best-effort"} if swmr else {"locking": False}
        try:
            return h5py.File(path, "r", **options), swmr
        except OSError as second:
            raise _cannot_open(path, error if swmr else second) from second


def _refuse_open_here(path: str) -> None:
    """What this process wrote may still be in the library's cache, not in the file."""
    with phil:  # another thread may close one of them between these calls
        files = h5py.h5f.get_obj_ids(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE)
        written = [file.name for file in files if file.get_intent() & h5py.h5f.ACC_RDWR]
    for name in written:
        with suppress(OSError):  # names of files in memory lead nowhere
            if os.path.samefile(os.fsdecode(name), path):
                break
    else:
        return
    raise StoreError(f"{path}: is open for writing in this process; close it first", file=path)


def _cannot_open(path: str, error: OSError) -> StoreError:
    why = " ".join(str(error).split())
    cut_short = _TRUNCATED.search(why)
    if cut_short:
        what = f"the file is truncated: it has {os.path.getsize(path)} bytes and {cut_short[1]} are expected"
        what += "; a copy or download may have stopped early"
    elif _OPEN_FOR_WRITING in why:
        what = "the file is open for writing, or its writer ended without closing it: "
        what += "wait for the writer, or if there is none run h5clear -s on a copy"
    elif _LOCKED in why:
        what = "the file is open for writing in another program; wait for it"
    else:
        inner = re.sub(r"^.*?Unable to (?:synchronously )?open file \((.*?)\)?\]?$", r"\1", why)
        what = f"cannot be opened as HDF5: {inner}"
    return StoreError(f"{path}: {what}", file=path)


class Hdf5File:
    """An HDF5 file that is closed between uses, unless `held_open` was called. Thread-safe."""

    def __init__(self, path: str, *, swmr: bool) -> None:
        self.path = path
        self.swmr = swmr
        self._state = _state(path)
        self._open: h5py.File | None = None
        self._closed = False
        self._lock = Lock()

    @contextmanager
    def opened(self) -> Iterator[h5py.File]:
        """The file for as long as the block runs. Raises `ChangedError` where it is another by now."""
        self._check_unchanged()
        file, _ = open_for_reading(self.path)
        try:
            yield file
        finally:
            file.close()

    def held_open(self) -> h5py.File:
        """The file, open until `close`."""
        with self._lock:
            if self._closed:
                raise ClosedError(f"{self.path}: the store is closed; open it again", file=self.path)
            if self._open is None:
                if not self.swmr:
                    self._check_unchanged()
                self._open, _ = open_for_reading(self.path)
            return self._open

    def _check_unchanged(self) -> None:
        if self._state != _state(self.path):
            what = f"{self.path}: the file changed since the store was opened; open the store again"
            raise ChangedError(what, file=self.path)

    def close(self) -> None:
        """Close what is open; safe to call twice."""
        with self._lock:
            self._closed = True
            file, self._open = self._open, None
        if file is not None:
            file.close()


def _state(path: str) -> FileState:
    try:
        return FileState.of(path)
    except FileNotFoundError as error:
        raise ChangedError(f"{path}: the file was removed while the store was in use", file=path) from error


@functools.cache
def user_block_left_out() -> tuple[bool, bool]:
    """Whether this HDF5 counts addresses of chunks, and of contiguous data, from behind the user block.

    Some versions do and others count from the start of the file, so it is tried on a file in memory.
    """
    chunk = np.arange(64, dtype=np.uint8) * 3 + 7
    whole = chunk[::-1].copy()
    memory = io.BytesIO()
    places: list[h5py.h5d.StoreInfo] = []
    with h5py.File(memory, "w", userblock_size=512) as file:
        file.create_dataset("chunked", data=chunk, chunks=chunk.shape).id.chunk_iter(places.append)
        file.create_dataset("contiguous", data=whole)
        contiguous = file["contiguous"].id.get_offset()
    stored = memory.getvalue()
    return stored.find(chunk.tobytes()) != places[0].byte_offset, stored.find(whole.tobytes()) != contiguous
