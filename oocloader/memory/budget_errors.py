"""Whether a budget has room for what it should hold, and what would do where it has not."""

from __future__ import annotations

import dataclasses

from oocloader.errors import SettingError
from oocloader.memory.window_size import SizingInputs

_MEASURED = {
    "host_memory": "a quarter of the free memory, 2 GiB at most",
    "device_memory": "half of the GPU's memory, the rest being for the model",
}


def check_budget(case: SizingInputs, option: str, measured: int | None) -> None:
    """Raise `SettingError` where the budget `option`, written or else `measured`, is too small."""
    given = case.given(option)
    budget = measured if given is None else given
    if budget is None or budget >= case.needed(option):
        return
    smallest = _smallest_budget(case, option)
    remedy = f"give at least {option}={smallest}{_or(case, option, budget)}"
    if given is None:
        what = (
            f"windows of {case.window_rows()[0]} rows need {case.needed(option)} bytes of {option}, more "
            f"than the {budget} bytes ({_MEASURED[option]}) that are taken unasked"
        )
    else:
        what = f"{option}={given} is too small {_too_small_for(case, option)}"
    raise SettingError(f"{what}: {remedy}")


def _too_small_for(case: SizingInputs, option: str) -> str:
    """What a written budget has no room for, in words."""
    if case.window is not None:
        return f"for windows of {case.window_rows()[0]} rows"
    besides = case.besides_unasked(option)
    if besides > case.windows(option) * case.smallest * case.row_nbytes:
        return f"to leave half of it to windows: {besides} bytes are needed besides them"
    return f"for windows of {case.smallest} rows"


def _smallest_budget(case: SizingInputs, option: str) -> int:
    """The smallest written budget that is accepted."""

    def accepted(nbytes: int) -> bool:
        return nbytes >= dataclasses.replace(case, **{option: nbytes}).needed(option)  # type: ignore[arg-type]  # a budget

    low, high = 0, 1
    while not accepted(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if accepted(middle) else (middle, high)
    return high


def _or(case: SizingInputs, option: str, budget: int) -> str:
    """What else would do, for people."""
    if option == "host_memory" and case.cached:
        return f", or cache= a folder: cache='memory' keeps {case.cached} bytes of rows"
    fitting = _fitting_window(case, option, budget)
    if fitting is not None:
        return f", or window={fitting}"
    if case.window is not None:
        return ", or a smaller window"
    cut = case.cut(case.cuts.unit) if case.shuffle and case.rows > case.smallest else []
    if option == "host_memory" and cut:
        names = ", ".join(repr(column.name) for column in cut)
        return (
            f", or convert {names}, kept decoded for all windows, to chunks of {case.cuts.unit} rows "
            f"(oocloader convert --chunk-rows {case.cuts.unit})"
        )
    if case.smallest > 1:
        return f", or convert to smaller chunks than {case.smallest} rows (oocloader convert --chunk-rows)"
    return ", or a smaller batch_size"


def _fitting_window(case: SizingInputs, option: str, budget: int) -> int | None:
    """The most rows of whole chunks that a window could have, None where none would do."""
    windows = case.windows(option)
    current = case.window_rows()[0]
    for unit in dict.fromkeys((case.cuts.unit, case.smallest)):
        for kept_for in (unit, case.block or unit):
            spare = budget - case.besides(option, min(unit, case.rows - 1), kept_for)
            rows = min(spare // windows // case.row_nbytes, current)
            rows -= rows % unit
            fits = rows >= case.smallest and _fits(case, option, budget, rows)
            if fits:
                return rows
    return None


def _fits(case: SizingInputs, option: str, budget: int, rows: int) -> bool:
    asked = dataclasses.replace(case, window=rows, about=False)
    return asked.needed(option) <= budget
