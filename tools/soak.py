"""Kills a training at random moments, starts it again each time, and compares how it ends, bit by bit.

    python tools/soak.py --kills 20

A model with dropout is trained by `fit` in processes of their own, with `ooc.keras.BackupAndRestore`, on
a store that is made for it. Each is killed (SIGKILL) at a random moment, be it while it starts, restores,
trains or saves, and started again. Its variables at the end must be those of a training that was left alone,
and at no moment may the folder of the backup hold one that cannot be read. Exit code 0: all of that held.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROWS = 2000
BATCH_SIZE = 50
EPOCHS = 4
SAVE_FREQ = 3
# Long enough that a moment between two steps can be hit.
STEP_S = 0.004


def train(store: Path, folder: Path | None, result: Path) -> None:
    """One life: `fit` to its end, then the variables in `result`. Says "began" and "step" on the way."""
    import keras
    import tensorflow as tf

    import oocloader as ooc

    tf.config.experimental.enable_op_determinism()
    # After the first backup nothing of a seed may matter any more.
    begun = folder is not None and any(folder.glob("*.npz"))
    keras.utils.set_random_seed(os.getpid() if begun else 1)

    class Pulse(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no type information
        def on_train_begin(self, logs: Any = None) -> None:
            print("began", flush=True)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            print("step", flush=True)
            time.sleep(STEP_S)

    with (
        ooc.Loader(store, "x", "y", batch_size=BATCH_SIZE, shuffle=True, window=400, seed=5) as loader,
        ooc.Loader(store, "x", "y", batch_size=BATCH_SIZE, rows=slice(0, 100)) as test,
    ):
        model = keras.Sequential(
            [
                keras.Input((8, 8)),
                keras.layers.Rescaling(1 / 255),
                keras.layers.Flatten(),
                keras.layers.Dropout(0.2),
                keras.layers.Dense(16, activation="relu"),
                keras.layers.Dropout(0.5),
                keras.layers.Dense(1),
            ]
        )
        model.compile("adam", "mse")
        callbacks: list[Any] = [Pulse()]
        if folder is not None:
            callbacks.append(ooc.keras.BackupAndRestore(folder, loader, SAVE_FREQ))
        model.fit(
            loader.dataset(), epochs=EPOCHS, verbose=0, callbacks=callbacks, validation_data=test.dataset()
        )
    found = [*model.variables, *model.optimizer.variables]
    aside = result.with_suffix(".aside.npz")
    np.savez(aside, *[variable.numpy() for variable in found])
    aside.rename(result)


def started(store: Path, folder: Path | None, result: Path) -> subprocess.Popen[str]:
    root = Path(__file__).resolve().parent.parent
    search = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, __file__, "--life", store, "" if folder is None else folder, result],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": search},
    )


def ended(life: subprocess.Popen[str]) -> None:
    """Wait for the end of a life that is left alone."""
    _, said = life.communicate(timeout=600)
    if life.returncode != 0:
        raise SystemExit(f"a training failed with exit code {life.returncode}:\n{said}")


@dataclass
class Soak:
    """Lives of trainings in `folder`, and what the one that nobody killed ended with."""

    folder: Path
    random: random.Random
    expected: Path
    steps_s: float
    kills: int = 0
    """So many, in so many trainings."""
    trainings: int = 0

    def training(self, kills: int) -> None:
        """A training that is killed at most so many times. Raises SystemExit where it ends otherwise."""
        self.trainings += 1
        folder = self.folder / f"backup{self.trainings}"
        result = self.folder / f"result{self.trainings}.npz"
        for _ in range(kills):
            if self.killed(folder, result, within_s=2 * self.steps_s / kills):
                self.kills += 1
                readable(folder)
            if result.exists():
                break
        if not result.exists():
            ended(started(self.folder / "store.h5", folder, result))
        compared(result, self.expected)

    def killed(self, folder: Path, result: Path, within_s: float) -> bool:
        """One life, killed at a random moment: of its beginning, or of so many seconds of steps."""
        life = started(self.folder / "store.h5", folder, result)
        assert life.stdout is not None
        awaited, seconds = ("began", 0.5) if self.random.random() < 0.2 else ("step", within_s)
        for line in life.stdout:
            if line.strip() == awaited:
                break
        time.sleep(self.random.uniform(0, seconds))
        if life.poll() is None:
            life.kill()
            life.communicate()
            return True
        ended(life)
        return False


def readable(folder: Path) -> None:
    from oocloader.keras.backup_file import read

    read(str(folder))


def compared(result: Path, expected: Path) -> None:
    with np.load(result) as found, np.load(expected) as wanted:
        if found.files != wanted.files:
            raise SystemExit(f"{len(found.files)} variables instead of {len(wanted.files)}")
        for name in wanted.files:
            if found[name].tobytes() != wanted[name].tobytes():
                raise SystemExit(f"{name} differs:\n{found[name]}\nexpected:\n{wanted[name]}")


def soak(folder: Path, *, kills: int, seed: int) -> Soak:
    """Trainings in `folder` until so many processes were killed. Raises SystemExit if one ends otherwise."""
    import h5py

    source = np.random.default_rng(0)
    with h5py.File(folder / "store.h5", "w") as file:
        file.create_dataset("x", data=source.integers(0, 256, (ROWS, 8, 8), np.uint8), chunks=(64, 8, 8))
        file.create_dataset("y", data=source.random(ROWS, np.float32))
    expected = folder / "expected.npz"
    alone = started(folder / "store.h5", None, expected)
    assert alone.stdout is not None
    while alone.stdout.readline().strip() not in ("step", ""):
        pass
    began = time.monotonic()
    ended(alone)
    run = Soak(folder, random.Random(seed), expected, time.monotonic() - began)
    while run.kills < kills:
        run.training(kills - run.kills)
    return run


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--kills", type=int, default=20, help="how many processes are killed")
    options.add_argument("--seed", type=int, default=None, help="of the moments; default: another each time")
    options.add_argument("--life", nargs=3, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.life is not None:
        store, folder, result = given.life
        train(Path(store), Path(folder) if folder else None, Path(result))
        return
    seed = random.randrange(2**32) if given.seed is None else given.seed
    with tempfile.TemporaryDirectory() as folder:
        run = soak(Path(folder), kills=given.kills, seed=seed)
    print(
        f"{run.kills} kills (seed {seed}) in {run.trainings} trainings: "
        "each ended as the one that was left alone"
    )


if __name__ == "__main__":
    main()
