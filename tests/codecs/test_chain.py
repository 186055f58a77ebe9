"""Chain: order of steps, masks, sizes, scratch; with steps that record what they were given."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest

from codec_samples import decode
from oocloader.codecs.chain import Chain, CodecError, Compressor, Step, scratch


@dataclass(frozen=True)
class Add(Step):
    """Adds `amount` to each byte, and notes which memory it was given."""

    amount: int
    name: str = "add"
    seen: list[tuple[int, int]] = field(default_factory=list, compare=False)

    def decode(self, stored: np.ndarray, out: np.ndarray) -> np.ndarray:
        self.seen.append((stored.__array_interface__["data"][0], out.__array_interface__["data"][0]))
        found = out[: stored.size]
        np.add(stored, self.amount, out=found)
        return found


@dataclass(frozen=True)
class Double(Add):
    """Doubles each byte, by wrapping arithmetic."""

    amount: int = 0
    name: str = "double"

    def decode(self, stored: np.ndarray, out: np.ndarray) -> np.ndarray:
        found = super().decode(stored, out)
        np.multiply(found, 2, out=found)
        return found


@dataclass(frozen=True)
class CutLast(Step):
    """Takes the last byte off, where it lies."""

    name: str = "cut"
    views: ClassVar[bool] = True

    def most(self, nbytes: int) -> int:
        return nbytes + 1

    def decode(self, stored: np.ndarray, out: np.ndarray) -> np.ndarray:
        return stored[:-1]


@dataclass(frozen=True)
class Repeat(Compressor):
    """Repeats the first byte as often as the second says; needs as much scratch as it makes."""

    name: str = "repeat"

    def scratch(self, nbytes: int) -> int:
        return nbytes

    def decode(self, stored: np.ndarray, out: np.ndarray) -> np.ndarray:
        count = int(stored[1])
        if count > out.size:
            raise CodecError(f"repeat: {count} bytes, {out.size} fit")
        out[:count] = stored[0]
        return out[:count]


ADD, DOUBLE, CUT = Add(1), Double(), CutLast()

RESULTS: list[tuple[str, tuple[Step, ...], int, list[int], list[int]]] = [
    ("no steps", (), 0, [3, 5], [3, 5]),
    ("no steps, mask is about nothing", (), 0b11, [3, 5], [3, 5]),
    ("one step", (ADD,), 0, [3, 5], [4, 6]),
    ("one step, skipped", (ADD,), 0b1, [3, 5], [3, 5]),
    ("in order", (ADD, DOUBLE), 0, [3, 5], [8, 12]),
    ("in the other order", (DOUBLE, ADD), 0, [3, 5], [7, 11]),
    ("first skipped: bit of the last filter", (ADD, DOUBLE), 0b10, [3, 5], [6, 10]),
    ("second skipped: bit of the first filter", (ADD, DOUBLE), 0b01, [3, 5], [4, 6]),
    ("all skipped, with bits of no filter", (ADD, DOUBLE), 0xFFFFFFFF, [3, 5], [3, 5]),
    ("five steps", (ADD, DOUBLE, ADD, DOUBLE, ADD), 0, [1], [11]),
    ("a view alone", (CUT,), 0, [3, 5, 9], [3, 5]),
    ("a view first", (CUT, ADD), 0, [3, 5, 9], [4, 6]),
    ("a view last", (ADD, CUT), 0, [3, 5, 9], [4, 6]),
    ("views between", (ADD, CUT, CUT, DOUBLE), 0, [3, 5, 9, 9], [8, 12]),
    ("views and moves in turn", (ADD, CUT, DOUBLE, CUT, ADD), 0, [3, 9, 9], [9]),
    ("the same step twice", (ADD, ADD), 0, [3, 5], [5, 7]),
    ("from an unknown size", (Repeat(), ADD), 0, [7, 3], [8, 8, 8]),
]


def chain_of(steps: tuple[Step, ...]) -> Chain:
    return Chain(steps, tuple(reversed(range(len(steps)))), tuple(step.name for step in reversed(steps)))


@pytest.mark.parametrize(
    ("steps", "mask", "stored", "expected"), [row[1:] for row in RESULTS], ids=[row[0] for row in RESULTS]
)
def test_steps_are_applied_in_order_but_for_those_masked(
    steps: tuple[Step, ...], mask: int, stored: list[int], expected: list[int]
) -> None:
    assert decode(chain_of(steps), bytes(stored), len(expected), mask) == bytes(expected)


@pytest.mark.parametrize(
    ("steps", "stored", "nbytes"),
    [
        ((), 3, 4),
        ((), 5, 4),
        ((ADD,), 3, 4),
        ((ADD, DOUBLE), 3, 4),
        ((CUT,), 4, 4),
        ((ADD, CUT), 3, 4),
        ((Repeat(), CUT), 5, 9),
    ],
)
def test_another_size_than_the_chunk_is_an_error(steps: tuple[Step, ...], stored: int, nbytes: int) -> None:
    with pytest.raises(CodecError, match=f"where the chunk has {nbytes}"):
        decode(chain_of(steps), bytes([3] * stored), nbytes)


def test_out_that_cannot_be_written_is_refused() -> None:
    stored, out = np.zeros(4, np.uint8), np.zeros(8, np.uint8)
    with pytest.raises(ValueError, match="writable"):
        chain_of((ADD,)).decode(stored, out[::2])
    out.flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        chain_of((ADD,)).decode(stored, out[:4])


def test_only_a_chain_without_steps_is_raw() -> None:
    assert Chain().raw
    assert Chain(names=("bitround",)).raw
    assert not Chain((CUT,), (0,)).raw


def test_the_last_move_goes_straight_to_out_and_none_onto_its_own_input() -> None:
    steps = (Add(1), Add(2), CutLast(), Add(3), Add(4))
    stored, out = np.zeros(33, np.uint8), np.empty(32, np.uint8)
    chain_of(steps).decode(stored, out)
    assert (out == 10).all()
    moves = [step.seen[0] for step in steps if isinstance(step, Add)]
    addresses = [moves[0][0], *(target for _, target in moves)]
    assert addresses[-1] == out.__array_interface__["data"][0]
    assert addresses[1:-1] == [source for source, _ in moves[1:]]
    assert all(source != target for source, target in moves)


def test_scratch_is_reused_by_a_thread_and_not_shared_between_threads() -> None:
    first, second = Add(1), Add(1)
    chain = chain_of((first, second))
    stored, out = np.zeros(1000, np.uint8), np.empty(1000, np.uint8)
    for _ in range(3):
        chain.decode(stored, out)
    here = {target for _, target in first.seen}
    assert len(here) == 1

    # This thread still holds its buffer, so that the other's cannot be at the same address by chance.
    thread = threading.Thread(target=lambda: chain.decode(stored, np.empty(1000, np.uint8)))
    thread.start()
    thread.join()
    assert first.seen[-1][1] not in here
    assert second.seen[-1][0] == first.seen[-1][1]


def test_scratch_grows_to_the_largest_asked_for() -> None:
    small = scratch("a test of scratch", 10)
    large = scratch("a test of scratch", 1000)
    again = scratch("a test of scratch", 10)
    assert (small.size, large.size, again.size) == (10, 1000, 10)
    assert np.shares_memory(large, again)


@pytest.mark.parametrize(
    ("steps", "stored", "held"),
    [
        ((), 100, 0),
        ((ADD,), 100, 0),
        ((ADD, DOUBLE), 100, 100),
        ((ADD, DOUBLE, ADD), 100, 200),
        ((ADD, DOUBLE, ADD, DOUBLE), 100, 200),
        ((CUT,), 101, 0),
        ((ADD, CUT), 101, 101),
        ((CUT, ADD, CUT), 102, 101),
        ((Repeat(),), None, 100),
        ((Repeat(), ADD), None, 200),
        ((ADD, Repeat()), None, 100 + 4 * 100 + 65536),
    ],
)
def test_sizes_are_told_from_the_decoded_size(steps: tuple[Step, ...], stored: int | None, held: int) -> None:
    chain = chain_of(steps)
    assert chain.stored_nbytes(100) == stored
    assert chain.scratch_nbytes(100) == held
