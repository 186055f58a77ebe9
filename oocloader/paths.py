"""Paths as users write and count them: `~` is their home, a URL is none, and 2 comes before 10."""

import os
import re
from typing import Any

from oocloader.errors import StoreError

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_url(text: str) -> bool:
    """Whether `text` begins as a URL does.

    >>> is_url("s3://bucket/x.zarr"), is_url("x.h5::group/x"), is_url("C:/x.npy")
    (True, False, False)
    """
    return _URL.match(text) is not None


def local_path(path: str | bytes | os.PathLike[Any], *, remedy: str, option: str = "") -> str:
    """`path` with `~` put in full.

    Raises `StoreError` for a URL, which would otherwise name a local file or folder; it says `remedy`, and
    names the `option`, if there is one.
    """
    text = os.fsdecode(path)
    if is_url(text):
        given = f"{option}={text!r}" if option else text
        raise StoreError(f"{given}: URLs are not supported; {remedy}", file=text)
    return os.path.expanduser(text)


def natural_key(path: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key that counts as people do.

    >>> sorted(["part10.npy", "part2.npy"], key=natural_key)
    ['part2.npy', 'part10.npy']
    """
    return tuple(
        (0, int(text), text) if text.isdecimal() else (1, 0, text)
        for text in re.split(r"(\d+)", path)
        if text
    )
