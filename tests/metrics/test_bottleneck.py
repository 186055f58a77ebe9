"""The verdict: the culprit by the times of a pass, and what would help."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oocloader.metrics.bottleneck import PassContext, PassTimes, compressors, percent, verdict
from oocloader.metrics.counters import Counters, Turns

# Half of ten seconds were spent waiting for windows.
TIMES = PassTimes(
    seconds=10.0,
    waiting_s=5.0,
    model_s=5.0,
    first_s=0.1,
    cutting_s=0.1,
    read_s=1.0,
    decode_s=1.0,
    gather_s=1.0,
    library_s=0.0,
    other_s=0.5,
)
CONTEXT = PassContext(
    row_nbytes=100,
    codecs=("bytes", "gzip"),
    threads=2,
    device="/CPU:0",
    crosses=False,
    batch_size=32,
    batches=100,
)


def said_of(
    times: dict[str, float],
    context: dict[str, object],
    *,
    starved_s: float = 4.8,
    first_starved_s: float = 0.1,
    windows: int = 20,
    major_faults: int = 0,
) -> str:
    """The verdict where these differ; of the pipeline's waiting, `starved_s` was for readers."""
    counters = Counters(windows=windows, read_bytes=10**8, major_faults=major_faults)
    counters.window_turns = Turns(waiting_s=starved_s, first_s=first_starved_s)
    changed = replace(CONTEXT, **context)  # type: ignore[arg-type]  # by name
    return verdict(replace(TIMES, **times), counters, changed)


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)


@pytest.mark.parametrize(
    ("times", "context", "counted", "said"),
    [
        (
            {"decode_s": 5.0},
            {},
            {},
            (
                "storage-bound: decoding gzip takes 67 % of the readers' time; "
                "zstd (oocloader convert --codec zstd) would help"
            ),
        ),
        (
            {"decode_s": 5.0},
            {"threads": 1},
            {},
            (
                "storage-bound: decoding gzip takes 67 % of the readers' time; "
                "zstd (oocloader convert --codec zstd) or more threads would help"
            ),
        ),
        (
            {"decode_s": 5.0},
            {"codecs": ("shuffle", "zstd", "crc32c")},
            {},
            (
                "storage-bound: decoding zstd takes 67 % of the readers' time; "
                "no compression (oocloader convert --codec none) would help"
            ),
        ),
        (
            {"decode_s": 5.0},
            {"codecs": ("blosc", "shuffle", "lzf", "blosc")},
            {},
            (
                "storage-bound: decoding lzf takes 67 % of the readers' time; "
                "zstd (oocloader convert --codec zstd) would help"
            ),
        ),
        (
            {"decode_s": 5.0},
            {"codecs": ("bytes",)},
            {},
            (
                "storage-bound: putting chunks together takes 67 % of the readers' time; "
                "chunks of whole rows (oocloader convert) would help"
            ),
        ),
        (
            {"read_s": 5.0},
            {},
            {},
            (
                "storage-bound: reading takes 67 % of the readers' time (19.1 MiB/s a thread); "
                "a faster disk would help"
            ),
        ),
        (
            {"read_s": 5.0},
            {"codecs": (), "threads": 1},
            {},
            (
                "storage-bound: reading takes 67 % of the readers' time (19.1 MiB/s a thread); a faster disk "
                "or compression (oocloader convert --codec zstd) or more threads would help"
            ),
        ),
        (
            {"library_s": 5.0},
            {},
            {},
            (
                "storage-bound: reading by the library, one thread at a time, takes 59 % of the readers' "
                "time; oocloader convert makes a store that is read directly"
            ),
        ),
        (
            {"gather_s": 5.0},
            {},
            {},
            (
                "memory-bound: bringing rows to their places takes 67 % of the readers' time; "
                "a smaller dtype in the store would help"
            ),
        ),
        (
            {"other_s": 5.0},
            {},
            {},
            (
                "reader-bound: planning windows takes 62 % of the readers' time; "
                "a larger window or block would help"
            ),
        ),
        (
            {"waiting_s": 0.1, "model_s": 9.9, "decode_s": 50.0},
            {},
            {},
            (
                "model-bound: the model takes 99 % of the time and waits for data 1.0 % of it; "
                "a faster loader would not help"
            ),
        ),
        (
            {"waiting_s": 0.1, "model_s": 9.9},
            {},
            {"major_faults": 12_000},
            (
                "model-bound: the model takes 99 % of the time and waits for data 1.0 % of it; "
                "a faster loader would not help. But 12,000 pages of mapped files were fetched from the disk "
                "in that time; mmap=False has reader threads fetch them"
            ),
        ),
        (
            {"cutting_s": 4.0},
            {},
            {},
            (
                "loader-bound: cutting and casting batches takes 40 % of the time; "
                "a larger batch_size would help"
            ),
        ),
        (
            {},
            {"crosses": True, "device": "/GPU:0"},
            {"starved_s": 1.0},
            (
                "copy-bound: copying windows to /GPU:0 takes longer than the model does with them; "
                "a smaller dtype in the store would help, or a model that does more with each row"
            ),
        ),
        (
            {"decode_s": 5.0, "first_s": 4.0},
            {},
            {"first_starved_s": 3.9},
            (
                "storage-bound: decoding gzip takes 67 % of the readers' time; "
                "zstd (oocloader convert --codec zstd) would help. "
                "Most of it (4.00 s) was for the first batch: a smaller window= comes sooner"
            ),
        ),
        (
            {"decode_s": 5.0, "first_s": 4.0},
            {"crosses": True},
            {"starved_s": 0.1},
            (
                "start-bound: of 5.00 s waited, 4.00 s went into starting the pass, whose rows were there; "
                "longer passes would help"
            ),
        ),
        ({"seconds": 0.0}, {}, {}, "nothing to judge: no batch was delivered"),
    ],
)
def test_the_culprit(
    times: dict[str, float], context: dict[str, object], counted: dict[str, Any], said: str
) -> None:
    assert said_of(times, context, **counted) == said


def test_copying_is_no_culprit_where_nothing_crosses() -> None:
    assert said_of({"decode_s": 5.0}, {}, starved_s=1.0).startswith("storage-bound")


def test_few_windows_are_no_matter_of_the_first() -> None:
    assert said_of({"first_s": 4.0, "decode_s": 5.0}, {}, windows=2).endswith("would help")


def test_parts() -> None:
    assert TIMES.busy_s == 3.5
    assert compressors(("sharding_indexed", "bytes", "crc32c")) == []
    assert percent(1, 0) == "0.0 %"
    assert percent(0.0999, 1) == "10 %"
