"""What a conversion did, in numbers and in one line."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from oocloader.conversion.options import ConvertOptions
from oocloader.conversion.store_plan import StoredArrayPlan, StorePlan
from oocloader.sizes import GIB, nbytes_text


@dataclass(frozen=True, slots=True)
class ConvertReport:
    """What `convert` did; as text, in one line, and a line for each choice.

    Parameters
    ----------
    destination : str
        Path of the new store.
    format : {"zarr", "hdf5"}
    codec : str
        Such as "zstd:1".
    arrays : tuple of str
        Their names in the new store, "" where it is one array and no group.
    rows : int
        Of every array.
    bytes_in : int
        Of the rows in memory.
    bytes_out : int
        Of the new store on the disk.
    bytes_resumed : int
        Of the rows that an earlier conversion had finished.
    verify : {"sample", "full", "none"}
        What was read back and compared with the source.
    seconds : float
        All of it, of which:
    seconds_writing, seconds_checking, seconds_syncing : float
        Reading and writing, comparing what `verify` says, and waiting for the disk.
    choices : tuple of str
        What was chosen, why, and how to choose otherwise: a line each.

    Examples
    --------
    >>> report = ConvertReport("x.h5", "hdf5", "none", ("x",), 9, 4000, 2000, 0, "none", 2.0, 1.5, 0.2, 0.3)
    >>> report.ratio, report.gb_per_s
    (2.0, 2e-06)
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


def choices(plan: StorePlan, options: ConvertOptions, why_codec: str, temporary_nbytes: int) -> Iterator[str]:
    """What was chosen for the new store, and why; `temporary_nbytes` were needed."""
    yield f"codec {plan.codec}: {why_codec} (--codec)"
    for array in plan.arrays:
        name = array.name or "the array"
        what = f"{name}: {array.dtype} {array.shape}, {_count(array.chunks, 'chunk')} of"
        what += f" {_count(array.chunk_rows, 'row')} ({nbytes_text(array.chunk_nbytes)})"
        yield f"{what}: {_why_chunks(options)} (--chunk-rows)"
        if plan.store_format == "zarr":
            yield f"{name}: {_files(array, plan)}"
    if temporary_nbytes:
        yield (
            f"by way of {nbytes_text(temporary_nbytes)} of temporary files beside the destination: the source"
            " was read once, in the order in which it is stored"
        )


def _why_chunks(options: ConvertOptions) -> str:
    if options.chunk_rows is not None:
        return "as asked for"
    memory = options.device_nbytes
    aim = "8 MiB" if memory is None else f"a 1024th of the {memory / GIB:.3g} GiB of the device"
    return f"near {aim}, at most a thousandth of the rows, at least 64 KiB"


def _files(array: StoredArrayPlan, plan: StorePlan) -> str:
    files = _count(array.files, "file")
    if array.shard_rows is None:
        return f"{files} of a chunk each{' (--shards)' if plan.zarr_format == 3 else ''}"
    nbytes = nbytes_text(array.shard_rows * array.row_nbytes)
    return f"{files}, shards of {_count(array.shard_rows, 'row')} ({nbytes}) (--shards)"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
