"""The arrays of a hierarchy, collected on the way through its groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oocloader.stores.base.sparse import MEMBERS, sparse_kind, sparse_shape
from oocloader.stores.base.store import Store
from oocloader.stores.base.stored_array import ArrayInfo, StoredArray, unreadable


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
        shape = sparse_shape(attrs)
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
