"""Events of a pass as a trace: the JSON that chrome://tracing and https://ui.perfetto.dev open."""

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from oocloader.errors import StoreError
from oocloader.metrics.counters import Event
from oocloader.paths import local_path

# The format: "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
_CONSUMER, _WINDOWS, _FIRST_READER = 1, 2, 3
_TRACKS = {"plan": "plan window", "job": "read window"}


def write_trace(path: str | os.PathLike[str], events: Sequence[Event], *, dropped: int) -> None:
    """Write `events` to `path`. `dropped` older ones are missing, which the trace says.

    Tracks: the consumer (waiting for batch N, then the model with it), the windows (from the start of reading
    to being taken; several at once), and each reader thread. Times are microseconds from the first event.
    Raises `StoreError` where the file cannot be written.
    """
    name = local_path(path, remedy="write it to this machine")
    zero = min((event.began_s for event in events), default=0.0)
    entries = [*_names(events), *_slices(events, zero)]
    content = {"traceEvents": entries, "displayTimeUnit": "ms", "otherData": {"events_dropped": dropped}}
    try:
        with open(name, "w", encoding="utf-8") as stream:
            json.dump(content, stream, separators=(",", ":"))
    except OSError as error:
        raise StoreError(f"{name}: the trace cannot be written: {error.strerror}", file=name) from error


def _readers(events: Sequence[Event]) -> dict[str, int]:
    names = sorted({event.thread for event in events if event.kind in _TRACKS})
    return {name: _FIRST_READER + at for at, name in enumerate(names)}


def _names(events: Sequence[Event]) -> Iterator[dict[str, Any]]:
    tracks = {"consumer": _CONSUMER, "windows": _WINDOWS, **_readers(events)}
    yield {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "oocloader"}}
    for name, track in tracks.items():
        yield {"ph": "M", "pid": 1, "tid": track, "name": "thread_name", "args": {"name": name}}
        yield {"ph": "M", "pid": 1, "tid": track, "name": "thread_sort_index", "args": {"sort_index": track}}


def _slices(events: Sequence[Event], zero_s: float) -> Iterator[dict[str, Any]]:
    readers = _readers(events)
    batch: Event | None = None
    for event in events:
        if event.kind == "next":
            if batch is not None:
                yield _slice("model", _CONSUMER, batch.ended_s, event.began_s, zero_s, batch=batch.number)
            yield _slice("wait for data", _CONSUMER, event.began_s, event.ended_s, zero_s, batch=event.number)
            batch = event
        elif event.kind == "window":
            # Windows overlap, so they are drawn as asynchronous slices.
            about = {"cat": "window", "id": event.number, "name": "window", "pid": 1, "tid": _WINDOWS}
            yield {**about, "ph": "b", "ts": _us(event.began_s, zero_s), "args": {"window": event.number}}
            yield {**about, "ph": "e", "ts": _us(event.ended_s, zero_s)}
        else:
            track = readers[event.thread]
            name = _TRACKS[event.kind]
            yield _slice(name, track, event.began_s, event.ended_s, zero_s, window=event.number)


def _slice(
    name: str, track: int, began_s: float, ended_s: float, zero_s: float, **args: int
) -> dict[str, Any]:
    ts = _us(began_s, zero_s)
    dur = round(_us(ended_s, zero_s) - ts, 3)
    return {"ph": "X", "cat": name, "name": name, "pid": 1, "tid": track, "ts": ts, "dur": dur, "args": args}


def _us(at_s: float, zero_s: float) -> float:
    return round((at_s - zero_s) * 1e6, 3)
