"""`BackupAndRestore`: training that is killed and goes on as if it had not been."""

import itertools
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from oocloader.errors import OocloaderError, SettingError
from oocloader.keras import backup_file, variables
from oocloader.keras.callback_state import check_supported, restore_states, states_of
from oocloader.keras.position import DataPosition
from oocloader.keras.sigterm import DeferredSigterm
from oocloader.loader import Loader
from oocloader.order import whole
from oocloader.paths import local_path
from oocloader.tfdata import Batches

logger = logging.getLogger("oocloader")


class _EpochOver(int):
    """What `stop_training` is set to for the end of an epoch that is not the end of training."""


_EPOCH_OVER = _EpochOver(1)


class BackupAndRestore(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no type information
    """Save model, optimizer and data position together, and go on there when `fit` is started again.

    Give it to `fit` as the last callback, with a dataset of `loader`. A run that is killed and started
    again, however often, ends with the weights of one that was not: it trains on the batches that the
    other has not, with the same dropout.

    Parameters
    ----------
    backup_dir : str or os.PathLike
        Folder of this one training; created where it is missing. The file in it is replaced in one step.
    loader : oocloader.Loader
        The loader that `fit` trains on. Validation has a loader of its own.
    save_freq : "epoch" or int, default "epoch"
        When to save: each epoch, or each so many batches. SIGTERM has the backup saved at the end of the
        batch, and does then what it did before (ends the process, as a rule); so does the end of training.
    callbacks : sequence of callbacks, optional
        Those whose state is saved too: `EarlyStopping`, `ReduceLROnPlateau`, `ModelCheckpoint` (its best
        value), and any that has `state_dict()` and `load_state_dict(state)`. They stand before this one in
        the list that `fit` gets.

    Raises
    ------
    SettingError
        An argument is not as described; `fit` was given other steps, callbacks or batches than the backup
        goes on with.
    OocloaderError
        Before the first step: the backup is damaged, or is of another model, optimizer or data.

    Notes
    -----
    `fit(epochs=n)` trains what is missing of n epochs: after a training that is complete, nothing, and with
    a larger n it goes on. One that a callback stopped goes on too, unless that is an `EarlyStopping` handed
    over here. To train anew, remove the folder.

    Saved are all of `model.variables` (with the seeds of dropout and augmentation) and of
    `optimizer.variables`, the epoch, the batch and the position in the data. Not saved: metrics, so that
    the logs of an epoch that was broken are of the rest of it (its validation is complete), the history of
    earlier runs, the global seeds of Python, NumPy and TensorFlow, and other callbacks.

    The data is counted in steps of training, so that `class_weight`, `map` and `MirroredStrategy` work.
    Datasets that drop, add or keep batches (`take`, `filter`, `batch`, `cache`) cannot be continued; use
    options of the Loader. With `steps_per_epoch`, use `loader.dataset(epochs=None)`.

    Examples
    --------
    ::

        stopping = keras.callbacks.EarlyStopping(patience=3)
        backup = ooc.keras.BackupAndRestore("run1", loader, callbacks=[stopping])
        model.fit(loader.dataset(), epochs=20, callbacks=[stopping, backup])
    """

    def __init__(
        self,
        backup_dir: str | os.PathLike[str],
        loader: Loader,
        save_freq: int | str = "epoch",
        *,
        callbacks: Sequence[Any] = (),
    ) -> None:
        super().__init__()
        if not isinstance(backup_dir, (str, os.PathLike)) or not os.fspath(backup_dir):
            raise SettingError(f"backup_dir={backup_dir!r} must be the path of a folder")
        if not isinstance(loader, Loader):
            raise SettingError(f"loader={loader!r} must be the oocloader.Loader that fit trains on")
        if isinstance(save_freq, str) and save_freq != "epoch":
            raise SettingError(f'save_freq={save_freq!r} must be "epoch" or a number of batches')
        if not isinstance(callbacks, (list, tuple)):
            raise SettingError(f"callbacks={callbacks!r} must be a list of callbacks")
        check_supported(callbacks)
        self._backup_dir = local_path(backup_dir, option="backup_dir", remedy="name a folder of this machine")
        self._loader = loader
        self._save_freq = None if save_freq == "epoch" else whole("save_freq", save_freq, least=1)
        self._callbacks = tuple(callbacks)
        self._sigterm = DeferredSigterm()
        self._training = False
        self._steps: int | None = None
        """Batches of an epoch, where Keras knows their number."""
        self._epochs = 0
        self._restored: tuple[int, backup_file.Backup] | None = None
        """The epoch that a backup goes on with, and the backup, until that epoch begins."""
        self._position = DataPosition(0, 0)
        self._direct: bool | None = None
        """Whether `fit` takes batches of the loader itself; `None` before the first."""
        self._next_pass = 0
        self._epoch = 0
        self._first_step = 0
        self._done = 0
        """Batches of this epoch that are trained on, those before `_first_step` by an earlier run."""
        self._unsaved = 0

    # What Keras calls, in the order in which it does.

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        for callback in self._callbacks:
            if getattr(callback, "model", None) is not model:
                what = f"{type(callback).__name__} was handed to BackupAndRestore, so fit needs it too"
                raise SettingError(f"{what}, and before it: callbacks=[early_stopping, ..., backup]")

    def on_train_begin(self, logs: Any = None) -> None:
        backup_file.prepare(self._backup_dir)
        self._steps = (self.params or {}).get("steps")
        self._epochs = (self.params or {}).get("epochs") or 0
        self._restored = None
        self._unsaved = 0
        self._direct = None
        backup = backup_file.read(self._backup_dir)
        if backup is None:
            self._position = self._next_position()
            self._first_step = 0
        else:
            self._restore(backup)
        # Of whoever runs the training: CallbackList stands in between.
        frame = sys._getframe(1)
        while frame.f_back is not None and isinstance(frame.f_locals.get("self"), keras.callbacks.Callback):
            frame = frame.f_back
        self._sigterm.defer(frame)
        self._training = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        restored, self._restored = self._restored, None
        if restored is None:
            self._first_step = 0
        else:
            expected, backup = restored
            self.model._initial_epoch = None
            if epoch != expected:
                what = f"{self._backup_dir}: the backup goes on with epoch {expected}, but fit begins with"
                raise SettingError(f"{what} epoch {epoch}; leave out initial_epoch=, or use another folder")
            if self._first_step:
                # What a schedule has just set for the beginning of this epoch was in force already.
                variables.assign(self.model, variables.variables_of(self.model), backup.arrays)
        self._epoch = epoch
        self._done = self._first_step

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._next_pass = self._loader.epoch
        if self._first_step and self._steps is not None:
            left = self._steps - self._done
            if left < getattr(self.model, "steps_per_execution", 1):
                self._shorten(left)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        done = self._first_step + batch + 1
        if self._steps is not None:
            done = min(done, self._steps)  # the last of several steps at once may find fewer
        self._count(done - self._done)
        self._done = done
        if self._over and self._first_step and not self.model.stop_training:
            # Keras would ask the shorter pass for as many batches as a whole one has.
            self.model.stop_training = _EPOCH_OVER
        # At the end of an epoch the backup waits for the validation.
        if self._is_due and not self._over:
            self._save(self._epoch, self._done)
        self._save_on_signal()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._training:
            self._save_on_signal()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self.model.stop_training is _EPOCH_OVER:
            self.model.stop_training = False
        stopped = bool(self.model.stop_training)
        if self._done == self._first_step:
            what = f"epoch {epoch} had no batch: with steps_per_epoch, give fit a dataset without end,"
            remedy = f"loader.dataset(epochs=None); the backup in {self._backup_dir} can then go on"
            raise SettingError(f"{what} {remedy}")
        broken_off = stopped and not self._over
        if not broken_off:
            self._finish_epoch()
        last = epoch + 1 >= self._epochs
        if self._save_freq is None or self._is_due or stopped or self._sigterm.pending or last:
            self._save(*((epoch, self._done) if broken_off else (epoch + 1, 0)))
        self._sigterm.deliver()

    def on_train_end(self, logs: Any = None) -> None:
        self._training = False
        if self._restored is not None:  # there was no epoch to train
            self._restored = None
            self.model._initial_epoch = None
        self._sigterm.restore()

    # Counting.

    @property
    def _over(self) -> bool:
        """Whether the epoch has all its batches. Where Keras does not know their number, it is a pass."""
        return self._position.batches == 0 if self._steps is None else self._done >= self._steps

    @property
    def _is_due(self) -> bool:
        """Whether the batches since the last backup are as many as there may be."""
        return self._save_freq is not None and self._unsaved >= self._save_freq

    def _count(self, steps: int) -> None:
        """Move the position on by `steps` batches that were trained on."""
        self._unsaved += steps
        self._position, begun = self._position.advanced(steps, len(self._loader))
        at_start = self._position.batches == 0
        if begun or self._direct is None:
            self._direct = self._loader_state() is not None
        if begun and self._direct:
            # Someone else may have had a pass in between, so the loader is asked whenever one begins.
            self._position = DataPosition(self._next_pass + begun - 1 + at_start, self._position.batches)
        if self._loader.epoch <= self._position.epoch - at_start:
            what = "fit trains on batches that the loader of BackupAndRestore did not deliver"
            raise SettingError(f"{what}; give both the same loader, and the dataset no cache()")

    def _next_position(self) -> DataPosition:
        """Where the next pass of the loader starts: in the middle, where the user has loaded a state."""
        epoch, state = self._loader.epoch, self._loader_state()
        return DataPosition(epoch, state["batches"] if state and state["epoch"] == epoch else 0)

    def _loader_state(self) -> Mapping[str, Any] | None:
        """State of the loader; `None` where training takes batches of a pipeline, which reads ahead."""
        try:
            return self._loader.state_dict()
        except OocloaderError:
            return None

    def _shorten(self, left: int) -> None:
        """Have the next run of several steps take `left` batches.

        Where a pass that ends early ends in the middle of a run, Keras forgets that there was one.
        """
        model = self.model
        run = model.train_function

        def shorter(batches: Any) -> Any:
            model.train_function = run
            # A pipeline is run by TensorFlow, which minds the end of the data by itself.
            return run(itertools.islice(batches, left) if isinstance(batches, Batches) else batches)

        model.train_function = shorter

    def _finish_epoch(self) -> None:
        """Where the data of an epoch ended before its steps did, the next one begins with a new pass."""
        short = self._steps is None or self._done < self._steps
        if short and self._position.batches:
            crossed = self._position.batches < getattr(self.model, "steps_per_execution", 1)
            self._position = DataPosition(self._position.epoch + (not crossed), 0)

    # Saving and restoring.

    def _save_on_signal(self) -> None:
        if self._sigterm.pending:
            # The validation of an epoch may take longer than the time that is left.
            self._save(*((self._epoch + 1, 0) if self._over else (self._epoch, self._done)))
            self._sigterm.deliver()

    def _save(self, epoch: int, batch: int) -> None:
        """Save that training goes on with `batch` of `epoch`."""
        position = self._position
        if position.batches == 0 and self._direct:
            position = DataPosition(self._loader.epoch, 0)
        values = variables.variables_of(self.model)
        states, arrays = states_of(self._callbacks)
        facts = {
            "epoch": epoch,
            "batch": batch,
            "steps": self._steps,
            "pass": len(self._loader),
            "position": [position.epoch, position.batches],
            "data": self._loader.state_at(position.epoch, position.batches),
            "optimizer": variables.optimizer_name(self.model),
            "variables": variables.descriptions(values),
            "callbacks": states,
        }
        arrays |= {key: each.numpy() for key, each in values.items()}
        backup_file.write(self._backup_dir, backup_file.Backup(facts, arrays))
        self._unsaved = 0

    def _restore(self, backup: backup_file.Backup) -> None:
        facts, where = backup.facts, os.path.join(self._backup_dir, backup_file.NAME)
        self._check_lengths(facts, where)
        variables.build(self.model, self._loader.element_spec, where)
        targets = variables.variables_of(self.model)
        optimizers = facts["optimizer"], variables.optimizer_name(self.model)
        variables.check(targets, facts["variables"], optimizers, where)
        try:
            self._loader.load_state_dict(facts["data"])
        except OocloaderError as error:
            raise type(error)(f"{where}: {error.message}", file=where) from error
        variables.assign(self.model, targets, backup.arrays)
        restore_states(self._callbacks, facts["callbacks"], backup.arrays)
        self._position = DataPosition(*facts["position"])
        epoch, self._first_step = facts["epoch"], facts["batch"]
        if any(getattr(each, "stopped_epoch", 0) > 0 for each in self._callbacks):
            epoch = max(epoch, self._epochs)
        self._restored = epoch, backup
        self.model._initial_epoch = epoch
        if epoch >= self._epochs:
            what = "oocloader: the training in %s is complete: its model is restored, and no epoch trained"
            logger.warning(
                f"{what}; ask for more epochs, or remove the folder to train anew", self._backup_dir
            )
        else:
            what = "oocloader: going on with batch %d of epoch %d, from %s"
            logger.info(what, self._first_step, epoch, where)

    def _check_lengths(self, facts: Mapping[str, Any], where: str) -> None:
        """Raise `SettingError` where the middle of an epoch or a pass would be elsewhere now."""
        for part, at, saved, now in (
            ("an epoch", facts["batch"], facts["steps"], self._steps),
            ("a pass", facts["position"][1], facts["pass"], len(self._loader)),
        ):
            if at and saved != now:
                what = f"{where}: was saved after {at} of {saved} batches of {part}, which now has {now}"
                remedy = "give the same batch_size and steps_per_epoch, or use another folder"
                raise SettingError(f"{what}; {remedy}")
