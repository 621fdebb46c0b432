"""Server-sent events, read beside a relay or a client: what the first ones say.

The bytes are never touched or re-framed; these readers get a copy. The proxy and the clients share them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from ctxproxy.bodies import BodyTooLarge, decode
from ctxproxy.conversation import Api

__all__ = ["Frame", "Frames", "Tail", "verdict_of"]

_WAITING = frozenset({"response.created", "response.in_progress", "response.queued", "ping"})
_FAILED = frozenset({"error", "response.failed"})
_NO_ERROR = frozenset({b"null", b"false", b'""', b"{}"})


@dataclass(frozen=True, slots=True)
class Frame:
    """One event: its name ("" where it has none) and its data."""

    event: str
    data: bytes


class Frames:
    """Splits a byte stream into events, whatever the chunks and the line ends."""

    def __init__(self) -> None:
        self._rest = b""
        self._event = ""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """The events that `chunk` completes."""
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            line = line.removesuffix(b"\r")
            if not line:
                if self._data:
                    yield Frame(self._event, b"\n".join(self._data))
                self._event, self._data = "", []
            elif line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif line.startswith(b"event:"):
                self._event = line[6:].strip().decode("utf-8", "replace")


class _Head(msgspec.Struct):
    """The few members that tell what an event is."""

    type: object = None
    error: msgspec.Raw = msgspec.Raw(b"null")
    choices: msgspec.Raw = msgspec.Raw(b"null")


_head = msgspec.json.Decoder(_Head)


def verdict_of(frame: Frame, api: Api) -> str | None:
    """What an early event means: its name if it says that the call failed, "" for content, None to wait on."""
    event = frame.event
    try:
        head = _head.decode(frame.data)
    except msgspec.DecodeError:
        return event if event in _FAILED else ""
    kind = event or (head.type if isinstance(head.type, str) else "")
    if kind in _WAITING:
        return None
    if kind in _FAILED:
        return kind
    # OpenRouter, TGI and LM Studio name no event.
    return "error" if bytes(head.error) not in _NO_ERROR and bytes(head.choices) == b"null" else ""


class Tail:
    """Reads a copy of an answer for its usage and its stop reason; nothing is kept of its content.

    Args:
        stream: server-sent events, else one JSON body.
        encoding: the Content-Encoding; a compressed stream is not read.
        max_bytes: a JSON body beyond this is not read.
    """

    def __init__(self, api: Api, *, stream: bool, encoding: str = "", max_bytes: int = 8 << 20) -> None:
        self._api = api
        self._stream = stream
        self._encoding = encoding
        self._max_bytes = max_bytes
        self._frames = Frames()
        self._chunks: list[bytes] = []
        self._size = 0
        self._usage: dict[str, Any] = {}
        self._stop: str | None = None

    def feed(self, chunk: bytes) -> None:
        """Look at the next bytes."""
        if not self._stream:
            self._size += len(chunk)
            if self._size <= self._max_bytes:
                self._chunks.append(chunk)
            else:
                self._chunks.clear()
        elif self._encoding in ("", "identity"):
            for frame in self._frames.feed(chunk):
                if b'"usage"' in frame.data or b"_reason" in frame.data:
                    self._read(frame.data)

    def result(self) -> tuple[dict[str, Any] | None, str | None]:
        """The usage object and the stop reason, None where none came."""
        if not self._stream and self._chunks:
            try:
                data = decode(b"".join(self._chunks), self._encoding, limit=self._max_bytes)
            except BodyTooLarge:
                data = None
            if data:
                self._read(data)
            self._chunks.clear()
        return self._usage or None, self._stop

    def _read(self, data: bytes) -> None:
        try:
            value = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        if not isinstance(value, dict):
            return
        fields = cast("dict[str, Any]", value)
        for holder in (fields, fields.get("response"), fields.get("message")):
            usage = cast("dict[str, Any]", holder).get("usage") if isinstance(holder, dict) else None
            if isinstance(usage, dict):
                # Anthropic states the input first and the output later, cumulatively.
                self._usage |= {k: v for k, v in cast("dict[str, Any]", usage).items() if v is not None}
        stop = fields.get("stop_reason")
        if isinstance(fields.get("delta"), dict):
            stop = stop or cast("dict[str, Any]", fields["delta"]).get("stop_reason")
        choices = fields.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            stop = stop or cast("dict[str, Any]", choices[0]).get("finish_reason")
        if isinstance(stop, str):
            self._stop = stop
