"""Traces: valid JSON in the form that Chrome and Perfetto open, with every window, job and batch in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import oocloader as ooc
from oocloader.metrics.counters import Event
from oocloader.metrics.trace import write_trace

EVENTS = [
    Event("plan", "reader-0", 10.0, 10.001, 0),
    Event("job", "reader-1", 10.001, 10.003, 0),
    Event("job", "reader-0", 10.001, 10.004, 0),
    Event("window", "tf", 10.0, 10.005, 0),
    Event("next", "main", 10.0, 10.006, 0),
    Event("plan", "reader-1", 10.004, 10.0045, 1),
    Event("next", "main", 10.010, 10.0101, 1),
    Event("window", "tf", 10.004, 10.012, 1),
    Event("next", "main", 10.011, 10.013, 2),
]


def entries(path: Path, events: list[Event], dropped: int = 0) -> list[dict[str, Any]]:
    write_trace(path, events, dropped=dropped)
    content = json.loads(path.read_text())
    assert content["otherData"] == {"events_dropped": dropped}
    found = content["traceEvents"]
    assert isinstance(found, list)
    return found


def test_what_is_in_it(tmp_path: Path) -> None:
    found = entries(tmp_path / "trace.json", EVENTS, dropped=3)
    names = {e["tid"]: e["args"]["name"] for e in found if e["name"] == "thread_name"}
    assert sorted(names.values()) == ["consumer", "reader-0", "reader-1", "windows"]
    slices = [(names[e["tid"]], e["name"], e["args"], e["ts"], e["dur"]) for e in found if e["ph"] == "X"]
    assert slices == [
        ("reader-0", "plan window", {"window": 0}, 0.0, 1000.0),
        ("reader-1", "read window", {"window": 0}, 1000.0, 2000.0),
        ("reader-0", "read window", {"window": 0}, 1000.0, 3000.0),
        ("consumer", "wait for data", {"batch": 0}, 0.0, 6000.0),
        ("reader-1", "plan window", {"window": 1}, 4000.0, 500.0),
        ("consumer", "model", {"batch": 0}, 6000.0, 4000.0),
        ("consumer", "wait for data", {"batch": 1}, 10000.0, 100.0),
        ("consumer", "model", {"batch": 1}, 10100.0, 900.0),
        ("consumer", "wait for data", {"batch": 2}, 11000.0, 2000.0),
    ]
    windows = [(e["ph"], e["id"], e["ts"]) for e in found if e["ph"] in "be"]
    assert windows == [("b", 0, 0.0), ("e", 0, 5000.0), ("b", 1, 4000.0), ("e", 1, 12000.0)]


def test_every_entry_has_what_the_format_asks_for(tmp_path: Path) -> None:
    for entry in entries(tmp_path / "trace.json", EVENTS):
        assert {"ph", "pid", "name"} <= set(entry)
        if entry["ph"] == "X":
            assert entry["dur"] >= 0
        if entry["ph"] in "Xbe":
            assert entry["ts"] >= 0
            assert isinstance(entry["tid"], int)
            assert entry["cat"]


def test_no_events(tmp_path: Path) -> None:
    assert {entry["ph"] for entry in entries(tmp_path / "trace.json", [])} == {"M"}


def test_where_it_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ooc.StoreError, match=r"no/trace\.json: the trace cannot be written: No such file"):
        write_trace(tmp_path / "no" / "trace.json", EVENTS, dropped=0)
