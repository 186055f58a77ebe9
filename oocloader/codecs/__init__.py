"""Stored bytes of a chunk to decoded bytes: chains of decoders, built from a store's metadata.

- `chain`: decoders one behind the other
- `hdf5`, `zarr`, `numcodec`: the chain for the filters or codecs that a store names
- `compressors`, `blosc2`, `bitshuffle`, `filters`, `checksums`: the decoders
- `library`: functions of imagecodecs, and their errors
"""

from oocloader.codecs.chain import Chain, CodecError, NoChain, scratch

__all__ = ["Chain", "CodecError", "NoChain", "scratch"]
