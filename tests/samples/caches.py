"""What tests of caches share: where one lies, batches by their rows, and the work that a pass was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import oocloader as ooc
from recorded import ids_of


def place(kind: str, tmp_path: Path) -> str:
    return "memory" if kind == "memory" else str(tmp_path / "cache")


def batches_of(loader: Any) -> list[list[int]]:
    return [ids_of([element]) for element in loader]


def work(loader: ooc.Loader) -> tuple[int, int, int]:
    counters = loader.counters
    assert counters is not None
    return counters.read_bytes, counters.chunks_decoded, counters.decoded_bytes
