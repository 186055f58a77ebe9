"""From Zarr metadata, format 2 or 3, to chains of decoders."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np

from oocloader.codecs.chain import Chain, CodecError, Step
from oocloader.codecs.numcodec import Config, filter_for, refusal, step_for


@dataclass(frozen=True, slots=True)
class Decoding:
    """How the stored bytes of a chunk become its elements.

    The decoded bytes are elements of `dtype` (byte order included): the chunk transposed by `axes`, in
    C order; `None` where the chunk is in C order already.
    """

    chain: Chain
    axes: tuple[int, ...] | None
    dtype: np.dtype

    @property
    def names(self) -> tuple[str, ...]:
        """The codecs in the order of writing."""
        return self.chain.names


@dataclass(frozen=True, slots=True)
class Sharding:
    """A chunk (shard) that holds chunks of `chunk_shape`, and an index of them at its end or start.

    `grid` is the number of chunks along each axis; `inner` says how each is decoded, or that it is a
    shard again.
    """

    chunk_shape: tuple[int, ...]
    grid: tuple[int, ...]
    inner: Decoding | Sharding
    index: Decoding
    index_nbytes: int
    index_at_end: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The codecs in the order of writing."""
        return ("sharding_indexed", *self.inner.names)

    def read_index(self, stored: np.ndarray) -> np.ndarray:
        """The `index_nbytes` bytes of an index as uint64 (*grid, 2): offset in the shard and stored bytes.

        Both are 2**64 - 1 for a chunk that is not there. Raises `CodecError` where the checksum is wrong.
        """
        if stored.size != self.index_nbytes:
            raise CodecError(f"sharding_indexed: an index of {stored.size} bytes, not {self.index_nbytes}")
        out = np.empty(math.prod(self.grid) * 16, np.uint8)
        self.index.chain.decode(stored, out)
        return out.view(self.index.dtype).astype(np.uint64).reshape(*self.grid, 2)


def v2(
    filters: Sequence[Config] | None,
    compressor: Config | None,
    *,
    dtype: np.dtype,
    order: str,
    chunk_shape: tuple[int, ...],
) -> Decoding:
    """The decoding of a format 2 array, from the members of its ``.zarray``; `dtype` with byte order.

    Raises `NoChain` for codecs that are not decoded here.
    """
    configs = [*(filters or ()), *((compressor,) if compressor else ())]
    names = tuple(_id(config) for config in configs)
    steps = [step_for(name, config, dtype) for name, config in zip(names, configs, strict=True)]
    chain = _chain(steps, names)
    axes = tuple(reversed(range(len(chunk_shape)))) if order == "F" else None
    return Decoding(chain, _needed(axes, chunk_shape), dtype)


def v3(
    codecs: Sequence[Config | str], *, dtype: np.dtype, chunk_shape: tuple[int, ...]
) -> Decoding | Sharding:
    """The decoding of a format 3 array, from the ``codecs`` of its ``zarr.json``; `dtype` of the array.

    Raises `NoChain` for codecs that are not decoded here.
    """
    pipeline = _Pipeline(dtype, chunk_shape)
    for entry in codecs:
        pipeline.add(entry)
    return pipeline.result()


def _id(config: Config) -> str:
    if not isinstance(config, Mapping):
        raise refusal(str(config), "is no codec")
    return str(config.get("id"))


def _chain(steps: Sequence[Step | None], names: tuple[str, ...]) -> Chain:
    """A chain of `steps`, in the order of writing; Zarr has no filter masks."""
    reading = tuple(step for step in reversed(steps) if step is not None)
    return Chain(reading, tuple(reversed(range(len(reading)))), names)


def _needed(axes: tuple[int, ...] | None, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """`axes`, or `None` where they only move axes of length 1, which leaves the bytes as they are.

    >>> _needed((1, 0), (5, 1)), _needed((1, 0), (5, 2))
    (None, (1, 0))
    """
    if axes is None:
        return None
    moved = [axis for axis in axes if shape[axis] > 1]
    return None if moved == sorted(moved) else axes


def _axes(order: object, ndim: int) -> TypeGuard[Sequence[int]]:
    """Whether `order` is a permutation of the axes."""
    if not isinstance(order, Sequence) or not all(isinstance(axis, int) for axis in order):
        return False
    return sorted(order) == list(range(ndim))


_FILTERS = ("delta", "fixedscaleoffset", "quantize", "astype", "bitround", "packbits")
_IN_ORDER = ("delta", "packbits")
"""Filters for which it matters in which order the elements come."""

_BYTES = ("gzip", "zstd", "blosc", "crc32c")
"""Codecs of bytes that format 3 names without ``numcodecs.``."""


class _Pipeline:
    """A codec list of format 3 as it is read: arrays to arrays, then to bytes, then bytes to bytes."""

    def __init__(self, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self.array_dtype = dtype
        self.dtype = dtype
        self.decoded: np.dtype | None = None
        """What the first filter decodes to."""
        self.shape = shape
        self.axes = tuple(range(len(shape)))
        self.steps: list[Step | None] = []
        self.names: list[str] = []
        self.in_bytes = False
        self.in_order = False
        self.sharding: Sharding | None = None

    def add(self, entry: Config | str) -> None:
        named: Config = {"name": entry} if isinstance(entry, str) else entry
        if not isinstance(named, Mapping) or not isinstance(named.get("configuration") or {}, Mapping):
            raise refusal(str(entry), "is no codec")
        name = str(named.get("name"))
        config: Config = named.get("configuration") or {}
        if self.sharding is not None:
            raise refusal(name, "after sharding_indexed is not decoded here")
        if name in ("bytes", "endian"):
            self._to_bytes(config)
            return
        self.names.append(name)
        short = name.removeprefix("numcodecs.")
        if self.in_bytes and (name in _BYTES or (short != name and short not in _FILTERS)):
            self.steps.append(step_for(short, config, self.dtype))
        elif not self.in_bytes and name == "transpose":
            self._transpose(config)
        elif not self.in_bytes and name == "sharding_indexed":
            self._shard(config)
        elif not self.in_bytes and short in _FILTERS and (short != name or name == "bitround"):
            self._filter(short, config)
        else:
            raise refusal(name)

    def result(self) -> Decoding | Sharding:
        if self.sharding is not None:
            return self.sharding
        if not self.in_bytes:
            raise refusal("bytes", "is missing from the list")
        dtype = self.decoded or self.dtype
        if dtype.newbyteorder("=") != self.array_dtype.newbyteorder("="):
            raise refusal(self.names[0], f"decodes to {dtype} in an array of {self.array_dtype}")
        chain = _chain(self.steps, tuple(self.names))
        return Decoding(chain, _needed(self.axes, self.shape), dtype)

    def _to_bytes(self, config: Config) -> None:
        if self.in_bytes:
            raise refusal("bytes", "is in the list twice")
        self.in_bytes = True
        big = config.get("endian", "little") == "big"
        stored = self.dtype.newbyteorder(">" if big else "<")
        if stored != self.dtype and self.dtype.itemsize > 1 and any(self.steps):
            # The last filter was given, and decodes, elements in the order of its own dtype.
            swap = {"encode_dtype": stored.str, "decode_dtype": self.dtype.str}
            self.steps.append(filter_for("astype", swap, self.dtype))
        self.dtype = stored

    def _transpose(self, config: Config) -> None:
        order = config.get("order")
        if order in ("C", "F"):
            order = sorted(range(len(self.axes)), reverse=order == "F")
        if not _axes(order, len(self.axes)):
            raise refusal("transpose", f"of {len(self.axes)} axes has the order {order}")
        if self.in_order:
            raise refusal("transpose", "follows a filter that depends on the order of elements")
        self.axes = tuple(self.axes[axis] for axis in order)

    def _filter(self, codec: str, config: Config) -> None:
        from oocloader.codecs.filters import Elementwise, PackBits

        step = step_for(codec, config, self.dtype)
        self.in_order |= codec in _IN_ORDER
        self.steps.append(step)
        if isinstance(step, Elementwise | PackBits):
            self.decoded = self.decoded or step.decoded
            self.dtype = step.encoded

    def _shard(self, config: Config) -> None:
        if self.names != ["sharding_indexed"]:
            raise refusal("sharding_indexed", "after another codec is not decoded here")
        chunk_shape = tuple(config.get("chunk_shape", ()))
        if len(chunk_shape) != len(self.shape) or any(
            not isinstance(c, int) or c <= 0 or n % c for n, c in zip(self.shape, chunk_shape, strict=True)
        ):
            raise refusal("sharding_indexed", f"has chunks of {chunk_shape} in shards of {self.shape}")
        grid = tuple(n // c for n, c in zip(self.shape, chunk_shape, strict=True))
        inner = v3(config.get("codecs", ()), dtype=self.array_dtype, chunk_shape=chunk_shape)
        index = v3(config.get("index_codecs", ()), dtype=np.dtype("<u8"), chunk_shape=(*grid, 2))
        if isinstance(index, Sharding) or index.axes is not None:
            raise refusal("sharding_indexed", "has an index that is a shard or transposed")
        nbytes = index.chain.stored_nbytes(math.prod(grid) * 16)
        if nbytes is None:
            raise refusal("sharding_indexed", "has an index of variable length")
        at_end = config.get("index_location", "end") == "end"
        self.sharding = Sharding(chunk_shape, grid, inner, index, nbytes, at_end)
