"""The journal: what was said is read again, whatever was cut off behind it."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocloader.conversion import journal
from oocloader.conversion.journal import FinishedPiece, Journal

JOB: dict[str, Any] = {"options": {"codec": "zstd:1"}, "files": {"/a b/é.npy": [1, 2]}}


def opened(path: Path) -> Journal:
    return Journal(os.open(path, os.O_RDWR | os.O_CREAT))


def finished(number: int, chunks: int = 3) -> FinishedPiece:
    sizes = [100 + number + chunk for chunk in range(chunks)]
    return FinishedPiece(
        0, number, [7 * number + 1000 * chunk for chunk in range(chunks)], sizes, sizes, sizes
    )


def numbers(upper: int) -> Any:
    return st.integers(0, upper)


@given(st.data())
def test_pieces_are_what_they_were(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    pieces = []
    for number in range(data.draw(st.integers(0, 4))):
        chunks = data.draw(st.integers(1, 5))
        column = st.lists(numbers(2**32 - 1), min_size=chunks, max_size=chunks)
        sizes = data.draw(st.lists(st.sampled_from([5, 5, 5, 9]), min_size=chunks, max_size=chunks))
        if data.draw(st.booleans()):
            offsets = [100 + sum(sizes[:chunk]) for chunk in range(chunks)]
        else:
            offsets = data.draw(st.lists(numbers(2**60), min_size=chunks, max_size=chunks))
        checksums = data.draw(column)
        stored = data.draw(st.just(checksums) | column)
        pieces.append(FinishedPiece(data.draw(numbers(3)), number, offsets, sizes, checksums, stored))
    path = tmp_path_factory.mktemp("journal") / "journal"
    first = opened(path)
    assert first.read() is None
    first.begin(JOB)
    for piece in pieces:
        first.add(piece)
    assert first.pieces == len(pieces)
    first.close()
    second = opened(path)
    found = second.read()
    second.close()
    assert found is not None
    assert (found.job, found.finished, found.renaming, found.rebooted) == (JOB, tuple(pieces), False, False)


def test_whatever_is_cut_off_or_damaged(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    first = opened(path)
    first.begin(JOB)
    ends = [path.stat().st_size]
    for number in range(3):
        first.add(finished(number))
        ends.append(path.stat().st_size)
    first.close()
    whole = path.read_bytes()
    for size in range(len(whole) + 1):
        for damaged in (whole[:size], whole[:size] + b"\0" * (len(whole) - size), whole[:size] + b"\n\n{}\n"):
            path.write_bytes(damaged)
            after = opened(path)
            found = after.read()
            expected = sum(damaged[:end] == whole[:end] for end in ends) - 1
            assert (found is None) == (expected < 0)
            if found is not None:
                assert found.finished == tuple(finished(number) for number in range(expected))
                after.add(finished(expected))
                after.close()
                again = opened(path)
                more = again.read()
                assert more is not None
                assert more.finished == tuple(finished(number) for number in range(expected + 1))
                again.close()
            after.close()


def test_forgetting_and_renaming(tmp_path: Path) -> None:
    first = opened(tmp_path / "journal")
    first.begin(JOB)
    for number in range(5):
        first.add(finished(number, chunks=number + 1))
    first.forget_after(2)
    first.add(finished(2))
    first.record_renaming()
    assert first.pieces == 3
    first.close()
    second = opened(tmp_path / "journal")
    found = second.read()
    assert found is not None
    assert found.renaming
    assert [piece.piece for piece in found.finished] == [0, 1, 2]
    assert found.finished[2] == finished(2)
    second.add(finished(3))
    second.close()
    third = opened(tmp_path / "journal")
    more = third.read()
    third.close()
    assert more is not None
    assert not more.renaming
    assert [piece.piece for piece in more.finished] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("before", "now", "rebooted"), [("a", "a", False), ("a", "b", True), ("", "", True), ("a", "", True)]
)
def test_another_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, now: str, rebooted: bool
) -> None:
    monkeypatch.setattr(journal, "_boot", lambda: before)
    first = opened(tmp_path / "journal")
    first.begin(JOB)
    monkeypatch.setattr(journal, "_boot", lambda: now)
    found = first.read()
    first.close()
    assert found is not None
    assert found.rebooted == rebooted


def test_journals_of_other_versions_count_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened(tmp_path / "journal")
    monkeypatch.setattr(journal, "_VERSION", 99)
    first.begin(JOB)
    monkeypatch.undo()
    assert first.read() is None
    first.close()


def test_nothing_is_added_to_a_journal_that_was_closed(tmp_path: Path) -> None:
    first = opened(tmp_path / "journal")
    first.begin(JOB)
    first.close()
    # Whoever opens a file now gets the same descriptor.
    with open(tmp_path / "other", "wb") as other:
        failed: list[BaseException] = []

        def add() -> None:
            try:
                first.add(finished(0))
            except OSError as error:
                failed.append(error)

        late = threading.Thread(target=add)
        late.start()
        late.join()
        assert len(failed) == 1
        assert os.fstat(other.fileno()).st_size == 0
    first.close()
