"""How well window shuffling mixes, by arithmetic: one figure from 0 to 1.

The figure is the expected entropy of the labels of a batch, as a share of what a full shuffle gives, for
rows stored class by class in `CLASSES` classes of equal size. So it is the worst that a store of that
many classes does; rows stored in random order are mixed whatever the figure.

A window takes one block, each of the same chance, from each of `m` equal stretches of the array, and its
rows are permuted. A stretch that lies within one class gives a block of that class to every window; one
that holds the border of a class gives it one with the chance of the part on that side. So the number of
rows `k` that a class has in a window has a known distribution, of few values. A batch of `b` of the
window's `n` rows then has `j` of that class with the hypergeometric chance `P(j; n, k, b)`, and since the
entropy `-sum(j/b * log(j/b))` is a sum over classes, its mean needs nothing but these:

    H(n) = sum over classes of sum over k of P(k) * sum over j of P(j; n, k, b) * -(j/b) * log(j/b)

The figure is `H(window)` over `H(all rows)`, the mean over where stretches begin, which each epoch draws.
"""

import math

import numpy as np

CLASSES = 10
# With batches of 128, sixteen blocks a window reach 0.97, twelve 0.94, eight 0.85.
POOR = 0.95
# Places where the stretches may begin that the mean is taken over, and numbers of rows that the entropy of
# a batch is computed for: it is smooth between them. Four times as many of both changed no third digit.
_BEGINNINGS = 16
_NODES = 129


def mixing(rows: int, *, block: int, window: int, batch_size: int) -> float:
    """The mixing figure of windows of `window` rows in blocks of `block`, for `rows` rows in all.

    >>> mixing(100_000, block=256, window=100_000, batch_size=128)
    1.0
    >>> round(mixing(100_000, block=256, window=10_000, batch_size=128), 2)
    0.99
    >>> round(mixing(100_000, block=256, window=256, batch_size=128), 2)
    0.01
    """
    if rows <= window or rows < 2:
        return 1.0
    blocks = -(-rows // block)
    windows = -(-blocks // max(1, window // block))
    # A batch larger than a window is made of several: as many more stretches, each with fewer blocks.
    windows = max(1, round(windows / max(1.0, batch_size * windows / rows)))
    if windows == 1:
        return 1.0
    held = rows / windows
    nodes = np.linspace(0, 1, _NODES)
    entropy = _class_entropy(nodes, held, min(batch_size, int(held)))
    found = 0.0
    beginnings = sorted({round(part / _BEGINNINGS * windows) % windows for part in range(_BEGINNINGS)})
    for beginning in beginnings:
        for index in range(CLASSES):
            chances = _shares(rows / block, windows, index, beginning)
            shares = np.minimum(1.0, np.array(list(chances)))
            found += float(np.interp(shares, nodes, entropy) @ np.array(list(chances.values())))
    full = CLASSES * float(_class_entropy(np.array([1 / CLASSES]), rows, batch_size)[0])
    return min(1.0, found / len(beginnings) / full) if full else 1.0


def _shares(blocks: float, windows: int, index: int, beginning: int) -> dict[float, float]:
    """The shares of a window's rows that class `index` may have, and the chance of each.

    The array is `blocks` blocks long and cut into stretches of `windows` blocks, the first of which begins
    `beginning` blocks behind its start; behind its end they go on from there.
    """
    size, around = blocks / CLASSES, math.ceil(blocks)
    lo, hi = index * size - beginning, (index + 1) * size - beginning
    parts = [(lo, hi)] if lo >= 0 else [(lo + around, min(hi, 0) + around), (0.0, hi)]
    certain = 0
    # Of each stretch on a border: how much of the class a block has, and the chance of drawing such a one.
    partly: dict[int, list[tuple[float, float]]] = {}
    for first, last in parts:
        if last <= first:
            continue
        inner = range(math.ceil(first / windows), math.floor(last / windows))
        certain += len(inner)
        for stretch in sorted({math.floor(first / windows), math.ceil(last / windows) - 1} - {*inner}):
            begin, end = max(first, stretch * windows), min(last, (stretch + 1) * windows)
            partly.setdefault(stretch, []).extend(
                (part, count / windows) for part, count in _blocks(begin, end) if part > 0 and count > 0
            )
    chances = {float(certain): 1.0}
    for draws in partly.values():
        none = max(0.0, 1 - sum(chance for _, chance in draws))
        chances = _drawn(chances, [(0.0, none), *draws])
    return {drawn * windows / blocks: chance for drawn, chance in chances.items()}


def _blocks(begin: float, end: float) -> list[tuple[float, int]]:
    """How much of a block lies between two places counted in blocks, and of how many that is true.

    >>> _blocks(0.75, 4.5)
    [(0.25, 1), (1.0, 3), (0.5, 1)]
    """
    first, last = math.ceil(begin), math.floor(end)
    if first > last:
        return [(end - begin, 1)]
    return [(first - begin, 1), (1.0, last - first), (end - last, 1)]


def _drawn(chances: dict[float, float], draws: list[tuple[float, float]]) -> dict[float, float]:
    """The chances of sums once another block is drawn, which adds each of `draws` with its chance."""
    found: dict[float, float] = {}
    for drawn, before in chances.items():
        for part, chance in draws:
            total = round(drawn + part, 6)
            found[total] = found.get(total, 0.0) + before * chance
    return found


def _class_entropy(shares: np.ndarray, rows: float, batch: int) -> np.ndarray:
    """The mean of `-(j/b) * log(j/b)`, `j` of a batch's rows being of a class: float64 like `shares`.

    The class has each of `shares` of the `rows` rows that the batch is drawn from.
    """
    of_class = np.round(shares * round(rows))[:, np.newaxis]
    others = round(rows) - of_class
    j = np.arange(batch + 1)[np.newaxis, :]
    possible = (j <= of_class) & (batch - j <= others)
    log_chance = np.where(
        possible,
        _log_choose(of_class, np.minimum(j, of_class)) + _log_choose(others, np.minimum(batch - j, others)),
        -np.inf,
    )
    chance = np.exp(log_chance - log_chance.max(axis=1, keepdims=True))
    chance /= chance.sum(axis=1, keepdims=True)
    part = np.arange(1, batch + 1) / max(1, batch)
    return np.asarray(chance[:, 1:] @ -(part * np.log(part)))


def _log_choose(n: np.ndarray, k: np.ndarray) -> np.ndarray:
    return np.asarray(_log_factorial(n) - _log_factorial(k) - _log_factorial(n - k))


def _log_factorial(n: np.ndarray) -> np.ndarray:
    """Stirling's series, off by less than 1e-7 from 0 on."""
    x = n + 6.0
    series = x * np.log(x) - x + 0.5 * np.log(2 * np.pi * x) + 1 / (12 * x) - 1 / (360 * x**3)
    return np.asarray(series - np.log((n + 1) * (n + 2) * (n + 3) * (n + 4) * (n + 5) * (n + 6.0)))
