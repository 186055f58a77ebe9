"""What a conversion did, in numbers and in one line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from oocloader.conversion.store_plan import ArrayPlan, Plan
from oocloader.sizes import nbytes_text


@dataclass(frozen=True, slots=True)
class ConvertReport:
    """What `convert` did.

    - `arrays`: their names in the new store, "" where it is one array and no group.
    - `bytes_in`: of the rows in memory; `bytes_out`: of the new store on the disk; `bytes_resumed`: of
      the rows that an earlier conversion had finished.
    - `verify`: what was read back and compared with the source: "sample", "full" or "none".
    - `seconds`: all of it, of which `seconds_writing`, `seconds_checking` (what `verify` says) and
      `seconds_syncing` (waiting for the disk).
    - `choices`: what was chosen, why, and how to choose otherwise: a line each.
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
    choices: tuple[str, ...] = ()

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
        lists = {"arrays": list(self.arrays), "choices": list(self.choices)}
        return {**asdict(self), **lists, "ratio": self.ratio, "gb_per_s": self.gb_per_s}

    def __str__(self) -> str:
        before = f" ({nbytes_text(self.bytes_resumed)} of it before)" if self.bytes_resumed else ""
        summary = (
            f"{self.destination}: {_count(self.rows, 'row')}, {nbytes_text(self.bytes_in)} in{before},"
            f" {nbytes_text(self.bytes_out)} out ({self.codec}, ratio {self.ratio:.2f}),"
            f" {self.seconds:.1f} s at {self.gb_per_s:.2f} GB/s (writing {self.seconds_writing:.1f} s,"
            f" checking {self.seconds_checking:.1f} s, syncing {self.seconds_syncing:.1f} s)"
        )
        return "\n".join((summary, *(f"  {choice}" for choice in self.choices)))


def choices(plan: Plan, *, chunks: str, codec: str, temporary_nbytes: int) -> Iterator[str]:
    """What was chosen for the new store: `chunks` and `codec` say why, `temporary_nbytes` were needed."""
    yield f"codec {plan.codec}: {codec} (--codec)"
    for array in plan.arrays:
        name = array.name or "the array"
        what = f"{name}: {array.dtype} {array.shape}, {_count(array.chunks, 'chunk')} of"
        what += f" {_count(array.chunk_rows, 'row')} ({nbytes_text(array.chunk_nbytes)})"
        yield f"{what}: {chunks} (--chunk-rows)"
        if plan.store_format == "zarr":
            yield f"{name}: {_files(array, plan)}"
    if temporary_nbytes:
        yield (
            f"by way of {nbytes_text(temporary_nbytes)} of temporary files beside the destination: the source"
            " was read once, in the order in which it is kept"
        )


def _files(array: ArrayPlan, plan: Plan) -> str:
    if array.shard_rows is None:
        return f"{_count(array.files, 'file')} of a chunk each" + (
            " (--shards)" if plan.zarr_format == 3 else ""
        )
    return (
        f"{_count(array.files, 'file')}, shards of {_count(array.shard_rows, 'row')}"
        f" ({nbytes_text(array.shard_rows * array.row_nbytes)}) (--shards)"
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
