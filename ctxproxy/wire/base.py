"""What a wire has to say about its API, and the reading that all wires share.

A wire names the pieces of one entry of its message array and the parts of a request outside it; it does
no counting, caching or editing. `Reader` turns a body into a `Conversation` and remembers the facts of
every entry by its bytes, so that a turn pays for its new messages only.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import xxhash

from ctxproxy import rawjson as raw
from ctxproxy.conversation import Api, Conversation, Fixed, Kind, Message, Part, Role
from ctxproxy.errors import WireFormatError
from ctxproxy.rawjson import Path
from ctxproxy.strategies.memo import Extracts
from ctxproxy.tokens import Counter
from ctxproxy.tokens.overhead import message_overhead, part_overhead, request_overhead, tools_tokens

__all__ = ["NOTE_TAG", "Entry", "Piece", "Reader", "Request", "Scale", "Wire", "canonical"]

NOTE_TAG = "context_notes"


@dataclass(frozen=True, slots=True)
class Scale:
    """What tokens are counted for: the model and its tokenizer family (pictures cost by both)."""

    family: str
    model: str


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece of an entry before counting: `text` is counted, `tokens` (media, sealed content) are added to it.

    `path` of a `thinking` or `media` piece leads to what goes as a whole. A tool result of several pieces has one
    that opens it; the others `continues` it. `free` marks a call's input that is free text, not a JSON object.
    """

    kind: Kind
    path: Path
    text: str = ""
    id: str | None = None
    name: str | None = None
    error: bool = False
    tokens: int = 0
    continues: bool = False
    free: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """What a wire says about one entry of the message array.

    `binds_next`, `binds_previous`: it can't be parted from its neighbour. `remote`: it names history that only
    the server has. `hands_off`: why a request with it is left alone.
    """

    role: Role
    pieces: tuple[Piece, ...]
    opaque: bool = False
    binds_next: bool = False
    binds_previous: bool = False
    remote: bool = False
    hands_off: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """What a wire says about a request outside its message array; texts are counted.

    `elastic`: the server itself cuts what does not fit, so that no prompt is too long.
    """

    system: tuple[str, ...] = ()
    tools: Sequence[object] = ()
    other: tuple[str, ...] = ()
    max_tokens: int | None = None
    max_tokens_key: str | None = None
    thinking_budget: int = 0
    samples: int = 1
    stream: bool = False
    stateful: bool = False
    elastic: bool = False
    hands_off: str | None = None


class Wire(Protocol):
    """One API. All methods are pure."""

    @property
    def api(self) -> Api: ...
    @property
    def array(self) -> str:
        """The name of the message array."""
        ...

    @property
    def adjacent(self) -> bool:
        """Whether results must directly follow the message with their calls."""
        ...

    @property
    def fixed_keys(self) -> tuple[str, ...]:
        """Members outside the array that the model reads (system, tools): part of the fixed size."""
        ...

    def entry(self, value: Any, scale: Scale) -> Entry:
        """The pieces of one decoded entry."""
        ...

    def request(self, fields: Mapping[str, bytes]) -> Request:
        """The parts outside the array."""
        ...

    def message(self, text: str, role: Role = "user") -> bytes:
        """A message of ours, as JSON."""
        ...

    def block(self, text: str, role: Role = "user") -> bytes:
        """A text block for the content list of a message, as JSON."""
        ...


def canonical(value: Any) -> bytes:
    """A form that is equal for equal content: cache markers and nulls dropped, a string equal to one text block."""
    return json.dumps(_canonical(value), sort_keys=True, separators=(",", ":")).encode()


_ENTRY_BYTES = 1_600  # what a remembered entry takes beside its bytes: measured on tool calls and their results
_TEXT_TYPES = {"input_text": "text", "output_text": "text"}


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for key, item in cast("dict[str, Any]", value).items():
            if key in ("cache_control", "prompt_cache_breakpoint") or item is None:
                continue
            if key == "index" and "function" in value:  # a call's number in the stream, which some clients send back
                continue
            if key in ("content", "output") and isinstance(item, str):
                found[key] = [{"text": item, "type": "text"}]
            elif key == "type" and isinstance(item, str):
                found[key] = _TEXT_TYPES.get(item, item)
            else:
                found[key] = _canonical(item)
        return found
    if isinstance(value, list):
        return [_canonical(item) for item in cast("list[Any]", value)]
    return value


class Reader:
    """Reads request bodies; remembers the facts of entries by their bytes.

    Args:
        counter_for: gives the tokenizer family and the counter of a model.
        max_bytes: bound of the memory, in bytes of remembered entries.
    """

    def __init__(self, *, counter_for: Callable[[str], tuple[str, Counter]], max_bytes: int = 64 << 20) -> None:
        self._counter_for = counter_for
        self._max_bytes = max_bytes
        self._bytes = 0
        self._facts: OrderedDict[bytes, Message] = OrderedDict()
        self._fixed: OrderedDict[bytes, tuple[Request, Fixed]] = OrderedDict()
        self._lock = threading.Lock()
        self.counted_bytes = 0
        self.extracts = Extracts()

    def read(self, body: bytes, wire: Wire) -> Conversation:
        """The view of one request.

        Raises:
            WireFormatError: it is not a request of that API.
        """
        views = raw.views(body)
        fields = {key: bytes(value) for key, value in views.items() if key != wire.array}
        model = raw.load(fields["model"]) if "model" in fields else ""
        if not isinstance(model, str):
            raise WireFormatError("`model` is not a string")
        if wire.array not in views:
            raise WireFormatError(f"`{wire.array}` is missing")
        family, counter = self._counter_for(model)
        scale = Scale(family, model)
        request, fixed, digest = self._fixed_part(fields, wire, scale, counter)
        data = views[wire.array]
        items = [data] if bytes(memoryview(data)[:1]) == b'"' else raw.item_views(data)
        messages = self.messages(items, wire, scale, counter)
        return Conversation(
            api=wire.api,
            model=model,
            messages=messages,
            fixed=fixed,
            max_tokens=request.max_tokens,
            max_tokens_key=request.max_tokens_key,
            thinking_budget=request.thinking_budget,
            samples=request.samples,
            stream=request.stream,
            stateful=request.stateful or any(m.remote for m in messages),
            elastic=request.elastic,
            hands_off=request.hands_off or next((m.hands_off for m in messages if m.hands_off), None),
            fixed_digest=digest,
        )

    def messages(self, items: Sequence[raw.View], wire: Wire, scale: Scale, counter: Counter) -> tuple[Message, ...]:
        """Facts of entries given as raw JSON; those seen before are not decoded again."""
        salt = f"{wire.api}\0{scale.family}\0{scale.model}".encode()
        seed = xxhash.xxh3_64_intdigest(salt)
        keys = [xxhash.xxh3_128_digest(item, seed) for item in items]
        facts = self._facts
        found: list[Message | None] = [facts.get(key) for key in keys]
        new = [i for i, message in enumerate(found) if message is None]
        if new:
            made = _make([bytes(items[i]) for i in new], wire, scale, counter)
            with self._lock:
                for i, message in zip(new, made, strict=True):
                    found[i] = message
                    if keys[i] not in facts:
                        facts[keys[i]] = message
                        self._bytes += len(message.raw) + _ENTRY_BYTES
                    self.counted_bytes += len(message.raw)
                for key in keys:
                    if key in facts:
                        facts.move_to_end(key)
                while self._bytes > self._max_bytes and facts:
                    _, old = facts.popitem(last=False)
                    self._bytes -= len(old.raw) + _ENTRY_BYTES
        return tuple(message for message in found if message is not None)

    def scale_of(self, model: str) -> tuple[Scale, Counter]:
        """What a model's prompts are counted with."""
        family, counter = self._counter_for(model)
        return Scale(family, model), counter

    def _fixed_part(
        self, fields: Mapping[str, bytes], wire: Wire, scale: Scale, counter: Counter
    ) -> tuple[Request, Fixed, bytes]:
        outside = fields
        hasher = hashlib.blake2b(digest_size=16)
        for key, value in outside.items():
            hasher.update(key.encode("utf-8", "surrogatepass") + b"\0" + value + b"\0")
        key = hasher.digest() + f"{wire.api}\0{scale.family}".encode()
        with self._lock:
            known = self._fixed.get(key)
        if known is None:
            request = wire.request(outside)
            system = counter.count_many(list(request.system))
            known = (
                request,
                Fixed(
                    system=sum(system) + message_overhead(wire.api, scale.family) * len(system),
                    tools=tools_tokens(
                        request.tools, wire=wire.api, counter=counter, family=scale.family, model=scale.model
                    )
                    if request.tools
                    else 0,
                    other=sum(counter.count_many(list(request.other))) + request_overhead(wire.api, scale.family),
                ),
            )
            with self._lock:
                self._fixed[key] = known
                while len(self._fixed) > 256:
                    self._fixed.popitem(last=False)
        digest = hashlib.blake2b(digest_size=16)
        for name in wire.fixed_keys:
            digest.update(outside.get(name, b"") + b"\0")
        return (*known, digest.digest())


def _make(items: Sequence[bytes], wire: Wire, scale: Scale, counter: Counter) -> list[Message]:
    values = [raw.load(item) for item in items]
    try:
        made = [wire.entry(value, scale) for value in values]
        forms = [canonical(value) for value in values]
    except RecursionError:
        raise WireFormatError("the JSON is nested too deeply") from None
    texts: list[str] = []
    for entry in made:
        for piece in entry.pieces:
            texts.append(piece.text)
            if piece.name and piece.kind == "tool_call":
                texts.append(piece.name)
    counts = iter(counter.count_many(texts))
    overhead = message_overhead(wire.api, scale.family)
    found: list[Message] = []
    for item, form, entry in zip(items, forms, made, strict=True):
        parts: list[Part] = []
        for piece in entry.pieces:
            text = next(counts)
            frame = 0 if piece.continues else part_overhead(piece.kind, wire.api, scale.family)
            if piece.name and piece.kind == "tool_call":
                frame += next(counts)
            parts.append(
                Part(
                    kind=piece.kind,
                    path=piece.path,
                    tokens=piece.tokens + text + frame,
                    chars=len(piece.text),
                    id=piece.id,
                    name=piece.name,
                    error=piece.error,
                    blank=not piece.text.strip(),
                    continues=piece.continues,
                    free=piece.free,
                    frame=frame,
                )
            )
        found.append(
            Message(
                role=entry.role,
                parts=tuple(parts),
                raw=item,
                digest=hashlib.blake2b(form, digest_size=16).digest(),
                tokens=sum(p.tokens for p in parts) + overhead,
                calls=sum(p.tokens for p in parts if p.kind == "tool_call"),
                media=sum(p.tokens for p in parts if p.kind == "media"),
                opaque=entry.opaque,
                note=_is_note(entry),
                markers=item.count(b'"cache_control"'),
                binds_next=entry.binds_next,
                binds_previous=entry.binds_previous,
                remote=entry.remote,
                hands_off=entry.hands_off,
            )
        )
    return found


def _is_note(entry: Entry) -> bool:
    first = next((p for p in entry.pieces if p.kind == "text"), None)
    return entry.role == "user" and first is not None and first.text.startswith(f"<{NOTE_TAG}")
