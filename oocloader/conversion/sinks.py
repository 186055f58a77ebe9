"""Where the chunks of one array of a new store go, whatever its format."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from oocloader.conversion.extents import Placement, put_tail
from oocloader.errors import StoreError


class Sink(ABC):
    """Knows where chunks go. Asked in their order, by one thread at a time.

    `stored_nbytes`: of all that was placed.
    """

    def __init__(self) -> None:
        self.stored_nbytes = 0

    @abstractmethod
    def path_of(self, chunk: int) -> str:
        """The file that a chunk lies in."""

    @abstractmethod
    def place(self, first_chunk: int, sizes: Sequence[int]) -> Placement:
        """Where chunks `first_chunk` on go, `sizes` bytes long."""

    def take_over(self, first_chunk: int, offsets: Sequence[int], sizes: Sequence[int]) -> None:
        """Take chunks `first_chunk` on for written, at `offsets` of their files, `sizes` bytes long.

        Raises `StoreError` where they would be put elsewhere.
        """
        placement = self.place(first_chunk, sizes)
        if placement.offsets != list(offsets):
            raise StoreError(self._moved())
        for extent in placement.extents:
            if extent.ends:
                put_tail(extent)

    def _moved(self) -> str:
        """What is wrong where chunks were put in other places before."""
        return f"{self.path_of(0)}: chunks were put in other places before; begin anew"
