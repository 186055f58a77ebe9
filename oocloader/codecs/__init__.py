"""Stored bytes of a chunk to decoded bytes: chains of decoders, built from a store's metadata."""

from oocloader.codecs.chain import Chain, CodecError, NoChain, scratch

__all__ = ["Chain", "CodecError", "NoChain", "scratch"]
