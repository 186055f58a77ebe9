"""Digits and what is grown from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oocloader.cli.demo.digits import HELD_OUT, ROW_SHAPE, Digits, load_digits, write_grown

MIB = 1 << 20


@pytest.fixture(scope="module")
def digits() -> Digits:
    return load_digits(0)


def grow(
    digits: Digits, rows: int, folder: Path, *, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    folder.mkdir(exist_ok=True)
    images, labels = folder / "images.npy", folder / "labels.npy"
    pieces = list(write_grown(digits, rows, images=images, labels=labels, seed=seed))
    return np.load(images), np.load(labels), pieces


class TestDigits:
    def test_every_digit_is_used_once(self, digits: Digits) -> None:
        from sklearn.datasets import load_digits as bundled

        both = np.concatenate([digits.source_images, digits.held_out_images])
        labels = np.concatenate([digits.source_labels, digits.held_out_labels])
        assert both.shape == (1797, *ROW_SHAPE)
        assert np.array_equal(np.bincount(labels), np.bincount(bundled().target))
        assert len(np.unique(both.reshape(1797, -1), axis=0)) == 1797

    def test_held_out_in_proportion(self, digits: Digits) -> None:
        assert len(digits.held_out_labels) == HELD_OUT
        assert set(np.bincount(digits.held_out_labels)) <= {35, 36, 37}

    def test_enlarging_keeps_the_picture(self, digits: Digits) -> None:
        from sklearn.datasets import load_digits as bundled

        small = digits.held_out_images.reshape(HELD_OUT, 8, 4, 8, 4).mean(axis=(2, 4)).reshape(HELD_OUT, -1)
        originals = bundled().data
        nearest = np.argmin(
            ((small[:, np.newaxis] / 255 * 16 - originals[np.newaxis]) ** 2).sum(axis=2), axis=1
        )
        assert np.array_equal(bundled().target[nearest], digits.held_out_labels)


class TestGrown:
    def test_rows_in_bounded_pieces(self, digits: Digits, tmp_path: Path) -> None:
        images, labels, pieces = grow(digits, 5000, tmp_path)
        assert images.shape == (5000, *ROW_SHAPE)
        assert images.dtype == np.uint8
        assert labels.shape == (5000,)
        assert labels.dtype == np.uint8
        assert sum(pieces) == 5000
        assert max(pieces) * images[0].nbytes <= 4 * MIB

    def test_seed_decides_the_bytes(self, digits: Digits, tmp_path: Path) -> None:
        first, again, other = (
            grow(digits, 500, tmp_path / str(place), seed=seed)[0] for place, seed in enumerate((7, 7, 8))
        )
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)

    def test_label_belongs_to_image(self, digits: Digits, tmp_path: Path) -> None:
        # Flat images, as grey as their label says: turning, shifting and noise leave the middle alone.
        labels = np.arange(10, dtype=np.uint8)
        flat = np.broadcast_to((25 * labels)[:, None, None, None], (10, *ROW_SHAPE)).astype(np.uint8)
        images, found, _ = grow(replace(digits, source_images=flat, source_labels=labels), 2000, tmp_path)
        middle = images[:, 12:20, 12:20].mean(axis=(1, 2, 3))
        assert np.abs(middle - 25.0 * found).max() < 10
        assert set(found) == set(labels)

    def test_rows_differ(self, digits: Digits, tmp_path: Path) -> None:
        images, _, _ = grow(digits, 1000, tmp_path)
        assert len(np.unique(images.reshape(1000, -1), axis=0)) == 1000
