"""Devices by their names."""

from __future__ import annotations

from typing import Any

import pytest

from oocloader.errors import SettingError

pytestmark = pytest.mark.usefixtures("tf")


@pytest.mark.parametrize(
    ("named", "found"),
    [
        (None, "/CPU:0"),
        ("/CPU:0", "/CPU:0"),
        ("/CPU:1", "/CPU:1"),
        ("CPU:1", "/CPU:1"),
        ("/cpu:1", "/CPU:1"),
        ("/CPU", "/CPU:0"),
        ("/device:CPU:1", "/CPU:1"),
        ("/job:localhost/replica:0/task:0/device:CPU:1", "/CPU:1"),
    ],
)
def test_resolve(named: str | None, found: str) -> None:
    from oocloader.tfdata.device import resolve

    assert resolve(named) == found


@pytest.mark.parametrize(
    "named", ["/GPU:0", "/CPU:2", "gpu", "", "/", "nonsense", "/CPU:x", "/job:x/CPU:0", 1, ["/CPU:0"]]
)
def test_resolve_lists_the_devices_there_are(named: Any) -> None:
    from oocloader.tfdata.device import resolve

    with pytest.raises(SettingError) as caught:
        resolve(named)
    assert str(caught.value) == f"device={named!r} is not there; TensorFlow sees /CPU:0, /CPU:1"
