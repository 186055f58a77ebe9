"""Zarr stores: every array listed, and how each is read. Consolidated metadata, often stale, is not used."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from oocloader.codecs import NoChain
from oocloader.codecs import zarr as codecs
from oocloader.errors import StoreError
from oocloader.reading import ChunkReader, RowReader
from oocloader.stores.base import ArrayInfo, Listing, Store, StoredArray, native, packed_notice
from oocloader.stores.base.zipped import Member
from oocloader.stores.zarr.chunks import array_layout, inner_chunk_shape, stored_chunks
from oocloader.stores.zarr.library import library_reader, library_refusal
from oocloader.stores.zarr.metadata import ArrayMetadata, BadMetadata, grid_of, parse_json, parse_v2, parse_v3
from oocloader.stores.zarr.tree import Below, FolderTree, Tree, ZipTree

# A folder without metadata may still hold arrays further down, but a home folder is no store.
_BARREN_FOLDERS = 1000
# A table over the grid takes 24 bytes a chunk, there or not.
_MOST_CHUNKS = 1 << 27


def open_zarr_folder(path: str) -> Store | None:
    """A store of every array below a folder, `None` where there is none. Raises `StoreError`."""
    return _open(FolderTree(path))


def open_zarr_zip(path: str, members: Mapping[str, Member]) -> Store:
    """A store of every array in a zip archive. Raises `StoreError`."""
    store = _open(ZipTree(path, members))
    return store if store is not None else Store(path, [])


def _open(tree: Tree) -> Store | None:
    walk = _Walk(tree, Listing(tree.path))
    walk.node("", ())
    listing = walk.listing
    if not walk.groups and not listing.arrays:
        return None
    if len(listing.arrays) == 1:
        listing.scales.clear()
    return listing.store()


@dataclass(slots=True)
class _Walk:
    """The way through a hierarchy; an array at its root is called as the store is."""

    tree: Tree
    listing: Listing
    groups: int = 0
    barren: int = 0

    def node(self, prefix: str, above: tuple[object, ...]) -> None:
        """List what is at `prefix`: an array, or a group and what is below it."""
        identity = self.tree.identity(prefix)
        if identity in above:
            return
        folders, files = self.tree.children(prefix)
        try:
            attrs = self._array_or_group(prefix, files)
        except (BadMetadata, OSError) as error:
            if not prefix:
                what = f"{self.tree.path}: the metadata of the store is damaged: {error}"
                raise StoreError(what, file=self.tree.path) from error
            self.listing.add_unreadable(prefix[:-1], f"its metadata is damaged: {error}")
            return
        if attrs is None or (prefix and self.listing.add_sparse(prefix[:-1], attrs, folders)):
            return
        for name in folders:
            if self.barren < _BARREN_FOLDERS:
                self.node(f"{prefix}{name}/", (*above, identity))

    def _array_or_group(self, prefix: str, files: list[str]) -> Mapping[str, Any] | None:
        """`None` for an array, which is listed then; the attributes of a group."""
        if "zarr.json" in files:
            document = parse_json(self.tree.read(f"{prefix}zarr.json"))
            if document.get("node_type") == "array":
                self._array(prefix, parse_v3(document))
                return None
            self.groups += 1
            attrs = document.get("attributes")
        elif ".zarray" in files:
            document = parse_json(self.tree.read(f"{prefix}.zarray"))
            self._array(prefix, parse_v2(document, self._attributes(prefix, files)))
            return None
        elif ".zgroup" in files:
            self.groups += 1
            attrs = self._attributes(prefix, files)
        else:
            self.barren += 1
            attrs = None
        return attrs if isinstance(attrs, dict) else {}

    def _attributes(self, prefix: str, files: list[str]) -> dict[str, Any]:
        return parse_json(self.tree.read(f"{prefix}.zattrs")) if ".zattrs" in files else {}

    def _array(self, prefix: str, metadata: ArrayMetadata) -> None:
        root_name = os.path.basename(os.path.abspath(self.tree.path)).partition(".")[0] or "array"
        name = prefix[:-1] or root_name
        self.listing.arrays.append(_stored_array(name, prefix, metadata, self.tree))
        if _dimensions(metadata) == [prefix[:-1].rpartition("/")[2]]:
            self.listing.scales.add(name)


def _dimensions(metadata: ArrayMetadata) -> Any:
    """Names of the axes; an array named like its only axis holds that axis's coordinates."""
    names = metadata.document.get("dimension_names")
    return names if names is not None else metadata.attrs.get("_ARRAY_DIMENSIONS")


def _stored_array(name: str, prefix: str, metadata: ArrayMetadata, tree: Tree) -> StoredArray:
    info = ArrayInfo(
        name,
        metadata.shape,
        native(metadata.dtype),
        chunk_shape=metadata.chunk_shape,
        codecs=metadata.codec_names,
        attrs=metadata.attrs,
        reader="none",
        reason=metadata.refused,
    )
    try:
        keys, countable = metadata.keys, 0 not in metadata.chunk_shape
        below = Below.of(keys.prefix, keys.separator, metadata.grid) if countable else Below()
        objects = tree.objects(prefix, below)
        if metadata.shape and countable:
            which, _ = stored_chunks(metadata, objects)
            info = replace(info, stored_nbytes=int(objects.stored[which].sum()))
        if metadata.refused:
            return StoredArray(info, store=tree.path)
        decoding = _decoding(metadata)
        chunk_shape = inner_chunk_shape(decoding, metadata.chunk_shape)
        info = replace(info, codecs=decoding.names, chunk_shape=chunk_shape)
        slow, remedy = metadata.unusual or objects.packed, ""
        if math.prod(grid_of(info.shape, chunk_shape)) > _MOST_CHUNKS:
            slow = slow or "it has too many chunks to list"
    except NoChain as error:
        slow, remedy = error.reason, f"; pip install {error.package}" if error.package else ""
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        return StoredArray(replace(info, reason=f"it is damaged: {error}"), store=tree.path)
    if refused := library_refusal(tree, prefix, metadata) if slow else "":
        what = f"{slow}, and zarr-python cannot read it either ({refused}){remedy}"
        return StoredArray(replace(info, reason=what), store=tree.path)
    info = replace(info, reader="library" if slow else "direct", reason=slow)

    def make_reader() -> RowReader:
        if slow:
            return library_reader(tree, prefix, metadata, info)
        return ChunkReader(array_layout(name, metadata, objects, decoding))

    return StoredArray(info, make_reader, store=tree.path, notice=packed_notice(info.attrs, info.dtype))


def _decoding(metadata: ArrayMetadata) -> codecs.Decoding | codecs.Sharding:
    document = metadata.document
    if metadata.version == 2:
        return codecs.v2(
            document.get("filters"),
            document.get("compressor"),
            dtype=metadata.dtype,
            order=document.get("order", "C"),
            chunk_shape=metadata.chunk_shape,
        )
    return codecs.v3(document.get("codecs") or (), dtype=metadata.dtype, chunk_shape=metadata.chunk_shape)
