"""NAME=VALUE on the command line."""

from __future__ import annotations

from typing import Any

import pytest

from oocloader.cli.named_values import per_array, sources_beside
from oocloader.errors import SettingError


@pytest.mark.parametrize(
    ("texts", "value"),
    [(None, None), (["3"], 3), (["x=3", "y=4"], {"x": 3, "y": 4}), (["x=3"], {"x": 3})],
)
def test_one_value_or_one_for_each_array(texts: list[str] | None, value: Any) -> None:
    assert per_array("--axis", texts, int) == value


@pytest.mark.parametrize("texts", [["1", "2"], ["x="], ["=1", "x=2"], ["x=1", "x=2"]])
def test_what_is_neither(texts: list[str]) -> None:
    with pytest.raises(SettingError, match="--axis"):
        per_array("--axis", texts, int)


@pytest.mark.parametrize(
    ("paths", "arrays", "sources"),
    [(["a", "b"], None, None), (["a", "b"], [], None), (["a"], ["x=b", "y=c"], {"x": "b", "y": "c"})],
)
def test_sources_stand_beside_one_path(paths: list[str], arrays: list[str] | None, sources: Any) -> None:
    assert sources_beside(paths, arrays, command="c", alone="a", takes="two", counts=(2,)) == sources


@pytest.mark.parametrize(("paths", "arrays"), [(["a"], None), (["a", "b", "c"], None), (["a", "b"], ["x=c"])])
def test_another_number_of_paths(paths: list[str], arrays: list[str] | None) -> None:
    with pytest.raises(SettingError, match=f"got {len(paths)} paths: a"):
        sources_beside(paths, arrays, command="c", alone="a", takes="two", counts=(2,))
