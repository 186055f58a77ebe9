"""What a verification says of what it found, in numbers and in lines."""

from __future__ import annotations

import json

import pytest

from oocloader.conversion.verification.verify_report import ArrayCheck, Damage, Difference, VerifyReport

FIRST = Difference(7, (1, 2), "3", "4")
DAMAGED = tuple(Damage((n, 0), (10 * n, 10 * n + 10), f"in c.{n}", "it is short") for n in range(25))


@pytest.mark.parametrize(
    ("check", "ok", "lines"),
    [
        (ArrayCheck("x", 1000, 8, "manifest"), True, ["x: 1,000 rows: as they were written"]),
        (ArrayCheck("x", 9, 8, "comparison"), True, ["x: 9 rows: the same"]),
        (
            ArrayCheck("x", 9, 8, "decoding"),
            True,
            ["x: 9 rows: all chunks can be read (no manifest, so their values are not checked)"],
        ),
        (
            ArrayCheck("x", 9, 8, "comparison", differences=1, first=FIRST),
            False,
            ["x: 9 rows: 1 value differs, first at row 7, index (1, 2): 3, expected 4"],
        ),
        (
            ArrayCheck("x", 9, 8, "comparison", 2000, Difference(7, (), "3", "4"), DAMAGED[1:2]),
            False,
            [
                "x: 9 rows: 2,000 values differ, first at row 7: 3, expected 4; 1 chunk damaged",
                "  chunk (1, 0), rows 10 to 19, in c.1: it is short",
            ],
        ),
        (ArrayCheck("x", 9, 8, "manifest", problem="has no shape"), False, ["x: has no shape"]),
        (ArrayCheck("x", 9, 8, "decoding", skipped="strings"), True, ["x: not checked: strings"]),
    ],
)
def test_lines_of_an_array(check: ArrayCheck, ok: bool, lines: list[str]) -> None:
    assert check.ok == ok
    assert check.lines() == lines


def test_of_many_damaged_chunks_the_first_are_listed() -> None:
    head, *listed, last = ArrayCheck("x", 250, 8, "manifest", damaged=DAMAGED).lines()
    assert head == "x: 250 rows: 25 chunks damaged"
    assert listed == [f"  {damage}" for damage in DAMAGED[:20]]
    assert last == "  and 5 more"
    assert len(ArrayCheck("x", 250, 8, "manifest", damaged=DAMAGED[:20]).lines()) == 21


GOOD = ArrayCheck("x", 9, 8, "manifest")
BAD = ArrayCheck("y", 9, 8, "manifest", problem="is lost")


@pytest.mark.parametrize(
    ("arrays", "against", "head"),
    [
        ((GOOD,), None, "a.h5: good (1 array, 1.2 s)"),
        ((BAD,), None, "a.h5: bad (1 array, 1.2 s)"),
        ((GOOD, GOOD), "b.zarr", "a.h5: good, compared with b.zarr (2 arrays, 1.2 s)"),
        ((GOOD, BAD, GOOD), None, "a.h5: 1 of 3 bad (3 arrays, 1.2 s)"),
    ],
)
def test_report(arrays: tuple[ArrayCheck, ...], against: str | None, head: str) -> None:
    report = VerifyReport("a.h5", against, arrays, 1.23)
    assert report.ok == (BAD not in arrays)
    first, *lines = str(report).splitlines()
    assert first == head
    assert lines == [f"  {line}" for array in arrays for line in array.lines()]


def test_report_in_terms_of_json() -> None:
    check = ArrayCheck("x", 9, 8, "comparison", 3, FIRST, DAMAGED[:1])
    found = json.loads(json.dumps(VerifyReport("a.h5", None, (GOOD, check), 0.5).as_dict()))
    assert (found["store"], found["against"], found["ok"], found["seconds"]) == ("a.h5", None, False, 0.5)
    good, bad = found["arrays"]
    assert (good["name"], good["ok"], good["first"], good["damaged"]) == ("x", True, None, [])
    assert (bad["ok"], bad["differences"]) == (False, 3)
    assert bad["first"] == {"row": 7, "index": [1, 2], "found": "3", "expected": "4"}
    assert bad["damaged"] == [{"chunk": [0, 0], "rows": [0, 10], "where": "in c.0", "reason": "it is short"}]
