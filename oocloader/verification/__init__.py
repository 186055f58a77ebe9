"""Verification: whether a store holds what was written to it, or what another store holds."""

from __future__ import annotations

from oocloader.verification.report import VerifyReport
from oocloader.verification.run import verify

__all__ = ["VerifyReport", "verify"]
