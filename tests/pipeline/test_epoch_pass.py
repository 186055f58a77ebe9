"""A pass from end to end: files, threads, windows; the same rows whatever reads them, in bounded memory."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import numbered
from chunked import Flip, open_files, write_layout
from numbered import numbers_of, rows_array
from oocloader.errors import ChangedError
from oocloader.order.order import Order, RowSet, Shuffle
from oocloader.order.resharding import History
from oocloader.pipeline.epoch_pass import EpochPass, ReadConfig
from oocloader.pipeline.staging import Gather
from oocloader.reading.chunk_reader import ChunkReader
from oocloader.reading.joined_reader import JoinedReader
from three_arrays import ROWS, Stored, labels, our_threads, rows_of


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert our_threads() == []


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path)


def members(rows: RowSet | None) -> np.ndarray:
    if rows is None:
        return np.arange(ROWS)
    return np.arange(rows.start, rows.stop) if rows.picked is None else rows.picked


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(
    ("rows", "block", "window", "batch_size"),
    [
        (None, 64, 256, 32),
        (None, 100, 300, 32),
        (None, 10, 50, 128),
        (None, 1, 7, 3),
        (None, 2000, 2000, 128),
        (None, 64, 256, 5000),
        (RowSet(37, 912), 64, 256, 32),
        (RowSet(0, ROWS, np.arange(0, ROWS, 7)), 16, 64, 32),
    ],
)
def test_every_row_once_and_each_chunk_decoded_once(
    stored: Stored, shuffle: bool, rows: RowSet | None, block: int, window: int, batch_size: int
) -> None:
    read_config = stored.read_config(
        rows=rows, shuffle=shuffle, block=block, window=window, batch_size=batch_size
    )
    for epoch in range(2):
        for flip in stored.flips:
            flip.decoded.clear()
        found = rows_of(read_config, epoch)
        assert np.array_equal(np.sort(found), members(rows))
        assert shuffle or np.array_equal(found, members(rows))
        for flip, chunk_rows, across in zip(stored.flips, (64, 100), (3, 1), strict=True):
            wanted = len(np.unique(members(rows) // chunk_rows)) * across
            assert len(flip.decoded) == len(set(flip.decoded)) == wanted


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    window=st.integers(1, 300),
    batch_size=st.integers(1, 300),
    shuffle=st.booleans(),
    drop_remainder=st.booleans(),
    epoch=st.integers(0, 9),
    threads=st.integers(1, 4),
    prefetch_windows=st.integers(1, 3),
    mapping=st.booleans(),
    data=st.data(),
)
def test_a_pass_from_a_batch_is_the_tail_of_the_pass(
    stored: Stored,
    window: int,
    batch_size: int,
    shuffle: bool,
    drop_remainder: bool,
    epoch: int,
    threads: int,
    prefetch_windows: int,
    mapping: bool,
    data: st.DataObject,
) -> None:
    block = data.draw(st.integers(1, window))
    options = {"shuffle": shuffle, "block": block, "window": window, "batch_size": batch_size}
    whole = rows_of(stored.read_config(**options, drop_remainder=drop_remainder), epoch)  # type: ignore[arg-type]  # ints
    read_config = stored.read_config(
        **options,  # type: ignore[arg-type]  # ints
        drop_remainder=drop_remainder,
        threads=threads,
        prefetch_windows=prefetch_windows,
        mapping=mapping,
    )
    assert len(whole) == (ROWS // batch_size * batch_size if drop_remainder else ROWS)
    start = data.draw(st.integers(0, read_config.batches))
    assert np.array_equal(rows_of(read_config, epoch, start=start), whole[start * batch_size :])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    window=st.integers(1, 300),
    batch_size=st.integers(2, 120),
    shuffle=st.sampled_from([False, "window", "global"]),
    drop_remainder=st.booleans(),
    gather=st.sampled_from(["freely", "bounded", "never"]),
    mapping=st.booleans(),
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    data=st.data(),
)
def test_shards_and_restarts_with_other_numbers_of_them(
    stored: Stored,
    window: int,
    batch_size: int,
    shuffle: Shuffle,
    drop_remainder: bool,
    gather: Gather,
    mapping: bool,
    counts: list[int],
    data: st.DataObject,
) -> None:
    """Every row once, in as many batches for each shard, however often a pass is broken off."""
    rows = data.draw(st.sampled_from([None, RowSet(37, 912), RowSet(0, ROWS, np.arange(0, ROWS, 3))]))
    options = {
        "rows": rows,
        "shuffle": shuffle,
        "block": data.draw(st.integers(1, window)),
        "window": window,
        "batch_size": batch_size,
        "drop_remainder": drop_remainder,
        "gather": gather,
        "mapping": mapping,
    }
    seen: list[np.ndarray] = []
    history: History = ()
    for turn, count in enumerate(counts):
        feeds = [stored.read_config(**options, shard=(index, count)) for index in range(count)]  # type: ignore[arg-type]  # many kinds
        cuts = [read_config.row_sequence(history)[1] for read_config in feeds]
        assert len({cut.batches for cut in cuts}) == 1
        done = data.draw(st.integers(1, max(1, cuts[0].batches)))
        for read_config, cut in zip(feeds, cuts, strict=True):
            lengths: list[int] = []
            found = rows_of(read_config, 2, history=history, batches=lengths)
            assert len(found) == cut.end
            assert len(lengths) == cut.batches
            if drop_remainder:
                assert set(lengths) <= {batch_size}
            start = data.draw(st.integers(0, cut.batches))
            assert np.array_equal(
                rows_of(read_config, 2, start=start, history=history), found[cut.row(start) :]
            )
            seen.append(found if turn == len(counts) - 1 else found[: cut.row(done)])
        history = (*history, (count, done))
        left = len(members(rows)) - sum(map(len, seen))
        if left < 5:
            break
    everything = np.concatenate(seen)
    assert len(np.unique(everything)) == len(everything)
    if not drop_remainder and turn == len(counts) - 1:
        assert np.array_equal(np.sort(everything), members(rows))


def test_a_halved_batch(stored: Stored) -> None:
    """3 and 4 rows in batches of 3 are two for each: 2 + 1 and 3 + 1."""
    rows = RowSet(100, 107)
    for index, expected in enumerate([[2, 1], [3, 1]]):
        for shuffle in (False, "window", "global"):
            for mapping in (False, True):
                read_config = stored.read_config(
                    rows=rows,
                    shuffle=shuffle,
                    batch_size=3,
                    shard=(index, 2),
                    mapping=mapping,
                )
                windows = [y.copy() for _, y, _ in EpochPass(read_config, 0).windows()]
                cut = [len(y[at : at + 3]) for y in windows for at in range(0, len(y), 3)]
                assert cut == expected


@pytest.mark.parametrize("gather", ["freely", "bounded", "never"])
def test_single_rows_however_they_are_read(stored: Stored, gather: Gather) -> None:
    expected = rows_of(stored.read_config(shuffle="global", window=200), 4)
    assert np.array_equal(np.sort(expected), np.arange(ROWS))
    assert np.array_equal(
        rows_of(stored.read_config(shuffle="global", window=77, gather=gather), 4), expected
    )


def test_files_that_are_not_to_be_mapped_are_not(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("mapped")

    monkeypatch.setattr("oocloader.reading.mapped_rows.map_shared", refuse)
    monkeypatch.setattr("oocloader.reading.mapped_rows.map_private", refuse)
    for shuffle in (False, "window", "global"):
        read_config = stored.read_config(shuffle=shuffle, mapping=False)
        for gather in ("freely", "bounded"):
            object.__setattr__(read_config, "gather", gather)
            assert len(rows_of(read_config)) == ROWS


def test_nothing_but_its_numbers_makes_the_order(stored: Stored) -> None:
    expected = rows_of(stored.read_config(), 5)
    for threads, prefetch_windows, mapping in itertools.product((1, 2, 5), (1, 3), (False, True)):
        read_config = stored.read_config(threads=threads, prefetch_windows=prefetch_windows, mapping=mapping)
        assert np.array_equal(rows_of(read_config, 5), expected)
    assert np.array_equal(rows_of(stored.read_config(batch_size=100), 5), expected)
    assert not np.array_equal(rows_of(stored.read_config(), 6), expected)
    assert not np.array_equal(rows_of(stored.read_config(seed=4), 5), expected)


def test_passes_at_the_same_time(stored: Stored) -> None:
    read_config = stored.read_config()
    first, second = EpochPass(read_config, 0).windows(), EpochPass(read_config, 1).windows()
    pairs = list(zip(first, second, strict=True))
    for at, epoch in enumerate((0, 1)):
        found = np.concatenate([pair[at][1] for pair in pairs])
        assert np.array_equal(found, rows_of(read_config, epoch))


def test_parts_that_do_not_line_up_are_decoded_once_and_not_kept(tmp_path: Path) -> None:
    """Three stores whose lengths are no multiples of their chunks, joined."""
    array = rows_array(ROWS, sample_shape=(6, 4))
    flips = [Flip(), Flip(), Flip()]
    cuts = [(0, 230), (230, 700), (700, ROWS)]
    reader = JoinedReader(
        [
            ChunkReader(write_layout(tmp_path / str(start), array[start:stop], (chunk, 6, 4), step=flip))
            for (start, stop), chunk, flip in zip(cuts, (64, 64, 48), flips, strict=True)
        ]
    )
    order = Order(
        RowSet(0, ROWS), shuffle=True, seed=0, block=64, window=256, chunk_origins=reader.chunk_origins
    )
    read_config = ReadConfig(
        readers=[reader],
        order=order,
        batch_size=50,
        drop_remainder=False,
        threads=2,
        prefetch_windows=1,
        mapping=False,
    )
    running = EpochPass(read_config, 0)
    found = []
    for (rows,) in running.windows():
        found.append(rows.copy())
        assert running._staging._columns[0][2].held_nbytes == 0
    assert sorted(numbers_of(np.concatenate(found))) == list(range(ROWS))
    assert [len(flip.decoded) for flip in flips] == [4, 8, 7]


@pytest.mark.parametrize(
    ("rows", "batch_size", "drop_remainder", "batches"),
    [
        (1000, 32, False, 32),
        (1000, 32, True, 31),
        (1000, 1000, True, 1),
        (1000, 1001, True, 0),
        (1000, 2000, False, 1),
    ],
)
def test_batches(stored: Stored, rows: int, batch_size: int, drop_remainder: bool, batches: int) -> None:
    read_config = stored.read_config(batch_size=batch_size, drop_remainder=drop_remainder)
    assert read_config.batches == batches
    assert len(rows_of(read_config)) == min(rows, batches * batch_size)


def test_counters(stored: Stored) -> None:
    running = EpochPass(stored.read_config(shuffle=False), 0)
    windows = [len(arrays[0]) for arrays in running.windows()]
    counters = running.counters
    assert (counters.rows, counters.windows) == (ROWS, len(windows))
    assert counters.chunks_decoded == sum(len(flip.decoded) for flip in stored.flips) == 48 + 10
    assert counters.mapped_bytes == stored.w.nbytes
    assert counters.read_bytes == 16 * 64 * 24 + 1000 * 8
    wall_s = counters.wall_s
    assert 0 < counters.starved_s <= wall_s
    time.sleep(0.01)
    running.close()
    assert counters.wall_s == wall_s


# -- what goes wrong


@pytest.mark.parametrize("mapping", [False, True])
@pytest.mark.parametrize("change", [lambda path: os.truncate(path, 20_000), os.remove])
def test_a_file_that_changes_during_a_pass(
    stored: Stored, mapping: bool, change: Callable[[str], None]
) -> None:
    read_config = stored.read_config(shuffle=False, window=64, block=64, mapping=mapping, prefetch_windows=1)
    running = EpochPass(read_config, 0).windows()
    for _ in range(3):
        next(running)
    path = stored.layouts[2].files.path(0)
    change(path)
    if change is os.remove:
        # It is open, and stays what it was.
        assert sum(len(y) for _, y, _ in running) == ROWS - 3 * 64
        stored.readers[2] = ChunkReader(stored.layouts[2])
        running = EpochPass(read_config, 1).windows()
    with pytest.raises(ChangedError, match=f"^{path}: array 'x', rows [0-9]+ to [0-9]+: the file "):
        list(running)


# -- the end


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_an_abandoned_pass_ends(stored: Stored, taken: int) -> None:
    gc.collect()
    before = len(open_files())
    windows = EpochPass(stored.read_config(window=64), 0).windows()
    for _ in range(taken):
        next(windows)
    del windows
    gc.collect()
    assert our_threads() == []
    for reader in stored.readers:
        reader.close()
    assert len(open_files()) == before


def test_close_ends_whoever_iterates(stored: Stored) -> None:
    running = EpochPass(stored.read_config(window=64), 0)
    windows = running.windows()
    next(windows)
    running.close()
    assert list(windows) == []
    running.close()
    assert our_threads() == []
    never = EpochPass(stored.read_config(), 0)
    never.close()
    assert list(never.windows()) == []


def test_an_exception_of_the_consumer_ends_the_pass(stored: Stored) -> None:
    with pytest.raises(ZeroDivisionError):
        sum(label / 0 for label in labels(EpochPass(stored.read_config(window=64), 0)))
    gc.collect()
    assert our_threads() == []


def test_buffers_are_shared_by_passes(stored: Stored) -> None:
    read_config = stored.read_config(window=256, mapping=False)
    places: set[int] = set()
    for epoch in range(5):
        for x, _, _ in EpochPass(read_config, epoch).windows():
            places.add(x.ctypes.data)
            del x
    # What is kept for reuse at most: read ahead, in use, about to be released.
    assert len(places) <= read_config.prefetch_windows + 3


MEMORY = """
import os, sys, types
import numpy as np
from chunked import Flip
from oocloader.memory import Column, SizingInputs, choose
from oocloader.reading.chunk_reader import ChunkReader
from oocloader.codecs.chain import Chain
from oocloader.reading.layout import Files, Layout
from oocloader.order.order import Order, RowSet, Shuffle
from oocloader.pipeline.epoch_pass import ReadConfig, EpochPass

folder, kind, shuffle = sys.argv[1], sys.argv[2], sys.argv[3] == "shuffle"
path, rows, row_nbytes, chunk_rows = f"{folder}/big", 1 << 18, 1 << 12, 300
chunks = -(-rows // chunk_rows)
with open(path, "wb") as stream:
    os.truncate(path, chunks * chunk_rows * row_nbytes)
layout = Layout.contiguous("x", (rows, row_nbytes), np.dtype("u1"), Files.of(path), 0)
if kind == "chunks":
    class Forgetful(Flip):
        def decode(self, stored, out):
            return np.invert(stored, out=out)
    step = Forgetful()
    nbytes = chunk_rows * row_nbytes
    layout = Layout("x", layout.shape, layout.dtype, (chunk_rows, row_nbytes), layout.files,
        np.zeros(chunks, np.int32), np.arange(chunks) * nbytes, np.full(chunks, nbytes),
        np.zeros(chunks, np.uint32), Chain((step,), (0,), ("flip",)), None, layout.fill)
reader = ChunkReader(layout)
column = Column(
    "x", row_nbytes, row_nbytes, reader.chunk_rows, reader.scratch_nbytes, reader.row_access)
sizes = choose(SizingInputs(rows=rows, columns=(column,), batch_size=100, shuffle=shuffle,
    host_memory=64 << 20, threads=2, free_host_memory=1 << 30))
order = Order(RowSet(0, rows), shuffle=shuffle, seed=0, block=sizes.block, window=sizes.window)
read_config = ReadConfig(readers=[reader], order=order, batch_size=100, drop_remainder=False,
    threads=sizes.threads, prefetch_windows=sizes.prefetch_windows, mapping=kind == "mapped")

def peak():
    with open("/proc/self/status") as table:
        return next(int(line.split()[1]) for line in table if line.startswith("VmHWM")) << 10

before, seen = peak(), 0
for (window,) in EpochPass(read_config, 0).windows():
    seen += len(window)
    assert window.ravel().view("u8")[::64].max() == (2**64 - 1 if kind == "chunks" else 0)
    del window
assert seen == rows
print((peak() - before) >> 20)
"""


@pytest.mark.parametrize("kind", ["read", "mapped", "chunks"])
@pytest.mark.parametrize("order", ["in order", "shuffle"])
def test_memory_is_bounded_by_the_budget(tmp_path: Path, kind: str, order: str) -> None:
    """A gibibyte goes through 64 MiB, and what the consumer holds."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path), kind, order],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(numbered.__file__).parent)},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 64 + 32
