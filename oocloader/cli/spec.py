"""What a data spec says, as arguments of a command."""

from pathlib import Path
from typing import Any

import typer

from oocloader.errors import SettingError

# Of the command itself, not of what it calls.
_OF_COMMAND = ("spec", "as_json")


def conversion_of(path: Path, context: typer.Context) -> dict[str, Any]:
    """The arguments of `convert` that the spec at `path` gives, and the flags that were given beside it.

    Raises `SettingError` where anything but flags was given: it would be said in two places.
    """
    from oocloader.loader import DataSpec

    flags: dict[str, bool] = {}
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name in _OF_COMMAND or source is None or source.name != "COMMANDLINE":
            continue
        value = context.params[name]
        if not isinstance(value, bool):
            if name == "paths" and not value:
                continue
            given = "a source or destination" if name == "paths" else parameter.opts[0]
            raise SettingError(f"{given} cannot be given with --spec: {path} says what to convert, and how")
        flags[name] = value
    spec = DataSpec.load(path)
    if spec.conversion is None:
        raise SettingError(f"{path}: has no [convert]; it needs a source and a destination", file=str(path))
    return {**spec.conversion, **flags}
