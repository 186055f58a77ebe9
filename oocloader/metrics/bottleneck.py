"""What holds a pass up, and what would help: arithmetic on its times, in words."""

from collections.abc import Sequence
from dataclasses import dataclass

from oocloader.machine import usable_cores
from oocloader.metrics.counters import Counters
from oocloader.sizes import nbytes_text

# Waiting less than this is no reason to change anything.
ENOUGH = 0.05
# Pages fetched for a mapped file, per second of the model's time, that are a tenth of it on a fast disk.
_MANY_FAULTS = 1000
# What these undo takes several times as long as zstd.
_SLOW_CODECS = frozenset(["gzip", "zlib", "deflate", "lzf", "szip", "szip_ec", "bz2", "bzip2", "lzma"])
_CHECKSUMS = frozenset(["crc32c", "crc32", "adler32", "fletcher32", "jenkins_lookup3"])
_NO_COMPRESSION = _CHECKSUMS | {"bytes", "shuffle", "bitshuffle", "transpose", "sharding_indexed"}


@dataclass(frozen=True, slots=True)
class PassTimes:
    """Where the time of a pass went: `seconds` is `waiting_s` and `model_s` together.

    - of `waiting_s`: `first_s` until the first batch, `cutting_s` for cutting and casting batches
    - summed over reader threads: `read_s`, `decode_s`, `gather_s`, `library_s`, `other_s`
    """

    seconds: float
    waiting_s: float
    model_s: float
    first_s: float
    cutting_s: float
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
    """What a pass runs in, the same for every pass of a loader.

    Bytes of a row of all arrays, their codecs in the order in which they were applied, threads that read,
    the device, whether windows are copied there from the host, rows of a batch, and batches of a whole pass.
    """

    row_nbytes: int
    codecs: tuple[str, ...]
    threads: int
    device: str
    crosses: bool
    batch_size: int
    batches: int


def verdict(times: PassTimes, counters: Counters, context: PassContext) -> str:
    """The culprit and the remedy, as one line such as "storage-bound: decoding gzip takes 71 % of ..."."""
    if times.seconds <= 0:
        return "nothing to judge: no batch was delivered"
    if times.waiting_s < ENOUGH * times.seconds:
        return _model_bound(times, counters.major_faults)
    window_s = times.waiting_s - times.cutting_s
    if times.cutting_s > window_s:
        takes = f"takes {percent(times.cutting_s, times.seconds)} of the time"
        return f"loader-bound: cutting and casting batches {takes}; a larger batch_size would help"
    late = counters.windows > 3 and 2 * times.first_s > times.waiting_s
    # Of the pipeline's waiting: for readers, rather than for the way to the device.
    starved = counters.window_turns
    if late and 2 * starved.first_s < times.first_s:
        return (
            f"start-bound: of {times.waiting_s:.2f} s waited, {times.first_s:.2f} s went into starting the "
            "pass, whose rows were there; longer passes would help"
        )
    if context.crosses and 2 * starved.waiting_s < window_s:
        return (
            f"copy-bound: copying windows to {context.device} takes longer than the model does with them; "
            "a smaller dtype in the store would help, or a model that does more with each row"
        )
    first = f". Most of it ({times.first_s:.2f} s) was for the first batch: a smaller window= comes sooner"
    return _reader_bound(times, counters.read_bytes, context) + (first if late else "")


def _model_bound(times: PassTimes, major_faults: int) -> str:
    what = (
        f"model-bound: the model takes {percent(times.model_s, times.seconds)} of the time and waits for "
        f"data {percent(times.waiting_s, times.seconds)} of it; a faster loader would not help"
    )
    if major_faults > _MANY_FAULTS * times.model_s:
        what += (
            f". But {major_faults:,} pages of mapped files were fetched from the disk in that time; "
            "mmap=False has reader threads fetch them"
        )
    return what


def _reader_bound(times: PassTimes, read_bytes: int, context: PassContext) -> str:
    """What of the readers' work holds the model up."""
    seconds = {
        "read": times.read_s,
        "decode": times.decode_s,
        "gather": times.gather_s,
        "library": times.library_s,
        "other": times.other_s,
    }
    culprit = max(seconds, key=lambda name: seconds[name])
    takes = f"takes {percent(seconds[culprit], times.busy_s)} of the readers' time"
    packed = compressors(context.codecs)
    slow = [codec for codec in packed if codec in _SLOW_CODECS]
    help_ = f"{' or more threads' if context.threads < min(8, usable_cores()) else ''} would help"
    match culprit:
        case "decode" if packed:
            better, option = ("zstd", "zstd") if slow else ("no compression", "none")
            remedy = f"{better} (oocloader convert --codec {option}){help_}"
            return f"storage-bound: decoding {' and '.join(slow or packed)} {takes}; {remedy}"
        case "decode":
            remedy = f"chunks of whole rows (oocloader convert){help_}"
            return f"storage-bound: putting chunks together {takes}; {remedy}"
        case "read":
            speed = f"{nbytes_text(read_bytes / max(times.read_s, 1e-9))}/s a thread"
            compression = "" if packed else " or compression (oocloader convert --codec zstd)"
            return f"storage-bound: reading {takes} ({speed}); a faster disk{compression}{help_}"
        case "library":
            return (
                f"storage-bound: reading by the library, one thread at a time, {takes}; "
                "oocloader convert makes a store that is read directly"
            )
        case "gather":
            remedy = f"a smaller dtype in the store{help_}"
            return f"memory-bound: bringing rows to their places {takes}; {remedy}"
        case _:
            return f"reader-bound: planning windows {takes}; a larger window or block{help_}"


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
