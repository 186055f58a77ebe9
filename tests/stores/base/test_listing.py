"""What is listed on the way through a hierarchy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oocloader.errors import UnsupportedArrayError
from oocloader.stores.base.listing import MEMBERS, Listing, sparse_kind


@pytest.mark.parametrize(
    ("attrs", "members", "kind"),
    [
        ({"encoding-type": "csr_matrix"}, [], "csr_matrix"),
        ({"h5sparse_format": "csc"}, [], "csc"),
        ({}, [*MEMBERS, "more"], "sparse matrix"),
        ({"encoding-type": "dataframe"}, ["data"], ""),
        ({"encoding-type": 1}, [], ""),
    ],
)
def test_sparse_kind(attrs: dict[str, Any], members: list[str], kind: str) -> None:
    assert sparse_kind(attrs, members) == kind


def test_sparse_matrix_and_its_members_are_refused() -> None:
    listing = Listing("x.h5")
    assert not listing.add_sparse("group", {}, [])
    attrs = {"h5sparse_format": "csr", "h5sparse_shape": [4, 2]}
    assert listing.add_sparse("m", attrs, MEMBERS, lambda: np.dtype("f4"))
    listing.add_unreadable("broken", "it is damaged")
    store = listing.store()
    assert (store.arrays["m"].shape, store.arrays["m"].dtype) == ((4, 2), np.dtype("f4"))
    for name, words in ("m", "csr 4 x 2"), ("m/indices", "part of the group 'm'"), ("broken", "damaged"):
        with pytest.raises(UnsupportedArrayError, match=words):
            store[name]
