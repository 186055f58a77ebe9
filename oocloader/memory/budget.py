"""The windows, blocks and threads of a loader, and the memory that they take, within its budgets.

What was measured (free memory) decides how many windows are read ahead, and may refuse a run, naming the
window that fits: it never changes the order of rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from oocloader.machine import available_host_memory
from oocloader.memory.alignment import Column, cuts
from oocloader.memory.budget_errors import check_budget
from oocloader.memory.window_size import DEVICE_WINDOWS, HOST_WINDOWS, SizingInputs
from oocloader.sizes import MIB, parse_rows

MOST_AHEAD = 3
# Half of a GPU is for the model: its weights, their moments, its activations.
MODEL_SHARE = 2
# The budget of a GPU that does not tell its memory: the largest windows fit, and hardly a GPU has less.
UNKNOWN_DEVICE = 1024 * MIB


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Host memory by part, bytes.

    - `prefetched`: windows read or being read; `in_use`: the one that batches are taken from, each with the
      rows that a batch left over
    - `decoding`: what the threads decode with; `kept`: decoded chunks whose rows belong to several windows
    - `cached`: rows that stay decoded for later passes
    - `mapped`: files that shuffled rows are gathered from, which count as resident
    """

    prefetched: int
    in_use: int
    decoding: int
    kept: int
    cached: int
    mapped: int

    @property
    def nbytes(self) -> int:
        return self.prefetched + self.in_use + self.decoding + self.kept + self.cached + self.mapped


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Device memory by part, bytes: windows (in use, arriving, held by a batch not released yet), batches,
    and all rows where they are kept."""

    windows: int
    batches: int
    kept: int = 0

    @property
    def nbytes(self) -> int:
        return self.windows + self.batches + self.kept


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


def free_host_memory() -> int:
    """Bytes that reading ahead takes where no budget is written: a quarter of what is free, 2 GiB at most."""
    found = available_host_memory()
    return 512 * MIB if found is None else min(2048 * MIB, found // 4)


def device_share(nbytes: int | None) -> int:
    """The budget on a GPU of `nbytes` where none is written, leaving room for the model.

    >>> device_share(24 << 30) >> 30, device_share(None) >> 20
    (12, 1024)
    """
    return UNKNOWN_DEVICE if nbytes is None else nbytes // MODEL_SHARE


def choose(
    rows: int,
    columns: Sequence[Column],
    *,
    batch_size: int,
    shuffle: bool,
    block: int | str | None,
    window: int | str | None,
    host_memory: int | None,
    device_memory: int | None,
    threads: int,
    free_host_memory: int,
    free_device_memory: int | None = None,
    cached_nbytes: int = 0,
    streamed: bool = True,
) -> Sizes:
    """Block, window and memory for `rows` rows, `cached_nbytes` of which stay decoded on the host.

    `host_memory` and `device_memory` are written budgets in bytes or None; `free_host_memory` and
    `free_device_memory` (None: not known) are the budgets where none is written. A host budget may allow
    fewer than `threads`. Where rows are not `streamed` to the device, because all of them are kept there,
    its budget decides on the window and is not checked for it. Raises `SettingError`, naming the smallest
    budget that works or, where it was measured, the window that fits.
    """
    row_nbytes = max(1, sum(column.row_nbytes for column in columns))
    asked = None if window is None else parse_rows(window, "window", row_nbytes)
    case = SizingInputs(
        rows=rows,
        row_nbytes=row_nbytes,
        columns=tuple(columns),
        cuts=cuts(columns, shuffle=shuffle, rows=rows, window_rows=asked),
        shuffle=shuffle,
        window=asked,
        about=isinstance(window, str),
        block=None if block is None else parse_rows(block, "block", row_nbytes),
        batch_size=batch_size,
        host_memory=host_memory,
        device_memory=device_memory,
        cached=cached_nbytes,
    )
    if streamed:
        check_budget(case, "device_memory", free_device_memory)
    check_budget(case, "host_memory", free_host_memory)
    window_rows, window_why = case.window_rows()
    block_rows, block_why = case.block_rows(window_rows)
    window_nbytes = window_rows * row_nbytes
    staged = window_nbytes + case.carried
    kept = case.kept(window_rows, block_rows)
    scratch = case.scratch

    budget = free_host_memory if host_memory is None else host_memory
    spare = budget - kept - cached_nbytes
    if scratch:
        threads = max(1, min(threads, (spare - HOST_WINDOWS * staged) // scratch))
    prefetch_windows = max(1, min(MOST_AHEAD, (spare - threads * scratch) // staged - 1))
    host = HostMemory(
        prefetched=prefetch_windows * staged,
        in_use=staged,
        decoding=threads * scratch,
        kept=kept,
        cached=cached_nbytes,
        mapped=0,
    )
    mapped = sum(column.mapped_nbytes for column in columns) if shuffle else 0
    gather = shuffle and host.nbytes + mapped <= budget
    return Sizes(
        block=block_rows,
        window=window_rows,
        chunk_origins=case.cuts.chunk_origins,
        prefetch_windows=prefetch_windows,
        threads=threads,
        gather=gather,
        window_nbytes=window_nbytes,
        host=dataclasses.replace(host, mapped=mapped) if gather else host,
        device=DeviceMemory(windows=DEVICE_WINDOWS * staged, batches=case.batches),
        window_why=window_why,
        block_why=block_why,
    )
