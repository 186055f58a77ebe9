"""Conversion: a source that `open_store` opens becomes a chunked HDF5 or Zarr store."""

from oocloader.conversion.convert_report import ConvertReport
from oocloader.conversion.run import convert
from oocloader.conversion.verification import VerifyReport, verify

__all__ = [
    "ConvertReport",
    "VerifyReport",
    "convert",
    "verify",
]
