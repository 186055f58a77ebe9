"""`--array NAME=SOURCE` on the command line."""

from __future__ import annotations

from oocloader.errors import SettingError


def named_sources(arrays: list[str]) -> dict[str, str]:
    """Sources by name. Raises `SettingError`."""
    sources: dict[str, str] = {}
    for text in arrays:
        name, equals, source = text.partition("=")
        if not (name and equals and source):
            raise SettingError(f"--array: expected NAME=SOURCE, such as x=images.npy, got {text!r}")
        if name in sources:
            raise SettingError(f"--array: the name {name!r} is given twice")
        sources[name] = source
    return sources
