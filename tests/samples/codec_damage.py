"""Decodes damaged chunks, in a process of its own: `python codec_damage.py damage SEED COUNT`, or `claims`.

Prints a JSON object: what came of them, by codec. A decoder that reads beyond the stored bytes or writes
beyond `out` by a byte ends the process: both lie against pages that may not be touched.
"""

from __future__ import annotations

import bz2
import ctypes
import gzip
import json
import lzma
import mmap
import resource
import struct
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import imagecodecs
import numcodecs
import numpy as np

from codec_samples import HDF5_FILTERS, hdf5_chunks, smooth
from oocloader.codecs import hdf5
from oocloader.codecs.chain import Chain, CodecError
from oocloader.codecs.zarr import v2, v3

STACKS = [
    ("shuffle", "gzip", "fletcher32"),
    ("fletcher32", "zstd"),
    ("lzf", "gzip"),
    ("bitshuffle lz4 blocks", "fletcher32"),
    ("shuffle", "lz4 in blocks", "blosc"),
]

ZARR: dict[str, list[Any]] = {
    "zarr zlib": [numcodecs.Zlib(3)],
    "zarr gzip": [numcodecs.GZip(3)],
    "zarr bz2": [numcodecs.BZ2(1)],
    "zarr lzma": [numcodecs.LZMA()],
    "zarr lzma raw": [numcodecs.LZMA(format=3, filters=[{"id": 33, "preset": 0}])],
    "zarr zstd": [numcodecs.Zstd(3)],
    "zarr zstd with checksum": [numcodecs.Zstd(3, checksum=True)],
    "zarr lz4": [numcodecs.LZ4()],
    "zarr blosc": [numcodecs.Blosc()],
    "zarr blosc zlib": [numcodecs.Blosc("zlib", 3, 2)],
    "zarr shuffle": [numcodecs.Shuffle(4)],
    "zarr crc32": [numcodecs.CRC32()],
    "zarr crc32c": [numcodecs.CRC32C()],
    "zarr adler32": [numcodecs.Adler32()],
    "zarr jenkins_lookup3": [numcodecs.JenkinsLookup3()],
    "zarr delta": [numcodecs.Delta("<i4", "<i2")],
    "zarr fixedscaleoffset": [numcodecs.FixedScaleOffset(3, 10, "<f4", "<i2")],
    "zarr quantize": [numcodecs.Quantize(1, "<f8", "<f4")],
    "zarr astype": [numcodecs.AsType("<f8", "<i4")],
    "zarr packbits": [numcodecs.PackBits()],
    "zarr delta, zstd, crc32c": [numcodecs.Delta("<i4"), numcodecs.Zstd(), numcodecs.CRC32C()],
}


def samples() -> Iterator[tuple[str, Chain, int, bytes, bytes]]:
    """Name, chain, mask, stored and decoded bytes of one good chunk for every codec."""
    data = smooth((13, 5, 31), "<i4")
    for names in [*((name,) for name in HDF5_FILTERS), *STACKS]:
        [chunk] = hdf5_chunks(data, data.shape, [HDF5_FILTERS[name] for name in names])
        yield "hdf5 " + ", ".join(names), chunk.chain, chunk.mask, chunk.stored, chunk.decoded
    # Small blocks, so that those of Blosc2 are laid side by side.
    number, values = HDF5_FILTERS["blosc2"]
    [chunk] = hdf5_chunks(data, data.shape, [(number, (values[0], 512, *values[2:]))])
    yield "hdf5 blosc2 in blocks", chunk.chain, chunk.mask, chunk.stored, chunk.decoded
    for name, codecs in ZARR.items():
        dtype = "?" if "packbits" in name else getattr(codecs[0], "dtype", "<i4")
        encoded: Any = smooth((13 * 5 * 31,), dtype)
        for codec in codecs:
            encoded = codec.encode(encoded)
        decoded: Any = encoded
        for codec in reversed(codecs):
            decoded = codec.decode(decoded)
        configs = [codec.get_config() for codec in codecs]
        chain = v2(configs, None, dtype=np.dtype("<i4"), order="C", chunk_shape=(1,)).chain
        yield name, chain, 0, as_bytes(encoded), as_bytes(decoded)


def as_bytes(encoded: Any) -> bytes:
    """What a codec returned."""
    return encoded.tobytes() if isinstance(encoded, np.ndarray) else bytes(encoded)


def fenced(nbytes: int) -> np.ndarray:
    """`nbytes` of memory before a page that may not be touched."""
    pages = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, pages + mmap.PAGESIZE), np.uint8)
    fence = ctypes.c_void_p(memory.ctypes.data + pages)
    if ctypes.CDLL(None).mprotect(fence, ctypes.c_size_t(mmap.PAGESIZE), 0):
        raise OSError("mprotect failed")
    return memory[pages - nbytes : pages]


def damaged(good: np.ndarray, count: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """`count` variants of `good`: cut, with bits flipped, bytes replaced, or random."""
    for number in range(count):
        bad = good.copy()
        match number % 6:
            case 0:
                bad = bad[: rng.integers(len(bad))]
            case 1:
                bad[rng.integers(len(bad))] ^= 1 << rng.integers(8)
            case 2:  # headers are where sizes are
                for _ in range(rng.integers(1, 4)):
                    bad[rng.integers(min(len(bad), 64))] = rng.integers(256)
            case 3:
                start = rng.integers(len(bad))
                bad[start : start + rng.integers(1, 40)] = rng.integers(256)
            case 4:
                bad = np.concatenate([bad, rng.integers(0, 256, rng.integers(1, 9)).astype(np.uint8)])
            case _:
                bad = rng.integers(0, 256, rng.integers(200)).astype(np.uint8)
                kept = min(len(bad), int(rng.integers(40)))
                bad[:kept] = good[:kept]
        yield bad


def outcomes(seed: int, count: int) -> dict[str, dict[str, int]]:
    """For every codec how many damaged chunks were an error, decoded to the same, or to something else."""
    rng = np.random.default_rng(seed)
    found = {}
    for name, chain, mask, stored, decoded in samples():
        good, expected = np.frombuffer(stored, np.uint8), np.frombuffer(decoded, np.uint8)
        out, source = fenced(len(decoded)), fenced(len(stored) + 16)
        chain.decode(good, out, mask)
        counts: Counter[str] = Counter({"good": int(np.array_equal(out, expected))})
        for bad in damaged(good, count, rng):
            place = source[len(source) - len(bad) :] if len(bad) <= len(source) else bad
            place[:] = bad
            try:
                chain.decode(place, out, mask)
            except CodecError as error:
                counts["error"] += 1
                if not str(error):
                    raise RuntimeError(f"{name}: an error without a message") from error
            else:
                counts["same" if np.array_equal(out, expected) else "other"] += 1
        found[name] = dict(counts)
    return found


def bombs() -> Iterator[tuple[str, Chain, bytes]]:
    """Small chunks that decode, or claim to decode, to 256 MiB or more, where 1000 bytes are expected."""
    huge, zeros = 1 << 28, bytes(1 << 22)
    repeat = huge // len(zeros)

    def squeezed(compressor: Any) -> bytes:
        return b"".join([*(compressor.compress(zeros) for _ in range(repeat)), compressor.flush()])

    zlib_bomb = squeezed(zlib.compressobj(1))
    gzip_bomb = squeezed(zlib.compressobj(1, zlib.DEFLATED, 31))
    yield "gzip", hdf5_chain((1, ())), zlib_bomb
    yield "gzip in gzip", hdf5_chain((1, ()), (1, ())), zlib.compress(zlib_bomb)
    yield "shuffle, gzip", hdf5_chain((2, (4,)), (1, ())), zlib_bomb
    yield "zarr gzip", zarr_chain("gzip"), gzip_bomb
    yield "zarr gzip of many members", zarr_chain("gzip"), gzip.compress(b"") + gzip_bomb
    yield "zarr bz2", zarr_chain("bz2"), bz2.compress(zeros) * repeat
    yield "zarr lzma", zarr_chain("lzma"), lzma.compress(zeros, preset=0) * repeat
    zstd = bytes(imagecodecs.zstd_encode(zeros))
    yield "zstd", hdf5_chain((32015, ())), zstd * repeat
    claim = zstd[:4] + b"\xe0" + struct.pack("<Q", 1 << 40) + zstd[9:]
    yield "zstd whose header claims", hdf5_chain((32015, ())), claim
    yield "lzf", hdf5_chain((32000, ())), bytes(imagecodecs.lzf_encode(zeros))
    yield "lz4", hdf5_chain((32004, ())), struct.pack(">qii", 1 << 40, 1 << 30, 4) + b"\0" * 4
    yield "zarr lz4", zarr_chain("lz4"), struct.pack("<I", huge) + b"\0" * 8
    yield "szip", hdf5_chain((4, (4, 8, 8, 64))), struct.pack("<I", huge) + b"\0" * 8
    blosc = struct.pack("<BBBBiii", 2, 1, 0, 1, huge, huge, 24) + b"\0" * 8
    yield "blosc", hdf5_chain((32001, ())), blosc
    [chunk] = hdf5_chunks(smooth((1000,), "u1"), (1000,), [HDF5_FILTERS["blosc2"]])
    inside = int.from_bytes(chunk.stored[11:15], "big")
    for name, place, claim in (
        ("blosc2", 30, struct.pack(">q", 1 << 40)),
        ("blosc2 chunk", inside + 4, struct.pack("<i", huge)),
    ):
        yield name, chunk.chain, chunk.stored[:place] + claim + chunk.stored[place + len(claim) :]
    for inner in (2, 3):
        stored = struct.pack(">qii", 1 << 40, 1 << 30, 4) + b"\0" * 4
        yield f"bitshuffle {inner}", hdf5_chain((32008, (0, 4, 1, 0, inner))), stored
    crc = v3(["bytes", "zstd", "crc32c"], dtype=np.dtype("u1"), chunk_shape=(1000,))
    stored = zstd * repeat
    yield "zarr zstd, crc32c", crc.chain, bytes(numcodecs.CRC32C().encode(stored))  # type: ignore[union-attr]


def hdf5_chain(*filters: tuple[int, tuple[int, ...]]) -> Chain:
    entries = [(number, 0, values, b"") for number, values in filters]
    return hdf5.chain(entries, dtype=np.dtype("u1"), chunk_shape=(1000,))


def zarr_chain(codec: str) -> Chain:
    return v2(None, {"id": codec}, dtype=np.dtype("u1"), order="C", chunk_shape=(1000,)).chain


def claims() -> dict[str, str]:
    """What is raised for each bomb, with 64 MiB of memory to spare."""
    ready = list(bombs())
    with open("/proc/self/statm") as status:
        pages = int(status.read().split()[0])
    limit = pages * mmap.PAGESIZE + (64 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    found = {}
    for name, chain, stored in ready:
        out = np.empty(1000, np.uint8)
        try:
            chain.decode(np.frombuffer(stored, np.uint8), out)
            found[name] = "decoded"
        except CodecError as error:
            found[name] = str(error)
    return found


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    result = claims() if command == "claims" else outcomes(int(rest[0]), int(rest[1]))
    print(json.dumps(result))  # noqa: T201 - a program that prints
