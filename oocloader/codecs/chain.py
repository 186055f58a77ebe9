"""A chain of decoders: the stored bytes of one chunk become its decoded bytes in `out`."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np


class CodecError(ValueError):
    """Stored bytes that do not decode; the reader adds file, array, chunk and rows."""


class NoChain(Exception):
    """These codecs are not decoded here, so the array is read by the library that wrote it, if at all.

    - `reason`: one line for people
    - `codec`: what stands in the way: an HDF5 filter id or a Zarr codec id
    - `package`: what to install so that the library can decode it, `None` where nothing is known to help
    """

    def __init__(self, reason: str, *, codec: int | str, package: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.codec = codec
        self.package = package


class Step(ABC):
    """One codec. Stateless and thread-safe; releases the GIL where bytes move."""

    __slots__ = ()

    name: str
    """For people, such as ``zstd`` or ``shuffle``."""

    views: ClassVar[bool] = False
    """Whether the decoded bytes are a part of the stored ones, so that nothing moves."""

    fixed: ClassVar[bool] = True
    """Whether `most` is exact: the stored size follows from the decoded size."""

    def most(self, nbytes: int) -> int:
        """The most bytes that `nbytes` decoded bytes are stored in."""
        return nbytes

    def scratch(self, nbytes: int) -> int:
        """Bytes of scratch that decoding to `nbytes` takes for itself."""
        return 0

    @abstractmethod
    def decode(self, stored: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Decode `stored` (uint8, 1-d) to the front of `out` (uint8, 1-d) and return the part filled.

        A step that `views` leaves `out` alone and returns the part of `stored` that holds the data.

        Raises `CodecError` where the bytes are damaged, or decode to more than fits.
        """


class Compressor(Step):
    """A step whose stored size cannot be told from the decoded size."""

    __slots__ = ()

    fixed: ClassVar[bool] = False

    def most(self, nbytes: int) -> int:
        """Four times the bytes and 64 KiB: formats of tiny blocks may triple what they cannot compress."""
        return 4 * nbytes + 65536


_buffers = threading.local()
"""Memory that each thread reads to, and decodes to between steps, by the slots that are its attributes.

It grows to the largest chunk and stays until the thread ends: fresh pages for every chunk cost more than
many a decoder.
"""


def scratch(slot: str, nbytes: int) -> np.ndarray:
    """This thread's buffer `slot`, uint8, `nbytes` long; what it held is lost."""
    buffers: dict[str, np.ndarray] = _buffers.__dict__
    buffer = buffers.get(slot)
    if buffer is None or buffer.size < nbytes:
        buffers.pop(slot, None)
        buffer = buffers[slot] = np.empty(nbytes, np.uint8)
    return buffer[:nbytes]


_SLOTS = ("even", "odd")
"""Data moves from one of these buffers to the other, step by step."""

OWN = "own"
"""The buffer a step may use for itself while it decodes."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Decoders in the order in which they are applied when reading, and the mask bit of each.

    `bits[i]` is the bit of a chunk's filter mask that says step `i` was skipped when the chunk was
    written. `names` are the codecs as the store lists them, in the order of writing; a codec that
    has nothing to undo has a name and no step.
    """

    steps: tuple[Step, ...] = ()
    bits: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def raw(self) -> bool:
        """Whether stored bytes are the decoded bytes."""
        return not self.steps

    def stored_nbytes(self, nbytes: int) -> int | None:
        """The bytes that `nbytes` decoded bytes are stored in, `None` where that depends on the data."""
        for step in reversed(self.steps):
            if not step.fixed:
                return None
            nbytes = step.most(nbytes)
        return nbytes

    def scratch_nbytes(self, nbytes: int) -> int:
        """The most scratch that a thread comes to hold for chunks of `nbytes` decoded bytes."""
        held: dict[str, int] = {}
        for step, slot, room in _places(self.steps, nbytes):
            held[OWN] = max(held.get(OWN, 0), step.scratch(room))
            if slot is not None:
                held[slot] = max(held.get(slot, 0), room)
        return sum(held.values())

    def decode(self, stored: np.ndarray, out: np.ndarray, mask: int = 0) -> None:
        """Decode one chunk to `out`; thread-safe, without the GIL where bytes move.

        `stored` and `out` are uint8, 1-d, C-contiguous and do not overlap; `out` is as long as the
        whole decoded chunk, and nothing beyond it is written. `mask` has bit i set where filter i of
        the pipeline was skipped. The last step decodes straight to `out`; what lies between steps
        is scratch of this thread, never larger than that data could be stored in.

        Raises `CodecError` where the bytes are damaged or decode to another size than `out`. `out`
        is then undefined.
        """
        if not out.flags.carray:
            # Codec libraries take read-only memory as well, and write to it.
            raise ValueError("out is not writable, or not contiguous")
        steps = self.steps
        if mask:
            steps = tuple(step for step, bit in zip(steps, self.bits, strict=True) if not mask >> bit & 1)
        data = stored
        if len(steps) == 1:
            data = steps[0].decode(stored, out)
        elif steps:
            for step, slot, room in _places(steps, out.size):
                data = step.decode(data, out if slot is None else scratch(slot, room))
        if data.size != out.size:
            names = ", ".join(step.name for step in steps) or "stored without a codec"
            raise CodecError(f"{names}: {data.size} bytes, where the chunk has {out.size}")
        if not steps or steps[-1].views:
            np.copyto(out, data)


def _places(steps: Sequence[Step], nbytes: int) -> list[tuple[Step, str | None, int]]:
    """Each step, the scratch buffer it decodes to, and the most bytes it may decode to.

    No buffer where the step decodes to `out` or does not move its data.
    """
    places: list[tuple[Step, str | None, int]] = []
    rooms = []
    for step in reversed(steps):
        rooms.append(nbytes)
        nbytes = step.most(nbytes)
    moves = 0
    for number, (step, room) in enumerate(zip(steps, reversed(rooms), strict=True)):
        if step.views or number == len(steps) - 1:
            places.append((step, None, room))
        else:
            places.append((step, _SLOTS[moves % 2], room))
            moves += 1
    return places
