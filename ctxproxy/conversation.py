"""A conversation as ctxproxy sees it: light facts about each entry of a request's message array.

Nothing here knows an API. The wires (`ctxproxy.wire`) turn raw JSON into these values; everything
that decides works on them. Texts are not kept: a part has a path, and `text_of` resolves it when
somebody needs to read it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ctxproxy import rawjson
from ctxproxy.rawjson import Path

__all__ = [
    "Api",
    "Conversation",
    "Exchange",
    "Fixed",
    "Kind",
    "Message",
    "PairFault",
    "Part",
    "Path",
    "Role",
    "exchanges",
    "first_typed",
    "last_typed",
    "pair_faults",
    "prefix_digest",
    "text_of",
    "texts_of",
    "turns",
]

Api = str
Kind = Literal["text", "tool_call", "tool_result", "thinking", "media", "other"]
Role = Literal["system", "developer", "user", "assistant", "tool", "other"]


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a message.

    `path` leads from the decoded message to the value that holds the text (or, for `media`, `thinking` and
    `other`, to what goes as a whole). `tokens` are counted, `frame` of them are not of the text or medium;
    `chars` are code points of the text. `id` names the call of a tool call and of everything in its result;
    the first `tool_result` part opens the result and the others have `continues`. `free` says that a call's
    input is free text, no JSON.
    """

    kind: Kind
    path: Path
    tokens: int
    chars: int
    id: str | None = None
    name: str | None = None
    error: bool = False
    blank: bool = False
    continues: bool = False
    free: bool = False
    frame: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of the message array.

    `raw` is its JSON as received, `digest` its canonical form (cache markers dropped, string and block
    forms equal, key order irrelevant), `tokens` its whole cost with overhead, `calls` and `media`
    what of it are tool calls and media. `opaque` entries are never
    changed nor dropped alone; `note` marks a note of our own. `binds_next` and `binds_previous` say that it can't
    be parted from its neighbour, `remote` that it names history that only the server has.
    """

    role: Role
    parts: tuple[Part, ...]
    raw: bytes = field(repr=False)
    digest: bytes = field(repr=False)
    tokens: int
    calls: int = 0
    media: int = 0
    opaque: bool = False
    note: bool = False
    markers: int = 0
    binds_next: bool = False
    binds_previous: bool = False
    remote: bool = False
    hands_off: str | None = None

    @property
    def typed(self) -> bool:
        """Whether a person (or program) typed this: a user message with more than tool results."""
        if self.role != "user" or self.note:
            return False
        return any(p.kind in ("text", "media") and p.id is None for p in self.parts)

    def of(self, kind: Kind) -> tuple[Part, ...]:
        """The parts of one kind."""
        return tuple(p for p in self.parts if p.kind == kind)

    @property
    def results(self) -> tuple[str | None, ...]:
        """The call ids that this message answers, one a result."""
        return tuple(p.id for p in self.parts if p.kind == "tool_result" and not p.continues)


@dataclass(frozen=True, slots=True)
class Fixed:
    """Tokens of what stands outside the message array and is never cut."""

    system: int = 0
    tools: int = 0
    other: int = 0

    @property
    def tokens(self) -> int:
        return self.system + self.tools + self.other


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A view of one request.

    `head` is the number of leading system and developer messages; `stateful` says that a part of the
    history lives on the server, so that only this request's own items may shrink; `elastic` that the server
    cuts what does not fit. `hands_off` says why the request is left alone.
    """

    api: Api
    model: str
    messages: tuple[Message, ...]
    fixed: Fixed
    max_tokens: int | None = None
    max_tokens_key: str | None = None
    thinking_budget: int = 0
    samples: int = 1
    stream: bool = False
    stateful: bool = False
    elastic: bool = False
    hands_off: str | None = None
    fixed_digest: bytes = b""

    @property
    def tokens(self) -> int:
        """The size of the prompt, tokens."""
        return self.fixed.tokens + sum(m.tokens for m in self.messages)

    @property
    def head(self) -> int:
        for i, message in enumerate(self.messages):
            if message.role not in ("system", "developer"):
                return i
        return len(self.messages)

    @property
    def typed_users(self) -> tuple[int, ...]:
        return tuple(i for i, m in enumerate(self.messages) if m.typed)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A contiguous range [start, stop) of messages that may only be cut whole.

    `open` says that the model still has to answer to it: it is the last one, or a call in it waits for
    its result.
    """

    start: int
    stop: int
    role: Role
    calls: int = 0
    open: bool = False

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.stop))


def exchanges(messages: Sequence[Message]) -> tuple[Exchange, ...]:
    """Group messages into the smallest pieces that may be cut.

    Calls and results pair by position: a result answers the latest call before it with the same id that
    is not answered yet, since ids repeat in real logs. Whatever lies between a call and its result belongs
    to the exchange. A result without a call stays with what stands before it. A message that binds the next one
    (reasoning) binds all that the same side says after it, since each of them may need it.
    """
    reach = list(range(len(messages)))  # reach[i]: the last message that i can't be parted from
    waiting: dict[str, list[int]] = {}
    for i, message in enumerate(messages):
        for part in message.parts:
            if part.kind == "tool_call" and part.id is not None:
                waiting.setdefault(part.id, []).append(i)
            elif part.kind == "tool_result" and not part.continues:
                starts = waiting.get(part.id or "")
                if starts:
                    start = starts.pop()
                    reach[start] = max(reach[start], i)
                elif i and messages[i - 1].role not in ("system", "developer"):
                    reach[i - 1] = max(reach[i - 1], i)
        if message.binds_previous and i:
            reach[i - 1] = max(reach[i - 1], i)
        if message.binds_next and i + 1 < len(messages):
            reach[i] = max(reach[i], _bound(messages, i))
    pending = {i for starts in waiting.values() for i in starts}
    found: list[Exchange] = []
    i = 0
    while i < len(messages):
        stop, at = reach[i], i
        while at <= stop:
            stop = max(stop, reach[at])
            at += 1
        found.append(
            Exchange(
                start=i,
                stop=stop + 1,
                role=messages[i].role,
                calls=sum(len(messages[k].of("tool_call")) for k in range(i, stop + 1)),
                open=stop + 1 == len(messages)
                or bool(pending.intersection(range(i, stop + 1)) and _ends(messages, stop)),
            )
        )
        i = stop + 1
    return tuple(found)


def _bound(messages: Sequence[Message], at: int) -> int:
    """The last of the messages that the one at `at` binds."""
    last = at + 1
    while last + 1 < len(messages) and messages[at].role == messages[last].role == messages[last + 1].role:
        if messages[last].binds_next or messages[last + 1].binds_next:
            break
        last += 1
    return last


def _ends(messages: Sequence[Message], at: int) -> bool:
    """Whether nothing but plain user text follows: calls left open that long ago were aborted."""
    return all(not m.of("tool_call") and m.role != "assistant" for m in messages[at + 1 :])


def turns(messages: Sequence[Message]) -> tuple[tuple[int, int], ...]:
    """Ranges [start, stop): a typed user message and everything until the next one."""
    starts = [i for i, m in enumerate(messages) if m.typed]
    return tuple(zip(starts, [*starts[1:], len(messages)], strict=True)) if starts else ()


def first_typed(messages: Sequence[Message]) -> int | None:
    """The index of the first typed user message: the task."""
    return next((i for i, m in enumerate(messages) if m.typed), None)


def last_typed(messages: Sequence[Message]) -> int | None:
    """The index of the newest typed user message."""
    return next((i for i in range(len(messages) - 1, -1, -1) if messages[i].typed), None)


def prefix_digest(messages: Sequence[Message]) -> bytes:
    """The digest of a prefix: of its messages' canonical forms, in order."""
    return hashlib.blake2b(b"".join([m.digest for m in messages]), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class PairFault:
    """A result without its call, or a call without its result: its id, and the message where that shows."""

    kind: Literal["tool_call", "tool_result"]
    id: str | None
    at: int

    def __str__(self) -> str:
        missing = "result" if self.kind == "tool_call" else "call"
        return f"{self.kind} {self.id} without a {missing} at {self.at}"


def pair_faults(messages: Sequence[Message], *, adjacent: bool) -> list[PairFault]:
    """What is wrong with the tool pairs, by position; [] where they are sound.

    With `adjacent` every call must be answered right after the message that made it (Chat Completions,
    Messages); else anywhere later (Responses).
    """
    faults: list[PairFault] = []
    waiting: list[str | None] = []
    for i, message in enumerate(messages):
        for id in message.results:
            if id in waiting:
                waiting.remove(id)
            else:
                faults.append(PairFault("tool_result", id, i))
        if adjacent and message.role != "tool":
            faults.extend(PairFault("tool_call", id, i) for id in waiting)
            waiting = []
        waiting.extend(p.id for p in message.of("tool_call"))
    faults.extend(PairFault("tool_call", id, len(messages)) for id in waiting)
    return faults


def text_of(message: Message, part: Part) -> str:
    """The text of a part, decoded from the message's bytes; what is no string comes as compact JSON."""
    return _text(_at(rawjson.load(message.raw), part.path))


def texts_of(message: Message) -> tuple[str, ...]:
    """The texts of all parts of a message, in order; the message is decoded once. Media have none."""
    value = rawjson.load(message.raw)
    return tuple("" if part.kind == "media" else _text(_at(value, part.path)) for part in message.parts)


def _at(value: Any, path: Path) -> Any:
    for step in path:
        if isinstance(value, str):
            return value
        value = value[step] if isinstance(step, int) else value.get(step)
    return value


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
