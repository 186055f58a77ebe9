"""Conversion: a source that `open_store` opens becomes a chunked HDF5 or Zarr store.

- `run`: the order of all steps, from `options` on; `convert_report` is what it ends with
- `sources`, `new_array`, `array_names`: what is read, and what it becomes under which name
- `derived_rows`, `casting`, `transposing`, `shuffling`, `scratch`: rows made of the source's rows
- `store_plan`, `chunking`, `auto_codec`, `encode`, `checksums`: what will be written, and how it is encoded
- `destination`, `workspace`, `journal`, `identity`, `usable_pieces`: the unfinished store, and what is done
- `write`, `copying`, `worker_threads`, `sinks`, `extents`, `hdf5_writer`, `zarr_writer`: writes it
- `read_back`: checks the new store; `publish`: syncs it and renames it to the destination
- `verification`: a store against its manifest, or another store
"""

from oocloader.conversion.convert_report import ConvertReport
from oocloader.conversion.run import convert
from oocloader.conversion.verification import VerifyReport, verify

__all__ = [
    "ConvertReport",
    "VerifyReport",
    "convert",
    "verify",
]
