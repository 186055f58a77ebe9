"""HDF5 pipelines, against h5py and hdf5plugin: what these write is decoded to what they read."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import h5py
import hdf5plugin
import imagecodecs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codec_samples import (
    HDF5_FILTERS,
    FilterSpec,
    assert_equal_to_h5py,
    dataset_with,
    decode,
    hdf5_chunks,
    noise,
    pipeline,
    smooth,
)
from oocloader.codecs import hdf5
from oocloader.codecs.blosc2 import Blosc2
from oocloader.codecs.chain import Chain, NoChain

DTYPES = ("u1", "?", "<i2", ">i4", "<f4", ">f8", "<c8", "<c16")
SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((1003,), (334,)),
    ((20, 33), (7, 11)),
    ((9, 20, 6), (4, 20, 5)),
)


# HDF5 itself has no szip for complex numbers.
SINGLE = [(name, dtype) for name in HDF5_FILTERS for dtype in DTYPES if name != "szip" or "c" not in dtype]


@pytest.mark.parametrize("make", [smooth, noise])
@pytest.mark.parametrize(("name", "dtype"), SINGLE)
def test_every_filter_decodes_to_what_h5py_reads(name: str, dtype: str, make: Any) -> None:
    for shape, chunk_shape in SHAPES:
        assert_equal_to_h5py(list(hdf5_chunks(make(shape, dtype), chunk_shape, [HDF5_FILTERS[name]])))


STACKS: list[tuple[str, ...]] = [
    ("shuffle", "gzip"),
    ("shuffle", "lzf"),
    ("shuffle", "zstd", "fletcher32"),
    ("gzip", "shuffle"),
    ("fletcher32", "gzip"),
    ("fletcher32", "shuffle", "gzip"),
    ("shuffle", "fletcher32"),
    ("gzip", "fletcher32"),
    ("lzf", "fletcher32"),
    ("szip", "fletcher32"),
    ("shuffle", "szip", "fletcher32"),
    ("bitshuffle", "lz4"),
    ("bitshuffle blocks", "zstd", "fletcher32"),
    ("bitshuffle lz4", "fletcher32"),
    ("bitshuffle lz4 blocks", "gzip"),
    ("fletcher32", "bitshuffle zstd"),
    ("shuffle", "blosc", "fletcher32"),
    ("blosc2", "fletcher32"),
    ("fletcher32", "blosc2"),
    ("shuffle", "blosc2 zstd"),
    ("lzf", "gzip"),
    ("gzip", "zstd", "bzip2"),
    ("lz4 in blocks", "bitshuffle", "lz4"),
    ("shuffle", "lz4 in blocks", "gzip", "fletcher32"),
]


@pytest.mark.parametrize("make", [smooth, noise])
@pytest.mark.parametrize("names", STACKS, ids="+".join)
def test_stacked_filters_decode_to_what_h5py_reads(names: tuple[str, ...], make: Any) -> None:
    for dtype in ("u1", "<i4", ">f8"):
        for shape, chunk_shape in SHAPES:
            filters = [HDF5_FILTERS[name] for name in names]
            assert_equal_to_h5py(list(hdf5_chunks(make(shape, dtype), chunk_shape, filters)))


# hdf5plugin's filters corrupt memory of their own where they follow one that leaves another number of bytes
# than they were told a chunk has, and szip loses bytes of what is no whole element. So one of them comes
# first, or behind filters that keep the size; what HDF5 brings itself may follow in any order.
PLUGINS = sorted(name for name, (number, _) in HDF5_FILTERS.items() if number >= 307 and name != "lzf")
SAME_SIZE = st.sampled_from([(), ("shuffle",), ("bitshuffle blocks",), ("bitshuffle", "shuffle")])
BUILT_IN = st.lists(st.sampled_from(["shuffle", "gzip", "lzf", "fletcher32"]), max_size=3, unique=True)


@st.composite
def stacks(draw: st.DrawFn) -> list[str]:
    names = [*draw(SAME_SIZE), draw(st.sampled_from(PLUGINS)), *draw(BUILT_IN)]
    found: dict[int, str] = {}
    for name in names:
        found.setdefault(HDF5_FILTERS[name][0], name)
    return list(found.values())


@settings(max_examples=150)
@given(
    names=st.one_of(stacks(), BUILT_IN.filter(bool)),
    dtype=st.sampled_from(DTYPES),
    shapes=st.sampled_from(SHAPES),
    make=st.sampled_from([smooth, noise]),
    seed=st.integers(0, 1000),
)
def test_any_stack_decodes_to_what_h5py_reads(
    names: list[str], dtype: str, shapes: tuple[tuple[int, ...], tuple[int, ...]], make: Any, seed: int
) -> None:
    filters = [HDF5_FILTERS[name] for name in names]
    assert_equal_to_h5py(list(hdf5_chunks(make(shapes[0], dtype, seed), shapes[1], filters)))


def shuffled(data: bytes, itemsize: int) -> bytes:
    whole = len(data) // itemsize * itemsize
    return np.frombuffer(data[:whole], "u1").reshape(-1, itemsize).T.tobytes() + data[whole:]


def summed(data: bytes) -> bytes:
    return data + imagecodecs.h5checksum_fletcher32(data).to_bytes(4, "little")


@settings(max_examples=60)
@given(
    mask=st.integers(0, 0b1111),
    dtype=st.sampled_from(["u1", "<i4", ">f8"]),
    order=st.permutations(["shuffle", "gzip", "fletcher32", "lzf"]),
)
def test_masked_filters_are_skipped_as_h5py_skips_them(mask: int, dtype: str, order: list[str]) -> None:
    data = smooth((600,), dtype)
    encoders: dict[str, Callable[[bytes], bytes]] = {
        "shuffle": lambda stored: shuffled(stored, data.itemsize),
        "gzip": lambda stored: bytes(imagecodecs.zlib_encode(stored)),
        "lzf": lambda stored: bytes(imagecodecs.lzf_encode(stored)),
        "fletcher32": summed,
    }
    stored = data.tobytes()
    for place, name in enumerate(order):
        if not mask >> place & 1:
            stored = encoders[name](stored)
    memory = io.BytesIO()
    with h5py.File(memory, "w") as file:
        dataset = dataset_with(file, data.shape, data.dtype, [HDF5_FILTERS[name] for name in order])
        dataset.id.write_direct_chunk((0,), stored, mask)
    with h5py.File(memory) as file:  # opened again: HDF5 remembers the mask of a chunk it has not written
        np.testing.assert_array_equal(file["x"][...], data)
        chain = hdf5.chain(pipeline(file["x"]), dtype=data.dtype, chunk_shape=data.shape)
    assert decode(chain, stored, data.nbytes, mask) == data.tobytes()


def make_chain(*entries: FilterSpec) -> Chain:
    filters = [(number, 0, values, b"") for number, values in entries]
    return hdf5.chain(filters, dtype=np.dtype("<i4"), chunk_shape=(10, 4))


def test_names_and_bits_are_those_of_the_pipeline() -> None:
    chain = make_chain((2, (4,)), (1, (4,)), (3, ()))
    assert chain.names == ("shuffle", "gzip", "fletcher32")
    assert [step.name for step in chain.steps] == ["fletcher32", "gzip", "shuffle"]
    assert chain.bits == (2, 1, 0)
    assert make_chain().raw


@pytest.mark.parametrize(
    ("entry", "name", "package"),
    [
        ((5, (8, 1)), "nbit", None),
        ((6, (2, 0)), "scaleoffset", None),
        ((32013, (1,)), "zfp", "hdf5plugin"),
        ((32019, ()), "jpeg", None),
        ((40000, (1, 2)), "filter 40000", None),
        ((32001, (2, 2, 4, 160, 5, 1, 3)), "blosc", "hdf5plugin"),  # snappy
        ((32008, (0, 4, 4, 0, 9)), "bitshuffle", "hdf5plugin"),  # a compressor that does not exist
        ((32008, (0, 4, 4, 12, 2)), "bitshuffle", "hdf5plugin"),  # blocks that cut a group of eight
        ((4, (4, 0, 8, 8)), "szip", None),
        ((4, ()), "szip", None),
    ],
)
def test_filters_that_are_not_decoded_here_are_named(
    entry: tuple[int, tuple[int, ...]], name: str, package: str | None
) -> None:
    with pytest.raises(NoChain) as caught:
        make_chain((2, (4,)), entry)
    assert caught.value.codec == entry[0]
    assert caught.value.package == package
    assert str(entry[0]) in caught.value.reason
    assert name in caught.value.reason


def test_the_name_in_the_file_is_told_for_filters_that_nobody_registered() -> None:
    with pytest.raises(NoChain, match=r"filter 40001 \(acme wavelets\)"):
        hdf5.chain([(40001, 0, (), b"acme wavelets")], dtype=np.dtype("u1"), chunk_shape=(4,))


def test_a_pipeline_without_client_values_takes_the_element_size_of_the_dtype() -> None:
    data = smooth((10, 4), "<i4")
    shuffled = data.reshape(-1).view("u1").reshape(-1, 4).T.tobytes()
    assert decode(make_chain((2, ())), shuffled, data.nbytes) == data.tobytes()


def test_threads_decode_at_the_same_time_with_scratch_of_their_own() -> None:
    names = ("shuffle", "bitshuffle lz4", "gzip", "fletcher32")
    filters = [HDF5_FILTERS[name] for name in names]
    sizes = [3000 + 100 * number for number in range(6)]
    chunks = [next(hdf5_chunks(smooth((size,), "<i4", size), (size,), filters)) for size in sizes]
    wrong: list[int] = []

    def work(number: int) -> None:
        chunk = chunks[number]
        out = np.empty(len(chunk.decoded), np.uint8)
        for _ in range(200):
            out[:] = 0
            chunk.chain.decode(np.frombuffer(chunk.stored, np.uint8), out, chunk.mask)
            if out.tobytes() != chunk.decoded:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(chunks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_scratch_of_a_compressed_bitshuffle_is_counted() -> None:
    chain = make_chain((32008, (0, 4, 4, 0, 2)))
    assert chain.scratch_nbytes(1000) == 1000
    assert Blosc2((10, 4), 4).scratch(160) == 640


def test_no_filter_plugin_is_needed_to_decode() -> None:
    [chunk] = hdf5_chunks(smooth((300,), "<i4"), (300,), [HDF5_FILTERS["bitshuffle lz4"]])
    program = f"""
import sys, numpy as np
from oocloader.codecs import hdf5
chain = hdf5.chain([(32008, 0, (0, 4, 4, 0, 2), b"")], dtype=np.dtype("<i4"), chunk_shape=(300,))
out = np.empty(1200, np.uint8)
chain.decode(np.frombuffer({chunk.stored!r}, np.uint8), out)
assert out.tobytes() == {chunk.decoded!r}
assert not {{"hdf5plugin", "h5py", "zarr", "tensorflow"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_every_filter_of_hdf5plugin_is_in_the_table() -> None:
    classes = [getattr(hdf5plugin, name) for name in hdf5plugin.__all__]
    found = {item.filter_id for item in classes if hasattr(item, "filter_id")}
    assert len(found) >= 11
    assert found == {number for number, (_, package) in hdf5.FILTERS.items() if package == "hdf5plugin"}
