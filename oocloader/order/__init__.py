"""Which rows come when: pure arithmetic on numbers of rows."""

from __future__ import annotations

from oocloader.order.order import Course, Order, RowSet, Shuffle, Window
from oocloader.order.permutation import SPLIT, STORED, Scattered, permutation
from oocloader.order.resharding import History, Position, course
from oocloader.order.row_spans import Piece, apart, cut, grouped, place, shared_out, split, within
from oocloader.order.selection import Cast, dtype_nbytes, fields, row_set, shard_of, shuffled, whole
from oocloader.order.shards import Batching, Shard, share

__all__ = [
    "SPLIT",
    "STORED",
    "Batching",
    "Cast",
    "Course",
    "History",
    "Order",
    "Piece",
    "Position",
    "RowSet",
    "Scattered",
    "Shard",
    "Shuffle",
    "Window",
    "apart",
    "course",
    "cut",
    "dtype_nbytes",
    "fields",
    "grouped",
    "permutation",
    "place",
    "row_set",
    "shard_of",
    "share",
    "shared_out",
    "shuffled",
    "split",
    "whole",
    "within",
]
