"""The chunk index of an HDF5 dataset as arrays: version 1 B-trees, which HDF5 writes unless told otherwise.

The library hands out chunks one Python call each; a million of them take a second. Layouts and field names
are those of the HDF5 File Format Specification 3.0, sections II.A (superblock), III.A.1 (version 1 B-trees),
IV.A (object headers) and IV.A.2.i (data layout message). Whatever is not exactly as described there is left
to the library: `chunk_table` then returns None.
"""

import os
import struct
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_UNDEFINED = 2**64 - 1
# Entries of a node are at most twice this, unless the superblock says otherwise.
_DEFAULT_K = 32
_CHUNKED, _LAYOUT, _CONTINUATION = 2, 0x0008, 0x0010
# Blocks of one object header: those of a damaged one may go round in circles.
_MOST_BLOCKS = 1000
_BATCH = 2048


@dataclass(frozen=True, slots=True)
class ChunkTable:
    """Chunks as the index has them: `corner` int64 (chunks, axes), first element of each; `offset` from the
    start of the file and `stored` bytes, int64; `mask` uint32 of the filters that were skipped."""

    corner: np.ndarray
    offset: np.ndarray
    stored: np.ndarray
    mask: np.ndarray


def chunk_table(path: str, header: int, axes: int, *, base: int) -> ChunkTable | None:
    """The chunks of the dataset whose object header lies at `header`, counted from `base`, the user block.

    None where the file has another kind of index, or one that is not as the specification has it.
    """
    with open(path, "rb", buffering=0) as file, suppress(struct.error, _UnexpectedError):
        fd = file.fileno()
        return _walk(fd, base, _root(fd, base, header, axes), axes, _entries(fd, base))
    return None


class _UnexpectedError(Exception):
    """The file is not as expected here."""


def _at(fd: int, offset: int, nbytes: int) -> bytes:
    if not 0 <= offset < 2**63:
        raise _UnexpectedError
    block = os.pread(fd, nbytes, offset)
    if len(block) < nbytes:
        raise _UnexpectedError
    return block


def _entries(fd: int, base: int) -> int:
    """Half the most entries of a node (K), where addresses and lengths have eight bytes."""
    block = _at(fd, base, 28)
    version = block[8]
    sizes = block[13:15] if version < 2 else block[9:11]
    k: int = struct.unpack_from("<H", block, 24)[0] if version == 1 else _DEFAULT_K
    # The extension of later versions may hold another K.
    extended = version >= 2 and struct.unpack_from("<Q", block, 20)[0] != _UNDEFINED
    if block[:8] != _SIGNATURE or version > 3 or sizes != b"\x08\x08" or extended or not k:
        raise _UnexpectedError
    return k


def _root(fd: int, base: int, header: int, axes: int) -> int:
    """Address of the root of the index."""
    start = _at(fd, base + header, 16)
    if start[:4] == b"OHDR":
        blocks, prefix, suffix, order = _second_version(fd, base + header, start)
    else:
        version, _, _, _, nbytes = struct.unpack_from("<BBHII", start)
        if version != 1:
            raise _UnexpectedError
        blocks, prefix, suffix, order = [(base + header + 16, nbytes)], None, 0, 0
    for _ in range(_MOST_BLOCKS):
        if not blocks:
            break
        offset, nbytes = blocks.pop(0)
        block = _at(fd, offset, nbytes)
        at, end = 0, nbytes - suffix
        while at + (8 if prefix is None else 4 + order) <= end:
            if prefix is None:
                kind, size, _, _ = struct.unpack_from("<HHB3s", block, at)
                at += 8
            else:
                kind, size, _ = struct.unpack_from("<BHB", block, at)
                at += 4 + order
            if kind == _LAYOUT:
                return _index_address(block[at : at + size], axes)
            if kind == _CONTINUATION:
                where, length = struct.unpack_from("<QQ", block, at)
                skipped = 0 if prefix is None else len(prefix)
                blocks.append((base + where + skipped, length - skipped))
            at += size
    raise _UnexpectedError


def _second_version(fd: int, at: int, start: bytes) -> tuple[list[tuple[int, int]], bytes, int, int]:
    """First block of messages, signature and checksum of the others, bytes of the creation order."""
    flags = start[5]
    skip = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
    width = 1 << (flags & 3)
    nbytes = int.from_bytes(_at(fd, at + skip, width), "little")
    # The first block has no checksum of its own, but one follows; the others end in theirs.
    return [(at + skip + width, nbytes + 4)], b"OCHK", 4, 2 if flags & 4 else 0


def _index_address(message: bytes, axes: int) -> int:
    version, kind, dimensions = message[:3]
    address: int = struct.unpack_from("<Q", message, 3)[0]
    # Version 4 stands for the newer kinds of index.
    if version != 3 or kind != _CHUNKED or dimensions != axes + 1 or address == _UNDEFINED:
        raise _UnexpectedError
    return address


def _walk(fd: int, base: int, root: int, axes: int, k: int) -> ChunkTable:
    """Level by level from the root, every level as one array of nodes."""
    key_nbytes = 8 + 8 * (axes + 1)
    entry = np.dtype(
        {
            "names": ["stored", "mask", "corner", "child"],
            "formats": ["<u4", "<u4", ("<u8", (axes,)), "<u8"],
            "offsets": [0, 4, 8, key_nbytes],
            "itemsize": key_nbytes + 8,
        }
    )
    header = np.dtype("S4, u1, u1, <u2, <u8, <u8")
    header.names = ("signature", "kind", "level", "used", "left", "right")
    node_nbytes = header.itemsize + 2 * k * entry.itemsize
    level = _at(fd, base + root, 6)[5]
    addresses = np.array([root], np.uint64)
    while True:
        batches = []
        # In batches, since the nodes of a large index take far more memory than what is in them.
        for first in range(0, len(addresses), _BATCH):
            nodes = _nodes(fd, base, addresses[first : first + _BATCH], node_nbytes)
            heads = nodes[:, : header.itemsize].view(header)[:, 0]
            valid = (heads["signature"] == b"TREE") & (heads["kind"] == 1) & (heads["level"] == level)
            used = heads["used"].astype(np.int64)
            if not valid.all() or (used < 1).any() or (used > 2 * k).any():
                raise _UnexpectedError
            entries = np.ascontiguousarray(nodes[:, header.itemsize :]).view(entry)
            batches.append(entries[np.arange(2 * k) < used[:, None]])
        chunks = np.concatenate(batches)
        if level == 0:
            return ChunkTable(
                chunks["corner"].astype(np.int64),
                chunks["child"].astype(np.int64) + base,
                chunks["stored"].astype(np.int64),
                chunks["mask"].copy(),
            )
        addresses, level = chunks["child"], level - 1
        if (np.diff(np.sort(addresses)) == 0).any():
            raise _UnexpectedError  # nodes that are reached twice could be reached for ever


def _nodes(fd: int, base: int, addresses: np.ndarray, nbytes: int) -> np.ndarray:
    """The nodes at these addresses: uint8 (nodes, nbytes)."""
    if (addresses >= 2**63 - base - nbytes).any():
        raise _UnexpectedError
    nodes = np.empty((len(addresses), nbytes), np.uint8)
    memory = nodes.reshape(-1).data
    for at, address in enumerate(addresses.tolist()):
        if os.preadv(fd, [memory[at * nbytes : (at + 1) * nbytes]], base + address) < nbytes:
            raise _UnexpectedError
    return nodes
