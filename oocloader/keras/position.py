"""Where training is in the data, counted in its steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trained:
    """`batches` of pass number `epoch` are trained on; a whole pass is the begin of the next."""

    epoch: int
    batches: int

    def after(self, steps: int, whole_pass: int) -> tuple[Trained, int]:
        """Where it is `steps` batches on, and how many passes were begun by them.

        >>> Trained(0, 9).after(4, whole_pass=11)
        (Trained(epoch=1, batches=2), 1)
        >>> Trained(0, 9).after(2, whole_pass=11)
        (Trained(epoch=1, batches=0), 0)
        >>> Trained(1, 0).after(11, whole_pass=11)
        (Trained(epoch=2, batches=0), 1)
        """
        passes, batches = divmod(self.batches + steps, whole_pass)
        touched = -(-(self.batches + steps) // whole_pass)
        return Trained(self.epoch + passes, batches), touched - (self.batches > 0)
