"""What every test of Zarr stores runs in."""

from __future__ import annotations

import warnings
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def quiet() -> Any:
    """zarr-python warns of codecs without a specification while the inputs are written."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"zarr\..*")
        warnings.filterwarnings("ignore", message="Numcodecs codecs are not in the Zarr version 3")
        yield
