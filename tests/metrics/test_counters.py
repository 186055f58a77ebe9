"""Counters of a pass: sums over threads, the two parts of its time, bounded events."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocloader.metrics.counters import MOST_EVENTS, Counters, Events, Turns


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1))
def test_turns_add_up(steps: list[tuple[int, int]]) -> None:
    """Whatever the times, waiting and working are all there is from the first question to the last answer."""
    turns, now, waited, worked = Turns(), 17, 0, 0
    for number, (work, wait) in enumerate(steps):
        if number:
            now += work
            worked += work
        turns.asked(now)
        now += wait
        waited += wait
        turns.answered(now)
    assert (turns.waiting_s, turns.working_s, turns.first_s) == (waited, worked, steps[0][1])
    assert turns.wall_s == waited + worked
    assert turns.answers == len(steps)


def test_a_question_without_an_answer_does_not_count() -> None:
    turns = Turns()
    turns.over()
    assert turns.wall_s == 0
    turns.asked(1)
    turns.answered(2)
    turns.asked(5)
    assert (turns.waiting_s, turns.working_s, turns.wall_s) == (1, 0, 1)
    turns.over()
    assert (turns.waiting_s, turns.working_s, turns.wall_s) == (1, 3, 4)


def test_adding_from_many_threads() -> None:
    counters = Counters()

    def add() -> None:
        for _ in range(1000):
            counters.add(read_calls=1, read_s=0.5)

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (counters.read_calls, counters.read_s) == (8000, 4000.0)


def test_the_newest_events_are_kept() -> None:
    events = Events()
    for number in range(MOST_EVENTS + 10):
        events.add("job", number, number + 1, number)
    kept = events.kept()
    assert len(kept) == MOST_EVENTS
    assert (kept[0].number, kept[-1].number) == (10, MOST_EVENTS + 9)
    assert events.added - len(kept) == 10
    assert kept[0].thread == threading.current_thread().name


def test_the_fastest_crossing_counts() -> None:
    counters = Counters()
    assert counters.cross_s_per_byte == 0
    for nbytes, seconds in ((100, 3.0), (200, 2.0), (0, 0.0), (10, 5.0)):
        counters.crossed(nbytes, seconds)
    assert counters.cross_s_per_byte == pytest.approx(0.01)


def test_delivered_batches_are_events() -> None:
    counters = Counters()
    counters.delivered(1.0, 2.0)
    counters.delivered(5.0, 5.5)
    assert (counters.turns.waiting_s, counters.turns.working_s) == (1.5, 3.0)
    assert [(event.kind, event.number, event.began_s) for event in counters.events.kept()] == [
        ("next", 0, 1.0),
        ("next", 1, 5.0),
    ]


def test_peak_memory_goes_up_and_stays() -> None:
    """In a process of its own, which held little before."""
    code = """
from oocloader.metrics.counters import peak_memory_bytes
before = peak_memory_bytes()
held = bytearray(64 << 20)
held[::4096] = b"x" * len(held[::4096])
del held
print(before, peak_memory_bytes())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert 1 << 20 < before < 64 << 20
    assert 60 << 20 < after - before < 80 << 20
