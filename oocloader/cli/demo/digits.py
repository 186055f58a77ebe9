"""Real handwritten digits, grown to any size by turning, shifting and noise."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROW_SHAPE = (32, 32, 1)
ROW_BYTES = 32 * 32
HELD_OUT = 360

_ENLARGE = 4  # 8x8 -> 32x32: rows of a kilobyte, so that 256 MiB is an epoch of seconds, not of minutes
_ANGLES = np.linspace(-15.0, 15.0, 9)  # degrees
_SHIFT = 3  # pixels, at most, each way
_NOISE = 20  # grey levels of 255, at most, each way
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class Digits:
    """Images `(rows, 32, 32, 1)` uint8 with labels `(rows,)` uint8.

    `source_*` are the digits that training rows grow from, `held_out_*` the ones that no training row
    has to do with.
    """

    source_images: np.ndarray
    source_labels: np.ndarray
    held_out_images: np.ndarray
    held_out_labels: np.ndarray


def load_digits(seed: int) -> Digits:
    """scikit-learn's 1,797 digits, enlarged; 360 of them held out, every digit in proportion."""
    from sklearn.datasets import load_digits as load
    from sklearn.model_selection import train_test_split

    bundled = load()
    source, held_out, source_labels, held_out_labels = train_test_split(
        bundled.images, bundled.target, test_size=HELD_OUT, stratify=bundled.target, random_state=seed
    )
    return Digits(
        source_images=_enlarge(source),
        source_labels=source_labels.astype(np.uint8),
        held_out_images=_enlarge(held_out),
        held_out_labels=held_out_labels.astype(np.uint8),
    )


def _enlarge(images: np.ndarray) -> np.ndarray:
    """`(n, 8, 8)` values 0 to 16 -> `(n, 32, 32, 1)` uint8."""
    from scipy import ndimage

    zoom = (1, _ENLARGE, _ENLARGE)
    grey = ndimage.zoom(images * (255 / 16), zoom, order=1, grid_mode=True, mode="grid-constant")
    enlarged: np.ndarray = np.clip(grey, 0, 255).astype(np.uint8)
    return enlarged[..., np.newaxis]


def write_grown(digits: Digits, rows: int, *, images: Path, labels: Path, seed: int) -> Iterator[int]:
    """Write `rows` varied training rows to two `.npy` files, some at a time; yields how many.

    Memory stays under 64 MiB whatever `rows` is. The same seed writes the same bytes.
    """
    turned, turned_labels = _turned(digits)
    margin = ((0, 0), (_SHIFT, _SHIFT), (_SHIFT, _SHIFT))
    shifted = np.lib.stride_tricks.sliding_window_view(np.pad(turned, margin), (32, 32), axis=(1, 2))
    rng = np.random.default_rng(seed)
    with images.open("wb") as image_file, labels.open("wb") as label_file:
        for file, shape in ((image_file, (rows, *ROW_SHAPE)), (label_file, (rows,))):
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, rows, _ROWS_AT_ONCE):
            count = min(_ROWS_AT_ONCE, rows - start)
            which = rng.integers(0, len(turned), count)
            down, right = rng.integers(0, 2 * _SHIFT + 1, (2, count))
            grey = shifted[which, down, right].astype(np.int16)
            grey += rng.integers(-_NOISE, _NOISE, grey.shape, dtype=np.int8, endpoint=True)
            image_file.write(np.clip(grey, 0, 255).astype(np.uint8).data)
            label_file.write(turned_labels[which].data)
            yield count


def _turned(digits: Digits) -> tuple[np.ndarray, np.ndarray]:
    """Every source digit at every angle: `(n, 32, 32)` uint8 and the labels `(n,)`."""
    from scipy import ndimage

    upright = digits.source_images[..., 0]
    turned = [ndimage.rotate(upright, angle, axes=(2, 1), reshape=False, order=1) for angle in _ANGLES]
    return np.concatenate(turned), np.tile(digits.source_labels, len(_ANGLES))
