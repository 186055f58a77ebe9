"""The command line: arguments to calls of the library, and what they return to lines or JSON.

The way through: `app.main` finds the command and makes one line and an exit code of every error. A module
each for the commands: `convert` (its options are in `convert_options`, those that a data spec gives in
`spec`), `inspect`, `verify` and `demo_command`, which runs `demo`; `named_values` parses NAME=VALUE.
"""

from oocloader.cli.app import main

__all__ = ["main"]
