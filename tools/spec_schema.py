#!/usr/bin/env python3
"""The JSON schema of data specs: prints it, or with --write renews data_specs/schema.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from oocloader.loader.data_spec import schema

FILE = Path(__file__).resolve().parent.parent / "data_specs" / "schema.json"


def text() -> str:
    """What the file ought to hold."""
    return json.dumps(schema(), indent=2) + "\n"


def main(arguments: list[str]) -> int:
    if arguments == ["--write"]:
        FILE.write_text(text())
    elif not arguments:
        print(text(), end="")
    else:
        print("usage: tools/spec_schema.py [--write]", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
