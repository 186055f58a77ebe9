"""The documents name what there is: layers, files that links lead to, options."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import oocloader as ooc

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("data_specs/*.md")),
]


def anchors(text: str) -> set[str]:
    """What links can point at: headings, as they are turned into names."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_there_are_documents() -> None:
    names = {document.relative_to(ROOT).as_posix() for document in DOCUMENTS}
    assert names >= {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/training.md", "docs/converting.md"}


def test_levels_are_those_of_the_contract() -> None:
    with (ROOT / "pyproject.toml").open("rb") as stream:
        contracts = tomllib.load(stream)["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract.get("containers") == ["oocloader"])
    rows = re.findall(r"^\| (\d) \| ([^|]+) \|", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    listed = [set(re.findall(r"`([a-z_]+)(?:/|\.py)`", packages)) for _, packages in rows]
    assert [int(level) for level, _ in rows] == list(range(8, -1, -1))
    expected = [set(layer.split(" | ")) for layer in layers]
    # Errors are below all others of the last level.
    assert listed == [*expected[:-2], expected[-2] | expected[-1]]


def named_in_architecture() -> list[str]:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    return sorted(set(re.findall(r"`([\w/]+\.py(?:::[\w.]+)?)`", text)))


@pytest.mark.parametrize("name", named_in_architecture())
def test_what_the_architecture_names_is_there(name: str) -> None:
    file, _, member = name.partition("::")
    path = ROOT / "oocloader" / file
    assert path.is_file()
    body = ast.parse(path.read_text()).body
    for part in member.split(".") if member else []:
        kinds = (ast.ClassDef, ast.FunctionDef)
        found = [node for node in body if isinstance(node, kinds) and node.name == part]
        assert found, f"{file} has no {member}"
        body = found[0].body


def test_the_walks_cross_as_many_files_as_they_say() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text().partition("\n## Four walks\n")[2]
    crossed = [len(set(re.findall(r"`([\w/]+\.py)", walk))) for walk in text.split("\n### ")[1:]]
    said = re.search(r"The walks cross (\d+), (\d+),\s(\d+) and (\d+) files", text)
    assert said is not None
    assert crossed == [int(number) for number in said.groups()]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = document.parent / path if path else document
        assert there.exists(), target
        if anchor:
            assert anchor in anchors(there.read_text()), target


@pytest.mark.parametrize(
    ("called", "documents", "written", "besides"),
    [
        (ooc.Loader.__init__, ["README.md", "docs/training.md"], "{}=", {"self", "source"}),
        (ooc.Loader.split, ["docs/training.md"], "{}", {"self"}),
        (ooc.convert, ["docs/converting.md"], "--{}", {"source", "destination", "progress"}),
    ],
)
def test_every_option_is_named(
    called: Callable[..., object], documents: list[str], written: str, besides: set[str]
) -> None:
    text = "".join((ROOT / name).read_text() for name in documents)
    for option in set(inspect.signature(called).parameters) - besides:
        shown = written.format(option.replace("_", "-") if written.startswith("--") else option)
        assert re.search(rf"(?<![\w-]){re.escape(shown)}", text), shown
