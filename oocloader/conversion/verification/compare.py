"""Where two runs of rows differ, bit by bit."""

import numpy as np

from oocloader.conversion.verification.verify_report import Difference


def same_bits(found: np.ndarray, expected: np.ndarray) -> bool:
    """Whether rows of one shape and dtype have the same bytes: a NaN equals nothing, and -0.0 equals 0.0."""
    return np.array_equal(_bytes(found), _bytes(expected))


def differing(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Places of values whose bits differ, in C order (int64). Both are C-ordered, of one shape and dtype."""
    if same_bits(found, expected):
        return np.zeros(0, np.int64)
    itemsize = found.dtype.itemsize
    width = next(size for size in (8, 4, 2, 1) if itemsize % size == 0)
    unequal = found.reshape(-1).view(f"u{width}") != expected.reshape(-1).view(f"u{width}")
    return np.flatnonzero(unequal.reshape(-1, itemsize // width).any(axis=1))


def described(start: int, place: int, found: np.ndarray, expected: np.ndarray) -> Difference:
    """The difference at `place` of two runs of rows that begin at row `start`."""
    row, *index = (int(i) for i in np.unravel_index(place, found.shape))
    return Difference(
        start + row, tuple(index), _text(found.reshape(-1)[place]), _text(expected.reshape(-1)[place])
    )


def _text(value: np.generic) -> str:
    # Bits too where the value does not show them.
    text = str(value)
    return f"{text} ({value.tobytes()[::-1].hex()})" if "nan" in text else text


def _bytes(rows: np.ndarray) -> np.ndarray:
    return rows.reshape(-1).view(np.uint8)
