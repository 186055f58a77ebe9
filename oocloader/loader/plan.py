"""What a loader is going to do and what that takes, added up before anything is read or allocated."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from oocloader.memory import CLASSES, HOST_WINDOWS, POOR, Column, Cost, Sizes, mixing
from oocloader.sizes import nbytes_text
from oocloader.stores import ArrayInfo

# Up to this many times the bytes of the rows themselves, reading whole chunks is not worth a word.
FAIR_AMPLIFICATION = 1.05
# Beyond this, reading is what a run spends its time with.
POOR_AMPLIFICATION = 2.0
MEASURED_HOST = "a quarter of what is free, 2 GiB at most"
MEASURED_DEVICE = "half of the GPU's memory: the rest is for the model"


@dataclass(frozen=True, slots=True)
class Part:
    """Memory for one purpose: `name` is short, `why` a sentence or empty."""

    name: str
    nbytes: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Memory on one side. `budget_nbytes` is None where nothing bounds it; `written`: by the user, else
    measured as `budget_why` says."""

    parts: tuple[Part, ...]
    budget_nbytes: int | None
    written: bool
    budget_why: str = ""

    @property
    def nbytes(self) -> int:
        """All parts together."""
        return sum(part.nbytes for part in self.parts)

    @property
    def left_nbytes(self) -> int | None:
        """What the budget has left."""
        return None if self.budget_nbytes is None else self.budget_nbytes - self.nbytes


@dataclass(frozen=True, slots=True)
class ArrayPlan:
    """What one array costs an epoch.

    - `wanted_nbytes`: stored bytes that hold just the rows of the epoch; `read_nbytes`: stored bytes read
    - `chunk_rows`: None where it is not chunked; `row_access`: whether rows are read without their chunk
    - `why`: what makes `amplification` more than 1, and what to do; else empty
    """

    name: str
    row_nbytes: int
    chunk_rows: int | None
    row_access: bool
    wanted_nbytes: int
    read_nbytes: int
    why: str = ""

    @property
    def amplification(self) -> float:
        """Bytes read for each byte wanted."""
        return self.read_nbytes / self.wanted_nbytes if self.wanted_nbytes else 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What an epoch of a loader does, and takes; `str()` explains it, `as_dict()` is for JSON.

    - `rows`, `batches`, `windows`: of a whole pass; `window_rows` and `block_rows`: the most one has
    - `shuffle`: False, "window" or "global"
    - `arrays`: bytes read per epoch; `kept`: where all rows then are for later epochs, so that these do not
      read the store: "device" (all are read at once), "cache" or nowhere, ""
    - `host`, `device_memory`: memory by part, against its budget
    - `mixing`: expected label entropy of a batch as a share of a full shuffle's, 0 to 1, where rows are
      stored class by class in ten equal classes; None where nothing is shuffled
    - `warnings`: what will be slow or learn badly, each with the remedy
    """

    rows: int
    batch_size: int
    batches: int
    windows: int
    window_rows: int
    window_nbytes: int
    window_why: str
    block_rows: int
    block_why: str
    shuffle: bool | str
    threads: int
    device: str
    arrays: tuple[ArrayPlan, ...]
    host: MemoryPlan
    device_memory: MemoryPlan
    mixing: float | None
    warnings: tuple[str, ...]
    kept: Literal["", "device", "cache"] = ""

    @property
    def read_nbytes(self) -> int:
        """Stored bytes read per epoch, or once where rows are `kept`."""
        return sum(array.read_nbytes for array in self.arrays)

    @property
    def amplification(self) -> float:
        """Stored bytes read for each byte of the rows wanted."""
        wanted = sum(array.wanted_nbytes for array in self.arrays)
        return self.read_nbytes / wanted if wanted else 1.0

    @property
    def host_nbytes(self) -> int:
        """Host memory for what is read ahead and decoded."""
        return self.host.nbytes

    @property
    def device_nbytes(self) -> int:
        """Memory on the device."""
        return self.device_memory.nbytes

    @property
    def poorly_mixed(self) -> bool:
        """Whether rows stored class by class would stay unmixed."""
        return self.mixing is not None and self.mixing < POOR

    def as_dict(self) -> dict[str, Any]:
        """The plan in terms of JSON, with the sums."""
        found = dataclasses.asdict(self)
        for name in ("arrays", "warnings"):
            found[name] = list(found[name])
        for array, own in zip(found["arrays"], self.arrays, strict=True):
            array["amplification"] = own.amplification
        for name, memory in (("host", self.host), ("device_memory", self.device_memory)):
            found[name]["parts"] = list(found[name]["parts"])
            found[name] |= {"nbytes": memory.nbytes, "left_nbytes": memory.left_nbytes}
        return found | {
            "read_nbytes": self.read_nbytes,
            "amplification": self.amplification,
            "host_nbytes": self.host_nbytes,
            "device_nbytes": self.device_nbytes,
            "poorly_mixed": self.poorly_mixed,
        }

    def __str__(self) -> str:
        how = {"window": "shuffled window by window", "global": "shuffled as a whole"}
        batches = f"{_counted(self.batches, 'batch', 'batches')} of {self.batch_size:,}"
        window = f"{self.window_rows:,} rows ({nbytes_text(self.window_nbytes)})"
        lines = [
            f"{_counted(self.rows, 'row')} in {batches}, {how.get(str(self.shuffle), 'in stored order')}",
            f"{_counted(self.windows, 'window')} of up to {window}: {self.window_why}",
        ]
        if self.shuffle == "window":
            lines.append(f"blocks of {self.block_rows:,} rows: {self.block_why}")
        lines.append(
            f"{_READ[self.kept]}: {nbytes_text(self.read_nbytes)}, "
            f"{self.amplification:.2f} times the bytes of the rows, by {_counted(self.threads, 'thread')}"
        )
        lines += [
            f"  {array.name}: {nbytes_text(array.read_nbytes)}, {array.amplification:.2f} times"
            + (f": {array.why}" if array.why else "")
            for array in self.arrays
        ]
        lines += _memory_lines("host memory", self.host)
        lines += _memory_lines(f"device memory ({self.device})", self.device_memory)
        if self.mixing is not None:
            lines.append(
                f"mixing: {self.mixing:.2f} (entropy of the labels of a batch where rows are stored class by "
                f"class in {CLASSES} classes; a full shuffle has 1)"
            )
        lines += [f"warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)


_READ = {
    "": "read per epoch",
    "device": "read once, since all rows stay on the device",
    "cache": "read per epoch, until the cache has all rows",
}


def _memory_lines(what: str, memory: MemoryPlan) -> list[str]:
    total = f"{what}: {nbytes_text(memory.nbytes)}"
    if memory.budget_nbytes is not None and memory.left_nbytes is not None:
        origin = "as given" if memory.written else memory.budget_why
        total += f" of {nbytes_text(memory.budget_nbytes)} ({origin}), {nbytes_text(memory.left_nbytes)} left"
    elif memory.budget_why:
        total += f" ({memory.budget_why})"
    return [
        total,
        *(
            f"  {nbytes_text(part.nbytes)} {part.name}" + (f": {part.why}" if part.why else "")
            for part in memory.parts
            if part.nbytes
        ),
    ]


def array_plan(column: Column, cost: Cost, info: ArrayInfo, *, share: float = 1.0) -> ArrayPlan:
    """The cost of an array per epoch; `share` of it where each of several shards takes its part."""
    if info.reader == "library" and info.nbytes:
        # A library does not tell where chunks lie: all rows are taken to be compressed alike.
        share *= info.stored_nbytes / info.nbytes
    why = ""
    if cost.read_nbytes > FAIR_AMPLIFICATION * cost.wanted_nbytes:
        if column.row_access:
            why = "unwanted rows between wanted ones are read along, which is faster than leaving them out"
        else:
            why = (
                f"chunks of {column.chunk_rows:,} rows are decoded whole for the rows wanted of them; select "
                'whole chunks (split(by="block"), rows= in long runs), or write these rows to a store of '
                "their own"
            )
    return ArrayPlan(
        name=column.name,
        row_nbytes=column.row_nbytes,
        chunk_rows=column.chunk_rows,
        row_access=column.row_access,
        wanted_nbytes=round(share * cost.wanted_nbytes),
        read_nbytes=round(share * cost.read_nbytes),
        why=why,
    )


def amplification_warnings(arrays: Sequence[ArrayPlan]) -> list[str]:
    """What to say of arrays that are read several times over, and what to do."""
    return [
        f"{array.name!r} is read {array.amplification:.1f} times over: {array.why}"
        for array in arrays
        if array.amplification > POOR_AMPLIFICATION and array.why
    ]


def host_plan(sizes: Sizes, *, budget_nbytes: int, written: bool) -> MemoryPlan:
    """Host memory by part, for each iterator at work at the same time."""
    host = sizes.host
    parts = (
        Part("windows read ahead", host.prefetched, _counted(sizes.prefetch_windows, "window")),
        Part(
            "the window in use",
            host.in_use,
            "one more for a moment, while the last batch of the one before is held",
        ),
        Part("decoding", host.decoding, _counted(sizes.threads, "thread")),
        Part("chunks kept decoded", host.kept, "blocks cut them, and their rows belong to several windows"),
        Part("rows kept for later passes", host.cached, 'cache="memory"'),
        Part("mapped files", host.mapped, "rows are gathered from them; the system may take the pages back"),
    )
    return MemoryPlan(parts, budget_nbytes, written, MEASURED_HOST)


def device_plan(
    sizes: Sizes,
    *,
    budget_nbytes: int | None,
    written: bool,
    on_host: bool,
) -> MemoryPlan:
    """Memory on the device by part. On the host no window is copied: batches are cut from those there are."""
    kept = sizes.device.kept
    windows = Part("windows", sizes.device.windows, "one in use, one arriving, one held by a batch")
    if kept:
        windows = Part("windows", sizes.device.windows, "to bring the rows, then row numbers")
    elif on_host and not written:
        windows = Part("windows", 0)
    why = "batches are cut from the windows on the host" if on_host else MEASURED_DEVICE
    parts = (
        windows,
        Part("batches", sizes.device.batches, "two, as they are delivered"),
        Part("rows", kept, "all of them, kept for every pass"),
    )
    return MemoryPlan(parts, budget_nbytes, written, why)


def mixing_figure(sizes: Sizes, rows: int, *, shuffle: bool | str, batch_size: int) -> float | None:
    """The mixing figure of a loader, None where nothing is shuffled."""
    if not shuffle:
        return None
    if shuffle == "global":
        return 1.0
    return mixing(rows, block=sizes.block, window=sizes.window, batch_size=batch_size)


def mixing_warning(figure: float | None, sizes: Sizes, rows: int, *, batch_size: int) -> str | None:
    """What to say where the figure is poor, and what to do; None where it is not."""
    if figure is None or figure >= POOR:
        return None
    places = max(1, sizes.window // sizes.block)
    window = _mixing_window(sizes, rows, batch_size=batch_size)
    row_nbytes = sizes.window_nbytes / sizes.window
    memory = nbytes_text(round(HOST_WINDOWS * (window + batch_size) * row_nbytes) + sizes.host.decoding)
    remedies = [f"window={window} (for which host_memory must have about {memory})"]
    if sizes.block > 1:
        remedies.append(f"smaller chunks or blocks than {sizes.block:,} rows")
    remedies.append("a store shuffled once (oocloader convert --shuffle SEED)")
    return (
        f"rows stored class by class would mix poorly: windows of {sizes.window:,} rows come from "
        f"{_counted(places, 'place')}, and a batch has {figure:.2f} of the label entropy of a full shuffle. "
        f"Give {', or '.join(remedies)}. If the rows are stored in random order, all is well"
    )


def _mixing_window(sizes: Sizes, rows: int, *, batch_size: int) -> int:
    """Rows of a window that mixes well."""
    for places in (12, 16, 24, 32, 48, 64, 96, 128):
        window = places * sizes.block
        if window >= rows:
            break
        if (
            window > sizes.window
            and mixing(rows, block=sizes.block, window=window, batch_size=batch_size) >= POOR
        ):
            return window
    return rows


def sorted_warning(label: str) -> str:
    """What to say where the labels of a loader that does not shuffle are in order."""
    return (
        f"the labels {label!r} are stored in order, and the loader does not shuffle: a model trained on such "
        "batches sees one class after the other. Give shuffle=True for training; for evaluation all is well"
    )


def _counted(number: int, noun: str, nouns: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"
