"""Verification: whether a store holds what was written to it, or what another store holds."""

from oocloader.conversion.verification.run import verify
from oocloader.conversion.verification.verify_report import VerifyReport

__all__ = ["VerifyReport", "verify"]
