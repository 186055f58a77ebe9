"""The options of `oocloader convert`."""

from __future__ import annotations

import inspect
import typing

from oocloader.cli import convert_options
from oocloader.cli.convert import convert


def test_every_option_is_explained_and_used() -> None:
    declared = {
        name: value for name, value in vars(convert_options).items() if hasattr(value, "__metadata__")
    }
    used = typing.get_type_hints(convert, include_extras=True).values()
    assert len(declared) == len(inspect.signature(convert).parameters) - 1  # the context of typer
    for name, option in declared.items():
        (parameter,) = option.__metadata__
        assert parameter.help, name
        assert option in used, name
