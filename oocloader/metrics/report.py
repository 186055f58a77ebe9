"""Where the time of a pass went: in numbers, in one line, in words, and as a trace."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import Any

from oocloader.metrics.bottleneck import PassContext, Times, percent, verdict
from oocloader.metrics.counters import Counters, Event, peak_memory_bytes
from oocloader.metrics.trace import write_trace
from oocloader.sizes import nbytes_text


@dataclass(frozen=True, slots=True)
class Reading:
    """How the arrays of a loader are kept and read: bytes of a row of all of them, their codecs in the order
    in which they were applied, threads that read, the device, and whether windows are copied there."""

    row_nbytes: int
    codecs: tuple[str, ...]
    threads: int
    device: str
    crosses: bool
    batch_size: int
    batches: int
    """Batches of a whole pass."""


@dataclass(frozen=True, slots=True)
class Report:
    """What the last pass of a loader did. Bytes and seconds.

    - `seconds` from asking for the first batch to getting the last one, all of it either `waiting_s` (for
      data, cutting batches included) or `model_s` (the consumer had a batch). A pass of tf.data's host
      pipeline (`host_pipeline`: `map`, `class_weight` of `fit`, a strategy) is seen window by window: its
      `waiting_s` is an upper bound, and `batches` is 0.
    - of `waiting_s`: `first_s` for the first batch; `cutting_s` for cutting and casting batches.
    - seconds summed over the reader threads, what was read before the pass began included: `read_s` from
      files, `decode_s`, `gather_s` rows to their places (from mapped files too), `library_s` (h5py,
      zarr-python, zipfile), `other_s`. `copy_s`: to the device, at the best speed seen.
    - `delivered_bytes`: rows in the dtype stored; `read_bytes` from files, in `read_calls`; `mapped_bytes`:
      delivered without reading; `decoded_bytes` of `chunks_decoded`; `copied_bytes` from memory to memory.
    - `peak_memory_bytes`: the most the process ever held, all of it.
    - `verdict`: what holds training up and what would help.
    """

    epoch: int
    complete: bool
    device: str
    host_pipeline: bool
    rows: int
    batches: int
    windows: int
    seconds: float
    waiting_s: float
    model_s: float
    first_s: float
    cutting_s: float
    threads: int
    read_s: float
    decode_s: float
    gather_s: float
    library_s: float
    other_s: float
    copy_s: float
    delivered_bytes: int
    read_bytes: int
    read_calls: int
    mapped_bytes: int
    decoded_bytes: int
    chunks_decoded: int
    copied_bytes: int
    peak_memory_bytes: int
    verdict: str
    events: tuple[Event, ...] = field(repr=False, compare=False)
    events_dropped: int = field(repr=False, compare=False)

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0

    @property
    def gb_per_s(self) -> float:
        """10^9 bytes a second, in the dtype stored."""
        return self.delivered_bytes / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def waiting_share(self) -> float:
        """Of the time, how much the consumer waited for data."""
        return self.waiting_s / self.seconds if self.seconds else 0.0

    @property
    def line(self) -> str:
        """The report in one line."""
        return f"epoch {self.epoch}: {self.summary}"

    @property
    def summary(self) -> str:
        """The same, without the number of the pass."""
        return (
            f"{self.rows:,} rows in {self.seconds:.2f} s, {self.rows_per_s:,.0f} rows/s, "
            f"{self.gb_per_s:.2f} GB/s; waiting for data {percent(self.waiting_s, self.seconds)}, "
            f"in the model {percent(self.model_s, self.seconds)}; {self.verdict}"
        )

    def as_dict(self) -> dict[str, Any]:
        """All numbers and the verdict, for JSON."""
        numbers = asdict(self)
        del numbers["events"], numbers["events_dropped"]
        derived = {
            "rows_per_s": self.rows_per_s,
            "gb_per_s": self.gb_per_s,
            "waiting_share": self.waiting_share,
        }
        return {**numbers, **derived}

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Write windows, batches and what reader threads did as a Chrome trace; ui.perfetto.dev opens it.

        The newest 20,000 events are kept. Raises `StoreError` where the file cannot be written.
        """
        write_trace(path, self.events, dropped=self.events_dropped)

    def __str__(self) -> str:
        return "\n  ".join([self._amounts(), *self._times(), *self._work(), f"verdict: {self.verdict}"])

    def _amounts(self) -> str:
        state = "" if self.complete else ", not to its end"
        through = ", through tf.data's host pipeline" if self.host_pipeline else ""
        in_batches = "" if self.host_pipeline else f" in {self.batches:,} batches and"
        amount = (
            f"{self.rows:,} rows{in_batches} {self.windows:,} windows, {nbytes_text(self.delivered_bytes)}"
        )
        return f"epoch {self.epoch} on {self.device}{through}{state}: {amount}"

    def _times(self) -> list[str]:
        waiting, model = (percent(part, self.seconds) for part in (self.waiting_s, self.model_s))
        windows_s = max(0.0, self.waiting_s - self.first_s - self.cutting_s)
        waited = f"waiting for data {self.waiting_s:.2f} s ({waiting})"
        worked = f"in the model {self.model_s:.2f} s ({model})"
        speed = f"{self.rows_per_s:,.0f} rows/s, {self.gb_per_s:.2f} GB/s"
        windows = f"first batch {self.first_s:.3f} s, other windows {windows_s:.3f} s"
        return [
            f"time: {self.seconds:.2f} s = {waited} + {worked}; {speed}",
            f"waiting: {windows}, cutting and casting batches {self.cutting_s:.3f} s",
        ]

    def _work(self) -> list[str]:
        busy_s = self.read_s + self.decode_s + self.gather_s + self.library_s + self.other_s
        files = f"reading {self.read_s:.2f} s, in libraries {self.library_s:.2f} s"
        memory = f"decoding {self.decode_s:.2f} s, gathering {self.gather_s:.2f} s, else {self.other_s:.2f} s"
        read = f"{nbytes_text(self.read_bytes)} read in {self.read_calls:,} calls"
        mapped = f"{nbytes_text(self.mapped_bytes)} mapped"
        made = f"{nbytes_text(self.decoded_bytes)} decoded in {self.chunks_decoded:,} chunks"
        held = f"the process held {self.peak_memory_bytes / (1 << 20):,.0f} MiB at most"
        return [
            f"readers: {self.threads} threads, {busy_s:.2f} s together: {files}, {memory}",
            f"copying to the device: about {self.copy_s:.2f} s",
            f"bytes: {read}, {mapped}, {made}, {nbytes_text(self.copied_bytes)} copied",
            f"memory: {held}",
        ]


def make_report(counters: Counters, reading: Reading, *, epoch: int, start: int = 0) -> Report:
    """The report of pass `epoch`, which began at batch `start`, over or not, from its counters."""
    host_pipeline = counters.turns.answers == 0 and counters.window_turns.answers > 0
    turns = counters.window_turns if host_pipeline else counters.turns
    batches = 0 if host_pipeline else counters.batches
    # Windows are handed on before their batches are: what was not delivered yet does not count.
    rows = counters.rows if host_pipeline else min(counters.rows, batches * reading.batch_size)
    known_s = counters.read_s + counters.decode_s + counters.gather_s + counters.library_s
    cutting_s = 0.0 if host_pipeline else max(0.0, turns.waiting_s - counters.wait_s)
    times = Times(
        wall_s=turns.wall_s,
        waiting_s=turns.waiting_s,
        model_s=turns.working_s,
        window_s=turns.waiting_s - cutting_s,
        first_s=turns.first_s,
        starved_s=counters.window_turns.waiting_s,
        first_starved_s=counters.window_turns.first_s,
        read_s=counters.read_s,
        decode_s=counters.decode_s,
        gather_s=counters.gather_s,
        library_s=counters.library_s,
        other_s=max(0.0, counters.busy_s - known_s),
    )
    about = PassContext(
        codecs=reading.codecs,
        threads=reading.threads,
        device=reading.device,
        crosses=reading.crosses,
        windows=counters.windows,
        read_bytes=counters.read_bytes,
        major_faults=counters.major_faults,
    )
    events = counters.events.kept()
    return Report(
        epoch=epoch,
        complete=counters.complete if host_pipeline else start + batches >= reading.batches,
        device="/CPU:0" if host_pipeline else reading.device,
        host_pipeline=host_pipeline,
        rows=rows,
        batches=batches,
        windows=counters.windows,
        seconds=times.wall_s,
        waiting_s=times.waiting_s,
        model_s=times.model_s,
        first_s=times.first_s,
        cutting_s=cutting_s,
        threads=reading.threads,
        read_s=times.read_s,
        decode_s=times.decode_s,
        gather_s=times.gather_s,
        library_s=times.library_s,
        other_s=times.other_s,
        copy_s=counters.cross_s_per_byte * counters.delivered_bytes if reading.crosses else 0.0,
        delivered_bytes=rows * reading.row_nbytes,
        read_bytes=counters.read_bytes,
        read_calls=counters.read_calls,
        mapped_bytes=counters.mapped_bytes,
        decoded_bytes=counters.decoded_bytes,
        chunks_decoded=counters.chunks_decoded,
        copied_bytes=counters.copied_bytes,
        peak_memory_bytes=peak_memory_bytes(),
        verdict=verdict(times, about),
        events=tuple(events),
        events_dropped=counters.events.added - len(events),
    )
