"""The windows, blocks and threads of a loader, and the memory that they take, within its budgets.

What was measured (free memory) decides how many windows are read ahead, and may refuse a run, naming the
window that fits: it never changes the order of rows.
"""

import dataclasses
from dataclasses import dataclass

from oocloader.memory.budget_errors import check_budget
from oocloader.memory.window_size import DEVICE_WINDOWS, HOST_WINDOWS, SizingInputs
from oocloader.sizes import MIB

MOST_AHEAD = 3
# Half of a GPU is for the model: its weights, their moments, its activations.
MODEL_SHARE = 2
# The budget of a GPU that does not tell its memory: the largest windows fit, and hardly a GPU has less.
UNKNOWN_DEVICE = 1024 * MIB
# The budget of a host that does not tell what is free, and the largest that is taken unasked.
UNKNOWN_HOST = 512 * MIB
LARGEST_HOST_SHARE = 2048 * MIB


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Host memory by part, bytes.

    - `prefetched`: windows read or being read; `in_use`: the one that batches are taken from, each with the
      rows that a batch left over
    - `decoding`: what the threads decode with; `shared_chunks`: those kept decoded since their rows belong to
      several windows
    - `cached`: rows that stay decoded for later passes
    - `mapped`: files that shuffled rows are gathered from, which count as resident
    """

    prefetched: int
    in_use: int
    decoding: int
    shared_chunks: int
    cached: int
    mapped: int

    @property
    def nbytes(self) -> int:
        return sum(dataclasses.astuple(self))


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Device memory by part, bytes: windows (in use, arriving, held by a batch not released yet), batches,
    and all rows where they stay there."""

    windows: int
    batches: int
    resident_rows: int = 0

    @property
    def nbytes(self) -> int:
        return sum(dataclasses.astuple(self))


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rows of a block and a window and the rows they are counted from, windows read ahead by how many
    threads, whether shuffled rows are gathered from mapped files, and the memory that this takes.
    `window_why` and `block_why` say what decided."""

    block: int
    window: int
    chunk_origins: tuple[int, ...]
    prefetch_windows: int
    threads: int
    gather: bool
    window_nbytes: int
    host: HostMemory
    device: DeviceMemory
    window_why: str
    block_why: str

    @property
    def host_nbytes(self) -> int:
        return self.host.nbytes

    @property
    def device_nbytes(self) -> int:
        return self.device.nbytes


def host_share(available_nbytes: int | None) -> int:
    """Bytes that reading ahead takes where no budget is written: a quarter of what is free, 2 GiB at most.

    >>> host_share(4 << 30) >> 20, host_share(64 << 30) >> 20, host_share(None) >> 20
    (1024, 2048, 512)
    """
    return UNKNOWN_HOST if available_nbytes is None else min(LARGEST_HOST_SHARE, available_nbytes // 4)


def device_share(nbytes: int | None) -> int:
    """The budget on a GPU of `nbytes` where none is written, leaving room for the model.

    >>> device_share(24 << 30) >> 30, device_share(None) >> 20
    (12, 1024)
    """
    return UNKNOWN_DEVICE if nbytes is None else nbytes // MODEL_SHARE


def choose(inputs: SizingInputs) -> Sizes:
    """Block, window and memory. A host budget may allow fewer threads than there are.

    Raises `SettingError`, naming the smallest budget that works or, where it was measured, the window that
    fits.
    """
    if inputs.streamed:
        check_budget(inputs, "device_memory")
    check_budget(inputs, "host_memory")
    window_rows, window_why = inputs.window_rows()
    block_rows, block_why = inputs.block_rows(window_rows)
    window_nbytes = window_rows * inputs.row_nbytes
    staged = window_nbytes + inputs.leftover_nbytes
    shared_chunks = inputs.shared_chunks_nbytes(window_rows, block_rows)
    budget = inputs.free_host_memory if inputs.host_memory is None else inputs.host_memory
    spare = budget - shared_chunks - inputs.cached_nbytes
    threads, scratch = inputs.threads, inputs.scratch_nbytes
    if scratch:
        threads = max(1, min(threads, (spare - HOST_WINDOWS * staged) // scratch))
    prefetch_windows = max(1, min(MOST_AHEAD, (spare - threads * scratch) // staged - 1))
    host = HostMemory(
        prefetched=prefetch_windows * staged,
        in_use=staged,
        decoding=threads * scratch,
        shared_chunks=shared_chunks,
        cached=inputs.cached_nbytes,
        mapped=sum(column.mapped_nbytes for column in inputs.columns),
    )
    gather = inputs.shuffle and host.nbytes <= budget
    return Sizes(
        block=block_rows,
        window=window_rows,
        chunk_origins=inputs.alignment.chunk_origins,
        prefetch_windows=prefetch_windows,
        threads=threads,
        gather=gather,
        window_nbytes=window_nbytes,
        host=host if gather else dataclasses.replace(host, mapped=0),
        device=DeviceMemory(windows=DEVICE_WINDOWS * staged, batches=inputs.batches_nbytes),
        window_why=window_why,
        block_why=block_why,
    )
