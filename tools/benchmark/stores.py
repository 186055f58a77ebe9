"""The stores that are read: the same rows in every kind of file."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import zarr
from zarr.codecs import ZstdCodec

import oocloader as ooc
from benchmark.data import Source
from benchmark.peers import load

Family = Literal["npy", "hdf5", "zarr", "tfrecord"]
TFRECORD_FILES = 8
SHARD_CHUNKS = 16


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of store: `write(source, path)` makes one of it; `needs` names packages that reading takes."""

    name: str
    family: Family
    suffix: str
    codec: Literal["none", "zstd", "gzip", "lzf"]
    write: Callable[[Source, Path], None]
    needs: tuple[str, ...] = ()


def _write_npy(source: Source, path: Path) -> None:
    del source, path  # the source is one


def _converted(codec: str) -> Callable[[Source, Path], None]:
    def write(source: Source, path: Path) -> None:
        arrays = {"x": str(source.x_path), "y": str(source.y_path)}
        ooc.convert(arrays, path, codec=codec, chunk_rows=source.chunk_rows)

    return write


def _by_h5py(**options: Any) -> Callable[[Source, Path], None]:
    def write(source: Source, path: Path) -> None:
        with h5py.File(path, "w") as file:
            chunks = (source.chunk_rows, *source.sample_shape)
            shape = (source.rows, *source.sample_shape)
            dataset = file.create_dataset("x", shape, source.dtype, chunks=chunks, **options)
            for start, piece in pieces(source.x(), source.chunk_rows):
                dataset[start : start + len(piece)] = piece
            file["y"] = source.y()

    return write


def _write_sharded(source: Source, path: Path) -> None:
    group = zarr.create_group(path)
    array: Any = group.create_array(
        "x",
        shape=(source.rows, *source.sample_shape),
        dtype=source.dtype,
        chunks=(source.chunk_rows, *source.sample_shape),
        shards=(source.chunk_rows * SHARD_CHUNKS, *source.sample_shape),
        compressors=[ZstdCodec(level=1)],
    )
    for start, piece in pieces(source.x(), source.chunk_rows * SHARD_CHUNKS):
        array[start : start + len(piece)] = piece
    group.create_array("y", data=source.y(), chunks=(source.rows,))


def _write_tfrecord(source: Source, path: Path) -> None:
    import tensorflow as tf

    path.mkdir()
    x = source.x()
    bounds = np.linspace(0, source.rows, TFRECORD_FILES + 1).astype(int)
    for number, (start, stop) in enumerate(itertools.pairwise(bounds.tolist())):
        with tf.io.TFRecordWriter(str(path / f"part-{number:03}.tfrecord")) as writer:
            for row in range(start, stop):
                features = {
                    "x": tf.train.Feature(bytes_list=tf.train.BytesList(value=[x[row].tobytes()])),
                    "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[row])),
                }
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("npy", "npy", "npy", "none", _write_npy),
        Kind("hdf5-aligned", "hdf5", "h5", "none", _converted("none")),
        Kind("hdf5-raw", "hdf5", "h5", "none", _by_h5py()),
        Kind("zarr-raw", "zarr", "zarr", "none", _converted("none")),
        Kind("hdf5-zstd", "hdf5", "h5", "zstd", _converted("zstd"), needs=("hdf5plugin",)),
        Kind("zarr-zstd", "zarr", "zarr", "zstd", _converted("zstd")),
        Kind("zarr-zstd-sharded", "zarr", "zarr", "zstd", _write_sharded),
        Kind("hdf5-gzip", "hdf5", "h5", "gzip", _converted("gzip")),
        Kind("hdf5-lzf", "hdf5", "h5", "lzf", _by_h5py(compression="lzf")),
    )
}
TFRECORD = Kind("tfrecord", "tfrecord", "tfrecord", "none", _write_tfrecord)


def pieces(x: np.ndarray, rows: int) -> Iterator[tuple[int, np.ndarray]]:
    """`x` in pieces of `rows` rows, each with its first row."""
    for start in range(0, len(x), rows):
        yield start, x[start : start + rows]


def make(kind: Kind, source: Source) -> Path:
    """The store of this kind beside the source, written unless it is there already."""
    if kind.family == "npy":
        return source.x_path
    path = source.folder / f"{kind.name}.{kind.suffix}"
    if not path.exists():
        aside = source.folder / f"partial-{kind.name}.{kind.suffix}"
        if aside.is_dir():
            shutil.rmtree(aside)
        aside.unlink(missing_ok=True)
        kind.write(source, aside)
        aside.rename(path)
    return path


def loader_source(kind: Kind, source: Source, path: Path) -> Any:
    """The store as `Loader` takes it, with the arrays x and y."""
    if kind.family == "npy":
        return {"x": str(source.x_path), "y": str(source.y_path)}
    return str(path)


def files(path: Path) -> list[Path]:
    """The files of a store."""
    if path.is_file():
        return [path]
    return sorted(found for found in path.rglob("*") if found.is_file())


def stored_chunks(kind: Kind, path: Path, *, most: int) -> list[bytes]:
    """Stored bytes of the first chunks of x, at most `most`; whole chunks only."""
    found = _hdf5_chunks(path, most) if kind.family == "hdf5" else _zarr_chunks(path, most)
    return list(found)


def _hdf5_chunks(path: Path, most: int) -> Iterator[bytes]:
    with h5py.File(path, "r") as file:
        dataset = file["x"]
        rows = dataset.chunks[0]
        for number in range(min(most, len(dataset) // rows)):
            offset = (number * rows, *[0] * (dataset.ndim - 1))
            yield dataset.id.read_direct_chunk(offset)[1]


def _zarr_chunks(path: Path, most: int) -> Iterator[bytes]:
    array: Any = zarr.open_group(path, mode="r")["x"]
    zeros: Sequence[int] = [0] * (array.ndim - 1)
    if array.shards is None:
        for number in range(min(most, array.shape[0] // array.chunks[0])):
            yield (path / "x" / array.metadata.encode_chunk_key((number, *zeros))).read_bytes()
        return
    per_shard = array.shards[0] // array.chunks[0]
    chunks = min(most, array.shape[0] // array.chunks[0])
    for shard in range(-(-chunks // per_shard)):
        whole = (path / "x" / array.metadata.encode_chunk_key((shard, *zeros))).read_bytes()
        # The index at the end: offset and size of each chunk, then a checksum of four bytes.
        index = np.frombuffer(whole[-4 - 16 * per_shard : -4], "<u8").reshape(per_shard, 2)
        for offset, nbytes in index[: chunks - shard * per_shard].tolist():
            yield whole[offset : offset + nbytes]


def register_filters(kind: Kind) -> None:
    """Let h5py decode what the store is compressed with."""
    if "hdf5plugin" in kind.needs:
        load("hdf5plugin")


def nbytes(path: Path) -> int:
    """Bytes of the files of a store."""
    return sum(os.stat(found).st_size for found in files(path))
