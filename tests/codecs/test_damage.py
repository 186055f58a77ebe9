"""Damaged chunks: an error or, where the format has no checksum, some values; never a crash."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[1] / "samples" / "codec_damage.py"

CHECKED = (
    "gzip",
    "fletcher32",
    "bzip2",
    "zarr zlib",
    "zarr bz2",
    "zarr lzma",
    "checksum",
    "crc32",
    "adler32",
    "jenkins_lookup3",
)
"""Codecs with a checksum of the data, by what is in the names of their samples."""
UNCHECKED = ("zarr lzma raw",)


def run(*arguments: str) -> Any:
    command = [sys.executable, "-X", "faulthandler", str(PROGRAM), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = run("damage", "1", "600")
    return found


def test_damaged_chunks_are_errors_or_values_and_never_end_the_process(
    outcomes: dict[str, dict[str, int]],
) -> None:
    assert len(outcomes) >= 49
    for name, counts in outcomes.items():
        assert counts["good"] == 1, name
        assert counts["error"] >= 100, name


def test_a_checksum_lets_no_other_values_through(outcomes: dict[str, dict[str, int]]) -> None:
    checked = {
        name: counts
        for name, counts in outcomes.items()
        if any(word in name for word in CHECKED) and name not in UNCHECKED
    }
    assert len(checked) >= 15
    assert {name: counts["other"] for name, counts in checked.items() if counts.get("other")} == {}


def test_chunks_that_claim_to_be_huge_are_refused_without_the_memory() -> None:
    found = run("claims")
    assert len(found) >= 18
    assert [name for name, message in found.items() if message == "decoded"] == []
    assert all("allocate" not in message.lower() for message in found.values()), found
