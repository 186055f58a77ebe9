"""Checks one array: against another, by its manifest, or by decoding all of it."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace

from oocloader.conversion.verification.compare import described, differing
from oocloader.conversion.verification.manifest import ArrayManifest, read_manifest
from oocloader.conversion.verification.rows import CheckedRows, RowChecker
from oocloader.conversion.verification.verify_report import ArrayCheck, Damage, Difference
from oocloader.conversion.worker_threads import results_in_order
from oocloader.errors import ChangedError, OocloaderError, StoreError
from oocloader.machine import usable_cores
from oocloader.stores import StoredArray

# What all threads together may hold, unless one alone needs more.
_MEMORY_NBYTES = 160 << 20


def check_array(
    array: StoredArray, expected: StoredArray | None, advance: Callable[[int], object]
) -> ArrayCheck:
    """Check one array: against `expected` if given, and by its manifest if it has one.

    `advance` is told, in the calling thread, how many bytes more are done. Raises `ChangedError` where one
    of the files changes meanwhile.
    """
    info = array.info
    blank = ArrayCheck(
        info.name,
        info.shape[0] if info.shape else 0,
        info.nbytes,
        "decoding" if expected is None else "comparison",
    )
    try:
        manifest = read_manifest(array)
        if manifest is not None and expected is None:
            blank = replace(blank, by="manifest")
        _check_fits(array, manifest, expected)
        if info.reader == "none":
            return _unreadable(array, blank, manifest)
        return _checked(array, expected, manifest, blank, advance)
    except ChangedError:
        raise  # what was read before counts for nothing
    except OocloaderError as error:
        # Of a manifest, of a table of chunks, of the other store: nothing can be said of the rows.
        return replace(blank, problem=error.message)


def _check_fits(array: StoredArray, manifest: ArrayManifest | None, expected: StoredArray | None) -> None:
    """Raise `StoreError` where shape and dtype are not what they should be."""
    info = array.info
    if info.reader == "none":
        return
    others = []
    if manifest is not None:
        others.append((manifest.shape, manifest.dtype, "when it was written it was"))
    if expected is not None:
        others.append((expected.info.shape, expected.info.dtype, f"in {expected.store} it is"))
    for shape, dtype, where in others:
        if (shape, dtype) != (info.shape, info.dtype):
            raise StoreError(f"it is {info.dtype} {info.shape}, {where} {dtype} {shape}")


def _unreadable(array: StoredArray, blank: ArrayCheck, manifest: ArrayManifest | None) -> ArrayCheck:
    reason = array.info.reason
    if manifest is not None or "is damaged" in reason:
        return replace(blank, problem=f"cannot be read: {reason}")
    return replace(blank, skipped=reason)


@dataclass(slots=True)
class _Findings:
    """What pieces have shown."""

    differences: int = 0
    first: Difference | None = None
    damaged: list[Damage] = field(default_factory=list)


def _checked(
    array: StoredArray,
    expected: StoredArray | None,
    manifest: ArrayManifest | None,
    blank: ArrayCheck,
    advance: Callable[[int], object],
) -> ArrayCheck:
    checker = RowChecker(array, manifest, expected)

    def check(piece: tuple[int, int]) -> tuple[int, list[_Findings]]:
        return piece[1] - piece[0], [_compared(part, expected) for part in checker.check(*piece)]

    threads = max(1, min(usable_cores(), _MEMORY_NBYTES // (2 * max(1, checker.piece_nbytes))))
    row_nbytes = array.info.nbytes // array.info.shape[0]
    total = _Findings()
    work = results_in_order(check, checker.pieces(), threads=threads, name="oocloader-verify")
    with closing(work) as results:
        for rows, parts in results:
            for part in parts:
                total.differences += part.differences
                total.first = total.first or part.first
                total.damaged += part.damaged
            advance(rows * row_nbytes)
    return replace(
        blank, differences=total.differences, first=total.first, damaged=tuple(dict.fromkeys(total.damaged))
    )


def _compared(part: CheckedRows, expected: StoredArray | None) -> _Findings:
    if part.rows is None or expected is None:
        return _Findings(damaged=list(part.damaged))
    wanted = expected.read(part.start, part.start + len(part.rows))
    places = differing(part.rows, wanted)
    first = described(part.start, int(places[0]), part.rows, wanted) if len(places) else None
    return _Findings(len(places), first, list(part.damaged))
