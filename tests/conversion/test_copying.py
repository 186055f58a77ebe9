from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oocloader.conversion import copying, worker_threads
from oocloader.conversion import extents as places
from oocloader.conversion.copying import copy_array
from oocloader.conversion.encode import Encode
from oocloader.conversion.extents import Extent, Placement
from oocloader.conversion.journal import FinishedPiece
from oocloader.conversion.store_plan import StoredArrayPlan
from oocloader.conversion.verification.manifest import checksum

ROWS, ROW, CHUNK = 22, 8, 2
PIECE_CHUNKS = 1
PATIENCE_S = 20


class Rows:
    """Rows that carry their numbers."""

    def read(self, start: int, stop: int, out: np.ndarray | None = None) -> np.ndarray:
        found = np.repeat(np.arange(start, stop, dtype=np.uint8)[:, np.newaxis], ROW, axis=1)
        assert out is not None
        out[...] = found
        return out


class OneFile:
    """Puts chunks one behind the other, and notes what it was asked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked: list[tuple[int, list[int]]] = []
        self._inside = threading.Lock()
        self._at = 0

    def place(self, first_chunk: int, sizes: Sequence[int]) -> Placement:
        assert self._inside.acquire(blocking=False), "two threads at a time"
        self.asked.append((first_chunk, list(sizes)))
        at = self._at
        self._at += sum(sizes)
        self._inside.release()
        return Placement([at], [Extent(str(self.path), at, sum(sizes))])


def a_plan(threads: int, buffers: int) -> StoredArrayPlan:
    return StoredArrayPlan(
        "x", (ROWS, ROW), np.dtype("u1"), CHUNK, None, CHUNK * PIECE_CHUNKS, threads=threads, buffers=buffers
    )


def copied(
    sink: Any,
    encode: Encode | None = None,
    *,
    threads: int = 2,
    buffers: int = 4,
    check: Callable[[], object] = lambda: None,
    first_piece: int = 0,
    written: Callable[[FinishedPiece], object] | None = None,
) -> list[FinishedPiece]:
    told: list[FinishedPiece] = []
    copy_array(
        Rows(),
        sink,
        a_plan(threads, buffers),
        encode=encode,
        array=0,
        first_piece=first_piece,
        finish=written or told.append,
        check_source=check,
    )
    return told


def number_of(chunk: np.ndarray) -> int:
    return int(chunk[0]) // CHUNK


@pytest.mark.parametrize(("threads", "buffers"), [(1, 1), (2, 2), (2, 4), (5, 7)])
def test_places_are_asked_for_and_pieces_told_of_in_order(tmp_path: Path, threads: int, buffers: int) -> None:
    sink = OneFile(tmp_path / "out")

    def encode(chunk: np.ndarray, out: np.ndarray) -> np.ndarray:
        nbytes = 1 + number_of(chunk) % 5
        out[:nbytes] = chunk[0]
        return out[:nbytes]

    told = copied(sink, encode, threads=threads, buffers=buffers)
    sizes = [1 + number % 5 for number in range(ROWS // CHUNK)]
    assert sink.asked == [(number, [size]) for number, size in enumerate(sizes)]
    assert [one.piece for one in told] == list(range(ROWS // CHUNK))
    expected = b"".join(bytes([number * CHUNK]) * size for number, size in enumerate(sizes))
    assert sink.path.read_bytes() == expected
    for number, (one, size) in enumerate(zip(told, sizes, strict=True)):
        rows = np.repeat(np.array([2 * number, 2 * number + 1], np.uint8), ROW)
        assert list(one.sizes) == [size]
        assert list(one.checksums) == [checksum(rows)]
        assert list(one.stored_checksums) == [checksum(np.full(size, number * CHUNK, np.uint8))]


def test_a_thread_that_is_ahead_goes_on_with_other_pieces(tmp_path: Path) -> None:
    others = threading.Semaphore(0)

    def encode(chunk: np.ndarray, out: np.ndarray) -> np.ndarray:
        if number_of(chunk) == 0:
            for _ in range(3):
                assert others.acquire(timeout=PATIENCE_S), "nobody went on"
        else:
            others.release()
        out[: len(chunk)] = chunk
        return out[: len(chunk)]

    sink = OneFile(tmp_path / "out")
    told = copied(sink, encode, threads=2, buffers=4)
    assert [one.piece for one in told] == list(range(ROWS // CHUNK))
    expected = np.repeat(np.arange(ROWS, dtype=np.uint8), ROW)
    assert sink.path.read_bytes() == expected.tobytes()


def test_writing_does_not_wait_for_earlier_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, later = threading.Event(), threading.Event()
    put = places.put

    def encode(chunk: np.ndarray, out: np.ndarray) -> np.ndarray:
        # The others have no place before the first is being written.
        assert number_of(chunk) == 0 or first.wait(PATIENCE_S)
        out[: len(chunk)] = chunk
        return out[: len(chunk)]

    def putting(extents: Sequence[Extent], data: np.ndarray, **options: Any) -> bool:
        done = put(extents, data, **options)
        if extents[0].offset == 0:
            first.set()
            assert later.wait(PATIENCE_S), "the second piece waits for the first"
        else:
            later.set()
        return done

    monkeypatch.setattr(copying, "put", putting)
    told = copied(OneFile(tmp_path / "out"), encode)
    assert [one.piece for one in told] == list(range(ROWS // CHUNK))


def test_what_is_being_written_when_another_fails_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing, failed = threading.Event(), threading.Event()
    put = places.put

    def putting(extents: Sequence[Extent], data: np.ndarray, **options: Any) -> bool:
        if extents[0].offset == 0:
            failing.set()
            assert failed.wait(PATIENCE_S)
            return put(extents, data, **options)
        failed.set()
        raise OSError(28, "no space left on device")

    def encode(chunk: np.ndarray, out: np.ndarray) -> np.ndarray:
        # The others have no place before the first is being written.
        assert number_of(chunk) == 0 or failing.wait(PATIENCE_S)
        out[: len(chunk)] = chunk
        return out[: len(chunk)]

    monkeypatch.setattr(copying, "put", putting)
    told: list[FinishedPiece] = []
    with pytest.raises(OSError, match="no space"):
        copied(OneFile(tmp_path / "out"), encode, written=told.append)
    assert [one.piece for one in told] == [0]


def test_whoever_is_late_is_not_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_threads, "_PATIENCE_AFTER_ERROR_S", 0.01)
    writing, given_up, late = (threading.Event() for _ in range(3))
    put = places.put

    def encode(chunk: np.ndarray, out: np.ndarray) -> np.ndarray:
        if number_of(chunk) > 0:
            assert writing.wait(PATIENCE_S)
            raise ValueError("broken")
        out[: len(chunk)] = chunk
        return out[: len(chunk)]

    def putting(extents: Sequence[Extent], data: np.ndarray, **options: Any) -> bool:
        writing.set()
        assert given_up.wait(PATIENCE_S)
        done = put(extents, data, **options)
        late.set()
        return done

    monkeypatch.setattr(copying, "put", putting)
    told: list[FinishedPiece] = []
    with pytest.raises(ValueError, match="broken"):
        copied(OneFile(tmp_path / "out"), encode, threads=3, buffers=3, written=told.append)
    given_up.set()
    assert late.wait(PATIENCE_S)
    for thread in threading.enumerate():
        if thread.name.startswith("oocloader-convert"):
            thread.join(PATIENCE_S)
    assert told == []


def test_whoever_is_late_begins_no_other_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_threads, "_PATIENCE_AFTER_ERROR_S", 0.01)
    waiting, writing, given_up = (threading.Event() for _ in range(3))
    put = places.put
    begun: list[int] = []

    def encode(chunk: np.ndarray, out: np.ndarray) -> np.ndarray:
        number = number_of(chunk)
        if number == 0:
            # Piece 1 waits by now for its place, which whoever has piece 0 gets with its own.
            assert waiting.wait(PATIENCE_S)
        elif number == 2:
            waiting.set()
            assert writing.wait(PATIENCE_S)
            raise ValueError("broken")
        out[: len(chunk)] = chunk
        return out[: len(chunk)]

    def putting(extents: Sequence[Extent], data: np.ndarray, **options: Any) -> bool:
        begun.append(extents[0].offset // (CHUNK * ROW))
        writing.set()
        assert given_up.wait(PATIENCE_S)
        return put(extents, data, **options)

    monkeypatch.setattr(copying, "put", putting)
    with pytest.raises(ValueError, match="broken"):
        copied(OneFile(tmp_path / "out"), encode)
    given_up.set()
    for thread in threading.enumerate():
        if thread.name.startswith("oocloader-convert"):
            thread.join(PATIENCE_S)
    assert begun == [0]


def test_goes_on_from_a_piece(tmp_path: Path) -> None:
    sink = OneFile(tmp_path / "out")
    told = copied(sink, first_piece=4)
    assert [one.piece for one in told] == list(range(4, ROWS // CHUNK))
    assert sink.asked[0] == (4, [CHUNK * ROW])
