"""How windows become stages of whole batches: pure arithmetic.

A stage is what crosses to the device in one span: whole batches (and at the end of a pass the last,
shorter one). Rows that do not fill a batch come first in the next stage.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from oocloader.order import Batching, Order, RowSequence, Window


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Windows read into one stage, one behind the other from row `base` of its buffer.

    From row `skipped` on lie `carried` rows of the stage before, then what the pass uses of the windows.
    Of these rows the first `delivered` are delivered, the next are carried on; the last `unused` rows of
    the buffer are not. Rows before `skipped` belong to a part of the pass that others deliver, or have
    delivered. `first` is the position in the pass of the first row delivered. A stage may deliver none, and
    one of the end may hold no window.
    """

    windows: tuple[Window, ...]
    carried: int
    skipped: int
    delivered: int
    first: int
    base: int = 0
    unused: int = 0

    @property
    def held(self) -> int:
        """Rows in the buffer."""
        return max(self.base + sum(window.rows for window in self.windows), self.skipped + self.carried)


def plan_stages(
    row_sequence: RowSequence, epoch: int, batching: Batching, *, start: int = 0
) -> Iterator[StagePlan]:
    """The stages of a pass from batch `start` of it on."""
    position = batching.row(start)
    plan: StagePlan | None = None
    carried = 0
    for window in row_sequence.windows(epoch, position=position):
        if position >= batching.end:
            return
        # Only the first window of a pass, or of a part of one that others began, begins in its middle.
        begin = window.begin + max(0, position + carried - window.first) if plan is None else window.begin
        if plan is not None and begin:
            yield plan
            plan = None
        if plan is None:
            base = max(0, carried - begin)
            plan = StagePlan((window,), carried, base + begin - carried, 0, position, base, window.unused)
        else:
            plan = replace(plan, windows=(*plan.windows, window), unused=window.unused)
        ready = plan.held - plan.skipped - plan.unused
        stop = batching.whole(position, position + ready)
        carried = ready - (stop - position)
        # What a start in the middle leaves of a window may fill no batch; with another it might not fit in.
        if stop > position or plan.skipped or plan.unused:
            yield replace(plan, delivered=stop - position)
            plan = None
            position = stop
        while plan is None and carried and (stop := batching.whole(position, position + carried)) > position:
            # A batch shorter than the others ends its stage.
            yield StagePlan((), carried, 0, stop - position, position, carried)
            carried -= stop - position
            position = stop


def stage_rows(order: Order, batch_size: int) -> int:
    """The most rows that a stage's buffer ever holds."""
    return min(order.window, len(order.rows)) + batch_size
