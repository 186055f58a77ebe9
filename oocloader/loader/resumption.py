"""States of a loader: given for where its passes are, and gone on from."""

from collections.abc import Mapping
from typing import Any

from oocloader.errors import SettingError
from oocloader.loader.assembly import Assembly, Decisions
from oocloader.loader.state import Identity, Saved, identity, saved
from oocloader.memory import RequestedRows
from oocloader.order import Position, whole


class Resumable:
    """What a `Loader` has for its state."""

    _assembly: Assembly

    def state_dict(self) -> dict[str, Any]:
        """Where the passes are: `load_state_dict` of the same loader goes on there.

        That is behind the last batch that was delivered, not behind what was read ahead. All shards of a run
        save theirs after the same number of batches.

        Returns
        -------
        dict
            JSON under a kilobyte.

        Raises
        ------
        StateError
            After a pass of a pipeline derived from the dataset (`map`, a strategy): what such a pipeline
            delivers cannot be seen.
        """
        return self._state(self._assembly.positions.delivered())

    def state_at(self, epoch: int, batches: int) -> dict[str, Any]:
        """What `state_dict` gives when a pass has delivered its first batches.

        Parameters
        ----------
        epoch, batches : int
            Number of the pass, and batches of it; in a pass that went on after a restart with another
            number of shards, they count from there.

        Returns
        -------
        dict
            JSON under a kilobyte.

        Raises
        ------
        SettingError
            Where the pass has fewer batches.
        """
        epoch = whole("epoch", epoch, least=0, most=2**32 - 1)
        batches = whole("batches", batches, least=0)
        history = self._assembly.positions.history(epoch)
        most = self._assembly.decisions.batches_of(history)
        if batches > most:
            raise SettingError(f"batches={batches}: pass {epoch} has {most} batches")
        return self._state(Position(epoch, batches, history))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the next pass start where `state` was saved, and the one after it be the next epoch.

        Only that pass is short; `len` stays that of a whole one. Block and window are those of the state
        where this loader was not given its own.

        Parameters
        ----------
        state : dict
            What `state_dict` or `state_at` gave. Of another number of shards it is what all of them saved
            after the same number of batches: rows that none of them delivered are shared out anew.

        Raises
        ------
        DataError, SettingError
            For a state of other data or settings, saying which differ.
        """
        found, assembly = saved(state), self._assembly
        options, decisions = assembly.options, assembly.decisions
        requested = {"block": options.block, "window": options.window}
        free = [name for name in requested if name in found.facts and requested[name] is None]
        if options.shuffle != "window":
            free = []
        found.refuse_other(self._identity(), besides=free)
        if any(found.facts[name] != getattr(decisions.sizes, name) for name in free):
            decisions = _decisions_for(assembly, found)
        at = found.position_for(options.shard[1])
        batches = decisions.batches_of(at.history)
        if at.batches > batches:
            raise SettingError(f"the state has batches={at.batches}: pass {at.epoch} has {batches} batches")
        assembly.decisions = decisions
        if assembly.source is not None:
            assembly.source.take(decisions.read_config)
        assembly.positions.go_to(Position(at.epoch + 1) if at.batches == batches else at, resumed=True)

    def _state(self, at: Position) -> dict[str, Any]:
        """The state at a position; the end of a pass is the begin of the next."""
        if at.batches and at.batches >= self._assembly.decisions.batches_of(at.history):
            at = Position(at.epoch + 1)
        return self._identity().state(at, self._assembly.options.shard[1])

    def _identity(self) -> Identity:
        options, order = self._assembly.options, self._assembly.decisions.read_config.order
        return identity(
            self._assembly.data.arrays,
            order,
            batch_size=options.batch_size,
            drop_remainder=options.drop_remainder,
        )


def _decisions_for(assembly: Assembly, found: Saved) -> Decisions:
    """Decisions for the block and window of a state."""
    block, window = (whole(f"the state's {name}", found.facts[name], least=1) for name in ("block", "window"))
    try:
        return assembly.decide(RequestedRows(block), RequestedRows(window))
    except SettingError as error:
        raise SettingError(
            f"the state was saved with window={window} and block={block}, which this loader has no "
            f"memory for: {error.message.partition(', or ')[0]}"
        ) from error
