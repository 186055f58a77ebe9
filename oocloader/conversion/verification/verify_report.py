"""What a verification found, in numbers and in lines."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

By = Literal["manifest", "decoding", "comparison"]
_LINES = 20


@dataclass(frozen=True, slots=True)
class Damage:
    """A chunk that is not what it was: its place in the grid, its rows (start, stop), where it lies."""

    chunk: tuple[int, ...]
    rows: tuple[int, int]
    where: str
    reason: str

    def __str__(self) -> str:
        return f"chunk {self.chunk}, rows {self.rows[0]} to {self.rows[1] - 1}, {self.where}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Difference:
    """The first value that differs: its row, its index within the row, and both values."""

    row: int
    index: tuple[int, ...]
    found: str
    expected: str

    def __str__(self) -> str:
        within = f", index {self.index}" if self.index else ""
        return f"first at row {self.row}{within}: {self.found}, expected {self.expected}"


@dataclass(frozen=True, slots=True)
class ArrayCheck:
    """What is known of one array.

    - `by`: what its rows were held against, its manifest or another store; "decoding" where it has no
      manifest, so that only chunks that cannot be read show.
    - `differences`: values that differ from the other store, bit by bit.
    - `problem`: why it could not be compared, "" where it was.
    - `skipped`: why it was not read at all; no failure.
    """

    name: str
    rows: int
    nbytes: int
    by: By
    differences: int = 0
    first: Difference | None = None
    damaged: tuple[Damage, ...] = ()
    problem: str = ""
    skipped: str = ""

    @property
    def ok(self) -> bool:
        return not (self.differences or self.damaged or self.problem)

    def lines(self) -> list[str]:
        """The verdict, and a line for each chunk that is damaged."""
        if self.skipped:
            return [f"{self.name}: not checked: {self.skipped}"]
        if self.problem:
            return [f"{self.name}: {self.problem}"]
        head = f"{self.name}: {self.rows:,} rows"
        parts = []
        if self.differences:
            values = "value differs" if self.differences == 1 else "values differ"
            parts.append(f"{self.differences:,} {values}, {self.first}")
        if self.damaged:
            parts.append(f"{len(self.damaged):,} chunk{'s' if len(self.damaged) > 1 else ''} damaged")
        good = {
            "manifest": "as they were written",
            "decoding": "all chunks can be read (no manifest, so their values are not checked)",
            "comparison": "the same",
        }[self.by]
        lines = [f"{head}: {'; '.join(parts) or good}", *(f"  {damage}" for damage in self.damaged[:_LINES])]
        if len(self.damaged) > _LINES:
            lines.append(f"  and {len(self.damaged) - _LINES:,} more")
        return lines


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What `verify` found; as text, a verdict, and a line for each array and each chunk that is damaged.

    Parameters
    ----------
    store : str
        The store that was checked.
    against : str or None
        The other store, `None` where the store was checked alone.
    arrays : tuple of ArrayCheck
        What is known of each array.
    seconds : float
        How long it took.

    Examples
    --------
    >>> print(VerifyReport("x.h5", None, (ArrayCheck("x", 10, 80, "manifest"),), 0.5))
    x.h5: good (1 array, 0.5 s)
      x: 10 rows: as they were written
    """

    store: str
    against: str | None
    arrays: tuple[ArrayCheck, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        return all(array.ok for array in self.arrays)

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "store": self.store,
            "against": self.against,
            "ok": self.ok,
            "seconds": self.seconds,
            "arrays": [{**asdict(array), "ok": array.ok} for array in self.arrays],
        }

    def __str__(self) -> str:
        bad = sum(not array.ok for array in self.arrays)
        many = len(self.arrays) != 1
        what = "good" if not bad else f"{bad} of {len(self.arrays)} bad" if many else "bad"
        beside = "" if self.against is None else f", compared with {self.against}"
        head = f"{self.store}: {what}{beside} ({len(self.arrays)} array{'s' * many}, {self.seconds:.1f} s)"
        return "\n".join([head, *(f"  {line}" for array in self.arrays for line in array.lines())])
