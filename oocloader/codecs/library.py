"""The functions of imagecodecs that steps are built from, loaded one library at a time."""

from collections.abc import Callable
from typing import Any

import imagecodecs
import numpy as np

from oocloader.codecs.chain import CodecError, NoChain


def load(name: str) -> Callable[..., Any]:
    """Function `name` of imagecodecs, such as ``zstd_decode``; its extension module is loaded now.

    Raises `NoChain` where imagecodecs was built without that codec.
    """
    codec = name.split("_")[0]
    function: Callable[..., Any] = getattr(imagecodecs, name)
    if not getattr(imagecodecs, codec.upper()).available:
        reason = f"{codec} is missing from this build of imagecodecs"
        raise NoChain(reason, codec=codec, package="imagecodecs")
    return function


def call(
    name: str, function: Callable[..., Any], stored: np.ndarray, out: np.ndarray, **options: object
) -> np.ndarray:
    """`function(stored, out=out)`, which returns the part of `out` that it filled.

    Whatever the library raises on damaged bytes becomes a `CodecError` that names the codec.
    """
    try:
        filled: np.ndarray = function(stored, out=out, **options)
    except Exception as error:
        raise CodecError(f"{name}: {error}") from error
    return filled


def fits(name: str, claim: int, out: np.ndarray) -> int:
    """`claim`, the decoded size that a stream announces, if `out` has room for it."""
    if not 0 <= claim <= out.size:
        raise CodecError(f"{name}: the stream claims to decode to {claim} bytes, {out.size} fit")
    return claim


def fill(
    name: str, function: Callable[..., Any], stored: np.ndarray, out: np.ndarray, **options: object
) -> np.ndarray:
    """`call`, for an `out` as long as the stream announced that it decodes to, which it has to fill."""
    filled = call(name, function, stored, out, **options)
    if filled.size != out.size:
        raise CodecError(f"{name}: the stream decodes to {filled.size} bytes and claims {out.size}")
    return filled
