"""Callbacks for `fit`: training that is killed and goes on as if it had not been, and reports of epochs."""

from __future__ import annotations

import itertools
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import keras

from oocloader.errors import OocloaderError, SettingError
from oocloader.keras import backup_file, variables
from oocloader.keras.callback_state import check_known, state_of, take_state
from oocloader.keras.position import Trained
from oocloader.keras.sigterm import Termination
from oocloader.loader import Loader
from oocloader.order import whole
from oocloader.paths import local_path
from oocloader.tfdata import Batches

logger = logging.getLogger("oocloader")


class _EpochOver(int):
    """What `stop_training` is set to for the end of an epoch that is not the end of training."""


_EPOCH_OVER = _EpochOver(1)


class BackupAndRestore(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no type information
    """Saves model, optimizer and data position together, and goes on there when `fit` is started again.

    Give it to `fit` as the last callback, with a dataset of `loader`. A run that is killed and started
    again, however often, ends with the weights of one that was not: it trains on the batches that the
    other has not, with the same dropout.

    - `folder`: of this one training; made where it is missing. The file in it is replaced in one step.
    - `save_freq`: "epoch", or a number of batches. SIGTERM has it saved at the end of the batch and does
      then what it did before (ends the process, as a rule); so does the end of training.
    - `callbacks`: those whose state is saved too: `EarlyStopping`, `ReduceLROnPlateau`, `ModelCheckpoint`
      (its best value), and any that has `state_dict()` and `load_state_dict(state)`. They stand before this
      one in the list that `fit` gets.

    `fit(epochs=n)` trains what is missing of n epochs: after a training that is complete, nothing, and with
    a larger n it goes on. One that a callback stopped goes on too, unless that is an `EarlyStopping` handed
    over here. To train anew, remove the folder.

    Saved are all of `model.variables` (with the seeds of dropout and augmentation) and of
    `optimizer.variables`, the epoch, the batch and the position in the data. Not saved: metrics, so that
    the logs of an epoch that was broken are of the rest of it (its validation is complete), the history of
    earlier runs, the global seeds of Python, NumPy and TensorFlow, and other callbacks.

    The data is counted in steps of training, so that `class_weight`, `map` and `MirroredStrategy` work.
    Datasets that drop, add or keep batches (`take`, `filter`, `batch`, `cache`) cannot be continued; use
    options of the Loader. With `steps_per_epoch`, use `loader.dataset(epochs=None)`. Validation has a
    loader of its own.

    Raises `OocloaderError` children before the first step where the backup is damaged, or is of another
    model, optimizer or data.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        loader: Loader,
        save_freq: int | str = "epoch",
        *,
        callbacks: Sequence[Any] = (),
    ) -> None:
        super().__init__()
        if not isinstance(folder, (str, os.PathLike)) or not os.fspath(folder):
            raise SettingError(f"folder={folder!r} must be the path of a folder")
        if not isinstance(loader, Loader):
            raise SettingError(f"loader={loader!r} must be the oocloader.Loader that fit trains on")
        self._folder = local_path(folder, option="folder", remedy="name a folder of this machine")
        self._loader = loader
        if isinstance(save_freq, str) and save_freq != "epoch":
            raise SettingError(f'save_freq={save_freq!r} must be "epoch" or a number of batches')
        self._save_freq = None if save_freq == "epoch" else whole("save_freq", save_freq, least=1)
        if not isinstance(callbacks, (list, tuple)):
            raise SettingError(f"callbacks={callbacks!r} must be a list of callbacks")
        self._kept = tuple(callbacks)
        check_known(self._kept)
        self._termination = Termination()
        self._training = False
        self._steps: int | None = None
        self._epochs = 0
        self._resumed: tuple[int, backup_file.Backup] | None = None
        self._position = Trained(0, 0)
        self._direct: bool | None = None
        self._next_pass = 0
        self._epoch = 0
        self._first_step = 0
        self._done = 0
        self._unsaved = 0
        self._due = False

    # What Keras calls, in the order in which it does.

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        for callback in self._kept:
            if getattr(callback, "model", None) is not model:
                raise SettingError(
                    f"{type(callback).__name__} was handed to BackupAndRestore, so fit needs it too, and "
                    "before it: callbacks=[early_stopping, ..., backup]"
                )

    def on_train_begin(self, logs: Any = None) -> None:
        del logs
        backup_file.prepare(self._folder)
        self._steps = (self.params or {}).get("steps")
        self._epochs = (self.params or {}).get("epochs") or 0
        self._resumed = None
        self._unsaved = 0
        self._due = False
        self._direct = None
        found = backup_file.read(self._folder)
        if found is None:
            self._position = self._next_position()
            self._first_step = 0
        else:
            self._restore(found)
        # Of whoever runs the training: CallbackList stands in between.
        frame = sys._getframe(1)
        while frame.f_back is not None and isinstance(frame.f_locals.get("self"), keras.callbacks.Callback):
            frame = frame.f_back
        self._termination.hold(frame)
        self._training = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del logs
        resumed, self._resumed = self._resumed, None
        if resumed is None:
            self._first_step = 0
        else:
            expected, found = resumed
            self.model._initial_epoch = None
            if epoch != expected:
                raise SettingError(
                    f"{self._folder}: the backup goes on with epoch {expected}, but fit begins with epoch "
                    f"{epoch}; leave out initial_epoch=, or use another folder"
                )
            if self._first_step:
                # What a schedule has just set for the beginning of this epoch was in force already.
                variables.assign(self.model, variables.variables_of(self.model), found.arrays)
        self._epoch = epoch
        self._done = self._first_step

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        del batch, logs
        self._next_pass = self._loader.epoch
        if self._first_step and self._steps is not None:
            left = self._steps - self._done
            if left < getattr(self.model, "steps_per_execution", 1):
                self._shorten(left)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del logs
        done = self._first_step + batch + 1
        if self._steps is not None:
            done = min(done, self._steps)  # the last of several steps at once may find fewer
        self._count(done - self._done)
        self._done = done
        if self._over and self._first_step and not self.model.stop_training:
            # Keras would ask the shorter pass for as many batches as a whole one has.
            self.model.stop_training = _EPOCH_OVER
        if self._save_freq is not None and self._unsaved >= self._save_freq:
            if self._over:
                self._due = True
            else:
                self._save(self._epoch, self._done)
        self._obey_signal()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        del batch, logs
        if self._training:
            self._obey_signal()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del logs
        if self.model.stop_training is _EPOCH_OVER:
            self.model.stop_training = False
        stopped = bool(self.model.stop_training)
        if self._done == self._first_step:
            raise SettingError(
                f"epoch {epoch} had no batch: with steps_per_epoch, give fit a dataset without end, "
                f"loader.dataset(epochs=None); the backup in {self._folder} can then go on"
            )
        broken_off = stopped and not self._over
        if not broken_off:
            self._finish_epoch()
        last = epoch + 1 >= self._epochs
        if self._save_freq is None or self._due or stopped or self._termination.arrived or last:
            self._save(*((epoch, self._done) if broken_off else (epoch + 1, 0)))
        self._termination.deliver()

    def on_train_end(self, logs: Any = None) -> None:
        del logs
        self._training = False
        if self._resumed is not None:  # there was no epoch to train
            self._resumed = None
            self.model._initial_epoch = None
        self._termination.release()

    # Counting.

    @property
    def _over(self) -> bool:
        """Whether the epoch has all its batches. Where Keras does not know their number, it is a pass."""
        return self._position.batches == 0 if self._steps is None else self._done >= self._steps

    def _count(self, steps: int) -> None:
        """Move the position on by `steps` batches that were trained on."""
        self._unsaved += steps
        self._position, begun = self._position.after(steps, len(self._loader))
        at_border = self._position.batches == 0
        if begun or self._direct is None:
            self._direct = self._delivers_directly()
        if begun and self._direct:
            # Someone else may have had a pass in between, so the loader is asked whenever one begins.
            self._position = Trained(self._next_pass + begun - 1 + at_border, self._position.batches)
        if self._loader.epoch <= self._position.epoch - at_border:
            raise SettingError(
                "fit trains on batches that the loader of BackupAndRestore did not deliver; give both the "
                "same loader, and the dataset no cache()"
            )

    def _next_position(self) -> Trained:
        """Where the next pass of the loader starts: in the middle, where the user has loaded a state."""
        epoch = self._loader.epoch
        try:
            state = self._loader.state_dict()
        except OocloaderError:
            return Trained(epoch, 0)
        return Trained(epoch, state["batches"] if state["epoch"] == epoch else 0)

    def _delivers_directly(self) -> bool:
        """Whether training takes batches of the loader itself: not of a pipeline, which reads ahead."""
        try:
            self._loader.state_dict()
        except OocloaderError:
            return False
        return True

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
            self._position = Trained(self._position.epoch + (not crossed), 0)

    # Saving and restoring.

    def _obey_signal(self) -> None:
        if self._termination.arrived:
            # The validation of an epoch may take longer than the time that is left.
            self._save(*((self._epoch + 1, 0) if self._over else (self._epoch, self._done)))
            self._termination.deliver()

    def _save(self, epoch: int, batch: int) -> None:
        """Save that training goes on with `batch` of `epoch`."""
        position = self._position
        if position.batches == 0 and self._direct:
            position = Trained(self._loader.epoch, 0)
        found = variables.variables_of(self.model)
        states, arrays = state_of(self._kept)
        facts = {
            "epoch": epoch,
            "batch": batch,
            "steps": self._steps,
            "pass": len(self._loader),
            "position": [position.epoch, position.batches],
            "data": self._loader.state_at(position.epoch, position.batches),
            "optimizer": variables.optimizer_name(self.model),
            "variables": variables.described(found),
            "callbacks": states,
        }
        backup_file.write(self._folder, backup_file.Backup(facts, {**variables.read_out(found), **arrays}))
        self._unsaved = 0
        self._due = False

    def _restore(self, found: backup_file.Backup) -> None:
        facts = found.facts
        where = os.path.join(self._folder, backup_file.NAME)
        epoch, batch = facts["epoch"], facts["batch"]
        for part, at, saved, now in (
            ("an epoch", batch, facts["steps"], self._steps),
            ("a pass", facts["position"][1], facts["pass"], len(self._loader)),
        ):
            if at and saved != now:
                raise SettingError(
                    f"{where}: was saved after {at} of {saved} batches of {part}, which now has {now}; "
                    "give the same batch_size and steps_per_epoch, or use another folder"
                )
        variables.build(self.model, self._loader.element_spec, where)
        into = variables.variables_of(self.model)
        variables.check(
            into, facts["variables"], (facts["optimizer"], variables.optimizer_name(self.model)), where
        )
        try:
            self._loader.load_state_dict(facts["data"])
        except OocloaderError as error:
            raise type(error)(f"{where}: {error.message}", file=where) from error
        variables.assign(self.model, into, found.arrays)
        take_state(self._kept, facts["callbacks"], found.arrays)
        self._position = Trained(*facts["position"])
        self._first_step = batch
        if any(getattr(each, "stopped_epoch", 0) > 0 for each in self._kept):
            epoch = max(epoch, self._epochs)
        self._resumed = epoch, found
        self.model._initial_epoch = epoch
        if epoch >= self._epochs:
            logger.warning(
                "oocloader: the training in %s is complete: its model is restored, and no epoch trained; "
                "ask for more epochs, or remove the folder to train anew",
                self._folder,
            )
        else:
            logger.info("oocloader: going on with batch %d of epoch %d, from %s", batch, epoch, where)


class Report(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no type information
    """Says one line an epoch: how fast the rows of `loader` came, and what to change (`loader.report()`).

    `write` gets each line; None: standard output, behind what Keras says of the epoch.
    """

    def __init__(self, loader: Loader, *, write: Callable[[str], object] | None = None) -> None:
        super().__init__()
        if not isinstance(loader, Loader):
            raise SettingError(f"loader={loader!r} must be the oocloader.Loader that fit trains on")
        if write is not None and not callable(write):
            raise SettingError(f"write={write!r} must be a function of one line")
        self._loader = loader
        self._write = _to_stdout if write is None else write
        self._line: str | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        del logs
        self._line = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del epoch, logs
        self._say()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del logs
        # The progress bar ends its line after the callbacks were told of the end.
        self._line = f"epoch {epoch + 1}: {self._loader.report().summary}"

    def on_train_end(self, logs: Any = None) -> None:
        del logs
        self._say()

    def _say(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            self._write(line)


def _to_stdout(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
