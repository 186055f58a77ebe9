"""One epoch as windows, read ahead, kept where they fit.

- `epoch_pass`: one run through an epoch, from what all passes of a loader have in common
- `stage_plan`, `staging`: how windows become stages of whole batches; their buffers and jobs
- `prefetch`: threads that prepare the next stages while one is used
- `readable_rows`: what is delivered before the first row that cannot be read
- `next_epoch`: the first windows of the next epoch, read while the last of this one is used
- `cache_option`, `cached_reader`, `row_storage`: decoded rows held in memory or in a folder
- `cache_file`, `origin`: a file of decoded rows, and what it was made of
- `residency`, `resident_rows`: whether all rows stay on the device, and how they get there
- `class_weights`, `transform_seeds`: what a batch is weighted and augmented by
"""

from oocloader.pipeline.cache_option import CacheOption
from oocloader.pipeline.cached_reader import CachedReader
from oocloader.pipeline.class_weights import ClassWeights, class_weights
from oocloader.pipeline.epoch_pass import EpochPass, Progress, ReadConfig
from oocloader.pipeline.next_epoch import NextEpoch
from oocloader.pipeline.prefetch import in_read_thread
from oocloader.pipeline.residency import Residency, Resident, parse_residency
from oocloader.pipeline.resident_rows import HostRows, read_all, with_row_numbers
from oocloader.pipeline.staging import Gather
from oocloader.pipeline.transform_seeds import wants_seed

__all__ = [
    "CacheOption",
    "CachedReader",
    "ClassWeights",
    "EpochPass",
    "Gather",
    "HostRows",
    "NextEpoch",
    "Progress",
    "ReadConfig",
    "Residency",
    "Resident",
    "class_weights",
    "in_read_thread",
    "parse_residency",
    "read_all",
    "wants_seed",
    "with_row_numbers",
]
