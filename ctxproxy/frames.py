"""Server-sent events, read beside a relay or a client: what the first ones say.

The bytes are never touched or re-framed; these readers get a copy. The proxy and the clients share them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from ctxproxy.conversation import Api

__all__ = ["Frame", "Frames", "verdict_of"]

_WAITING = frozenset({"response.created", "response.in_progress", "response.queued", "ping"})
_FAILED = frozenset({"error", "response.failed"})


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

    type: str | None = None
    error: msgspec.Raw | None = None
    choices: msgspec.Raw | None = None


_head = msgspec.json.Decoder(_Head)


def verdict_of(frame: Frame, api: Api) -> str | None:
    """What an early event means: its name if it says that the call failed, "" for content, None to wait on."""
    event = frame.event
    try:
        head = _head.decode(frame.data)
    except msgspec.DecodeError:
        return event if event in _FAILED else ""
    kind = event or head.type or ""
    if kind in _WAITING:
        return None
    if kind in _FAILED:
        return kind
    if head.error is not None and bytes(head.error) != b"null" and head.choices is None:
        return "error"
    return ""
