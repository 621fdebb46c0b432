"""Compressed bodies: decoded to be measured, with a bound on what comes out."""

from __future__ import annotations

import zlib

import zstandard

__all__ = ["BodyTooLarge", "decode"]


class BodyTooLarge(Exception):
    """A body is larger than the limit, in bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body is larger than {limit:,} bytes (setting: server.max_body_bytes)")
        self.limit = limit


def decode(data: bytes, encoding: str, *, limit: int) -> bytes | None:
    """The decoded body; None where the encoding is not known or the data is broken.

    Raises:
        BodyTooLarge: more than `limit` bytes come out.
    """
    for name in reversed([part.strip().lower() for part in encoding.split(",") if part.strip()]):
        if name in ("identity", ""):
            continue
        if name in ("gzip", "x-gzip", "deflate"):
            decoded = _zlib(data, name, limit)
        elif name == "zstd":
            decoded = _zstd(data, limit)
        else:
            return None
        if decoded is None:
            return None
        data = decoded
    return data


def _zlib(data: bytes, name: str, limit: int) -> bytes | None:
    # Deflate is sent both with and without the zlib wrapper; RFC 9110 section 8.4.1.2 notes it.
    for bits in (31,) if "gzip" in name else (15, -15):
        stream = zlib.decompressobj(bits)
        try:
            found = stream.decompress(data, limit + 1)
        except zlib.error:
            continue
        if len(found) > limit:
            raise BodyTooLarge(limit)
        return found if stream.eof else None
    return None


def _zstd(data: bytes, limit: int) -> bytes | None:
    found = bytearray()
    try:
        with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(data, read_across_frames=True) as reader:
            while chunk := reader.read(1 << 16):
                found += chunk
                if len(found) > limit:
                    raise BodyTooLarge(limit)
    except zstandard.ZstdError:
        return None
    return bytes(found)
