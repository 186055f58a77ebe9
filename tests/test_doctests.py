"""The examples in docstrings give what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import oocloader

PACKAGE = Path(oocloader.__file__).parent
WITH_EXAMPLES = [
    ".".join(("oocloader", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(PACKAGE.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


# Some load rows, and who first uses TensorFlow decides which devices there are.
@pytest.mark.usefixtures("tf")
@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples(module: str) -> None:
    tried = doctest.testmod(importlib.import_module(module))
    assert tried.attempted > 0
    assert tried.failed == 0
