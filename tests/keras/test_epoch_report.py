"""A line an epoch, below what Keras prints of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import oocloader as ooc
from numbered import Numbered
from recorded import keras

pytestmark = pytest.mark.usefixtures("tf")


@pytest.fixture
def source(make_store: Callable[..., Numbered]) -> Any:
    return make_store("h5", 330, label_dtype="float32").source


def model() -> Any:
    layers = keras().layers
    compiled = keras().Sequential([keras().Input((4, 4)), layers.Flatten(), layers.Dense(1)])
    compiled.compile("sgd", "mse")
    return compiled


def test_a_line_an_epoch(
    source: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass(frozen=True)
    class Summary:
        summary: str

    monkeypatch.setattr(ooc.Loader, "report", lambda loader: Summary(f"before pass {loader.epoch}"))
    lines: list[str] = []
    with ooc.Loader(source, "x", "y") as loader, ooc.Loader(source, "x", "y") as test:
        fit = {"epochs": 2, "shuffle": False, "validation_data": test.dataset()}
        report = ooc.keras.EpochReport(loader, write=lines.append)
        model().fit(loader.dataset(), verbose=0, callbacks=[report], **fit)
        assert capsys.readouterr().out == ""
        model().fit(loader.dataset(), verbose=2, callbacks=[ooc.keras.EpochReport(loader)], **fit)
        printed = capsys.readouterr().out.splitlines()
    assert lines == ["epoch 1: before pass 1", "epoch 2: before pass 2"]
    # Each below the line that Keras prints of the epoch.
    assert [line.partition(" ")[0] for line in printed] == ["Epoch", "11/11", "epoch"] * 2
    assert printed[-1] == "epoch 2: before pass 4"


@pytest.mark.parametrize("given", [{"loader": 1}, {"write": 1}], ids=["loader", "write"])
def test_settings(source: Any, given: dict[str, Any]) -> None:
    with ooc.Loader(source, "x", "y") as loader, pytest.raises(ooc.SettingError):
        ooc.keras.EpochReport(**{"loader": loader, **given})


def test_keras_is_loaded_when_it_is_used() -> None:
    code = "import sys, oocloader as ooc; assert 'keras' not in sys.modules; print(ooc.keras.EpochReport)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("<class 'oocloader.keras.")
