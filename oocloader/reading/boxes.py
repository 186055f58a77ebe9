"""Boxes: parts of an array that span some of every axis, cut so that each is kept near itself."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

_T = TypeVar("_T")
Box = tuple[slice, ...]
"""One slice an axis, with start and stop."""


@dataclass(frozen=True, slots=True)
class ChunkGeometry:
    """How the values of an array lie to each other where they are kept.

    - `unit`: the shape of a box that is kept, and so read, as one
    - `order`: the axes, from the one along which units lie far apart to the one along which they follow
      each other
    """

    unit: tuple[int, ...]
    order: tuple[int, ...]


@runtime_checkable
class BoxReader(Protocol):
    """A reader of rows that reads boxes too. Thread-safe."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def chunk_geometry(self) -> ChunkGeometry: ...

    def read_box(self, box: Box, out: np.ndarray) -> None:
        """Fill `out` with a box, axes ordered as `chunk_geometry.order`; native byte order and C order."""


def box_shape(box: Box) -> tuple[int, ...]:
    """The shape of what lies in a box.

    >>> box_shape((slice(2, 5), slice(0, 4)))
    (3, 4)
    """
    return tuple(part.stop - part.start for part in box)


def in_order(items: Sequence[_T], order: Sequence[int]) -> tuple[_T, ...]:
    """What belongs to each axis, in another order of the axes.

    >>> in_order((10, 20, 30), (2, 0, 1))
    (30, 10, 20)
    """
    return tuple(items[axis] for axis in order)


def cut_boxes(
    shape: Sequence[int], chunk_geometry: ChunkGeometry, *, itemsize: int, most_nbytes: int
) -> list[Box]:
    """The array in boxes of whole units (but for the edges), in the order in which they are kept.

    A box has at most `most_nbytes`, unless one unit has more. It grows along the axis whose units follow
    each other, and along the next only when it spans the whole of that one.

    >>> cut_boxes((4, 6), ChunkGeometry((1, 1), (1, 0)), itemsize=1, most_nbytes=9)[:2]
    [(slice(0, 4, None), slice(0, 2, None)), (slice(0, 4, None), slice(2, 4, None))]
    """
    size = [min(unit, length) for unit, length in zip(chunk_geometry.unit, shape, strict=True)]
    for axis in reversed(chunk_geometry.order):
        fits = most_nbytes // (math.prod(size) * itemsize)
        if fits <= 1 and size[axis] < shape[axis]:
            break
        size[axis] = min(size[axis] * max(1, fits), shape[axis])
        if size[axis] < shape[axis]:
            break
    along = [range(0, shape[axis], size[axis]) for axis in chunk_geometry.order]
    boxes = []
    for starts in itertools.product(*along):
        start = dict(zip(chunk_geometry.order, starts, strict=True))
        boxes.append(
            tuple(
                slice(start[axis], min(start[axis] + size[axis], shape[axis])) for axis in range(len(shape))
            )
        )
    return boxes


def within_rows(box: Box, axis: int, start: int, stop: int) -> Box | None:
    """The part of a box between `start` and `stop` along `axis`, `None` where there is none.

    >>> within_rows((slice(0, 4), slice(2, 8)), 1, 5, 20)
    (slice(0, 4, None), slice(5, 8, None))
    """
    lo, hi = max(box[axis].start, start), min(box[axis].stop, stop)
    return None if lo >= hi else (*box[:axis], slice(lo, hi), *box[axis + 1 :])


def runs_of(box: Box, shape: Sequence[int], itemsize: int) -> tuple[np.ndarray, int]:
    """Where the bytes of a box lie in an array in C order: the offset of each run, and the bytes of a run.

    The offsets are int64 and in C order of the box.

    >>> runs_of((slice(1, 3), slice(0, 2), slice(0, 5)), (4, 3, 5), 2)
    (array([30, 60]), 20)
    """
    strides = [itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    first = len(shape)
    run = itemsize
    while first > 0:
        first -= 1
        run = (box[first].stop - box[first].start) * strides[first]
        if box[first] != slice(0, shape[first]):
            break
    offsets = np.array(
        [sum(part.start * stride for part, stride in zip(box[first:], strides[first:], strict=True))]
    )
    for axis in reversed(range(first)):
        along = np.arange(box[axis].start, box[axis].stop, dtype=np.int64) * strides[axis]
        offsets = (along[:, np.newaxis] + offsets).reshape(-1)
    return offsets, run
