"""From an HDF5 filter pipeline to a chain of decoders."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from oocloader.codecs.chain import Chain, NoChain, Step

Filter = tuple[int, int, Sequence[int], bytes | str]
"""What h5py's `PropDCID.get_filter` returns: id, flags, client values, name."""

FILTERS: dict[int, tuple[str, str | None]] = {
    1: ("gzip", None),
    2: ("shuffle", None),
    3: ("fletcher32", None),
    4: ("szip", None),
    5: ("nbit", None),
    6: ("scaleoffset", None),
    305: ("lzo", "tables"),
    307: ("bzip2", "hdf5plugin"),
    32000: ("lzf", "h5py"),
    32001: ("blosc", "hdf5plugin"),
    32004: ("lz4", "hdf5plugin"),
    32008: ("bitshuffle", "hdf5plugin"),
    32013: ("zfp", "hdf5plugin"),
    32015: ("zstd", "hdf5plugin"),
    32017: ("sz", "hdf5plugin"),
    32018: ("fcidecomp", "hdf5plugin"),
    32019: ("jpeg", None),
    32024: ("sz3", "hdf5plugin"),
    32026: ("blosc2", "hdf5plugin"),
    32028: ("sperr", "hdf5plugin"),
    32033: ("htj2k", "hdf5plugin"),
}
"""Name of a filter that can be decoded, and the package on PyPI that lets h5py do it.

No package: HDF5 decodes it by itself (ids below 256), or none is known.
"""


def filter_name(filter_id: int, name: bytes | str = "") -> str:
    """Name of a filter for people; for one that is not in the table, what the file calls it.

    >>> filter_name(32015)
    'zstd'
    >>> filter_name(40000, b"acme v2")
    'acme v2'
    >>> filter_name(40000)
    'filter 40000'
    """
    if filter_id in FILTERS:
        return FILTERS[filter_id][0]
    text = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
    return text or f"filter {filter_id}"


def chain(filters: Sequence[Filter], *, dtype: np.dtype, chunk_shape: tuple[int, ...]) -> Chain:
    """The chain that undoes `filters`, in the order of the pipeline; bit i of a mask skips filter i.

    `dtype` and `chunk_shape` are those of the dataset. Raises `NoChain` for filters that are not
    decoded here.
    """
    steps = [_step(entry, dtype, chunk_shape) for entry in filters]
    names = tuple(filter_name(entry[0], entry[3]) for entry in filters)
    return Chain(tuple(reversed(steps)), tuple(reversed(range(len(steps)))), names)


def _step(entry: Filter, dtype: np.dtype, chunk_shape: tuple[int, ...]) -> Step:
    filter_id, _, values, name = entry
    known, package = FILTERS.get(filter_id, (filter_name(filter_id, name), None))
    step = _decoder(filter_id, tuple(values), dtype, chunk_shape)
    if step is None:
        text = f"filter {filter_id} ({known}) as it is set here is not decoded by oocloader"
        raise NoChain(text, codec=filter_id, package=package)
    return step


def _decoder(
    filter_id: int, values: tuple[int, ...], dtype: np.dtype, chunk_shape: tuple[int, ...]
) -> Step | None:
    """The step for a filter; `None` for one, or for client values, that no step knows."""
    # Imported here, so that uncompressed files load no codec library.
    from oocloader.codecs import compressors
    from oocloader.codecs.blosc2 import Blosc2
    from oocloader.codecs.checksums import fletcher32
    from oocloader.codecs.filters import Shuffle

    without_settings: dict[int, Callable[[], Step]] = {
        1: partial(compressors.deflate, "gzip"),
        3: fletcher32,
        307: partial(compressors.bzip2, "bzip2"),
        32000: compressors.lzf,
        32004: compressors.lz4_hdf5,
        32015: compressors.zstd,
        32026: partial(Blosc2, chunk_shape, dtype.itemsize),
    }
    if filter_id in without_settings:
        return without_settings[filter_id]()
    match filter_id:
        case 2:
            itemsize = values[0] if values else dtype.itemsize
            return Shuffle(itemsize) if itemsize > 0 else None
        case 4:
            if len(values) < 4 or not all(0 < value <= 128 for value in values[1:3]) or not values[3]:
                return None
            return compressors.szip(*values[:4])
        case 32001:
            return None if values[6:7] == (_BLOSC_SNAPPY,) else compressors.Blosc()
        case 32008:
            return _bitshuffle(values, dtype)
        case _:
            return None


_BLOSC_SNAPPY = 3


def _bitshuffle(values: tuple[int, ...], dtype: np.dtype) -> Step | None:
    # Client values: version (two), element size, block size in elements, compressor, its level.
    from oocloader.codecs.bitshuffle import Bitshuffle, lz4_blocks, zstd_blocks

    _, _, itemsize, block, compressor = (*values[:5], *(0, 0, dtype.itemsize, 0, 0)[len(values) :])
    if itemsize <= 0 or block % 8:
        return None
    if compressor == 0:
        return Bitshuffle(itemsize, block)
    make = {2: lz4_blocks, 3: zstd_blocks}.get(compressor)
    return make(itemsize) if make else None
