"""Stored bytes of a chunk to decoded bytes: chains of decoders, built from a store's metadata."""
