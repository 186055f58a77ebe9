#!/usr/bin/env python3
"""`oocloader convert` for people who work from a checkout: tools/npy_to_store.py images.npy images.zarr."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from oocloader.cli import main

if __name__ == "__main__":
    sys.exit(main(["convert", *sys.argv[1:]]))
