"""What every store is: named arrays, what is known of each, and a reader made when it is first needed.

The way through: `stored_array` is one array, `store` all of them; `listing` collects them while a format
walks through its groups. Which arrays load: `dtypes` says it of numbers, `sparse` of matrices kept as
groups; `attributes` says when the values stored are not the values meant. `zipped` finds members of zip
archives, for the formats that may lie in one; `damage` is the error for a chunk.
"""

from __future__ import annotations

from oocloader.stores.base import zipped
from oocloader.stores.base.attributes import packed_notice, plain
from oocloader.stores.base.damage import damaged
from oocloader.stores.base.dtypes import STRING_REMEDY, native, refusal
from oocloader.stores.base.listing import Listing
from oocloader.stores.base.sparse import MEMBERS, sparse_kind
from oocloader.stores.base.store import Store
from oocloader.stores.base.stored_array import ArrayInfo, StoredArray, described, unreadable

__all__ = [
    "MEMBERS",
    "STRING_REMEDY",
    "ArrayInfo",
    "Listing",
    "Store",
    "StoredArray",
    "damaged",
    "described",
    "native",
    "packed_notice",
    "plain",
    "refusal",
    "sparse_kind",
    "unreadable",
    "zipped",
]
