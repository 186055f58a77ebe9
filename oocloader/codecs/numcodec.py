"""The steps that undo codecs of numcodecs, which both formats of Zarr use."""

import lzma
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from oocloader.codecs.chain import NoChain, Step

Config = Mapping[str, Any]

_PACKAGES = {"zfpy": "zfpy", "pcodec": "pcodec", "msgpack2": "msgpack", "crc32c": "google-crc32c"}
_LZMA_FORMATS = (lzma.FORMAT_AUTO, lzma.FORMAT_XZ, lzma.FORMAT_ALONE, lzma.FORMAT_RAW)


def package_for(codec: str) -> str | None:
    """The package to install for a codec id, without a ``numcodecs.`` before it; `None` if unknown.

    >>> package_for("imagecodecs_jpegxl")
    'imagecodecs-numcodecs'
    """
    if codec.startswith("imagecodecs_"):
        return "imagecodecs-numcodecs"
    return _PACKAGES.get(codec)


def step_for(codec: str, config: Config, dtype: np.dtype) -> Step | None:
    """The step that undoes a codec of numcodecs; `None` where nothing is to be undone.

    `dtype` is that of the elements which the codec encodes. Raises `NoChain`.
    """
    # Imported here, so that uncompressed arrays load no codec library.
    from oocloader.codecs import checksums, compressors
    from oocloader.codecs.filters import Shuffle

    without_settings: dict[str, Callable[[], Step]] = {
        "zlib": partial(compressors.deflate, "zlib"),
        "gzip": compressors.gzip,
        "bz2": compressors.bzip2,
        "zstd": compressors.zstd,
        "lz4": compressors.lz4,
        "fletcher32": checksums.fletcher32,
    }
    if codec in without_settings:
        return without_settings[codec]()
    match codec:
        case "lzma" if config.get("format", lzma.FORMAT_XZ) in _LZMA_FORMATS:
            return compressors.xz(config.get("format", lzma.FORMAT_XZ), config.get("filters"))
        case "blosc" if config.get("cname") != "snappy":
            return compressors.Blosc()
        case "shuffle":
            itemsize = _whole(codec, config, "elementsize", 4) or dtype.itemsize
            return Shuffle(itemsize) if itemsize > 1 else None
        case "crc32" | "adler32" | "crc32c":
            at_end = config.get("location", "end" if codec == "crc32c" else "start") == "end"
            return checksums.numcodecs_checksum(codec, at_end=at_end)
        case "jenkins_lookup3" if config.get("prefix") is None:
            return checksums.jenkins_lookup3(_whole(codec, config, "initval", 0))
        case "bitround":
            return None
        case "delta" | "fixedscaleoffset" | "quantize" | "astype" | "packbits":
            return filter_for(codec, config, dtype)
        case _:
            raise refusal(codec)


def filter_for(codec: str, config: Config, dtype: np.dtype) -> Step | None:
    """A filter that numcodecs itself decodes."""
    from numcodecs.registry import get_codec

    from oocloader.codecs.filters import Elementwise, PackBits

    # zarr-python fills these in where format 3 leaves them out.
    assumed = {"fixedscaleoffset": "dtype", "quantize": "dtype", "astype": "decode_dtype"}
    options = {key: value for key, value in config.items() if value is not None}
    if codec in assumed:
        options.setdefault(assumed[codec], dtype.str)
    try:
        filter_codec = get_codec({**options, "id": codec})
    except (TypeError, ValueError) as error:
        raise refusal(codec, f"has settings that numcodecs refuses: {error}") from error
    if codec == "packbits":
        return PackBits(filter_codec)
    if codec == "astype":
        encoded, decoded = filter_codec.encode_dtype, filter_codec.decode_dtype
    else:
        encoded, decoded = filter_codec.astype, filter_codec.dtype
    if encoded == decoded and codec in ("astype", "quantize"):
        return None
    return Elementwise(codec, filter_codec, encoded, decoded)


def refusal(codec: str, why: str = "is not decoded here") -> NoChain:
    """What is raised for a codec id, with or without ``numcodecs.`` before it."""
    package = package_for(codec.removeprefix("numcodecs."))
    return NoChain(f"codec {codec} {why}", codec=codec, package=package)


def _whole(codec: str, config: Config, key: str, default: int) -> int:
    """A setting that is a whole number, 0 where it is null."""
    value = config.get(key, default) or 0
    if not isinstance(value, int) or value < 0:
        raise refusal(codec, f"has the {key} {value!r}")
    return value
