"""What the machine can do: read from the page cache, copy, decode, read a cold file."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import imagecodecs
import numcodecs
import numpy as np

MIB = 1 << 20
BUFFER_MIB = (4, 16, 64)
# Larger than the caches, small enough to hold in memory.
_CODEC_NBYTES = 256 * MIB
_COPY_NBYTES = 64 * MIB
_CAT_NBYTES = 128 << 10


@dataclass(frozen=True, slots=True)
class Amount:
    """Bytes that went through, and the seconds it took."""

    nbytes: int
    seconds: float


@functools.cache
def warm_memory(nbytes: int, number: int = 0) -> np.ndarray:
    """uint8, every page touched: always the same for the same arguments, since touching takes time."""
    memory = np.empty(nbytes, np.uint8)
    memory[:] = 1
    return memory


class SequentialReader:
    """Reads a file whole into warm buffers with `preadv`, on `threads` threads."""

    def __init__(self, paths: Sequence[Path], *, threads: int, buffer_mib: int) -> None:
        self._fds = [os.open(path, os.O_RDONLY) for path in paths]
        self._buffers = [
            warm_memory(max(BUFFER_MIB) * MIB, number)[: buffer_mib * MIB] for number in range(threads)
        ]
        self._pool = ThreadPoolExecutor(threads)
        step = buffer_mib * MIB
        jobs = [(fd, start) for fd in self._fds for start in range(0, os.fstat(fd).st_size, step)]
        self._shares = [jobs[number::threads] for number in range(threads)]

    def run(self) -> Amount:
        began = time.perf_counter()
        nbytes = sum(self._pool.map(self._read, self._buffers, self._shares))
        return Amount(nbytes, time.perf_counter() - began)

    def close(self) -> None:
        self._pool.shutdown()
        for fd in self._fds:
            os.close(fd)

    @staticmethod
    def _read(buffer: np.ndarray, jobs: Sequence[tuple[int, int]]) -> int:
        return sum(os.preadv(fd, [buffer.data], start) for fd, start in jobs)


def copy_memory() -> Callable[[], Amount]:
    """Copies between two warm buffers, each core its own part."""
    cores = cpu_count()
    source, target = warm_memory(_COPY_NBYTES, 0), warm_memory(_COPY_NBYTES, 1)
    parts = list(zip(np.array_split(target, cores), np.array_split(source, cores), strict=True))
    pool = ThreadPoolExecutor(cores)

    def run() -> Amount:
        began = time.perf_counter()
        for _ in range(4):
            list(pool.map(lambda part: np.copyto(*part), parts))
        return Amount(4 * _COPY_NBYTES, time.perf_counter() - began)

    return run


def decoders(codec: str) -> dict[str, Callable[[Any, np.ndarray], Any]]:
    """Ways to decode a chunk into `out`, by name."""
    return {
        "zstd": {
            "numcodecs zstd": lambda data, out: numcodecs.Zstd().decode(data, out),
            "imagecodecs zstd": lambda data, out: imagecodecs.zstd_decode(data, out=out),
        },
        "gzip": {
            "numcodecs zlib": lambda data, out: numcodecs.Zlib().decode(data, out),
            "imagecodecs zlib-ng": lambda data, out: imagecodecs.zlibng_decode(data, out=out),
            "imagecodecs libdeflate": lambda data, out: imagecodecs.deflate_decode(data, out=out),
        },
        "lzf": {"imagecodecs lzf": lambda data, out: imagecodecs.lzf_decode(data, out=out)},
    }[codec]


def codec_chunks(chunk_nbytes: int) -> int:
    """How many chunks `decode` is given."""
    return max(cpu_count(), _CODEC_NBYTES // chunk_nbytes)


def decode(
    chunks: Sequence[bytes], chunk_nbytes: int, decoder: Callable[[Any, np.ndarray], Any]
) -> Callable[[], Amount]:
    """Decodes all chunks on all cores, each thread into an `out` that it uses again."""
    cores = cpu_count()
    pool = ThreadPoolExecutor(cores)
    outs = [warm_memory(chunk_nbytes, number) for number in range(cores)]

    def work(number: int) -> None:
        for chunk in chunks[number::cores]:
            decoder(chunk, outs[number])

    def run() -> Amount:
        began = time.perf_counter()
        list(pool.map(work, range(cores)))
        return Amount(len(chunks) * chunk_nbytes, time.perf_counter() - began)

    return run


def back_memory(folder: Path, nbytes: int) -> None:
    """Have so much memory at hand for files that will be written to `folder`, as far as there is.

    A virtual machine gives free memory back to its host, and waits for it when it is used again: 2 seconds
    a gigabyte were seen. Of a file that was written and removed it is used again at once; that of an array
    that was freed was not.
    """
    left = min(nbytes, _available_nbytes() // 2)
    zeros = memoryview(bytes(4 * MIB))
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        while left > 0:
            left -= file.write(zeros[:left])


def _available_nbytes() -> int:
    found = _first("/proc/meminfo", "MemAvailable").split()
    return int(found[0]) * 1024 if found else 1 << 30


def warm_cache(paths: Sequence[Path], *, anew: bool = True) -> None:
    """Read files into the page cache, as `cat` does, `anew` from the disk.

    How fast a file is read from there depends on how it came there (on Linux 6.18: 7 GB/s where it was
    written through a mapping, 30 where it was read); so all come the same way.
    """
    if anew:
        drop_cache(paths)
    buffer = np.empty(_CAT_NBYTES, np.uint8)
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer.data):
                pass


def drop_cache(paths: Sequence[Path]) -> None:
    """Drop files from the page cache, what was written to them first."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def cached_share(paths: Sequence[Path]) -> float:
    """Share of the pages of these files that is in the page cache."""
    cached = pages = 0
    mincore = ctypes.CDLL(None, use_errno=True).mincore
    for path in paths:
        with open(path, "rb") as file:
            nbytes = os.fstat(file.fileno()).st_size
            if nbytes == 0:
                continue
            # A private mapping may be asked about by anybody who may read the file.
            with mmap.mmap(file.fileno(), nbytes, mmap.MAP_PRIVATE) as mapped:
                count = -(-nbytes // mmap.PAGESIZE)
                seen = (ctypes.c_ubyte * count)()
                anchor = ctypes.c_char.from_buffer(mapped)
                code = mincore(ctypes.c_void_p(ctypes.addressof(anchor)), ctypes.c_size_t(nbytes), seen)
                del anchor
                if code:
                    raise OSError(ctypes.get_errno(), f"mincore of {path}")
                cached += sum(page & 1 for page in bytes(seen))
                pages += count
    return cached / max(1, pages)


def cpu_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe() -> dict[str, Any]:
    """Processor, memory, load, and versions of what is measured."""
    return {
        "processor": _first("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": cpu_count(),
        "memory": _first("/proc/meminfo", "MemTotal"),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load": list(os.getloadavg()),
        "versions": {name: found for name in _PACKAGES if (found := _version(name)) is not None},
    }


_PACKAGES = (
    "oocloader", "tensorflow", "keras", "numpy", "h5py", "zarr", "numcodecs", "imagecodecs",
    "hdf5plugin", "zarrs", "tensorstore",
)  # fmt: skip


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _first(path: str, key: str) -> str:
    try:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name.strip() == key:
                    return value.strip()
    except OSError:
        pass
    return ""
