"""Where the time of a pass went: in numbers, in one line, in words, and as a trace."""

import os
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from oocloader.metrics.bottleneck import PassContext, PassTimes, percent, verdict
from oocloader.metrics.counters import Counters, Event, peak_memory_bytes
from oocloader.metrics.trace import write_trace
from oocloader.sizes import nbytes_text


@dataclass(frozen=True, slots=True)
class Report(PassTimes):
    """What the last pass of a loader did; ``str()`` tells it, `as_dict` is for JSON.

    Parameters
    ----------
    epoch : int
        Number of the pass.
    complete : bool
        Whether it came to its end.
    device : str
        Where batches lay.
    host_pipeline : bool
        Whether it was a pass of tf.data's host pipeline (`map`, `class_weight` of `fit`, a strategy). Such a
        one is seen window by window: its `waiting_s` is an upper bound, and `batches` is 0.
    rows, batches, windows : int
        Delivered.
    seconds : float
        From asking for the first batch to getting the last one, all of it either `waiting_s` (for data,
        cutting batches included) or `model_s` (the consumer had a batch).
    first_s, cutting_s : float
        Of `waiting_s`: for the first batch; for cutting and casting batches.
    threads : int
        That read and decode.
    read_s, decode_s, gather_s, library_s, other_s : float
        Seconds summed over the reader threads, what was read before the pass began included: from files,
        decoding, gathering rows (from mapped files too), in h5py, zarr-python or zipfile, the rest.
    copy_s : float
        Seconds of copying to the device, at the best speed seen.
    delivered_bytes : int
        Rows in the dtype stored.
    read_bytes, read_calls : int
        Bytes from files, and in how many calls.
    mapped_bytes, copied_bytes : int
        Delivered without reading; from memory to memory.
    decoded_bytes, chunks_decoded : int
        Bytes of so many chunks.
    peak_memory_bytes : int
        The most the process ever held, all of it.
    verdict : str
        What holds training up and what would help.

    Examples
    --------
    >>> import numpy as np
    >>> import oocloader as ooc
    >>> with ooc.Loader(np.zeros((1000, 8)), batch_size=100) as loader:
    ...     for batch in loader:
    ...         pass
    ...     report = loader.report()
    >>> report.rows, report.batches, report.complete
    (1000, 10, True)
    """

    epoch: int
    complete: bool
    device: str
    host_pipeline: bool
    rows: int
    batches: int
    windows: int
    threads: int
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
        numbers = asdict(replace(self, events=()))
        del numbers["events"], numbers["events_dropped"]
        return numbers | {name: getattr(self, name) for name in ("rows_per_s", "gb_per_s", "waiting_share")}

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Write windows, batches and what reader threads did as a Chrome trace; ui.perfetto.dev opens it.

        Parameters
        ----------
        path : path
            Of the JSON file; it gets the newest 20,000 events.

        Raises
        ------
        StoreError
            Where the file cannot be written.
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
        files = f"reading {self.read_s:.2f} s, in libraries {self.library_s:.2f} s"
        memory = f"decoding {self.decode_s:.2f} s, gathering {self.gather_s:.2f} s, else {self.other_s:.2f} s"
        read = f"{nbytes_text(self.read_bytes)} read in {self.read_calls:,} calls"
        mapped = f"{nbytes_text(self.mapped_bytes)} mapped"
        made = f"{nbytes_text(self.decoded_bytes)} decoded in {self.chunks_decoded:,} chunks"
        held = f"the process held {self.peak_memory_bytes / (1 << 20):,.0f} MiB at most"
        return [
            f"readers: {self.threads} threads, {self.busy_s:.2f} s together: {files}, {memory}",
            f"copying to the device: about {self.copy_s:.2f} s",
            f"bytes: {read}, {mapped}, {made}, {nbytes_text(self.copied_bytes)} copied",
            f"memory: {held}",
        ]


def make_report(counters: Counters, context: PassContext, *, epoch: int, start: int = 0) -> Report:
    """The report of pass `epoch`, which began at batch `start`, over or not, from its counters."""
    host_pipeline = counters.turns.answers == 0 and counters.window_turns.answers > 0
    turns = counters.window_turns if host_pipeline else counters.turns
    batches = 0 if host_pipeline else counters.batches
    # Windows are handed on before their batches are: what was not delivered yet does not count.
    rows = counters.rows if host_pipeline else min(counters.rows, batches * context.batch_size)
    known_s = counters.read_s + counters.decode_s + counters.gather_s + counters.library_s
    events = counters.events.kept()
    report = Report(
        epoch=epoch,
        complete=counters.complete if host_pipeline else start + batches >= context.batches,
        device="/CPU:0" if host_pipeline else context.device,
        host_pipeline=host_pipeline,
        rows=rows,
        batches=batches,
        windows=counters.windows,
        seconds=turns.wall_s,
        waiting_s=turns.waiting_s,
        model_s=turns.working_s,
        first_s=turns.first_s,
        cutting_s=0.0 if host_pipeline else max(0.0, turns.waiting_s - counters.wait_s),
        threads=context.threads,
        read_s=counters.read_s,
        decode_s=counters.decode_s,
        gather_s=counters.gather_s,
        library_s=counters.library_s,
        other_s=max(0.0, counters.busy_s - known_s),
        copy_s=counters.cross_s_per_byte * counters.delivered_bytes if context.crosses else 0.0,
        delivered_bytes=rows * context.row_nbytes,
        read_bytes=counters.read_bytes,
        read_calls=counters.read_calls,
        mapped_bytes=counters.mapped_bytes,
        decoded_bytes=counters.decoded_bytes,
        chunks_decoded=counters.chunks_decoded,
        copied_bytes=counters.copied_bytes,
        peak_memory_bytes=peak_memory_bytes(),
        verdict="",
        events=tuple(events),
        events_dropped=counters.events.added - len(events),
    )
    return replace(report, verdict=verdict(report, counters, context))
