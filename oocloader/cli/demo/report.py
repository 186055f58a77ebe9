"""What the demo measured: a table for the terminal, a dict for programs, a plot."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oocloader.cli.demo.digits import Digits
from oocloader.cli.demo.train import Training
from oocloader.sizes import MIB

ENOUGH = 0.97
"""Share of the held-out digits that a model must get right for the demo to pass."""


@dataclass(frozen=True, slots=True)
class DemoReport:
    """Everything measured; sizes in bytes. `str()` is the table."""

    rows: int
    data_bytes: int
    device_memory: int
    held_out: int
    trainings: tuple[Training, ...]
    folder: Path
    plot: Path

    @property
    def passed(self) -> bool:
        return all(training.accuracy >= ENOUGH for training in self.trainings)

    def as_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "rows": self.rows,
            "data_bytes": self.data_bytes,
            "device_memory_bytes": self.device_memory,
            "held_out": self.held_out,
            "enough_accuracy": ENOUGH,
            "passed": self.passed,
            "trainings": [_numbers(training) for training in self.trainings],
            "folder": str(self.folder),
            "plot": str(self.plot),
        }

    def __str__(self) -> str:
        budget = self.device_memory
        size = f"{self.rows:,} images, {self.data_bytes / MIB:.0f} MiB"
        times = f"{self.data_bytes / budget:.1f} times the device budget of {budget / MIB:.0f} MiB"
        judged = f"accuracy is on {self.held_out} digits that no training image was made from"
        enough = f"{ENOUGH:.2f} is {'reached' if self.passed else 'NOT reached'}"
        table = "\n".join(_table(self.trainings))
        return f"{size}: {times}\n\n{table}\n\n{judged}; {enough}\nplot: {self.plot}"


_DERIVED = ("rows_per_s", "waiting_share", "cutting_share")


def _numbers(training: Training) -> dict[str, Any]:
    numbers = asdict(training)
    del numbers["losses"]
    return numbers | {name: getattr(training, name) for name in _DERIVED}


_HEAD = "store|on disk|windows|rows/s|waiting for data|cutting batches|peak memory|in training|accuracy"


def _table(trainings: Sequence[Training]) -> list[str]:
    rows = [_HEAD.split("|")] + [
        [
            training.store,
            f"{training.stored_bytes / MIB:.0f} MiB",
            f"{training.windows}",
            f"{training.rows_per_s:,.0f}",
            f"{training.waiting_share:.1%}",
            f"{training.cutting_share:.1%}",
            f"{training.peak_bytes / MIB:,.0f} MiB",
            f"{(training.peak_bytes - training.base_bytes) / MIB:+,.0f} MiB",
            f"{training.accuracy:.4f}",
        ]
        for training in trainings
    ]
    first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([row[0].ljust(first), *map(str.rjust, row[1:], others)]) for row in rows]


def save_plot(path: Path, digits: Digits, grown: np.ndarray, trainings: Sequence[Training]) -> None:
    """A PNG: digits as they are and as they were grown, and the loss as training went.

    `grown` is some training images, `(at least 48, 32, 32, 1)`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    sheet = np.concatenate([digits.source_images[:16], grown[:48]]).reshape(8, 8, 32, 32)
    left.imshow(sheet.transpose(0, 2, 1, 3).reshape(256, 256), cmap="gray_r")
    left.axhline(63.5, color="tab:red", linewidth=1)
    left.set(title="digits as they are, and grown from them", xticks=[], yticks=[])
    for training in trainings:
        right.plot(training.losses, label=training.store, linewidth=1)
    right.set(title="training loss", xlabel="batch", yscale="log")
    right.legend()
    figure.savefig(path, dpi=110)
