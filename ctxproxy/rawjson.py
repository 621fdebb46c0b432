"""Read and edit JSON bytes without re-rendering what is not edited.

An edit names a path and replaces, inserts or deletes the bytes there; everything else stays as it came:
key order, number spelling, escapes, whitespace. msgspec slices the common case; what it refuses (a lone
surrogate, NaN, a byte order mark) is sliced over the offsets of the standard library's decoder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ctxproxy.errors import WireFormatError

__all__ = [
    "Json",
    "Path",
    "Slice",
    "View",
    "array",
    "at",
    "delete",
    "dump",
    "dump_ascii",
    "entries",
    "insert",
    "item_views",
    "load",
    "members",
    "put",
    "replace",
    "views",
]

Json = Any
Slice = bytes
View = bytes | msgspec.Raw
Path = tuple[str | int, ...]

_WS = re.compile(rb"[ \t\n\r]*")
_KEY = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items = msgspec.json.Decoder(list[msgspec.Raw])
_any = msgspec.json.Decoder()
_lenient = json.JSONDecoder(strict=False)
_REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def load(raw: bytes) -> Json:
    """Decode JSON, lone surrogates and NaN included.

    Raises:
        WireFormatError: it is not JSON.
    """
    try:
        return _any.decode(raw)
    except _REFUSED:
        pass
    try:
        return _lenient.decode(_text(raw))
    except (ValueError, RecursionError) as error:
        raise WireFormatError(f"not JSON: {error}") from None


def dump(value: Json) -> bytes:
    """Encode a value of our own the way the SDKs do: compact, UTF-8. A lone surrogate stays an escape."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return dump_ascii(value)


def dump_ascii(value: Json) -> bytes:
    """`dump` with escapes for everything that is not ASCII, as many clients write."""
    return json.dumps(value, separators=(",", ":")).encode()


def members(raw: bytes) -> dict[str, Slice]:
    """The members of an object, each as its raw JSON.

    Raises:
        WireFormatError: it is not an object.
    """
    return {key: bytes(value) for key, value in views(raw).items()}


def array(raw: bytes) -> list[Slice]:
    """The items of an array, each as its raw JSON.

    Raises:
        WireFormatError: it is not an array.
    """
    return [bytes(item) for item in item_views(raw)]


def views(raw: bytes) -> Mapping[str, View]:
    """`members` without copying: a body of megabytes is sliced on every request."""
    try:
        return _fields.decode(raw)
    except _REFUSED:
        return {s.key: raw_of(raw, s) for s in _spans(raw, "{") if isinstance(s.key, str)}


def item_views(raw: View) -> Sequence[View]:
    """`array` without copying."""
    try:
        return _items.decode(raw)
    except _REFUSED:
        data = bytes(raw)
        return [raw_of(data, s) for s in _spans(data, "[")]


@dataclass(frozen=True, slots=True)
class Span:
    """Where a member or item lies: its name starts at `start`, its value is [value, stop), in bytes."""

    key: str | int
    start: int
    value: int
    stop: int


def raw_of(raw: bytes, span: Span) -> Slice:
    return raw[span.value : span.stop]


def entries(raw: bytes) -> list[Span]:
    """The spans of the members of an object or the items of an array, exact, in order.

    Raises:
        WireFormatError: neither, or an object with a name twice, which nobody can edit safely.
    """
    at = _skip(raw, 3 if raw.startswith(b"\xef\xbb\xbf") else 0)
    opening = raw[at : at + 1]
    if opening == b"{":
        spans = _walk_object(raw, at)
        if spans is None:
            spans = _spans(raw, "{")
        if len({s.key for s in spans}) != len(spans):
            raise WireFormatError("the object has a name twice")
        return spans
    if opening == b"[":
        return _walk_array(raw, at) or _spans(raw, "[")
    raise WireFormatError("neither an object nor an array")


def replace(raw: bytes, path: Path, value: bytes) -> bytes:
    """Put `value` (JSON) in the place that `path` names."""
    if not path:
        return value
    span = _find(raw, path[0])
    return raw[: span.value] + replace(raw[span.value : span.stop], path[1:], value) + raw[span.stop :]


def put(raw: bytes, key: str, value: bytes) -> bytes:
    """Set a member of an object, at its place or, where it is missing, at the end."""
    spans = entries(raw)
    if any(s.key == key for s in spans):
        return replace(raw, (key,), value)
    end = spans[-1].stop if spans else raw.index(b"{") + 1
    return raw[:end] + (b"," if spans else b"") + dump(key) + b":" + value + raw[end:]


def delete(raw: bytes, paths: Sequence[Path]) -> bytes:
    """Delete the items or members that the paths name, with the comma that goes with each."""
    for path in sorted(paths, key=_order, reverse=True):
        raw = _delete(raw, path)
    return raw


def insert(raw: bytes, path: Path, at: int, value: bytes) -> bytes:
    """Insert `value` as item number `at` of the array at `path`."""
    if path:
        span = _find(raw, path[0])
        return raw[: span.value] + insert(raw[span.value : span.stop], path[1:], at, value) + raw[span.stop :]
    spans = entries(raw)
    if not spans:
        opening = raw.index(b"[") + 1
        return raw[:opening] + value + raw[opening:]
    if at >= len(spans):
        return raw[: spans[-1].stop] + b"," + value + raw[spans[-1].stop :]
    return raw[: spans[at].start] + value + b"," + raw[spans[at].start :]


def at(raw: bytes, path: Path) -> bytes:
    """The bytes of the value at `path`.

    Raises:
        WireFormatError: there is none.
    """
    for step in path:
        raw = raw_of(raw, _find(raw, step))
    return raw


def _order(path: Path) -> tuple[tuple[int, str], ...]:
    return tuple((step, "") if isinstance(step, int) else (0, step) for step in path)


def _delete(raw: bytes, path: Path) -> bytes:
    step, rest = path[0], path[1:]
    span = _find(raw, step)
    if rest:
        return raw[: span.value] + _delete(raw[span.value : span.stop], rest) + raw[span.stop :]
    spans = entries(raw)
    i = next(k for k, s in enumerate(spans) if s.key == step)
    if i:
        return raw[: spans[i - 1].stop] + raw[span.stop :]
    if len(spans) > 1:
        return raw[: span.start] + raw[spans[1].start :]
    return raw[: span.start] + raw[span.stop :]


def _find(raw: bytes, step: str | int) -> Span:
    for span in entries(raw):
        if span.key == step:
            return span
    raise WireFormatError(f"nothing at {step!r}")


def _skip(raw: bytes, at: int) -> int:
    found = _WS.match(raw, at)
    return found.end() if found else at


def _walk_object(raw: bytes, at: int) -> list[Span] | None:
    """Spans by walking along msgspec's slices; None where they do not tell (a name twice, its refusal)."""
    try:
        slices = _fields.decode(raw)
    except _REFUSED:
        return None
    spans: list[Span] = []
    at = _skip(raw, at + 1)
    for key, value in slices.items():
        name = _KEY.match(raw, at)
        if name is None or load(name.group()) != key:
            return None
        start, at = at, _skip(raw, _skip(raw, name.end()) + 1)
        data = bytes(value)
        if not raw.startswith(data, at):
            return None
        spans.append(Span(key, start, at, at + len(data)))
        at = _skip(raw, at + len(data))
        if raw[at : at + 1] == b",":
            at = _skip(raw, at + 1)
    return spans if raw[at : at + 1] == b"}" else None


def _walk_array(raw: bytes, at: int) -> list[Span] | None:
    try:
        slices = _items.decode(raw)
    except _REFUSED:
        return None
    spans: list[Span] = []
    at = _skip(raw, at + 1)
    for i, value in enumerate(slices):
        size = len(memoryview(value))
        spans.append(Span(i, at, at, at + size))
        at = _skip(raw, at + size)
        if raw[at : at + 1] == b",":
            at = _skip(raw, at + 1)
    return spans if raw[at : at + 1] == b"]" else None


def _text(raw: bytes) -> str:
    return raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def _spans(raw: bytes, opening: str) -> list[Span]:
    """The slow, exact way: offsets of the standard decoder, turned into byte offsets."""
    text = _text(raw)
    shift = len(raw) - len(raw.removeprefix(b"\xef\xbb\xbf"))
    blank = re.compile(r"[ \t\n\r]*")

    def skip(at: int) -> int:
        found = blank.match(text, at)
        return found.end() if found else at

    spans: list[tuple[str | int, int, int, int]] = []
    try:
        at = skip(0)
        if text[at] != opening:
            raise WireFormatError(f"expected {opening}")
        closing = "}" if opening == "{" else "]"
        at = skip(at + 1)
        while text[at] != closing:
            start, key = at, len(spans)
            name: str | int = key
            if opening == "{":
                if text[at] != '"':
                    raise WireFormatError("a member without a name")
                name, at = _lenient.raw_decode(text, at)
                at = skip(at)
                if text[at] != ":":
                    raise WireFormatError("a member without a value")
                at = skip(at + 1)
            _, stop = _lenient.raw_decode(text, at)
            spans.append((name, start, at, stop))
            at = skip(stop)
            if text[at] == ",":
                at = skip(at + 1)
            elif text[at] != closing:
                raise WireFormatError("a comma is missing")
        if skip(at + 1) != len(text):
            raise WireFormatError("something follows the value")
    except (ValueError, IndexError, RecursionError) as error:
        raise WireFormatError(f"not JSON: {error}") from None
    if text.isascii():
        return [Span(k, a + shift, b + shift, c + shift) for k, a, b, c in spans]
    found: list[Span] = []
    chars = position = 0
    offsets: dict[int, int] = {}
    for mark in sorted({m for _, a, b, c in spans for m in (a, b, c)}):
        position += len(text[chars:mark].encode("utf-8", "surrogateescape"))
        chars = mark
        offsets[mark] = position + shift
    for k, a, b, c in spans:
        found.append(Span(k, offsets[a], offsets[b], offsets[c]))
    return found
