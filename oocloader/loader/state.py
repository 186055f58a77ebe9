"""Where a loader is in its passes, as JSON that another process goes on from to the bit.

A state names what makes the order of rows, in words, so that a loader of other data or settings can refuse
it and say which of them differs. It never has a path or a time in it.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oocloader.errors import DataError, SettingError
from oocloader.order import Order, Position, RowSet
from oocloader.stores import StoredArray

VERSION = 1
# More than these characters of JSON are given by a digest, so that a state stays under a kilobyte.
_MOST_ARRAYS = 400


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes the batches of a loader, by the names it has in a state: JSON values."""

    facts: Mapping[str, Any]

    def state(self, position: Position, shards: int) -> dict[str, Any]:
        """The state at a position of a pass over that many shards."""
        return {
            "oocloader": VERSION,
            "epoch": position.epoch,
            "batches": position.batches,
            "shards": shards,
            "history": [list(part) for part in position.history],
            **self.facts,
        }


def identity(
    arrays: Sequence[StoredArray], order: Order, *, batch_size: int, drop_remainder: bool
) -> Identity:
    """What makes the batches of `arrays` in this order. Of options only those that the order depends on."""
    facts: dict[str, Any] = {"arrays": _listed([_described(array) for array in arrays])}
    facts["rows"] = _rows(order.rows)
    facts["shuffle"] = order.shuffle
    if order.shuffle:
        facts["seed"] = order.seed
    if order.shuffle == "window":
        facts["block"] = order.block
        facts["window"] = order.window
        facts["starts"] = _digest(np.array(order.chunk_origins)) if len(order.chunk_origins) > 1 else "0"
    return Identity({**facts, "batch_size": batch_size, "drop_remainder": drop_remainder})


@dataclass(frozen=True, slots=True)
class Saved:
    """A state that was read: a position of a pass that `shards` went through in step, and what made it."""

    position: Position
    shards: int
    facts: Mapping[str, Any]

    def refuse_other(self, ours: Identity, *, besides: Sequence[str] = ()) -> None:
        """Raise where it was not saved by a loader of these arrays and settings, `besides` excepted.

        Raises `DataError` for other data, `SettingError` for other settings.
        """
        for name in [*ours.facts, *(name for name in self.facts if name not in ours.facts)]:
            saved, here = self.facts.get(name), ours.facts.get(name)
            if saved == here or name in besides:
                continue
            if name in ("arrays", "rows", "starts"):
                raise DataError(
                    f"the state is of other data: it was saved for {_worded(name, saved)}, this loader has "
                    f"{_worded(name, here)}; load it into a loader of the same rows"
                )
            raise SettingError(
                f"the state was saved with {name}={saved!r}, this loader has {name}={here!r}: "
                f"its batches would be others; make the loader with {name}={saved!r}"
            )

    def position_for(self, shards: int) -> Position:
        """Where a loader goes on that is one of `shards`."""
        at = self.position
        if shards == self.shards:
            return at
        # Rows that no shard has delivered any of are as before, and can be shared out as one likes.
        history = (*at.history, (self.shards, at.batches)) if at.batches else at.history
        return Position(at.epoch, 0, history)


def saved(state: Any) -> Saved:
    """Read a state. Raises `SettingError` where it is none."""
    if not isinstance(state, Mapping):
        raise SettingError(f"a state is what state_dict() gave, a dict; got {type(state).__name__}")
    facts = dict(state)
    version = facts.pop("oocloader", None)
    if version != VERSION:
        raise SettingError(
            f"the state has version {version!r}, this oocloader reads {VERSION}; "
            "load what state_dict() gave, with the version of oocloader that saved it"
        )
    epoch = _number(facts, "epoch", least=0, most=2**32)
    batches = _number(facts, "batches", least=0)
    shards = _number(facts, "shards", least=1)
    history = facts.pop("history", None)
    if not isinstance(history, (list, tuple)) or not all(map(_counts, history)):
        raise _damaged("history", history)
    return Saved(Position(epoch, batches, tuple((count, done) for count, done in history)), shards, facts)


def _counts(pair: object) -> bool:
    """Whether this is a number of shards and of batches."""
    return isinstance(pair, (list, tuple)) and len(pair) == 2 and all(type(n) is int and n > 0 for n in pair)


def _number(facts: dict[str, Any], name: str, *, least: int, most: int | None = None) -> int:
    value = facts.pop(name, None)
    if type(value) is not int or value < least or (most is not None and value > most):
        raise _damaged(name, value)
    return value


def _damaged(name: str, value: object) -> SettingError:
    return SettingError(f"the state has {name}={value!r}: that is not what state_dict() gave")


def _described(array: StoredArray) -> str:
    info = array.info
    # The only array of a file may bear the name of the file, which is a path.
    stems = [os.path.splitext(os.path.basename(path))[0] for path in (array.store, *array.parts)]
    name = "" if info.name in stems else f"{info.name} "
    return f"{name}{info.dtype.name} {'x'.join(map(str, info.shape))}"


def _listed(arrays: list[str]) -> list[str]:
    text = json.dumps(arrays)
    if len(text) <= _MOST_ARRAYS:
        return arrays
    return [f"{len(arrays)} arrays, digest {hashlib.sha256(text.encode()).hexdigest()[:16]}"]


def _rows(rows: RowSet) -> str:
    if rows.picked is None:
        return f"{rows.start}:{rows.stop}"
    return f"{len(rows)} of {rows.start}:{rows.stop}, digest {_digest(rows.picked)}"


def _digest(numbers: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(numbers, "<i8").data).hexdigest()[:16]


def _worded(name: str, value: Any) -> str:
    if name == "arrays":
        return f"arrays {', '.join(map(str, value))}" if isinstance(value, list) else f"arrays {value!r}"
    return f"{name} {value}"
