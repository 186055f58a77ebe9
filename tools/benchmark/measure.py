"""Passes of contestants in turn, and what their medians say."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from benchmark.data import Source

Mode = Literal["delivered", "read"]
Role = Literal["oocloader", "recipe", "other data", "machine"]
MODES: tuple[Mode, ...] = ("delivered", "read")


@dataclass(frozen=True, slots=True)
class Timing:
    """One pass: GB/s, and whether it went through all rows or was cut short."""

    gb_s: float
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Contestant:
    """Something that is timed.

    - `role`: "recipe" reads the same store as oocloader does; "other data" the same rows kept in another
      way; "machine" is what the machine can do.
    - `run(mode)` is one pass; `prepare` comes before each and is not timed.
    - `most_passes`: fewer than the others, for what takes very long.
    """

    name: str
    role: Role
    run: Callable[[Mode], Timing]
    modes: tuple[Mode, ...] = MODES
    prepare: Callable[[], None] = lambda: None
    close: Callable[[], None] = lambda: None
    most_passes: int | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """Contestants that read the same rows in the same order; `yardstick` is "preadv", "codec", ..."""

    subset: str
    store: str
    order: str
    yardstick: str
    contestants: Sequence[Contestant]


@dataclass(frozen=True, slots=True)
class Row:
    """The medians of one contestant in GB/s, and their ratios; None where there is nothing to compare with.

    `to_best` compares with the best recipe for the same store and `oocloader_to_this` the loader with
    this contestant: read where both were read, delivered otherwise.
    """

    subset: str
    store: str
    order: str
    contestant: str
    role: Role
    delivered_gb_s: float | None
    read_gb_s: float | None
    yardstick: str
    yardstick_gb_s: float | None
    delivered_to_yardstick: float | None
    read_to_yardstick: float | None
    best_recipe: str | None
    to_best: float | None
    oocloader_to_this: float | None
    whole: bool
    passes_gb_s: dict[str, list[float]] = field(default_factory=dict)


class WrongRowsError(Exception):
    """A contestant delivered something else than the rows of the source."""


def view(tensor: Any) -> np.ndarray:
    """The bytes of a tensor as uint64, not copied."""
    return np.frombuffer(memoryview(tensor), np.uint8).view(np.uint64)


def check_first_batch(source: Source, batches: Iterable[Any], batch_size: int, *, shuffled: bool) -> None:
    """Compare the first batch with the source. Raises `WrongRowsError`."""
    iterator = iter(batches)
    x, y = next(iterator)
    labels = np.array(memoryview(y))
    size = min(batch_size, source.rows)
    if labels.dtype != np.int64 or labels.shape != (size,) or len(np.unique(labels)) != size:
        raise WrongRowsError(f"labels {labels.dtype} {labels.shape}, expected {size} different int64")
    expected = np.arange(size)
    if np.array_equal(labels, expected) == shuffled and size > 1:
        raise WrongRowsError(f"rows {labels[:8]}... are {'not ' if shuffled else ''}shuffled")
    samples = np.array(memoryview(x))
    if samples.dtype != source.dtype or not np.array_equal(samples, source.x()[labels]):
        raise WrongRowsError("the samples are not those of the rows that the labels name")


def time_pass(
    batches: Iterable[Any], source: Source, mode: Mode, *, most_s: float | None, unit_rows: int
) -> Timing:
    """Time one pass, reading every byte where `mode` is "read".

    A whole pass is timed from the call to its end, and its rows are counted (and summed, where they were
    read). A pass that takes over `most_s` is cut short. Then the time is that between the first batches of
    two units, the `unit_rows` that the contestant makes at once: neither the start nor what is half
    done or in a queue counts.
    """
    rows = total = 0
    mark = first_rows = last_rows = 0
    first_s = last_s = 0.0
    began_s = time.perf_counter()
    for x, y in batches:
        if mode == "read":
            total += int(view(x).sum()) + int(view(y).sum())
        if rows >= mark:
            now_s = time.perf_counter()
            last_rows, last_s = rows, now_s
            if mark == 0:
                first_rows, first_s = rows, now_s
            elif most_s is not None and now_s - first_s > most_s:
                return Timing(
                    (last_rows - first_rows) * _moved(source) / (last_s - first_s) / 1e9, whole=False
                )
            mark = (rows // unit_rows + 1) * unit_rows
        rows += x.shape[0]
    seconds = time.perf_counter() - began_s
    if rows != source.rows:
        raise WrongRowsError(f"{rows} rows in a pass, expected {source.rows}")
    if mode == "read" and total % 2**64 != source.checksum:
        raise WrongRowsError("the bytes of a pass do not add up to those of the source")
    return Timing(source.nbytes / seconds / 1e9)


def _moved(source: Source) -> int:
    return source.row_nbytes + 8


def run_case(case: Case, repeats: int) -> list[Row]:
    """Time every contestant `repeats` times, in turn, and close them."""
    passes: dict[str, dict[Mode, list[Timing]]] = {
        contestant.name: {mode: [] for mode in contestant.modes} for contestant in case.contestants
    }
    # What is imported and opened stays: looking through it after every pass would take longer than the pass.
    gc.collect()
    gc.freeze()
    try:
        # In turn, so that what else the machine does meets all of them.
        for number in range(repeats):
            for contestant in case.contestants:
                if contestant.most_passes is not None and number >= contestant.most_passes:
                    continue
                for mode in contestant.modes:
                    contestant.prepare()
                    try:
                        passes[contestant.name][mode].append(contestant.run(mode))
                    except WrongRowsError as error:
                        what = f"{contestant.name} on {case.store}, {case.order}: {error}"
                        raise WrongRowsError(what) from error
                    # A pass that was cut short ends its threads here, not while the next one is timed.
                    gc.collect()
    finally:
        for contestant in case.contestants:
            contestant.close()
        gc.unfreeze()
    return compare(case, passes)


def compare(case: Case, passes: dict[str, dict[Mode, list[Timing]]]) -> list[Row]:
    """Medians and ratios of the passes of a case, by name of the contestant."""
    medians = {
        name: {mode: statistics.median(timing.gb_s for timing in timings) for mode, timings in of.items()}
        for name, of in passes.items()
    }

    def comparable(name: str) -> float:
        found = medians[name]
        return found["read"] if "read" in found else found["delivered"]

    by_role: dict[Role, list[str]] = {}
    for contestant in case.contestants:
        by_role.setdefault(contestant.role, []).append(contestant.name)
    best = max(by_role.get("recipe", []), key=comparable, default=None)
    ours = by_role.get("oocloader", [])
    limit = max(
        (
            medians[name]["delivered"]
            for name in by_role.get("machine", [])
            if name.startswith(case.yardstick)
        ),
        default=None,
    )
    rows = []
    for contestant in case.contestants:
        name = contestant.name
        found = medians[name]
        delivered, read = found.get("delivered"), found.get("read")
        machine = contestant.role == "machine"
        rows.append(
            Row(
                subset=case.subset,
                store=case.store,
                order=case.order,
                contestant=name,
                role=contestant.role,
                delivered_gb_s=delivered,
                read_gb_s=read,
                yardstick=case.yardstick,
                yardstick_gb_s=limit,
                delivered_to_yardstick=_ratio(delivered, limit),
                read_to_yardstick=_ratio(read, limit),
                best_recipe=best,
                to_best=None if best is None or machine else _ratio(comparable(name), comparable(best)),
                oocloader_to_this=(
                    None
                    if not ours or machine or contestant.role == "oocloader"
                    else _ratio(comparable(ours[0]), comparable(name))
                ),
                whole=all(timing.whole for timings in passes[name].values() for timing in timings),
                passes_gb_s={
                    mode: [timing.gb_s for timing in timings] for mode, timings in passes[name].items()
                },
            )
        )
    return rows


def _ratio(value: float | None, other: float | None) -> float | None:
    return None if value is None or not other else value / other
