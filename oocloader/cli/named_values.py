"""NAME=VALUE on the command line."""

from collections.abc import Callable, Collection
from typing import TypeVar

from oocloader.errors import SettingError

_T = TypeVar("_T")


def sources_beside(
    paths: list[str],
    arrays: list[str] | None,
    *,
    command: str,
    alone: str,
    takes: str,
    counts: Collection[int],
) -> dict[str, str] | None:
    """The sources that --array gives by name, beside which there is one path; else `None`.

    Raises `SettingError` where the number of paths is none of `counts` (`takes` says of what), or not one.
    """
    got = f"got {len(paths)} paths: {', '.join(paths)}"
    if arrays and len(paths) != 1:
        raise SettingError(f"with --array, {command} takes {alone} alone, {got}")
    if not arrays and len(paths) not in counts:
        raise SettingError(f"{command} takes {takes}, {got}; see oocloader {command} --help")
    return _named("--array", arrays, "NAME=SOURCE, such as x=images.npy") if arrays else None


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
