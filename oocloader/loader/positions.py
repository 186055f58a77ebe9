"""Where the passes of a loader begin, and how far the last one came."""

import threading

from oocloader.errors import StateError
from oocloader.order import History, Position
from oocloader.pipeline import Progress


class Positions:
    """The position of the next pass, and of what the last one delivered. Thread-safe."""

    def __init__(self) -> None:
        self.progress = Progress()
        self.epoch = 0
        """Number of the pass that starts next."""
        self._lock = threading.Lock()

    def coming(self) -> Position:
        """Where the next pass starts."""
        return self.progress.pending or Position(self.epoch)

    def take(self) -> Position:
        """Where a pass starts that starts now."""
        with self._lock:
            at = self.coming()
            self.progress.pending = None
            # Until its first batch: whoever asks meanwhile must not be told of the pass after it.
            self.progress.delivered = (at.epoch, at.batches, at.history)
            self.epoch = at.epoch + 1
        return at

    def go_to(self, at: Position, *, resumed: bool = False) -> None:
        """Have the next pass start there; `resumed`: as a state says."""
        with self._lock:
            self.epoch = at.epoch
            self.progress.pending = at if at.batches or at.history else None
            self.progress.resumed = at if resumed else None
            self.progress.delivered = None
            self.progress.unseen = False

    def delivered(self) -> Position:
        """Behind the last batch that was delivered. Raises `StateError` where batches cannot be seen."""
        with self._lock:
            if self.progress.unseen:
                raise StateError(
                    "batches of the last pass went through a pipeline derived from the dataset (map, a "
                    "strategy, class_weight of fit), where they cannot be counted: use "
                    "ooc.keras.BackupAndRestore, which counts training steps, or state_at(epoch, batches)"
                )
            delivered = self.progress.delivered
            return self.coming() if delivered is None else Position(*delivered)

    def history(self, epoch: int) -> History:
        """Of pass `epoch`, where it went on from a state of another number of shards."""
        at = self.progress.resumed
        return at.history if at is not None and at.epoch == epoch else ()
