"""Which headers a relay passes on, and the few of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from multidict import CIMultiDict

from ctxproxy.answers import report_headers
from ctxproxy.effects import Report

__all__ = ["RawHeaders", "lower", "own", "request_headers", "response_headers"]

RawHeaders = Iterable[tuple[bytes, bytes]]

# RFC 9110 section 7.6.1, and what each hop writes anew.
_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_REQUEST_ONLY = frozenset({b"host", b"expect", b"content-length"})
_OWN = b"x-ctxproxy-"


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _named(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Header names that `Connection` declares to be for this hop only."""
    return frozenset(
        name.strip().lower() for key, value in headers if key.lower() == b"connection" for name in value.split(b",")
    )


def request_headers(headers: list[tuple[bytes, bytes]], *, edited: bool, length: bytes | None) -> CIMultiDict[str]:
    """The headers for the upstream: order and duplicates kept, hop-by-hop and our own left out.

    With `edited` the body is no longer what `Content-Encoding` said. `length` is the Content-Length of a
    streamed body, in bytes, where the client stated one.
    """
    skip = _HOP | _REQUEST_ONLY | _named(headers)
    if edited:
        skip |= {b"content-encoding", b"content-md5", b"digest", b"content-digest"}
    found: CIMultiDict[str] = CIMultiDict()
    for key, value in headers:
        name = key.lower()
        if name not in skip and not name.startswith(_OWN):
            found.add(_text(key), _text(value))
    if length is not None:
        found.add("Content-Length", _text(length))
    return found


def response_headers(headers: RawHeaders) -> list[tuple[bytes, bytes]]:
    """The headers for the client: as they came, in lower case as ASGI wants them, hop-by-hop left out."""
    kept = list(headers)
    skip = _HOP | _named(kept)
    return [(key.lower(), value) for key, value in kept if key.lower() not in skip]


def lower(headers: RawHeaders) -> dict[str, str]:
    """Headers as a plain mapping with names in lower case; the last of a name counts."""
    return {_text(key).lower(): _text(value) for key, value in headers}


def own(report: Report | None, *, id: str, overhead_ms: float) -> list[tuple[bytes, bytes]]:
    """The response headers that say what ctxproxy did, as ASGI wants them."""
    found = report_headers(report, id=id, overhead_ms=overhead_ms)
    return [(name.encode(), value.encode("latin-1", "replace")) for name, value in found.items()]


def control(headers: Mapping[str, str], name: str) -> str | None:
    """The value of a request header of ours."""
    return headers.get(f"x-ctxproxy-{name}")
