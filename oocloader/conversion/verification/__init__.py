"""Verification: whether a store holds what was written to it, or what another store holds."""

from __future__ import annotations

from oocloader.conversion.verification.report import VerifyReport
from oocloader.conversion.verification.run import verify

__all__ = ["VerifyReport", "verify"]
