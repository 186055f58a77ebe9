"""`tools/bench.py convert`: how fast the converter writes, against `cp` and other tools, in how much memory.

Every conversion is a process of its own, as the command is; libraries are imported before it is timed.
`sync` comes before each, so that none waits for what another wrote, and a file is written and removed, so
that none waits for memory that others had; the best of several counts. The time is that of writing: reading
a sample back and waiting for the disk are shown apart.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmark import machine
from benchmark.data import images
from benchmark.peers import load, missing

ROWS = 80_000
_QUICK_ROWS = 2048
# Chunks that hold a part of many rows each.
_ACROSS_CHUNK = (4096, 16, 16, 3)
_ENCODED_ROWS = 80
# What is written, a temporary file, and some more.
_MEMORY = 2.5
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Figure:
    """What one contestant did: GB/s of rows, best and all, and the ratio wanted of it.

    `peak_mib` is the resident memory above that of the imported libraries. `met` is `None` where nothing is
    judged: what others did, and quick runs.
    """

    name: str
    gb_s: float
    all_gb_s: list[float] = field(default_factory=list)
    to_cp: float | None = None
    wanted: str = ""
    peak_mib: float | None = None
    peak_wanted_mib: int | None = None
    checking_s: float | None = None
    syncing_s: float | None = None
    met: bool | None = None


@dataclass(frozen=True, slots=True)
class _Conversion:
    """A conversion of the source of that name, and what is wanted of it: so many times `cp` or others."""

    name: str
    source: str
    suffix: str
    options: dict[str, Any]
    peak_mib: int
    to_cp: float | None = None
    to_others: dict[str, float] = field(default_factory=dict)


_ZSTD = {"zstd-1 encoding alone": 0.85, "h5py zstd-1": 2.0, "zarr-python zstd-1": 4.0}
_CONVERSIONS = (
    _Conversion("raw Zarr", "npy", ".zarr", {}, 200, 0.9),
    _Conversion("raw HDF5", "npy", ".h5", {}, 200, 0.85),
    _Conversion("zstd-1 Zarr", "npy", ".zarr", {"codec": "zstd:1", "shards": "none"}, 300, to_others=_ZSTD),
    _Conversion("zstd-1 Zarr, sharded", "npy", ".zarr", {"codec": "zstd:1"}, 300, to_others=_ZSTD),
    _Conversion("zstd-1 HDF5", "npy", ".h5", {"codec": "zstd:1"}, 300, to_others=_ZSTD),
    _Conversion("raw Zarr from Fortran order", "fortran", ".zarr", {}, 400, 0.1),
    _Conversion("raw Zarr from chunks across rows", "across", ".zarr", {}, 400, 0.25),
    _Conversion("raw Zarr, shuffled", "npy", ".zarr", {"shuffle": 1}, 400, 0.2),
)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.py convert", description=__doc__)
    add = parser.add_argument
    add("--rows", type=int, help=f"images of 64x64x3 bytes ({ROWS}, which are 983 MB)")
    add("--repeats", type=int, help="of each contestant, of which the best counts (5)")
    add("--only", action="append", metavar="TEXT", help="conversions with this text in their name")
    add("--folder", type=Path, help="keep the data there and use it again (a temporary folder)")
    add("--quick", action="store_true", help="small data, once each: to try the tool, not to compare")
    add("--json", type=Path, metavar="FILE", help="write the results")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    rows = options.rows or (_QUICK_ROWS if options.quick else ROWS)
    repeats = options.repeats or (1 if options.quick else 5)
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
        figures = compare(options.folder, rows, repeats, options.only)
    else:
        with tempfile.TemporaryDirectory(prefix="oocloader-bench-") as folder:
            figures = compare(Path(folder), rows, repeats, options.only)
    if options.quick:
        # So little data is no measure of what is wanted of 983 MB.
        figures = [replace(one, met=None) for one in figures]
    megabytes = rows * 64 * 64 * 3 / 1e6
    print(f"{rows:,} rows, {megabytes:,.0f} MB; best of {repeats}; load {os.getloadavg()[0]:.1f}")
    print(table(figures))
    if options.json is not None:
        about = {"machine": machine.describe(), "rows": rows, "repeats": repeats, "quick": options.quick}
        options.json.write_text(json.dumps({**about, "figures": [asdict(one) for one in figures]}, indent=2))
    return 0


def compare(folder: Path, rows: int, repeats: int, only: list[str] | None) -> list[Figure]:
    """Run every contestant `repeats` times, in turn."""
    taken = [one for one in _CONVERSIONS if not only or any(text in one.name for text in only)]
    sources = make_sources(folder, rows, {one.source for one in taken})
    x: np.ndarray = np.load(sources["npy"], mmap_mode="r")
    nbytes = x.nbytes
    del x
    others = {name for one in taken for name in one.to_others}
    plain: dict[str, Callable[[], float]] = {"cp": lambda: _copy(sources["npy"], folder)}
    if "zstd-1 encoding alone" in others:
        plain["zstd-1 encoding alone"] = lambda: _encode(sources["npy"])
    if "h5py zstd-1" in others and not missing(["hdf5plugin"]):
        plain["h5py zstd-1"] = lambda: _other(folder, sources["npy"], "h5py")
    if "zarr-python zstd-1" in others:
        plain["zarr-python zstd-1"] = lambda: _other(folder, sources["npy"], "zarr-python")
    seconds: dict[str, list[float]] = {name: [] for name in plain}
    reports: dict[str, list[dict[str, float]]] = {one.name: [] for one in taken}
    for number in range(repeats):
        print(f"round {number + 1} of {repeats}", file=sys.stderr, flush=True)
        # Once: memory that is dropped may go back to the host of a virtual machine.
        machine.warm_cache(list(sources.values()), anew=number == 0)
        prepare = partial(_prepare, folder, int(_MEMORY * nbytes))
        for name, run in plain.items():
            prepare()
            seconds[name].append(run())
        for one in taken:
            reports[one.name].append(_convert(sources[one.source], folder, one, prepare))
    best = {name: min(found) for name, found in seconds.items()}
    figures = [
        Figure(name, nbytes / best[name] / 1e9, [nbytes / s / 1e9 for s in found])
        for name, found in seconds.items()
    ]
    return figures + [_figure(one, reports[one.name], nbytes, best) for one in taken]


def _prepare(folder: Path, nbytes: int) -> None:
    os.sync()
    machine.back_memory(folder, nbytes)


def _figure(one: _Conversion, reports: list[dict[str, float]], nbytes: int, best: dict[str, float]) -> Figure:
    fastest = min(reports, key=lambda report: report["writing_s"])
    seconds = fastest["writing_s"]
    wanted = {"cp": one.to_cp} if one.to_cp is not None else one.to_others
    ratios = {name: best[name] / seconds for name in wanted if name in best}
    peak = max(report["peak_mib"] for report in reports)
    return Figure(
        one.name,
        nbytes / seconds / 1e9,
        [nbytes / report["writing_s"] / 1e9 for report in reports],
        to_cp=best["cp"] / seconds,
        wanted=", ".join(f"{ratios[name]:.2f} of {name} ({wanted[name]:g})" for name in ratios),
        peak_mib=peak,
        peak_wanted_mib=one.peak_mib,
        checking_s=fastest["checking_s"],
        syncing_s=fastest["syncing_s"],
        met=all(ratios[name] >= (wanted[name] or 0) for name in ratios) and peak < one.peak_mib,
    )


def table(found: list[Figure]) -> str:
    """The figures for people."""
    lines = [f"{'':34} {'GB/s':>6} {'of cp':>6} {'MiB':>5} {'check':>6} {'sync':>6}  measured (wanted)"]
    for one in found:
        peak = "" if one.peak_mib is None else f"{one.peak_mib:.0f}"
        to_cp = "" if one.to_cp is None else f"{one.to_cp:.2f}"
        after = ["" if value is None else f"{value:.2f} s" for value in (one.checking_s, one.syncing_s)]
        verdict = ""
        if one.peak_wanted_mib is not None:
            verdict = f"{one.wanted}; under {one.peak_wanted_mib} MiB"
        if one.met is not None:
            verdict += ": met" if one.met else ": NOT MET"
        figures = f"{one.gb_s:6.2f} {to_cp:>6} {peak:>5} {after[0]:>6} {after[1]:>6}"
        lines.append(f"{one.name:34} {figures}  {verdict}".rstrip())
    return "\n".join(lines)


def make_sources(folder: Path, rows: int, kinds: set[str]) -> dict[str, Path]:
    """The same rows as `.npy`, in Fortran order and in chunks across rows: those of `kinds`, and `.npy`."""
    source = images(folder / f"images-{rows}", rows)
    found = {"npy": source.x_path}
    x = source.x()
    if "fortran" in kinds:
        found["fortran"] = path = source.folder / "fortran.npy"
        if not path.exists():
            made = np.lib.format.open_memmap(path, "w+", x.dtype, x.shape, fortran_order=True)
            for start in range(0, rows, 4096):
                made[start : start + 4096] = x[start : start + 4096]
            made.flush()
    if "across" in kinds:
        import h5py

        found["across"] = path = source.folder / "across.h5"
        if not path.exists():
            chunks = (min(rows, _ACROSS_CHUNK[0]), *_ACROSS_CHUNK[1:])
            with h5py.File(path, "w") as file:
                made = file.create_dataset("x", x.shape, x.dtype, chunks=chunks)
                for start in range(0, rows, chunks[0]):
                    made[start : start + chunks[0]] = x[start : start + chunks[0]]
    return found


def _copy(source: Path, folder: Path) -> float:
    target = folder / "copy.npy"
    began = time.perf_counter()
    subprocess.run(["cp", source, target], check=True)
    seconds = time.perf_counter() - began
    target.unlink()
    return seconds


def _encode(source: Path) -> float:
    """Seconds that zstd takes for every chunk, on all cores, writing nothing."""
    imagecodecs = load("imagecodecs")
    x: np.ndarray = np.load(source, mmap_mode="r")
    cores = machine.cpu_count()
    chunk_origins = range(0, len(x), _ENCODED_ROWS)

    def work(first: int) -> None:
        rows = np.empty((_ENCODED_ROWS, *x.shape[1:]), x.dtype)
        out = np.empty(2 * rows.nbytes, np.uint8)
        for start in chunk_origins[first::cores]:
            found = x[start : start + _ENCODED_ROWS]
            rows[: len(found)] = found
            imagecodecs.zstd_encode(rows, level=1, out=out)

    with ThreadPoolExecutor(cores) as pool:
        began = time.perf_counter()
        list(pool.map(work, range(cores)))
        return time.perf_counter() - began


def _other(folder: Path, source: Path, library: str) -> float:
    """Seconds that writing the same chunks with a library takes, as its documentation shows it."""
    x: np.ndarray = np.load(source, mmap_mode="r")
    chunks = (_ENCODED_ROWS, *x.shape[1:])
    target = folder / f"other{'.h5' if library == 'h5py' else '.zarr'}"
    step = _ENCODED_ROWS * 8
    try:
        if library == "h5py":
            import h5py

            options = load("hdf5plugin").Zstd(clevel=1)
            began = time.perf_counter()
            with h5py.File(target, "w") as file:
                made = file.create_dataset("x", x.shape, x.dtype, chunks=chunks, **options)
                for start in range(0, len(x), step):
                    made[start : start + step] = x[start : start + step]
        else:
            import zarr
            from zarr.codecs import ZstdCodec

            began = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                array: Any = zarr.create_array(
                    target, shape=x.shape, dtype=x.dtype, chunks=chunks, compressors=[ZstdCodec(level=1)]
                )
                for start in range(0, len(x), step):
                    array[start : start + step] = x[start : start + step]
        return time.perf_counter() - began
    finally:
        _remove(target)


_CHILD = """
import json, sys
import h5py, imagecodecs, numcodecs, tqdm, zarr
import oocloader.conversion.hdf5_writer, oocloader.conversion.zarr_writer
import oocloader.stores.hdf5.store, oocloader.stores.zarr.store
from oocloader import convert

def memory(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(key)) / 1024

source, destination, options = json.loads(sys.argv[1])
before = memory("VmRSS")
print("ready", flush=True)
input()
report = convert(source, destination, **options)
print(json.dumps({
    "writing_s": report.seconds_writing,
    "checking_s": report.seconds_checking,
    "syncing_s": report.seconds_syncing,
    "peak_mib": memory("VmHWM") - before,
}))
"""


def _convert(source: Path, folder: Path, one: _Conversion, prepare: Callable[[], None]) -> dict[str, float]:
    """Seconds of its parts, and peak memory, of one conversion in a process of its own.

    `prepare` is called when that is about to begin.
    """
    target = folder / f"converted{one.suffix}"
    command = [sys.executable, "-c", _CHILD, json.dumps([str(source), str(target), one.options])]
    try:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            child.stdout.readline()
            prepare()
            out, _ = child.communicate("\n")
    finally:
        _remove(target)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    found: dict[str, float] = json.loads(out)
    return found


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
