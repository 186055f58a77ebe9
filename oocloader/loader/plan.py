"""What a loader is going to do and what that takes, added up before anything is read or allocated."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from oocloader.memory import CLASSES, HOST_WINDOWS, POOR, Column, Cost, Sizes, SizingInputs, mixing
from oocloader.order import Shuffle
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
    """What an epoch of a loader does, and takes; ``str()`` explains it, `as_dict` is for JSON.

    Parameters
    ----------
    rows, batches, windows : int
        Of a whole pass.
    batch_size, window_rows, block_rows : int
        Rows of a batch; the most that a window and a block have.
    window_nbytes : int
        Bytes of the rows of a window.
    window_why, block_why : str
        What decided.
    shuffle : False, "window" or "global"
        As the loader was told.
    threads : int
        That read and decode.
    device : str
        Where batches lie.
    arrays : tuple of ArrayPlan
        Bytes read per epoch, array by array.
    host, device_memory : MemoryPlan
        Memory by part, against its budget.
    mixing : float or None
        Expected label entropy of a batch as a share of a full shuffle's, 0 to 1, where rows are stored class
        by class in ten equal classes; None where nothing is shuffled.
    warnings : tuple of str
        What will be slow or learn badly, each with the remedy.
    kept : "", "device" or "cache", default ""
        Where all rows are for later epochs, so that these do not read the store: "device" (all are read at
        once), "cache" or nowhere.

    Examples
    --------
    >>> import numpy as np
    >>> import oocloader as ooc
    >>> with ooc.Loader(np.zeros((1000, 8)), batch_size=100) as loader:
    ...     plan = loader.plan()
    >>> plan.batches, plan.read_nbytes
    (10, 64000)
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
    shuffle: Shuffle
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
        found["warnings"] = list(self.warnings)
        found["arrays"] = [
            numbers | {"amplification": array.amplification}
            for numbers, array in zip(found["arrays"], self.arrays, strict=True)
        ]
        for name, memory in (("host", self.host), ("device_memory", self.device_memory)):
            sums = {"nbytes": memory.nbytes, "left_nbytes": memory.left_nbytes}
            found[name] |= {"parts": list(found[name]["parts"]), **sums}
        return found | {name: getattr(self, name) for name in _SUMS}

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
            f"{_because(array.why)}"
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


_SUMS = ("read_nbytes", "amplification", "host_nbytes", "device_nbytes", "poorly_mixed")
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
    parts = (part for part in memory.parts if part.nbytes)
    return [total, *(f"  {nbytes_text(part.nbytes)} {part.name}{_because(part.why)}" for part in parts)]


def _because(why: str) -> str:
    return f": {why}" if why else ""


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


def host_plan(inputs: SizingInputs, sizes: Sizes) -> MemoryPlan:
    """Host memory by part, for each iterator at work at the same time."""
    host = sizes.host
    several = "blocks cut them, and their rows belong to several windows"
    one_more = "one more for a moment, while the last batch of the one before is held"
    parts = (
        Part("windows read ahead", host.prefetched, _counted(sizes.prefetch_windows, "window")),
        Part("the window in use", host.in_use, one_more),
        Part("decoding", host.decoding, _counted(sizes.threads, "thread")),
        Part("chunks kept decoded", host.shared_chunks, several),
        Part("rows kept for later passes", host.cached, 'cache="memory"'),
        Part("mapped files", host.mapped, "rows are gathered from them; the system may take the pages back"),
    )
    written = inputs.host_memory
    return MemoryPlan(parts, written or inputs.free_host_memory, written is not None, MEASURED_HOST)


def device_plan(inputs: SizingInputs, sizes: Sizes, *, on_host: bool) -> MemoryPlan:
    """Memory on the device by part. On the host no window is copied: batches are cut from those there are."""
    device, written = sizes.device, inputs.device_memory
    windows, windows_why = device.windows, "one in use, one arriving, one held by a batch"
    if device.resident_rows:
        windows_why = "to bring the rows, then row numbers"
    elif on_host and written is None:
        windows, windows_why = 0, ""
    parts = (
        Part("windows", windows, windows_why),
        Part("batches", device.batches, "two, as they are delivered"),
        Part("rows", device.resident_rows, "all of them, kept for every pass"),
    )
    why = "batches are cut from the windows on the host" if on_host else MEASURED_DEVICE
    return MemoryPlan(parts, written or inputs.free_device_memory, written is not None, why)


def mixing_figure(inputs: SizingInputs, sizes: Sizes, shuffle: Shuffle) -> float | None:
    """The mixing figure of a loader, None where nothing is shuffled."""
    if shuffle == "global":
        return 1.0
    return _mixing(inputs, sizes.block, sizes.window) if shuffle else None


def mixing_warning(figure: float | None, inputs: SizingInputs, sizes: Sizes) -> str | None:
    """What to say where the figure is poor, and what to do; None where it is not."""
    if figure is None or figure >= POOR:
        return None
    places = max(1, sizes.window // sizes.block)
    larger = (count * sizes.block for count in (12, 16, 24, 32, 48, 64, 96, 128))
    fitting = (rows for rows in larger if sizes.window < rows < inputs.rows)
    window = next((rows for rows in fitting if _mixing(inputs, sizes.block, rows) >= POOR), inputs.rows)
    windows_nbytes = HOST_WINDOWS * (window + inputs.batch_size) * inputs.row_nbytes
    memory = nbytes_text(windows_nbytes + sizes.host.decoding)
    remedies = [f"window={window} (for which host_memory must have about {memory})"]
    if sizes.block > 1:
        remedies.append(f"smaller chunks or blocks than {sizes.block:,} rows")
    remedies.append("a store shuffled once (oocloader convert --shuffle SEED)")
    return (
        f"rows stored class by class would mix poorly: windows of {sizes.window:,} rows come from "
        f"{_counted(places, 'place')}, and a batch has {figure:.2f} of the label entropy of a full shuffle. "
        f"Give {', or '.join(remedies)}. If the rows are stored in random order, all is well"
    )


def _mixing(inputs: SizingInputs, block: int, window: int) -> float:
    return mixing(inputs.rows, block=block, window=window, batch_size=inputs.batch_size)


def sorted_warning(label: str) -> str:
    """What to say where the labels of a loader that does not shuffle are in order."""
    return (
        f"the labels {label!r} are stored in order, and the loader does not shuffle: a model trained on such "
        "batches sees one class after the other. Give shuffle=True for training; for evaluation all is well"
    )


def _counted(number: int, noun: str, nouns: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"
