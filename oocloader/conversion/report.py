"""What a conversion did, in numbers and in one line."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ConvertReport:
    """What `convert` did.

    - `arrays`: their names in the new store, "" where it is one array and no group.
    - `bytes_in`: of the rows in memory; `bytes_out`: of the new store on the disk; `bytes_resumed`: of
      the rows that an earlier conversion had finished.
    - `verify`: what was read back and compared with the source: "sample", "full" or "none".
    - `seconds`: all of it, of which `seconds_writing`, `seconds_checking` (what `verify` says) and
      `seconds_syncing` (waiting for the disk).
    """

    destination: str
    format: str
    codec: str
    arrays: tuple[str, ...]
    rows: int
    bytes_in: int
    bytes_out: int
    bytes_resumed: int
    verify: str
    seconds: float
    seconds_writing: float
    seconds_checking: float
    seconds_syncing: float

    @property
    def ratio(self) -> float:
        """`bytes_in` over `bytes_out`: above 1 where the new store is the smaller one."""
        return self.bytes_in / self.bytes_out

    @property
    def gb_per_s(self) -> float:
        """10^9 bytes of rows a second, over all the time it took; what was finished before does not count."""
        return (self.bytes_in - self.bytes_resumed) / self.seconds / 1e9

    def as_dict(self) -> dict[str, Any]:
        """All numbers, for JSON."""
        return {**asdict(self), "arrays": list(self.arrays), "ratio": self.ratio, "gb_per_s": self.gb_per_s}

    def __str__(self) -> str:
        before = f" ({_size(self.bytes_resumed)} of it before)" if self.bytes_resumed else ""
        return (
            f"{self.destination}: {self.rows:,} rows, {_size(self.bytes_in)} in{before},"
            f" {_size(self.bytes_out)} out ({self.codec}, ratio {self.ratio:.2f}),"
            f" {self.seconds:.1f} s at {self.gb_per_s:.2f} GB/s (writing {self.seconds_writing:.1f} s,"
            f" checking {self.seconds_checking:.1f} s, syncing {self.seconds_syncing:.1f} s)"
        )


def _size(nbytes: int) -> str:
    value, unit = float(nbytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.1f} {unit}" if unit != "B" else f"{nbytes} B"
