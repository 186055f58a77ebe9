"""What of broken-off work is relied on: the pieces from the first on whose bytes are there."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from oocloader.conversion.journal import FinishedPiece
from oocloader.conversion.store_plan import StorePlan
from oocloader.conversion.usable_pieces import count_usable
from plans import planned_store

# 10 chunks of 10 rows of 4 bytes: 4 pieces of 3 chunks, the last one of 1. Each chunk is a file.
CHUNKS, PIECE_CHUNKS, CHUNK_NBYTES = 10, 3, 40


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> StorePlan:
    monkeypatch.setattr("oocloader.conversion.store_plan._PIECE_NBYTES", PIECE_CHUNKS * CHUNK_NBYTES)
    plan = planned_store((100, 4), chunk_rows=10)
    assert (plan.arrays[0].pieces, plan.arrays[0].piece_chunks) == (4, PIECE_CHUNKS)
    return plan


@pytest.fixture
def finished(tmp_path: Path) -> list[FinishedPiece]:
    """All pieces, their chunks 3 bytes behind the begin of their files."""
    pieces = []
    for piece in range(4):
        crcs = []
        for chunk in range(CHUNKS)[piece * PIECE_CHUNKS : (piece + 1) * PIECE_CHUNKS]:
            data = bytes([chunk]) * CHUNK_NBYTES
            (tmp_path / str(chunk)).write_bytes(b"abc" + data)
            crcs.append(zlib.crc32(data))
        pieces.append(FinishedPiece(0, piece, [3] * len(crcs), [CHUNK_NBYTES] * len(crcs), crcs, crcs))
    return pieces


def usable(folder: Path, plan: StorePlan, finished: list[FinishedPiece], *, read: bool) -> int:
    return count_usable(finished, plan, lambda array, chunk: str(folder / str(chunk)), read=read)


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("count", range(5))
def test_what_is_there_counts(
    tmp_path: Path, plan: StorePlan, finished: list[FinishedPiece], count: int, read: bool
) -> None:
    assert usable(tmp_path, plan, finished[:count], read=read) == count
    # Pieces count from the first one on, in their order.
    assert usable(tmp_path, plan, finished[1:], read=read) == 0
    swapped = [finished[0], finished[2], finished[1], finished[3]]
    assert usable(tmp_path, plan, swapped, read=read) == 1


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("how", ["gone", "short", "changed"])
def test_nothing_from_the_first_chunk_on_that_is_not(
    tmp_path: Path, plan: StorePlan, finished: list[FinishedPiece], chunk: int, how: str, read: bool
) -> None:
    path = tmp_path / str(chunk)
    content = path.read_bytes()
    match how:
        case "gone":
            path.unlink()
        case "short":
            path.write_bytes(content[:-1])
        case "changed":
            path.write_bytes(content[:-1] + b"\xff")
    # Where nothing is read back, files that are long enough are trusted.
    expected = 4 if how == "changed" and not read else chunk // PIECE_CHUNKS
    assert usable(tmp_path, plan, finished, read=read) == expected


def test_what_lies_before_a_chunk_does_not_matter(
    tmp_path: Path, plan: StorePlan, finished: list[FinishedPiece]
) -> None:
    (tmp_path / "4").write_bytes(b"xyz" + (tmp_path / "4").read_bytes()[3:])
    assert usable(tmp_path, plan, finished, read=True) == 4


def test_pieces_that_are_cut_otherwise_do_not_count(
    tmp_path: Path, plan: StorePlan, finished: list[FinishedPiece]
) -> None:
    first = finished[0]
    short = FinishedPiece(0, 0, first.offsets[:2], first.sizes[:2], first.checksums[:2], first.checksums[:2])
    assert usable(tmp_path, plan, [short, *finished[1:]], read=False) == 0
