"""How the rows of a pass are shared out, and how the share of one shard is cut into batches.

All shards have the same number of batches, so that processes that train together never wait for one
that has run out.
"""

from dataclasses import dataclass

from oocloader.errors import SettingError

Shard = tuple[int, int]
"""Index and count."""


def share(rows: int, shard: Shard) -> tuple[int, int]:
    """The range of `rows` that is a shard's: ranges differ in length by at most one.

    >>> [share(7, (index, 2)) for index in range(2)]
    [(0, 3), (3, 7)]
    """
    index, count = shard
    return index * rows // count, (index + 1) * rows // count


@dataclass(frozen=True, slots=True)
class Batching:
    """`rows` of a pass cut into `batches`, of which the first `end` rows are delivered.

    Batches have `batch_size` rows and the last has what is left; where `halved`, the last full one is
    delivered as two, since other shards have a batch more.
    """

    rows: int
    batch_size: int
    batches: int
    end: int
    halved: bool = False

    def row(self, batch: int) -> int:
        """Where batch number `batch` begins; `end` for the number of batches.

        >>> [Batching(8, 4, 3, 8, halved=True).row(batch) for batch in range(4)]
        [0, 4, 6, 8]
        """
        if batch >= self.batches:
            return self.end
        if self.halved and batch == self.batches - 1:
            return self.end - self.batch_size // 2
        return batch * self.batch_size

    def whole(self, lo: int, hi: int) -> int:
        """Where the last batch ends that is cut from rows `lo:hi`, `lo` the begin of one; `lo` for none.

        A batch shorter than the others is the last: who gets these rows cuts them every `batch_size`.
        """
        if self.halved and lo < (half := self.row(self.batches - 1)) <= hi:
            return half
        if hi >= self.end:
            return max(lo, self.end)
        return lo + (hi - lo) // self.batch_size * self.batch_size


def batching(rows: int, shard: Shard, *, batch_size: int, drop_remainder: bool) -> Batching:
    """The batches of a shard where all shards together have `rows`.

    Raises `SettingError` where a shard would have no row, or where a batch of one row had to be halved.

    >>> [batching(9, (index, 2), batch_size=2, drop_remainder=False).batches for index in range(2)]
    [3, 3]
    """
    index, count = shard
    lo, hi = share(rows, shard)
    of_shard, least = hi - lo, rows // count
    if drop_remainder:
        batches = least // batch_size
        return Batching(of_shard, batch_size, batches, batches * batch_size)
    if least == 0 and count > 1:
        raise SettingError(
            f"shard=({index}, {count}): {rows} rows are too few for {count} shards; "
            "give at most one shard a row, or drop_remainder=True"
        )
    batches = -(-(rows // count + (rows % count > 0)) // batch_size)
    halved = -(-of_shard // batch_size) < batches
    if halved and batch_size == 1:
        raise SettingError(
            f"shard=({index}, {count}): {rows} rows in batches of one cannot be as many batches for each of "
            f"{count} shards; give drop_remainder=True, or a larger batch_size"
        )
    return Batching(of_shard, batch_size, batches, of_shard, halved)
