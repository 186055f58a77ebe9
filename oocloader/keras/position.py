"""Where training is in the data, counted in its steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DataPosition:
    """`batches` of pass number `epoch` are trained on; the end of a pass is the start of the next."""

    epoch: int
    batches: int

    def advanced(self, steps: int, pass_batches: int) -> tuple[DataPosition, int]:
        """Where it is `steps` batches on, and how many passes were begun by them.

        >>> DataPosition(0, 9).advanced(4, pass_batches=11)
        (DataPosition(epoch=1, batches=2), 1)
        >>> DataPosition(0, 9).advanced(2, pass_batches=11)
        (DataPosition(epoch=1, batches=0), 0)
        >>> DataPosition(1, 0).advanced(11, pass_batches=11)
        (DataPosition(epoch=2, batches=0), 1)
        """
        passes, batches = divmod(self.batches + steps, pass_batches)
        touched = -(-(self.batches + steps) // pass_batches)
        return DataPosition(self.epoch + passes, batches), touched - (self.batches > 0)
