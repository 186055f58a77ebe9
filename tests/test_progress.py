"""Progress bars: on stderr where somebody looks at it, and without a thread that stays."""

from __future__ import annotations

import io
import threading

import pytest

from oocloader.progress import bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("shown", [False, True])
def test_a_bar_is_shown_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, shown: bool, terminal: bool
) -> None:
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    before = threading.active_count()
    with bar(4_000_000, shown=shown) as running:
        running.update(1_000_000)
        running.update(3_000_000)
        assert threading.active_count() == before
    assert ("4.00M/4.00M" in stream.getvalue()) == (shown and terminal)
    assert stream.getvalue() == "" or (shown and terminal)
