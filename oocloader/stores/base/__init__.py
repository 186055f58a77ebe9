"""What every store is: named arrays, what is known of each, and a reader made when it is first needed.

The way through: `stored_array` is one array, `store` all of them; `listing` collects them while a format
walks through its groups, and names sparse matrices as such. `dtypes` says which arrays load; `attributes`
says when the values stored are not the values meant. `zipped` finds members of zip archives, for the formats
that may lie in one.
"""

from oocloader.stores.base import zipped
from oocloader.stores.base.attributes import packed_notice, plain
from oocloader.stores.base.dtypes import LOADABLE, STRING_REMEDY, native, refusal
from oocloader.stores.base.listing import MEMBERS, Listing, sparse_kind
from oocloader.stores.base.store import Store
from oocloader.stores.base.stored_array import ArrayInfo, StoredArray, described, unreadable

__all__ = [
    "LOADABLE",
    "MEMBERS",
    "STRING_REMEDY",
    "ArrayInfo",
    "Listing",
    "Store",
    "StoredArray",
    "described",
    "native",
    "packed_notice",
    "plain",
    "refusal",
    "sparse_kind",
    "unreadable",
    "zipped",
]
