"""The bench tool: what it measures is what it says, and every contestant loads the right rows."""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest

from benchmark.data import Source, byte_sum, images, table
from benchmark.machine import SequentialReader, cached_share, decode, decoders, drop_cache, warm_cache
from benchmark.measure import (
    MODES,
    Case,
    Contestant,
    Mode,
    Role,
    Row,
    Timing,
    WrongRowsError,
    check_first_batch,
    compare,
    run_case,
    time_pass,
)
from benchmark.stores import KINDS, loader_source, make, stored_chunks

ROOT = Path(__file__).parents[2]
Batch = tuple[np.ndarray, np.ndarray]


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return images(tmp_path / "images", 600)


def batches(source: Source, order: np.ndarray, size: int = 128) -> Iterator[Batch]:
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        yield source.x()[chosen], chosen


class TestData:
    def test_images_compress_like_photographs(self, source: Source) -> None:
        data = source.x()[:256].tobytes()
        assert 1.5 < len(data) / len(numcodecs.Zstd(level=1).encode(data)) < 2.2

    @pytest.mark.parametrize("draw", [images, table])
    def test_same_rows_every_time(self, draw: Callable[..., Source], tmp_path: Path) -> None:
        first, second = draw(tmp_path / "a", 1500), draw(tmp_path / "b", 1500)
        assert np.array_equal(first.x(), second.x())
        assert first.checksum == second.checksum
        assert first.x().shape == (1500, *first.sample_shape)
        # No row like another, so that a wrong one is seen.
        assert len({row.tobytes() for row in first.x()}) == 1500

    def test_folder_with_other_rows_is_refused(self, source: Source) -> None:
        with pytest.raises(SystemExit, match="delete it"):
            images(source.folder, 601)

    def test_checksum_is_that_of_every_row_once(self, source: Source) -> None:
        order = np.random.default_rng(0).permutation(600)
        total = byte_sum(np.ascontiguousarray(source.x()[order])) + byte_sum(order)
        assert total % 2**64 == source.checksum


class TestStores:
    @pytest.mark.parametrize("name", list(KINDS))
    def test_holds_the_rows(self, name: str, source: Source) -> None:
        import oocloader as ooc

        kind = KINDS[name]
        path = make(kind, source)
        with ooc.open_store(loader_source(kind, source, path)) as store:
            assert np.array_equal(store["x"].read(0, 600), source.x())
            assert np.array_equal(store["y"].read(0, 600), np.arange(600))
            assert kind.family == "npy" or store.arrays["x"].chunk_shape == (256, 64, 64, 3)
        assert not list(source.folder.glob("partial*"))

    @pytest.mark.parametrize("name", [kind.name for kind in KINDS.values() if kind.codec != "none"])
    def test_stored_chunks_decode_to_the_rows(self, name: str, source: Source) -> None:
        kind = KINDS[name]
        chunks = stored_chunks(kind, make(kind, source), most=10)
        assert len(chunks) == 2  # the third is not full
        for decoder in decoders(kind.codec).values():
            for number, chunk in enumerate(chunks):
                out = np.zeros(256 * source.row_nbytes, np.uint8)
                decoder(chunk, out)
                expected = source.x()[number * 256 : number * 256 + 256]
                assert np.array_equal(out.reshape(256, 64, 64, 3), expected)


class TestMachine:
    @pytest.mark.parametrize("threads", [1, 2])
    def test_reads_every_byte(self, threads: int, tmp_path: Path) -> None:
        paths = [tmp_path / "a", tmp_path / "b"]
        paths[0].write_bytes(bytes(9 << 20))
        paths[1].write_bytes(bytes(100))
        reader = SequentialReader(paths, threads=threads, buffer_mib=4)
        assert reader.run().nbytes == (9 << 20) + 100
        reader.close()

    def test_decodes_every_chunk(self) -> None:
        chunks = [numcodecs.Zstd().encode(bytes([number]) * 1000) for number in range(5)]
        seen = []

        def decoder(data: Any, out: np.ndarray) -> None:
            numcodecs.Zstd().decode(data, out)
            seen.append(int(out[0]))

        assert decode(chunks, 1000, decoder)().nbytes == 5000
        assert sorted(seen) == [0, 1, 2, 3, 4]

    def test_what_was_read_is_cached(self, tmp_path: Path) -> None:
        path = tmp_path / "a"
        path.write_bytes(bytes(1 << 20))
        warm_cache([path])
        assert cached_share([path]) == 1


class TestCheckFirstBatch:
    def check(self, source: Source, batch: Batch, *, shuffled: bool) -> None:
        check_first_batch(source, [batch], 128, shuffled=shuffled)

    def test_right_ones_pass(self, source: Source) -> None:
        self.check(source, next(batches(source, np.arange(600))), shuffled=False)
        order = np.random.default_rng(0).permutation(600)
        self.check(source, next(batches(source, order)), shuffled=True)

    @pytest.mark.parametrize(
        ("spoil", "shuffled"),
        [
            pytest.param(lambda x, y: (np.roll(x, 1, axis=0), y), False, id="another row"),
            pytest.param(lambda x, y: (x.astype(np.int16), y), False, id="another dtype"),
            pytest.param(lambda x, y: (x, y.astype(np.int32)), False, id="labels of another dtype"),
            pytest.param(lambda x, y: (x[:100], y[:100]), False, id="short"),
            pytest.param(lambda x, y: (x[[0] * 128], y[[0] * 128]), True, id="a row twice"),
            pytest.param(lambda x, y: (x, y), True, id="not shuffled"),
            pytest.param(lambda x, y: (x[::-1], y[::-1]), False, id="not in order"),
        ],
    )
    def test_wrong_ones_do_not(
        self, source: Source, spoil: Callable[[np.ndarray, np.ndarray], Batch], shuffled: bool
    ) -> None:
        x, y = next(batches(source, np.arange(600)))
        with pytest.raises(WrongRowsError):
            self.check(source, spoil(x, y), shuffled=shuffled)


class TestTimePass:
    def test_whole_pass(self, source: Source) -> None:
        order = np.random.default_rng(0).permutation(600)
        timing = time_pass(batches(source, order), source, "read", most_s=None, unit_rows=128)
        assert timing.whole
        assert timing.gb_s > 0

    def test_rows_missing_or_twice(self, source: Source) -> None:
        with pytest.raises(WrongRowsError, match="472 rows"):
            time_pass(batches(source, np.arange(472)), source, "delivered", most_s=None, unit_rows=128)
        twice = np.concatenate([np.arange(599), [0]])
        with pytest.raises(WrongRowsError, match="add up"):
            time_pass(batches(source, twice), source, "read", most_s=None, unit_rows=128)

    def test_cut_pass_is_timed_between_units(self, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
        # 200 rows are made at once and take one second; before the first there are 30 seconds of start.
        now = [0.0]
        monkeypatch.setattr("time.perf_counter", lambda: now[0])

        def slow() -> Iterator[Batch]:
            now[0] += 30
            made = 0
            for x, y in batches(source, np.arange(600), 50):
                while made < int(y[-1]) + 1:
                    made += 200
                    now[0] += 1
                yield x, y

        timing = time_pass(slow(), source, "delivered", most_s=1.5, unit_rows=200)
        assert not timing.whole
        assert timing.gb_s == pytest.approx(200 * (source.row_nbytes + 8) / 1e9)


def contestant(name: str, role: Role, delivered: list[float], read: list[float] | None) -> Contestant:
    values: dict[str, Iterator[float]] = {"delivered": iter(delivered), "read": iter(read or [])}
    modes = MODES if read else MODES[:1]
    return Contestant(name, role, lambda mode: Timing(next(values[mode])), modes)


class TestRunCase:
    def rows(self) -> dict[str, Row]:
        case = Case(
            "load",
            "npy",
            "in order",
            "preadv",
            [
                contestant("oocloader", "oocloader", [9, 8, 1], [6, 2, 5]),
                contestant("slow", "recipe", [1, 1, 1], [0.5, 0.5, 0.5]),
                contestant("fast", "recipe", [3, 3, 3], [2, 2.5, 9]),
                contestant("elsewhere", "other data", [30, 30, 30], [20, 20, 20]),
                contestant("preadv, 1", "machine", [10, 10, 10], None),
                contestant("preadv, 2", "machine", [16, 2, 17], None),
                contestant("memory copy", "machine", [50, 50, 50], None),
            ],
        )
        return {row.contestant: row for row in run_case(case, 3)}

    def test_medians_and_ratios(self) -> None:
        ours = self.rows()["oocloader"]
        assert (ours.delivered_gb_s, ours.read_gb_s) == (8, 5)
        assert ours.yardstick_gb_s == 16
        assert (ours.delivered_to_yardstick, ours.read_to_yardstick) == (8 / 16, 5 / 16)
        # Rows kept in another way do not count as recipes for this store.
        assert (ours.best_recipe, ours.to_best, ours.oocloader_to_this) == ("fast", 5 / 2.5, None)
        assert ours.passes_gb_s == {"delivered": [9, 8, 1], "read": [6, 2, 5]}

    def test_against_each(self) -> None:
        rows = self.rows()
        assert {name: row.oocloader_to_this for name, row in rows.items()} == {
            "oocloader": None,
            "slow": 10,
            "fast": 2,
            "elsewhere": 0.25,
            "preadv, 1": None,
            "preadv, 2": None,
            "memory copy": None,
        }
        assert rows["slow"].to_best == 0.2

    def test_passes_are_taken_in_turn(self) -> None:
        log: list[str] = []

        def noted(name: str, most_passes: int | None = None) -> Contestant:
            def run(mode: Mode) -> Timing:
                log.append(f"{name} {mode}")
                return Timing(1)

            return Contestant(
                name,
                "recipe",
                run,
                prepare=lambda: log.append("prepare"),
                close=lambda: log.append(f"close {name}"),
                most_passes=most_passes,
            )

        run_case(Case("load", "npy", "in order", "", [noted("a"), noted("b", 1)]), 2)
        turn = ["prepare", "a delivered", "prepare", "a read"]
        assert log == [*turn, *[entry.replace("a ", "b ") for entry in turn], *turn, "close a", "close b"]

    def test_nothing_to_compare_with(self) -> None:
        case = Case("load", "npy", "in order", "", [contestant("oocloader", "oocloader", [1], None)])
        [row] = compare(case, {"oocloader": {"delivered": [Timing(1)]}})
        assert (row.yardstick_gb_s, row.delivered_to_yardstick, row.best_recipe, row.to_best) == (None,) * 4


STORES = ("npy", "hdf5-aligned", "zarr-raw", "hdf5-lzf", "hdf5 gzip", "zarr 2 raw")
RECIPES = {
    ("npy", "in order"): {"npy map, by batch", "TFRecord", "in memory"},
    ("npy", "shuffled"): {"npy map, by index", "TFRecord, shuffled", "in memory, shuffled"},
    ("hdf5-aligned", "in order"): {"h5py, by batch", "h5py, by chunk", "PyDataset, h5py"},
    ("hdf5-aligned", "shuffled"): {
        "h5py, by index",
        "PyDataset, h5py, by index",
        "h5py, by window",
        "h5py, tf.data shuffle",
        "TFRecord, shuffled",
    },
    ("zarr-raw", "in order"): {
        "zarr-python, by chunk",
        "zarr-python, by batch",
        "zarrs, by chunk",
        "tensorstore, by chunk",
    },
    ("zarr-raw", "shuffled"): {
        "zarr-python, by window",
        "zarr-python, by index",
        "zarrs, by window",
        "tensorstore, by window",
        "TFRecord, shuffled",
    },
    ("hdf5-lzf", "in order"): {"h5py, by batch", "h5py, by chunk", "PyDataset, h5py"},
}


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "tools/bench.py"), *arguments],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of every subset; the tool itself compares the first batch of every contestant with the rows."""
    folder = tmp_path_factory.mktemp("bench")
    arguments = ["--quick", "--rows=700", "--repeats=1", "--seconds=0.01", f"--folder={folder / 'data'}"]
    arguments += [f"--json={folder / 'out.json'}", f"--plot={folder / 'out.png'}"]
    arguments += [f"--store={store}" for store in STORES]
    result = bench(*arguments)
    assert result.returncode == 0, result.stderr
    (folder / "out.txt").write_text(result.stdout)
    return folder


@pytest.fixture(scope="module")
def found(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "out.json").read_text())
    return found


@pytest.mark.slow
class TestCommand:
    def test_json_says_what_was_run(self, found: dict[str, Any]) -> None:
        assert found["settings"]["rows"] == 700
        assert found["settings"]["stores"] == list(STORES)
        assert found["machine"]["cores"] >= 1
        assert found["machine"]["versions"]["numpy"] == np.__version__
        peers = ("hdf5plugin", "zarrs", "tensorstore")
        assert found["not_installed"] == [name for name in peers if importlib.util.find_spec(name) is None]

    def test_json_has_every_field(self, found: dict[str, Any]) -> None:
        for result in found["results"]:
            assert list(result) == [field.name for field in fields(Row)]
            for mode, passes in result["passes_gb_s"].items():
                assert result[f"{mode}_gb_s"] == statistics.median(passes) > 0
            if result["role"] == "oocloader" and result["subset"] in ("load", "small-rows"):
                assert result["whole"]
                assert result["read_to_yardstick"] == result["read_gb_s"] / result["yardstick_gb_s"]
                assert result["to_best"] > 0

    def test_every_recipe_ran(self, found: dict[str, Any]) -> None:
        ran: dict[tuple[str, str], set[str]] = {}
        for result in found["results"]:
            if result["subset"] == "load" and result["role"] in ("recipe", "other data"):
                ran.setdefault((result["store"], result["order"]), set()).add(result["contestant"])
        absent = tuple(found["not_installed"])
        assert ran == {
            case: {name for name in names if not name.startswith(absent)} if absent else names
            for case, names in RECIPES.items()
        }

    def test_every_subset_ran(self, found: dict[str, Any], out: Path) -> None:
        probe = out / "probe"
        probe.write_bytes(bytes(1 << 20))
        drop_cache([probe])
        memory_only = cached_share([probe]) > 0.01
        expected = {"load", "small-rows", "resident", "many-chunks", "floor"} | (
            set() if memory_only else {"cold"}
        )
        assert {result["subset"] for result in found["results"]} == expected
        assert {row["store"].rpartition(" ")[0] for row in found["results"] if row["subset"] == "floor"} == {
            "",
            "hdf5 gzip",
            "zarr 2 raw",
        }

    def test_table_and_plot(self, out: Path) -> None:
        text = (out / "out.txt").read_text()
        assert "many-chunks (GB/s)" in text
        assert (out / "out.png").read_bytes().startswith(b"\x89PNG")

    def test_data_is_used_again(self, out: Path, found: dict[str, Any]) -> None:
        del found
        began = time.time()
        options = ["--rows=700", "--repeats=1", "--only=load", "--store=hdf5-lzf", "--recipe=by chunk"]
        result = bench(*options, f"--folder={out / 'data'}", f"--json={out / 'again.json'}")
        assert result.returncode == 0, result.stderr
        rows = json.loads((out / "again.json").read_text())["results"]
        assert [row["contestant"] for row in rows if row["role"] != "machine"] == [
            "oocloader",
            "h5py, by chunk",
        ]
        assert (out / "data/images-700/hdf5-lzf.h5").stat().st_mtime < began

    def test_nowhere_to_write(self, tmp_path: Path) -> None:
        result = bench(f"--json={tmp_path / 'no/out.json'}")
        assert result.returncode == 2
        assert "no such folder" in result.stderr
