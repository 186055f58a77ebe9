"""A pass that other shards began: what they have not delivered, shared out anew.

Every process of a run stops after the same number of batches. Where it goes on with another number of
processes, the rows that each of the former shards had left, one shard behind the other, are what the new
ones share. This can happen several times in one pass: `history` has the number of shards and the batches
that each of them delivered, for every such time.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from oocloader.order.order import Order, RowSequence, Shuffle, Window
from oocloader.order.row_spans import RowSpan
from oocloader.order.shards import Batching, Shard, batching, share

History = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Position:
    """The first `batches` batches of a shard of pass `epoch` are delivered, after what `history` says."""

    epoch: int
    batches: int = 0
    history: History = ()


@dataclass(frozen=True, slots=True)
class _Segment:
    """Rows `lo:hi` of a pass of a shard."""

    order: Order
    lo: int
    hi: int


def row_sequence(
    order: Order, history: History, *, batch_size: int, drop_remainder: bool
) -> tuple[RowSequence, Batching]:
    """What the shard of `order` goes through in a pass with this history, and its batches.

    Raises `SettingError` where what is left cannot be shared out.
    """

    def cut(rows: int, shard: Shard) -> Batching:
        return batching(rows, shard, batch_size=batch_size, drop_remainder=drop_remainder)

    rows = len(order.rows)
    if not history:
        return order, cut(rows, order.shard)
    first = history[0][0]
    shards = [order.of_shard((index, first)) for index in range(first)]
    left = [_Segment(shard, 0, shard.total) for shard in shards]
    for count, batches in history:
        undone: list[_Segment] = []
        for index in range(count):
            done = cut(rows, (index, count)).row(batches)
            lo, hi = share(rows, (index, count))
            undone += _cut(left, lo + done, hi)
        left = undone
        rows = sum(segment.hi - segment.lo for segment in left)
    return ReshardedEpoch(order, _cut(left, *share(rows, order.shard))), cut(rows, order.shard)


def _cut(segments: Sequence[_Segment], lo: int, hi: int) -> list[_Segment]:
    """Rows `lo:hi` of spans that lie one behind the other."""
    parts = []
    at = 0
    for segment in segments:
        rows = segment.hi - segment.lo
        begin, end = max(lo - at, 0), min(hi - at, rows)
        if begin < end:
            parts.append(_Segment(segment.order, segment.lo + begin, segment.lo + end))
        at += rows
    return parts


class ReshardedEpoch:
    """Spans of the passes of several shards, one behind the other: a `RowSequence`."""

    def __init__(self, order: Order, segments: Sequence[_Segment]) -> None:
        self.shuffle: Shuffle = order.shuffle
        self._rows = order.rows
        self._segments = segments
        self._first = [0, *itertools.accumulate(segment.hi - segment.lo for segment in segments)]
        self.total = self._first[-1]

    def windows(self, epoch: int, *, position: int = 0) -> Iterator[Window]:
        """The windows of the pass from the one that holds row `position` of it."""
        number = itertools.count()
        for segment, first in zip(self._segments, self._first, strict=False):
            start = segment.lo + max(0, position - first)
            if start >= segment.hi:
                continue
            for window in segment.order.windows(epoch, position=start):
                if window.first >= segment.hi:
                    break
                begin = max(0, segment.lo - window.first)
                yield replace(
                    window,
                    index=next(number),
                    first=first + window.first + begin - segment.lo,
                    begin=begin,
                    end=min(window.rows, segment.hi - window.first),
                )

    def stretch(self, lo: int, hi: int, *, epoch: int = 0) -> list[RowSpan]:
        """Rows `lo:hi` of the pass to consecutive rows of a buffer."""
        spans: list[RowSpan] = []
        at = 0
        for segment in _cut(self._segments, lo, hi):
            spans += [span.shifted(at) for span in segment.order.stretch(segment.lo, segment.hi, epoch=epoch)]
            at += segment.hi - segment.lo
        return spans

    def stored(self, lo: int, hi: int) -> tuple[int, int] | None:
        """The stored rows that are rows `lo:hi` of an unshuffled pass, where they are neighbours."""
        segments = _cut(self._segments, lo, hi)
        return segments[0].order.stored(segments[0].lo, segments[0].hi) if len(segments) == 1 else None

    def count(self, lo: int, hi: int) -> int:
        """How many of the stored rows `lo:hi` the pass may deliver."""
        return self._rows.count(lo, hi)
