"""Which codec a converted store uses, and the function that encodes a chunk with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from oocloader.errors import SettingError
from oocloader.sizes import GIB

Format = Literal["zarr", "hdf5"]

Encode = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Encodes a chunk (uint8, 1-d) to the front of another array, and returns that part of it. Thread-safe."""


@dataclass(frozen=True, slots=True)
class _Kind:
    levels: range
    default: int
    max_chunk_nbytes: int | None = None


_KINDS: Mapping[str, _Kind] = {
    "zstd": _Kind(range(1, 23), 1),
    "gzip": _Kind(range(1, 10), 4),
    # The level of LZ4 is its "acceleration": 1 packs best, higher ones are faster.
    "lz4": _Kind(range(1, 100), 1, 0x7E000000),
    "blosc": _Kind(range(1, 10), 5, 2 * GIB - 17),
}


@dataclass(frozen=True, slots=True)
class Codec:
    """A codec and its level, written `zstd:3`; `none` has no level.

    >>> str(Codec.parse("zstd"))
    'zstd:1'
    """

    name: str
    level: int = 0

    @classmethod
    def parse(cls, text: str) -> Codec:
        """`none`, `zstd`, `gzip`, `lz4` or `blosc`, then `:level` if wanted. Raises `SettingError`."""
        if not isinstance(text, str):
            raise SettingError(f"codec: expected a name such as 'zstd:1', got {text!r}")
        name, colon, level = text.partition(":")
        if name == "none" and not colon:
            return cls("none")
        kind = _KINDS.get(name)
        if kind is None:
            names = ", ".join(("none", *_KINDS))
            raise SettingError(
                f"codec: {text!r} is unknown; choose one of {names}, all but none with :level if wanted"
            )
        if not colon:
            return cls(name, kind.default)
        if not level.isdecimal() or int(level) not in kind.levels:
            raise SettingError(
                f"codec: {text!r}: the level of {name} is a whole number from"
                f" {kind.levels.start} to {kind.levels.stop - 1}"
            )
        return cls(name, int(level))

    def __str__(self) -> str:
        return self.name if self.name == "none" else f"{self.name}:{self.level}"

    @property
    def raw(self) -> bool:
        """Whether chunks are stored as they are."""
        return self.name == "none"

    @property
    def max_chunk_nbytes(self) -> int | None:
        """The most bytes that can be encoded as one chunk, `None` where there is no limit."""
        return None if self.raw else _KINDS[self.name].max_chunk_nbytes


def encoded_bound(nbytes: int) -> int:
    """Room that is enough for any codec here to encode `nbytes` that do not compress."""
    return nbytes + nbytes // 64 + 1024


def encoder(codec: Codec, store_format: Format, itemsize: int) -> Encode | None:
    """What turns a chunk into the bytes stored in that format; `None` where they are the same.

    `itemsize` is that of the array, for codecs that shuffle bytes.
    """
    import imagecodecs  # not at the top: reading never encodes

    if codec.raw:
        return None
    hdf5 = store_format == "hdf5"
    names = {
        "zstd": "zstd_encode",
        "gzip": "deflate_encode" if hdf5 else "gzip_encode",
        "lz4": "lz4h5_encode" if hdf5 else "lz4_encode",
        "blosc": "blosc_encode",
    }
    function: Callable[..., Any] = getattr(imagecodecs, names[codec.name])
    options: dict[str, Any] = {"level": codec.level}
    if codec.name == "lz4" and not hdf5:
        options["header"] = True
    if codec.name == "blosc":
        shuffle = blosc_shuffle(itemsize)
        options |= {"compressor": "lz4", "shuffle": shuffle, "typesize": itemsize, "numthreads": 1}

    def encode(chunk: np.ndarray, out: np.ndarray) -> np.ndarray:
        return np.frombuffer(function(chunk, out=out, **options), np.uint8)

    return encode


def blosc_shuffle(itemsize: int) -> int:
    """Blosc's shuffle setting: by bytes, where values have several."""
    return int(itemsize > 1)


HDF5_FILTER_IDS: Mapping[str, int] = {"gzip": 1, "blosc": 32001, "lz4": 32004, "zstd": 32015}
"""As registered with The HDF Group; all but gzip need the package hdf5plugin to be read by h5py."""


def hdf5_filter(codec: Codec, itemsize: int, chunk_nbytes: int) -> tuple[int, tuple[int, ...]]:
    """Id and client values of the HDF5 filter that decodes the chunks."""
    values: tuple[int, ...]
    match codec.name:
        case "lz4":
            values = (0,)  # the block size is written in each chunk
        case "blosc":
            # Versions of filter and format, then what the filter needs to make its buffer; 1 is LZ4.
            values = (2, 2, itemsize, chunk_nbytes, codec.level, blosc_shuffle(itemsize), 1)
        case _:
            values = (codec.level,)
    return HDF5_FILTER_IDS[codec.name], values


def zarr_codecs(codec: Codec, itemsize: int) -> list[dict[str, Any]]:
    """The bytes-to-bytes codecs of Zarr format 3 metadata."""
    configuration: dict[str, Any] = {"level": codec.level}
    match codec.name:
        case "none":
            return []
        case "zstd":
            configuration["checksum"] = False
        case "gzip":
            pass
        case "lz4":
            return [{"name": "numcodecs.lz4", "configuration": {"acceleration": codec.level}}]
        case _:
            configuration = {
                "cname": "lz4",
                "clevel": codec.level,
                "shuffle": "shuffle" if blosc_shuffle(itemsize) else "noshuffle",
                "typesize": itemsize,
                "blocksize": 0,
            }
    return [{"name": codec.name, "configuration": configuration}]


def zarr2_compressor(codec: Codec, itemsize: int) -> dict[str, Any] | None:
    """The compressor of Zarr format 2 metadata."""
    match codec.name:
        case "none":
            return None
        case "lz4":
            return {"id": "lz4", "acceleration": codec.level}
        case "blosc":
            blosc = {"id": "blosc", "cname": "lz4", "clevel": codec.level, "blocksize": 0}
            return {**blosc, "shuffle": blosc_shuffle(itemsize)}
        case _:
            return {"id": codec.name, "level": codec.level}
