"""NAME=VALUE on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from oocloader.errors import SettingError

_T = TypeVar("_T")


def paths_text(paths: list[str]) -> str:
    """How many paths there are, and which."""
    return f"{len(paths)} paths: {', '.join(paths)}"


def named_sources(arrays: list[str]) -> dict[str, str]:
    """Sources by the names of arrays. Raises `SettingError`."""
    return _named("--array", arrays, "NAME=SOURCE, such as x=images.npy")


def per_array(option: str, texts: list[str] | None, parse: Callable[[str], _T]) -> _T | dict[str, _T] | None:
    """One value for all arrays, or values by the names of arrays; `None` for none. Raises `SettingError`."""
    if not texts:
        return None
    if len(texts) == 1 and "=" not in texts[0]:
        return parse(texts[0])
    values = _named(option, texts, "one value, or NAME=VALUE for each array")
    return {name: parse(value) for name, value in values.items()}


def _named(option: str, texts: list[str], expected: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not (name and value):
            raise SettingError(f"{option}: expected {expected}, got {text!r}")
        if name in values:
            raise SettingError(f"{option}: {name!r} is given twice")
        values[name] = value
    return values
