"""The arrays of a hierarchy, collected on the way through its groups; sparse matrices are named as such."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oocloader.stores.base.store import Store
from oocloader.stores.base.stored_array import ArrayInfo, StoredArray, unreadable

MEMBERS = ("data", "indices", "indptr")


@dataclass(slots=True)
class Listing:
    """What a store of this `path` is made of: `scales` and `hidden` as `Store` has them."""

    path: str
    arrays: list[StoredArray] = field(default_factory=list)
    scales: set[str] = field(default_factory=set)
    hidden: dict[str, str] = field(default_factory=dict)

    def add_unreadable(self, name: str, reason: str) -> None:
        """List something that is no array, or a damaged one."""
        self.arrays.append(unreadable(name, reason, store=self.path))

    def add_sparse(
        self,
        name: str,
        attrs: Mapping[str, Any],
        members: Collection[str],
        dtype: Callable[[], np.dtype[Any]] = lambda: np.dtype("V"),
    ) -> bool:
        """List a group with these attributes and members as a sparse matrix; whether it is one.

        `dtype` of its values is asked for only then.
        """
        kind = sparse_kind(attrs, members)
        if not kind:
            return False
        shape = _sparse_shape(attrs)
        size = f" {' x '.join(map(str, shape))}" if shape else ""
        remedy = "write it as a dense array, such as matrix.toarray()"
        reason = f"it is a group ({kind}{size}), not an array: {remedy}"
        info = ArrayInfo(name, shape, dtype(), attrs=attrs, reader="none", reason=reason)
        self.arrays.append(StoredArray(info, store=self.path))
        member_reason = f"it is a part of the group {name!r} ({kind}); its values are not samples"
        self.hidden.update({f"{name}/{member}": member_reason for member in MEMBERS})
        return True

    def store(self, *, on_close: Callable[[], None] | None = None) -> Store:
        """The store of all that was listed."""
        return Store(self.path, self.arrays, scales=self.scales, hidden=self.hidden, on_close=on_close)


def sparse_kind(attrs: Mapping[str, Any], members: Collection[str]) -> str:
    """What sparse matrix a group with these attributes and members is, empty where it is none.

    >>> sparse_kind({"encoding-type": "csr_matrix"}, ["data", "indices", "indptr"])
    'csr_matrix'
    """
    encoding = attrs.get("encoding-type") or attrs.get("h5sparse_format") or ""
    if isinstance(encoding, str) and encoding.startswith(("csr", "csc")):
        return encoding
    return "sparse matrix" if all(name in members for name in MEMBERS) else ""


def _sparse_shape(attrs: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape its attributes give it, `()` where they do not."""
    shape = attrs.get("shape", attrs.get("h5sparse_shape", ()))
    if isinstance(shape, list | tuple) and all(isinstance(n, int) for n in shape):
        return tuple(shape)
    return ()
