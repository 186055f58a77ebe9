"""Which rows come when: pure arithmetic on numbers of rows.

- `selection`: which rows and which arrays, as users name them
- `row_spans`, `row_set`: stored rows to the rows of a buffer; sets of rows, and windows
- `boundaries`: where a set is cut into blocks or windows
- `permutation`, `epoch_cache`: random orders, remembered for the latest epochs
- `shards`: how rows are shared out and cut into batches
- `block_shuffle`, `order`: the windows of a pass, shuffled or not
- `resharding`: what is left of a pass that other shards began
"""

from oocloader.order.order import Order, RowSequence, RowSet, Shuffle, Window
from oocloader.order.permutation import SPLIT, STORED, RandomPermutation, permutation
from oocloader.order.resharding import History, Position, row_sequence
from oocloader.order.row_spans import RowSpan, apart, cut, grouped, place, runs, shared_out, split, within
from oocloader.order.selection import (
    Cast,
    Names,
    dtype_nbytes,
    fields,
    row_set,
    shard_of,
    shuffled,
    whole,
)
from oocloader.order.shards import Batching, Shard, share

__all__ = [
    "SPLIT",
    "STORED",
    "Batching",
    "Cast",
    "History",
    "Names",
    "Order",
    "Position",
    "RandomPermutation",
    "RowSequence",
    "RowSet",
    "RowSpan",
    "Shard",
    "Shuffle",
    "Window",
    "apart",
    "cut",
    "dtype_nbytes",
    "fields",
    "grouped",
    "permutation",
    "place",
    "row_sequence",
    "row_set",
    "runs",
    "shard_of",
    "share",
    "shared_out",
    "shuffled",
    "split",
    "whole",
    "within",
]
