"""What holds a pass up, and what would help: arithmetic on its times, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oocloader.machine import usable_cores
from oocloader.sizes import nbytes_text

# Waiting less than this is no reason to change anything.
ENOUGH = 0.05
# Pages fetched for a mapped file, per second of the model's time, that are a tenth of it on a fast disk.
_MANY_FAULTS = 1000
# What these undo takes several times as long as zstd.
_SLOW_CODECS = frozenset(("gzip", "zlib", "deflate", "lzf", "szip", "szip_ec", "bz2", "bzip2", "lzma"))
_NO_COMPRESSION = frozenset(
    (
        "bytes",
        "shuffle",
        "bitshuffle",
        "crc32c",
        "crc32",
        "adler32",
        "fletcher32",
        "jenkins_lookup3",
        "transpose",
        "sharding_indexed",
    )
)


@dataclass(frozen=True, slots=True)
class Times:
    """Where the time of a pass went, in seconds; `wall_s` is `waiting_s` and `model_s` together.

    - of `waiting_s`: `window_s` until windows were there (`first_s` until the first batch), the rest for
      cutting batches. `starved_s` of it readers were waited for, rather than the way to the device;
      `first_starved_s` for the first window.
    - summed over `threads`: `read_s`, `decode_s`, `gather_s`, `library_s`, `other_s`
    """

    wall_s: float
    waiting_s: float
    model_s: float
    window_s: float
    first_s: float
    starved_s: float
    first_starved_s: float
    read_s: float
    decode_s: float
    gather_s: float
    library_s: float
    other_s: float

    @property
    def busy_s(self) -> float:
        """All that reader threads did."""
        return self.read_s + self.decode_s + self.gather_s + self.library_s + self.other_s


@dataclass(frozen=True, slots=True)
class PassContext:
    """What else matters: how rows are kept, who reads them, and how they reach the device."""

    codecs: Sequence[str]
    """Of all arrays, in the order in which they were applied."""
    threads: int
    device: str
    crosses: bool
    """Whether windows are copied to another device than the host."""
    windows: int
    read_bytes: int
    major_faults: int
    """Pages of mapped files fetched from the disk while they were used."""


def verdict(times: Times, about: PassContext) -> str:
    """The culprit and the remedy, as one line such as "storage-bound: decoding gzip takes 71 % of ..."."""
    if times.wall_s <= 0:
        return "nothing to judge: no batch was delivered"
    if times.waiting_s < ENOUGH * times.wall_s:
        return _model_bound(times, about)
    cutting_s = times.waiting_s - times.window_s
    if cutting_s > times.window_s:
        takes = f"takes {percent(cutting_s, times.wall_s)} of the time"
        return f"loader-bound: cutting and casting batches {takes}; a larger batch_size would help"
    late = about.windows > 3 and 2 * times.first_s > times.waiting_s
    if late and 2 * times.first_starved_s < times.first_s:
        return (
            f"start-bound: of {times.waiting_s:.2f} s waited, {times.first_s:.2f} s went into starting the "
            "pass, whose rows were there; longer passes would help"
        )
    if about.crosses and 2 * times.starved_s < times.window_s:
        return (
            f"copy-bound: copying windows to {about.device} takes longer than the model does with them; "
            "a smaller dtype in the store would help, or a model that does more with each row"
        )
    return _held_up(times, about) + (_first(times) if late else "")


def _model_bound(times: Times, about: PassContext) -> str:
    what = (
        f"model-bound: the model takes {percent(times.model_s, times.wall_s)} of the time and waits for data "
        f"{percent(times.waiting_s, times.wall_s)} of it; a faster loader would not help"
    )
    if about.major_faults > _MANY_FAULTS * times.model_s:
        what += (
            f". But {about.major_faults:,} pages of mapped files were fetched from the disk in that time; "
            "mmap=False has reader threads fetch them"
        )
    return what


def _held_up(times: Times, about: PassContext) -> str:
    """Who of the readers holds the model up."""
    shares = {
        "read": times.read_s,
        "decode": times.decode_s,
        "gather": times.gather_s,
        "library": times.library_s,
        "other": times.other_s,
    }
    culprit = max(shares, key=lambda name: shares[name])
    takes = f"takes {percent(shares[culprit], times.busy_s)} of the readers' time"
    packed = compressors(about.codecs)
    threads = _more_threads(about.threads)
    if culprit == "decode" and packed:
        slow = [codec for codec in packed if codec in _SLOW_CODECS]
        better = "zstd" if slow else "no compression"
        option = "zstd" if slow else "none"
        remedy = f"{better} (oocloader convert --codec {option}){threads} would help"
        return f"storage-bound: decoding {' and '.join(slow or packed)} {takes}; {remedy}"
    if culprit == "decode":
        return (
            f"storage-bound: putting chunks together {takes}; chunks of whole rows (oocloader convert)"
            f"{threads} would help"
        )
    if culprit == "read":
        speed = f"{nbytes_text(about.read_bytes / max(times.read_s, 1e-9))}/s a thread"
        better = (
            "a faster disk" if packed else "a faster disk or compression (oocloader convert --codec zstd)"
        )
        return f"storage-bound: reading {takes} ({speed}); {better}{threads} would help"
    if culprit == "library":
        return (
            f"storage-bound: reading by the library, one thread at a time, {takes}; "
            "oocloader convert makes a store that is read directly"
        )
    if culprit == "gather":
        return (
            f"memory-bound: bringing rows to their places {takes}; a smaller dtype in the store{threads} "
            "would help"
        )
    return f"reader-bound: planning windows {takes}; a larger window or block{threads} would help"


def _first(times: Times) -> str:
    return f". Most of it ({times.first_s:.2f} s) was for the first batch: a smaller window= comes sooner"


def _more_threads(threads: int) -> str:
    return " or more threads" if threads < min(8, usable_cores()) else ""


def compressors(codecs: Sequence[str]) -> list[str]:
    """Those that cost time to undo, each once.

    >>> compressors(["shuffle", "gzip", "fletcher32", "bytes", "gzip"])
    ['gzip']
    """
    return [codec for codec in dict.fromkeys(codecs) if codec not in _NO_COMPRESSION]


def percent(part: float, whole: float) -> str:
    """A share for people.

    >>> percent(0.712, 1), percent(0.0123, 1)
    ('71 %', '1.2 %')
    """
    share = 100 * part / whole if whole > 0 else 0.0
    return f"{share:.1f} %" if share < 9.95 else f"{share:.0f} %"
