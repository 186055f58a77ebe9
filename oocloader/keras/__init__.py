"""Callbacks of `fit`: a backup that goes on to the bit, and a line an epoch on where its time went."""

from __future__ import annotations

from oocloader.keras.callbacks import BackupAndRestore, Report

__all__ = [
    "BackupAndRestore",
    "Report",
]
