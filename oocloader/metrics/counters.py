"""What one pass did and when: sums, the two parts of its time, and its newest events for a trace."""

from __future__ import annotations

import resource
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

# Events kept of a pass, about 200 bytes each.
MOST_EVENTS = 20_000


class Event(NamedTuple):
    """Something that took from `began_s` to `ended_s` (`time.perf_counter`).

    `kind`: "plan" and "job" (a reader thread planned a window, or read a part of one), "window" (from the
    start of reading a window until it was taken), "next" (the consumer asked for a batch). `number` counts
    windows or batches of the pass.
    """

    kind: str
    thread: str
    began_s: float
    ended_s: float
    number: int


class Events:
    """The newest `MOST_EVENTS` events of a pass. Thread-safe."""

    __slots__ = ("_kept", "added")

    def __init__(self) -> None:
        self.added = 0
        self._kept: deque[Event] = deque(maxlen=MOST_EVENTS)

    def add(self, kind: str, began_s: float, ended_s: float, number: int) -> None:
        """Keep an event of the thread that calls."""
        self.added += 1
        self._kept.append(Event(kind, threading.current_thread().name, began_s, ended_s, number))

    def kept(self) -> list[Event]:
        """The events, in the order in which they ended."""
        # A copy is one step for the interpreter: no thread adds to it meanwhile.
        return list(self._kept.copy())


@dataclass(slots=True)
class Turns:
    """The time of one who asks again and again, in its two parts: `waiting_s` for answers, `working_s` with
    them. It begins with the first question and ends with the last answer. For one thread.

    >>> turns = Turns()
    >>> turns.asked(1.0), turns.answered(1.5), turns.asked(4.5), turns.answered(5.0)
    (None, None, None, None)
    >>> turns.waiting_s, turns.working_s, turns.first_s, turns.wall_s
    (1.0, 3.0, 0.5, 4.0)
    """

    waiting_s: float = 0.0
    working_s: float = 0.0
    first_s: float = 0.0
    """What the first answer took."""
    answers: int = 0
    _began_s: float = 0.0
    _asked_s: float = 0.0
    _answered_s: float = 0.0

    @property
    def wall_s(self) -> float:
        """From the first question to the last answer."""
        return self._answered_s - self._began_s

    def asked(self, at_s: float) -> None:
        """Somebody asks."""
        self._asked_s = at_s

    def answered(self, at_s: float) -> None:
        """The question last asked is answered; one never answered does not count."""
        waited = at_s - self._asked_s
        if self.answers:
            self.working_s += self._asked_s - self._answered_s
        else:
            self._began_s = self._asked_s
            self.first_s = waited
        self.waiting_s += waited
        self.answers += 1
        self._answered_s = at_s

    def over(self) -> None:
        """Let it end with the last question: there is no answer."""
        if self.answers:
            self.working_s += self._asked_s - self._answered_s
            self._answered_s = self._asked_s


@dataclass(slots=True)
class Counters:
    """Sums over one pass; `add` is thread-safe.

    Summed over threads: `read_s` (files), `decode_s` (codecs), `gather_s` (rows brought to their places, from
    memory or mapped files), `library_s` (h5py, zarr-python or zipfile, which read and decode in one) and
    `busy_s`, all that reader threads did. `starved_s`: the pipeline waited for rows to be read; `wait_s`: the
    consumer waited for its next window; `wall_s`: from the first `next` to the end. `turns`: of the consumer
    of batches on the device; `window_turns`: of the pipeline that takes windows. `sent_bytes` went to the
    device. `cross_s_per_byte`: the fastest that a window was seen to cross to the device, 0 where none did.
    `major_faults`: pages that the process had fetched from a disk meanwhile because it touched them.
    `complete`: the last window was asked beyond.
    """

    rows: int = 0
    batches: int = 0
    windows: int = 0
    read_calls: int = 0
    read_bytes: int = 0
    chunks_decoded: int = 0
    decoded_bytes: int = 0
    copied_bytes: int = 0
    mapped_bytes: int = 0
    delivered_bytes: int = 0
    sent_bytes: int = 0
    read_s: float = 0.0
    decode_s: float = 0.0
    gather_s: float = 0.0
    library_s: float = 0.0
    busy_s: float = 0.0
    starved_s: float = 0.0
    wait_s: float = 0.0
    wall_s: float = 0.0
    cross_s_per_byte: float = 0.0
    major_faults: int = 0
    complete: bool = False
    started_s: float = field(default_factory=time.perf_counter)
    turns: Turns = field(default_factory=Turns)
    window_turns: Turns = field(default_factory=Turns)
    events: Events = field(default_factory=Events)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, **amounts: float) -> None:
        """Add to the counters named."""
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)

    def include(self, other: Counters) -> None:
        """Add what `other` read and decoded; what it delivered is not counted again."""
        self.add(**{name: getattr(other, name) for name in _WORK})

    def delivered(self, asked_s: float, answered_s: float) -> None:
        """The consumer got its next batch."""
        self.turns.asked(asked_s)
        self.turns.answered(answered_s)
        self.events.add("next", asked_s, answered_s, self.turns.answers - 1)

    def crossed(self, nbytes: int, seconds: float) -> None:
        """A window of `nbytes` went to the device in at most `seconds`."""
        if nbytes:
            rate = seconds / nbytes
            self.cross_s_per_byte = min(self.cross_s_per_byte or rate, rate)


def major_faults() -> int:
    """Pages that this process has had fetched from a disk by touching them."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def peak_memory_bytes() -> int:
    """The most memory that this process ever held resident."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# What is done to have rows, whoever they are delivered to.
_WORK = (
    *("read_calls", "read_bytes", "chunks_decoded", "decoded_bytes", "copied_bytes", "mapped_bytes"),
    *("read_s", "decode_s", "gather_s", "library_s", "busy_s"),
)
