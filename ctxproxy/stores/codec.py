"""Ledger entries as bytes: one byte for the version, then MessagePack."""

from __future__ import annotations

import msgspec

from ctxproxy.errors import LedgerError
from ctxproxy.ledger import Entry

__all__ = ["decode", "encode"]

# Fields go by name: one that a later release adds takes its default here, one that it drops is not looked at.
# Only a change of meaning needs another version.
_VERSION = b"\x01"
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Entry)


def encode(entry: Entry) -> bytes:
    """An entry as bytes.

    Raises:
        LedgerError: it holds a value that has no form there, such as a lone surrogate or an integer over 64 bits.
    """
    try:
        return _VERSION + _encoder.encode(entry)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise LedgerError(f"an entry can't be stored: {error}") from error


def decode(data: bytes) -> Entry:
    """The entry that `encode` was given.

    Raises:
        LedgerError: the bytes are damaged, or of a later version.
    """
    if data[:1] != _VERSION:
        raise LedgerError(f"a stored entry is damaged or of a later version: it begins with {data[:1]!r}")
    try:
        return _decoder.decode(memoryview(data)[1:])
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise LedgerError(f"a stored entry is damaged: {error}") from error
