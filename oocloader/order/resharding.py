"""A pass that other shards began: what they have not delivered, shared out anew.

Every process of a run stops after the same number of batches. Where it goes on with another number of
processes, the rows that each of the former shards had left, one shard behind the other, are what the new
ones share. This can happen several times in one pass: `history` has the number of shards and the batches
that each of them delivered, for every such time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from oocloader.order.order import Course, Order, Shuffle, Window
from oocloader.order.row_spans import Piece
from oocloader.order.shards import Batching, Shard, batching, share

History = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Position:
    """The first `batches` batches of a shard of pass `epoch` are delivered, after what `history` says."""

    epoch: int
    batches: int = 0
    history: History = ()


@dataclass(frozen=True, slots=True)
class _Span:
    """Rows `lo:hi` of a pass of a shard."""

    order: Order
    lo: int
    hi: int


def course(
    order: Order, history: History, *, batch_size: int, drop_remainder: bool
) -> tuple[Course, Batching]:
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
    left = [_Span(shard, 0, shard.total) for shard in shards]
    for count, batches in history:
        undone: list[_Span] = []
        for index in range(count):
            done = cut(rows, (index, count)).row(batches)
            lo, hi = share(rows, (index, count))
            undone += _cut(left, lo + done, hi)
        left = undone
        rows = sum(span.hi - span.lo for span in left)
    return Rest(order, _cut(left, *share(rows, order.shard))), cut(rows, order.shard)


def _cut(spans: Sequence[_Span], lo: int, hi: int) -> list[_Span]:
    """Rows `lo:hi` of spans that lie one behind the other."""
    found = []
    at = 0
    for span in spans:
        rows = span.hi - span.lo
        begin, end = max(lo - at, 0), min(hi - at, rows)
        if begin < end:
            found.append(_Span(span.order, span.lo + begin, span.lo + end))
        at += rows
    return found


class Rest:
    """Spans of the passes of several shards, one behind the other: a `Course`."""

    def __init__(self, order: Order, spans: Sequence[_Span]) -> None:
        self.shuffle: Shuffle = order.shuffle
        self._rows = order.rows
        self._spans = spans
        self._first = [0, *itertools.accumulate(span.hi - span.lo for span in spans)]
        self.total = self._first[-1]

    def windows(self, epoch: int, *, position: int = 0) -> Iterator[Window]:
        """The windows of the pass from the one that holds row `position` of it."""
        number = itertools.count()
        for span, first in zip(self._spans, self._first, strict=False):
            start = span.lo + max(0, position - first)
            if start >= span.hi:
                continue
            for window in span.order.windows(epoch, position=start):
                if window.first >= span.hi:
                    break
                begin = max(0, span.lo - window.first)
                yield replace(
                    window,
                    index=next(number),
                    first=first + window.first + begin - span.lo,
                    begin=begin,
                    end=min(window.rows, span.hi - window.first),
                )

    def stretch(self, lo: int, hi: int, *, epoch: int = 0) -> list[Piece]:
        """Rows `lo:hi` of the pass to consecutive rows of a buffer."""
        pieces: list[Piece] = []
        at = 0
        for span in _cut(self._spans, lo, hi):
            pieces += [piece.shifted(at) for piece in span.order.stretch(span.lo, span.hi, epoch=epoch)]
            at += span.hi - span.lo
        return pieces

    def stored(self, lo: int, hi: int) -> tuple[int, int] | None:
        """The stored rows that are rows `lo:hi` of an unshuffled pass, where they are neighbours."""
        spans = _cut(self._spans, lo, hi)
        return spans[0].order.stored(spans[0].lo, spans[0].hi) if len(spans) == 1 else None

    def count(self, lo: int, hi: int) -> int:
        """How many of the stored rows `lo:hi` the pass may deliver."""
        return self._rows.count(lo, hi)
