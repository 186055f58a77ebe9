"""Tests lie as modules do: oocloader/PACKAGE/MODULE.py is tested by tests/PACKAGE/test_MODULE.py."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent
PROGRAM = TESTS.parent / "oocloader"

# Tests that go across modules, and why they are in none.
CROSSING = {
    "codecs/test_damage.py": "damaged chunks of every codec, in a process of its own that may crash",
    "conversion/test_destinations.py": "what may be written where, whatever writes it",
    "conversion/test_resume.py": "conversions that are broken off, by whatever, and go on",
    "keras/test_fit.py": "fit, evaluate and predict with a Loader",
    "keras/test_soak.py": "trainings that are killed at random moments",
    "loader/test_going_on.py": "states of one Loader in another, through all that a state is made of",
    "loader/test_lifecycle.py": "nothing hangs and nothing is left at the end of programs",
    "loader/test_memory.py": "the memory of whole processes that load",
    "loader/test_shards.py": "several Loaders, each with its shard, together",
    "pipeline/test_counts.py": "what a pass costs, counted from outside",
}


def test_every_module_has_its_tests() -> None:
    modules = {
        path.relative_to(PROGRAM).with_name(f"test_{path.name}").as_posix()
        for path in PROGRAM.rglob("*.py")
        if path.name != "__init__.py"
    }
    tests = {path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")}
    assert modules - tests == set(), "a module needs a test file of its own"
    packages = {path.name for path in PROGRAM.iterdir() if path.is_dir()}
    strays = {test for test in tests - modules if test.partition("/")[0] in packages}
    assert strays == set(CROSSING), "a test file stands for a module, or is named in CROSSING with a reason"
