"""Callbacks of `fit`: a backup that goes on to the bit, and a line an epoch on where its time went.

The way through: `backup_and_restore` is the callback that counts steps and decides when to save;
`position` is where training is in the data; `variables` the values of model and optimizer;
`callback_state` what other callbacks remember; `backup_file` all of these in one file;
`sigterm` the signal that is put off until they are saved. `epoch_report` is the other callback.
"""

from oocloader.keras.backup_and_restore import BackupAndRestore
from oocloader.keras.epoch_report import EpochReport

__all__ = ["BackupAndRestore", "EpochReport"]
