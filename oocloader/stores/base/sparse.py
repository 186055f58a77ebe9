"""Sparse matrices kept as groups: named as such, so that their members are not taken for samples."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

MEMBERS = ("data", "indices", "indptr")


def sparse_kind(attrs: Mapping[str, Any], members: Collection[str]) -> str:
    """What sparse matrix a group with these attributes and members is, empty where it is none.

    >>> sparse_kind({"encoding-type": "csr_matrix"}, ["data", "indices", "indptr"])
    'csr_matrix'
    """
    encoding = attrs.get("encoding-type") or attrs.get("h5sparse_format") or ""
    if isinstance(encoding, str) and encoding.startswith(("csr", "csc")):
        return encoding
    return "sparse matrix" if all(name in members for name in MEMBERS) else ""


def sparse_shape(attrs: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape its attributes give it, `()` where they do not."""
    shape = attrs.get("shape", attrs.get("h5sparse_shape", ()))
    if isinstance(shape, list | tuple) and all(isinstance(n, int) for n in shape):
        return tuple(shape)
    return ()
