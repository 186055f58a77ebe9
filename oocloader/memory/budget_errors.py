"""Whether a budget has room for what it should hold, and what would do where it has not."""

import bisect
from dataclasses import replace

from oocloader.errors import SettingError
from oocloader.memory.window_size import WINDOWS, Budget, RequestedRows, SizingInputs

_MEASURED = {
    "host_memory": "a quarter of the free memory, 2 GiB at most",
    "device_memory": "half of the GPU's memory, the rest being for the model",
}


def check_budget(inputs: SizingInputs, option: Budget) -> None:
    """Raise `SettingError` where the budget `option`, written or else measured, is too small."""
    written = inputs.written(option)
    measured = inputs.free_host_memory if option == "host_memory" else inputs.free_device_memory
    budget = measured if written is None else written
    if budget is None or budget >= inputs.needed(option):
        return
    remedy = f"give at least {option}={_smallest_budget(inputs, option)}{_or(inputs, option, budget)}"
    if written is None:
        what = (
            f"windows of {inputs.window_rows()[0]} rows need {inputs.needed(option)} bytes of {option}, more "
            f"than the {budget} bytes ({_MEASURED[option]}) that are taken unasked"
        )
    else:
        what = f"{option}={written} is too small {_too_small_for(inputs, option)}"
    raise SettingError(f"{what}: {remedy}")


def _too_small_for(inputs: SizingInputs, option: Budget) -> str:
    """What a written budget has no room for, in words."""
    if inputs.window is not None:
        return f"for windows of {inputs.window_rows()[0]} rows"
    besides = inputs.besides_unasked(option)
    if besides > WINDOWS[option] * inputs.smallest * inputs.row_nbytes:
        return f"to leave half of it to windows: {besides} bytes are needed besides them"
    return f"for windows of {inputs.smallest} rows"


def _smallest_budget(inputs: SizingInputs, option: Budget) -> int:
    """The smallest written budget that is accepted."""

    def accepted(nbytes: int) -> bool:
        host = option == "host_memory"
        tried = replace(inputs, host_memory=nbytes) if host else replace(inputs, device_memory=nbytes)
        return nbytes >= tried.needed(option)

    high = 1
    while not accepted(high):
        high *= 2
    return bisect.bisect_left(range(high), True, lo=high // 2, key=accepted)


def _or(inputs: SizingInputs, option: Budget, budget: int) -> str:
    """What else would do, for people."""
    if option == "host_memory" and inputs.cached_nbytes:
        return f", or cache= a folder: cache='memory' keeps {inputs.cached_nbytes} bytes of rows"
    fitting = _fitting_window(inputs, option, budget)
    if fitting is not None:
        return f", or window={fitting}"
    if inputs.window is not None:
        return ", or a smaller window"
    cut = inputs.cut_by(inputs.alignment.unit) if inputs.shuffle and inputs.rows > inputs.smallest else []
    if option == "host_memory" and cut:
        names = ", ".join(repr(column.name) for column in cut)
        return (
            f", or convert {names}, kept decoded for all windows, to chunks of {inputs.alignment.unit} rows "
            f"(oocloader convert --chunk-rows {inputs.alignment.unit})"
        )
    if inputs.smallest > 1:
        return f", or convert to smaller chunks than {inputs.smallest} rows (oocloader convert --chunk-rows)"
    return ", or a smaller batch_size"


def _fitting_window(inputs: SizingInputs, option: Budget, budget: int) -> int | None:
    """The most rows of whole chunks that a window could have, None where none would do."""
    current = inputs.window_rows()[0]
    for unit in dict.fromkeys((inputs.alignment.unit, inputs.smallest)):
        block_rows = unit if inputs.block is None else inputs.block.rows_of(inputs.row_nbytes)
        for cut_by in dict.fromkeys((unit, block_rows)):
            spare = budget - inputs.besides(option, min(unit, inputs.rows - 1), cut_by)
            rows = min(spare // WINDOWS[option] // inputs.row_nbytes, current)
            rows -= rows % unit
            if rows >= inputs.smallest:
                requested = replace(inputs, window=RequestedRows(rows))
                if requested.needed(option) <= budget:
                    return rows
    return None
