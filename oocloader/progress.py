"""Progress bars on stderr."""

from tqdm import tqdm


class _Bar(tqdm):  # type: ignore[misc] # tqdm has no stubs
    monitor_interval = 0  # else a thread is started, which outlives the bar


def bar(total_nbytes: int, *, shown: bool) -> _Bar:
    """A bar over bytes, a context manager with `update(nbytes)`; silent where stderr is no terminal."""
    return _Bar(total=total_nbytes, unit="B", unit_scale=True, disable=None if shown else True)
