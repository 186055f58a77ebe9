"""The place where a new store grows: beside its destination, locked, and kept where work was broken off."""

import contextlib
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from oocloader.conversion.identity import difference, digest
from oocloader.conversion.journal import FinishedPiece, Journal, JournalContents
from oocloader.conversion.publish import DiscardedError, remove, size_of
from oocloader.conversion.verification.manifest import digest_in
from oocloader.errors import ChangedError, OocloaderError, StoreError
from oocloader.local_files import is_at, try_lock

_JOURNAL, _STORE = "journal", "store"


@dataclass(slots=True)
class Workspace:
    """Where the store for one destination grows.

    - `store`: where the new store is written.
    - `journal`: of every piece that is finished; `None` where the work cannot be taken up again.
    - `finished`: pieces finished before, in order; `rebooted`: the machine was started anew since.
    - `is_resumable`: whether what is finished stays where the work is broken off.
    - `total_pieces`: of all arrays, finished or not.
    """

    store: str
    journal: Journal | None
    finished: tuple[FinishedPiece, ...] = ()
    rebooted: bool = False
    is_resumable: bool = True
    total_pieces: int = 0


def workspace_folder(destination: str) -> str:
    """Where the work on a destination lies."""
    folder, name = os.path.split(destination)
    return os.path.join(folder, f".{name}.oocloader")


@contextlib.contextmanager
def open_workspace(
    destination: str, identity: Mapping[str, Any] | None, *, resume: bool, overwrite: bool, pieces: int
) -> Iterator[Workspace]:
    """Begin the work on `destination` (a real path), or go on with it.

    Where it is left by an error, or by a signal, what is finished stays, and the error says so. Where it
    is done, where nothing is finished yet, and where `identity` is `None`, nothing is left.

    Raises `StoreError` where somebody else works on the destination, where unfinished work lies there and
    `resume` is false, or where that work is another conversion than this one.
    """
    folder = workspace_folder(destination)
    fd, locked = _lock(folder, destination)
    with contextlib.closing(Journal(fd)) as journal:
        space = Workspace(os.path.join(folder, _STORE), None if identity is None else journal)
        space.total_pieces = pieces
        begun = journal.read()
        if begun is None or (not begun.finished and locked) or _is_renamed(begun, space.store):
            remove(space.store)
            journal.begin({} if identity is None else identity)
        else:
            _check_same(begun, identity, pieces, folder, destination, resume=resume)
            space.finished, space.rebooted = begun.finished, begun.rebooted
        try:
            if not overwrite and os.path.lexists(destination):
                # By whoever had the lock before.
                raise StoreError(f"{destination}: someone else made it in the meantime", file=destination)
            yield space
        except BaseException as error:
            wanted = space.is_resumable and identity is not None and not isinstance(error, DiscardedError)
            if wanted and journal.pieces:
                _say(error, folder, journal.pieces, pieces)
            else:
                _clear(folder)
            raise
        _clear(folder)


def _check_same(
    begun: JournalContents,
    identity: Mapping[str, Any] | None,
    pieces: int,
    folder: str,
    destination: str,
    *,
    resume: bool,
) -> None:
    """Raise `StoreError` where what was begun is not to be resumed, or is another conversion."""
    differs = "it was of files, and this one is of arrays in memory"
    if identity is not None:
        differs = difference(begun.job, identity)
    # Another conversion has another number of pieces.
    done = f"{len(begun.finished)}{'' if differs else f' of {pieces}'} pieces"
    where = f"{destination}: an unfinished conversion to it ({done}) lies in {folder}"
    anew = f"or begin anew: rm -r {shlex.quote(folder)}"
    if not resume:
        raise StoreError(f"{where}; go on with it by resume=True (--resume), {anew}", file=destination)
    if differs:
        what = f"{where}, but is not this one: {differs}; repeat what it was begun with, {anew}"
        raise StoreError(what, file=destination)


def _is_renamed(begun: JournalContents, store: str) -> bool:
    """Whether the store got its name, and only what was left of the work was not removed."""
    return begun.renaming and not is_made_by(store, begun.job)


def is_made_by(path: str, identity: Mapping[str, Any]) -> bool:
    """Whether the complete store at `path` was made by the conversion of this identity."""
    name: str = identity["plan"]["arrays"][0]["name"]
    return digest_in(path, name) == digest(identity)


def remove_leftover(destination: str, identity: Mapping[str, Any]) -> None:
    """Remove what is left of the work on a destination that is complete."""
    folder = workspace_folder(destination)
    if not os.path.isdir(folder):
        return
    with contextlib.closing(Journal(_lock(folder, destination)[0])) as journal:
        begun = journal.read()
        if begun is None or not difference(begun.job, identity):
            _clear(folder)


def begun_nbytes(destination: str) -> int:
    """Bytes of the unfinished work on a destination."""
    store = os.path.join(workspace_folder(destination), _STORE)
    return size_of(store) if os.path.exists(store) else 0


def begun_codec(destination: str) -> str | None:
    """The codec of the unfinished work on a destination, `None` where there is none."""
    try:
        fd = os.open(os.path.join(workspace_folder(destination), _JOURNAL), os.O_RDONLY)
    except OSError:
        return None
    with contextlib.closing(Journal(fd)) as journal:
        begun = journal.read(repair=False)
    codec: str | None = begun.job.get("codec") if begun is not None and begun.finished else None
    return codec


def _lock(folder: str, destination: str) -> tuple[int, bool]:
    """The journal, open, and whether it is locked: some file systems have no locks."""
    path = os.path.join(folder, _JOURNAL)
    while True:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            continue  # its owner removed the folder just now
        try:
            locked = try_lock(fd)
        except OSError:
            os.close(fd)
            raise
        if locked is None:
            return fd, False
        if not locked:
            os.close(fd)
            raise StoreError(
                f"{destination}: another conversion is writing it at this moment; wait until it is done,"
                " or choose another name",
                file=destination,
            )
        if is_at(fd, path):
            return fd, True
        os.close(fd)  # its owner finished and removed it between our opening and locking it


def _clear(folder: str) -> None:
    """Remove all of it, the journal last: whoever finds it, and no more, has nothing to go on with."""
    remove(os.path.join(folder, _STORE))
    remove(os.path.join(folder, _JOURNAL))
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _say(error: BaseException, folder: str, done: int, pieces: int) -> None:
    """Have an error say what is kept."""
    goes_on = "the same command with --resume (resume=True) goes on from there"
    if isinstance(error, ChangedError):
        goes_on += f" once the source is restored, its time too; otherwise: rm -r {shlex.quote(folder)}"
    what = f"{done} of {pieces} pieces are finished and kept in {folder}: {goes_on}"
    if isinstance(error, OocloaderError):
        error.args = (f"{error.message}; {what}", *error.args[1:])
    else:
        error.add_note(what)
