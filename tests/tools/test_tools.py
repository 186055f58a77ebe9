"""The commands of a checkout, with a Python that notes what it is asked to install; gpu_check for real."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def script(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)
    return path


@dataclass(frozen=True, slots=True)
class Checkout:
    """A checkout with the tools alone, and a PATH with nothing on it but POSIX tools and `bin`."""

    root: Path
    bin: Path
    log: Path

    def python(self, path: Path, *, fails: str = "") -> Path:
        """A Python at `path` that logs `-m` calls: `venv` makes another such, any other module does nothing.

        Where the module is `fails`, it exits with 1.
        """
        made = 'cp "$0" "$4/bin/python"; echo "$4" >"$4/bin/activate"; cp "$0" "$4/bin/lint-imports"'
        return script(
            path,
            f'case "$0" in */lint-imports) echo lint-imports >>"{self.log}"; exit 0;; esac',
            f'[ "$1" = -m ] || exec "{sys.executable}" "$@"',
            f'echo "$@" >>"{self.log}"',
            f'[ "$2" = "{fails}" ] && exit 1',
            f'[ "$2" = venv ] && {{ rm -rf "$4"; mkdir -p "$4/bin"; {made}; }}',
            "exit 0",
        )

    def run(self, tool: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.root / "tools" / tool), *arguments],
            env={"PATH": str(self.bin), "HOME": str(self.root), **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def calls(self) -> list[str]:
        """First words of what was asked of Python since the last time."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return [" ".join(line.split()[1:3]) if line.startswith("-m") else line for line in lines]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    root = tmp_path / "check out"
    shutil.copytree(ROOT / "tools", root / "tools")
    shutil.copy(ROOT / "pyproject.toml", root)
    found = Checkout(root, tmp_path / "bin", tmp_path / "log")
    found.bin.mkdir()
    for name in ("sh", "cat", "cksum", "cp", "dirname", "grep", "mkdir", "rm", "tr"):
        where = shutil.which(name)
        assert where is not None
        (found.bin / name).symlink_to(where)
    return found


class TestVenv:
    def test_second_run_installs_nothing(self, checkout: Checkout) -> None:
        checkout.python(checkout.bin / "python3")
        first = checkout.run("venv", "demo,test")
        assert first.stdout == f"{checkout.root}/.venv/bin/python\n"
        assert checkout.calls() == ["venv --clear", "pip install"]
        second = checkout.run("venv", "demo,test")
        assert (second.stdout, second.stderr) == (first.stdout, "")
        assert checkout.calls() == []

    def test_changed_project_installs_again(self, checkout: Checkout) -> None:
        checkout.python(checkout.bin / "python3")
        checkout.run("venv", "demo")
        checkout.calls()
        with (checkout.root / "pyproject.toml").open("a") as file:
            file.write("# changed\n")
        checkout.run("venv", "demo")
        assert checkout.calls() == ["pip install"]

    def test_other_extras_install_into_the_same_venv(self, checkout: Checkout) -> None:
        checkout.python(checkout.bin / "python3")
        checkout.run("venv", "demo")
        checkout.calls()
        checkout.run("venv", "test")
        assert checkout.calls() == ["pip install"]
        checkout.run("venv", "demo")
        assert checkout.calls() == []

    def test_failed_install_fails_and_is_tried_again(self, checkout: Checkout) -> None:
        checkout.python(checkout.bin / "python3", fails="pip")
        for expected in (["venv --clear", "pip install"], ["pip install"]):
            assert checkout.run("venv", "demo").returncode != 0
            assert checkout.calls() == expected

    def test_moved_checkout_makes_a_new_venv(self, checkout: Checkout) -> None:
        checkout.python(checkout.bin / "python3")
        checkout.run("venv", "demo")
        checkout.calls()
        moved = Checkout(checkout.root.with_name("elsewhere"), checkout.bin, checkout.log)
        checkout.root.rename(moved.root)
        assert moved.run("venv", "demo").stdout == f"{moved.root}/.venv/bin/python\n"
        assert moved.calls() == ["venv --clear", "pip install"]

    def test_passes_over_a_python_that_does_not_run(self, checkout: Checkout) -> None:
        # What a version manager leaves on PATH for versions that are not active.
        script(checkout.bin / "python3", "echo 'command not found' >&2", "exit 127")
        checkout.python(checkout.bin / "python3.12")
        assert checkout.run("venv", "demo").returncode == 0
        assert checkout.calls() == ["venv --clear", "pip install"]

    def test_no_python_says_what_to_do(self, checkout: Checkout) -> None:
        result = checkout.run("venv", "demo")
        assert result.returncode == 1
        assert "no Python 3.11, 3.12 or 3.13 found" in result.stderr
        assert "PYTHON=" in result.stderr

    def test_python_variable_decides(self, checkout: Checkout) -> None:
        checkout.python(checkout.bin / "python3")
        assert checkout.run("venv", "demo", PYTHON="nowhere").returncode == 1
        mine = checkout.python(checkout.root / "mine")
        assert checkout.run("venv", "demo", PYTHON=str(mine)).returncode == 0


class TestTest:
    EVERYTHING = ("ruff check", "ruff format", "mypy", "lint-imports", "pytest -n", "pytest -m")

    def test_runs_everything(self, checkout: Checkout) -> None:
        checkout.python(checkout.bin / "python3")
        assert checkout.run("test", "-k", "order").returncode == 0
        asked = checkout.log.read_text().splitlines()[-1]
        assert asked == "-m pytest -m not slow and not exhaustive and not soak -k order"
        assert checkout.calls()[2:] == list(self.EVERYTHING)

    def test_all_leaves_out_nothing(self, checkout: Checkout) -> None:
        checkout.python(checkout.bin / "python3")
        assert checkout.run("test", "--all", "-k", "order").returncode == 0
        assert checkout.log.read_text().splitlines()[-1] == "-m pytest -k order"

    @pytest.mark.parametrize("fails", ["ruff", "mypy", "pytest"])
    def test_one_failure_fails_after_the_rest_ran(self, checkout: Checkout, fails: str) -> None:
        checkout.python(checkout.bin / "python3", fails=fails)
        assert checkout.run("test", "-k", "order").returncode == 1
        assert checkout.calls()[2:] == list(self.EVERYTHING)


class TestGpuCheck:
    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(ROOT / "tools/gpu_check.py"), *arguments],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
            timeout=300,
        )

    def test_says_that_there_is_no_gpu(self) -> None:
        result = self.run()
        assert result.returncode == 2
        assert "TensorFlow sees no GPU here" in result.stdout

    def test_unknown_device(self) -> None:
        result = self.run("--device", "/GPU:7")
        assert result.returncode == 2
        assert "/GPU:7" in result.stdout

    @pytest.mark.slow
    def test_every_batch_on_the_logical_device(self) -> None:
        result = self.run("--device", "/CPU:1", "--size", "16", "--json")
        assert result.returncode == 0, result.stderr
        found = json.loads(result.stdout)
        assert found["right"] is True
        # 16 MiB of 12,288-byte rows are 1,365 rows: 11 batches of 128, features and labels each, twice.
        for way in ("for", "for, shuffled", "fit"):
            assert found[f"{way}: tensors"] == "44 on /CPU:1"
            assert found[f"{way}: most device memory"].endswith(" MiB")
        assert found["fit: waiting for data"].endswith(" s")
        for mib in (4, 16, 64):
            for memory in ("NumPy memory", "TensorFlow's memory", "pinned memory"):
                assert found[f"copy {mib} MiB, {memory}"]
