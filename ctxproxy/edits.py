"""Edits: small values that say how one place of a request changes; applying them; checking the result.

`apply` renders edits into the new message array without touching what is not edited. `check` compares the
array before and after, read anew, and names every rule that the result breaks and the original kept: it
does not trust the code that made the edits.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol, cast

from ctxproxy import rawjson
from ctxproxy.conversation import Message, Role, first_typed, last_typed, pair_faults, text_of, texts_of
from ctxproxy.errors import WireFormatError
from ctxproxy.rawjson import Path

__all__ = ["Drop", "Edit", "Item", "Note", "Param", "Replace", "Rules", "Scribe", "Strip", "apply", "check", "splice"]

Item = int | bytes


@dataclass(frozen=True, slots=True)
class Replace:
    """The value at `path` of message `index` becomes `text`: a string, or JSON where the value is no string.

    With `as_block` the block there becomes a text block.
    """

    index: int
    path: Path
    text: str
    cause: str
    as_block: bool = False


@dataclass(frozen=True, slots=True)
class Drop:
    """Messages [start, stop) go."""

    start: int
    stop: int
    cause: str


@dataclass(frozen=True, slots=True)
class Note:
    """A text of ours: a message before message `at`, or with `attach` at the end of user message `at`."""

    at: int
    text: str
    cause: str
    attach: bool = False
    role: Role = "user"


@dataclass(frozen=True, slots=True)
class Strip:
    """The items at `paths` of message `index` go."""

    index: int
    paths: tuple[Path, ...]
    cause: str


@dataclass(frozen=True, slots=True)
class Param:
    """A member of the request's top level becomes a number."""

    key: str
    value: int
    cause: str


Edit = Replace | Drop | Note | Strip | Param


class Scribe(Protocol):
    """Writes the two things that edits add: a wire is one."""

    def message(self, text: str, role: Role = "user") -> bytes:
        """A message, as JSON."""
        ...

    def block(self, text: str, role: Role = "user") -> bytes:
        """A text block of a content list, as JSON."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a provider demands of the order of messages; the strictest reading by default.

    `alternate`: two user messages in a row are refused, so that a note is attached to the task.
    `user_after_tool`: a user message may follow tool results.
    `adjacent`: results directly follow the message with their calls.
    `user_first`: the first message after the head is a user message.
    `prefill`: an assistant message may be the last one, to be continued.
    `blank`: a text may be blank.
    `id_pattern`: what call ids look like; ids are never made up, so this only names what a check looks for.
    `max_markers`: cache markers of one request.
    `thinking`: what becomes of reasoning that is sent back. `free`: it may go; `turn`: only with its message;
    `bound`: it is only valid after the very messages that it was written after.
    `max_media`: pictures and documents of one request, `max_bytes`: its size; None where nobody states it.
    """

    alternate: bool = True
    user_after_tool: bool = False
    adjacent: bool = True
    user_first: bool = True
    prefill: bool = False
    blank: bool = False
    id_pattern: str | None = None
    max_markers: int = 4
    thinking: Literal["free", "turn", "bound"] = "turn"
    max_media: int | None = None
    max_bytes: int | None = None


def apply(messages: Sequence[Message], edits: Sequence[Edit], scribe: Scribe) -> tuple[Item, ...]:
    """The new message array: an index for each untouched message, bytes for each new or edited one."""
    dropped: set[int] = set()
    changes: dict[int, list[Replace | Strip | Note]] = {}
    notes: dict[int, list[Note]] = {}
    for edit in edits:
        if isinstance(edit, Drop):
            dropped.update(range(edit.start, edit.stop))
        elif isinstance(edit, Note) and not edit.attach:
            notes.setdefault(edit.at, []).append(edit)
        elif isinstance(edit, Note):
            changes.setdefault(edit.at, []).append(edit)
        elif not isinstance(edit, Param):
            changes.setdefault(edit.index, []).append(edit)
    items: list[Item] = []
    for i, message in enumerate(messages):
        items.extend(scribe.message(note.text, note.role) for note in notes.get(i, ()))
        if i in dropped:
            continue
        items.append(_change(message, changes[i], scribe) if i in changes else i)
    items.extend(scribe.message(note.text, note.role) for note in notes.get(len(messages), ()))
    if len(items) > 1:  # a bare string in place of the array can't stand beside a note
        items = [_unbare(messages, item, scribe) for item in items]
    return tuple(items)


def _unbare(messages: Sequence[Message], item: Item, scribe: Scribe) -> Item:
    data = messages[item].raw if isinstance(item, int) else item
    return scribe.message(rawjson.load(data)) if data.startswith(b'"') else item


def _change(message: Message, edits: Sequence[Replace | Strip | Note], scribe: Scribe) -> bytes:
    data = message.raw
    for edit in edits:
        if isinstance(edit, Replace):
            data = rawjson.replace(data, edit.path, _value(data, edit, scribe))
        elif isinstance(edit, Note):
            data = _attach(message, data, edit.text, scribe)
    gone = [path for edit in edits if isinstance(edit, Strip) for path in edit.paths]
    return rawjson.delete(data, gone) if gone else data


def _value(data: bytes, edit: Replace, scribe: Scribe) -> bytes:
    if edit.as_block:
        return scribe.block(edit.text)
    old = rawjson.load(data)
    for step in edit.path:
        old = old[step]
    if isinstance(old, str):
        return rawjson.dump(edit.text)
    try:
        return rawjson.dump(json.loads(edit.text))
    except ValueError:
        raise WireFormatError("a text can't stand in the place of a value that is no string") from None


def _attach(message: Message, data: bytes, text: str, scribe: Scribe) -> bytes:
    """Put a text at the end of a message: into its list of blocks, or behind its one string."""
    path = next((p.path for p in reversed(message.parts) if p.kind in ("text", "media") and p.id is None), None)
    if path is None:
        raise WireFormatError("a note can't be attached to a message without text")
    at = next((i for i, step in enumerate(path) if isinstance(step, int)), None)
    value = rawjson.load(data)
    for step in path[:at]:
        value = value[step]
    if isinstance(value, list):
        return rawjson.insert(data, path[:at], len(cast("list[Any]", value)), scribe.block(text, message.role))
    return rawjson.replace(data, path, rawjson.dump(f"{value}\n\n{text}"))


def splice(body: bytes, key: str, items: Sequence[Item], params: Sequence[Param] = ()) -> bytes:
    """The request with a new message array. Untouched messages and everything outside are the same bytes.

    Raises:
        WireFormatError: the body can't be edited safely (a name twice, an array that is a string).
    """
    field = next((s for s in rawjson.entries(body) if s.key == key), None)
    if field is None:
        raise WireFormatError(f"`{key}` is missing")
    data = body[field.value : field.stop]
    if data[:1] == b"[":
        spans = rawjson.entries(data)
        between = data[spans[0].stop : spans[1].start] if len(spans) > 1 else b","
        opening, closing = (data[: spans[0].start], data[spans[-1].stop :]) if spans else (b"[", b"]")
        pieces = [data[spans[i].value : spans[i].stop] if isinstance(i, int) else i for i in items]
        data = opening + between.join(pieces) + closing
    elif any(not isinstance(item, int) for item in items):  # a string in place of the array
        new = [item if isinstance(item, bytes) else data for item in items]
        data = new[0] if len(new) == 1 and new[0].startswith(b'"') else b"[" + b",".join(new) + b"]"
    body = body[: field.value] + data + body[field.stop :]
    for param in params:
        body = rawjson.put(body, param.key, rawjson.dump(param.value))
    return body


def check(before: Sequence[Message], after: Sequence[Message], rules: Rules) -> list[str]:
    """The rules that `after` breaks and `before` kept; [] where it may be sent.

    A violation is a bug of ours, never the user's: what was unsound before may stay so.
    """
    faults: list[str] = []
    if not after:
        return ["empty"]
    new = _new_pair_faults(before, after, rules)
    if new:
        faults.append(f"pairs: {new[0]}")
    if [m.digest for m in before if _fixed_role(m)] != [m.digest for m in after if _fixed_role(m)]:
        faults.append("system or developer message changed")
    old, now = first_typed(before), first_typed(after)
    if old is not None and (now is None or not _same_start(before[old], after[now])):
        faults.append("first typed user message lost")
    old, now = last_typed(before), last_typed(after)
    if old is not None and (now is None or not _same_start(before[old], after[now])):
        faults.append("newest typed user message lost")
    if before[-1].role != after[-1].role:
        faults.append(f"last role {after[-1].role} instead of {before[-1].role}")
    if not _same_opaque(before, after):
        faults.append("opaque entry changed")
    head_before, head_after = _first_role(before), _first_role(after)
    if rules.user_first and head_before == "user" != head_after:
        faults.append(f"first role {head_after}")
    if sum(_hollow(m, rules) for m in after) > sum(_hollow(m, rules) for m in before):
        faults.append("empty content")
    if rules.alternate and _repeats(after) > _repeats(before):
        faults.append("two messages of one role in a row")
    if not rules.user_after_tool and _meetings(after) > _meetings(before):
        faults.append("a user message after a tool result")
    if _parted(before, after):
        faults.append("a bound message lost its neighbour")
    if not _ids(after) <= _ids(before):
        faults.append("a call id was made up")
    if rules.thinking == "turn" and _bare_calls(after) > _bare_calls(before):
        faults.append("reasoning removed without its message")
    if rules.thinking == "bound" and _stale_thinking(before, after):
        faults.append("thinking behind an edit")
    if sum(m.markers for m in after) > max(rules.max_markers, sum(m.markers for m in before)):
        faults.append("too many cache markers")
    return faults


def _fixed_role(message: Message) -> bool:
    return message.role in ("system", "developer")


def _first_role(messages: Sequence[Message]) -> Role | None:
    return next((m.role for m in messages if not _fixed_role(m)), None)


def _same_start(before: Message, after: Message, chars: int = 200) -> bool:
    """Whether the first 200 code points of the first text of a message are still there."""
    if before.digest == after.digest:
        return True
    text = next((text_of(before, p) for p in before.parts if p.kind == "text"), "").strip()[:chars]
    return any(text in text_of(after, p) for p in after.parts if p.kind == "text") if text else True


def _new_pair_faults(before: Sequence[Message], after: Sequence[Message], rules: Rules) -> list[str]:
    """Pair faults that were not there before. Positions move, so that kind and id tell them apart."""
    old = Counter((f.kind, f.id) for f in pair_faults(before, adjacent=rules.adjacent))
    found: list[str] = []
    for fault in pair_faults(after, adjacent=rules.adjacent):
        if old[fault.kind, fault.id]:
            old[fault.kind, fault.id] -= 1
        else:
            found.append(str(fault))
    return found


def _same_opaque(before: Sequence[Message], after: Sequence[Message]) -> bool:
    """Whether all opaque entries are there, in order, with nothing but thinking taken out."""
    old, new = [m for m in before if m.opaque], [m for m in after if m.opaque]
    return len(old) == len(new) and all(
        a.digest == b.digest or _without_thinking(a) == _without_thinking(b) for a, b in zip(old, new, strict=True)
    )


def _without_thinking(message: Message) -> list[tuple[str, str]]:
    texts = zip(message.parts, texts_of(message), strict=True)
    return [(p.kind, text) for p, text in texts if p.kind != "thinking"]


def _hollow(message: Message, rules: Rules) -> bool:
    """Whether a message says nothing, or holds a blank text where none may be."""
    if not message.parts or rules.blank:
        return not message.parts
    if any(p.blank for p in message.parts if p.kind == "text"):
        return True
    return all(p.blank and p.kind not in ("tool_call", "media", "other") for p in message.parts)


def _repeats(messages: Sequence[Message]) -> int:
    roles = [m.role for m in messages if not _fixed_role(m)]
    return sum(a == b and a in ("user", "assistant") for a, b in pairwise(roles))


def _meetings(messages: Sequence[Message]) -> int:
    """How often a user message follows a tool message."""
    roles = [m.role for m in messages if not _fixed_role(m)]
    return sum((a, b) == ("tool", "user") for a, b in pairwise(roles))


def _parted(before: Sequence[Message], after: Sequence[Message]) -> bool:
    """Whether a message that is bound to a neighbour has another one than before."""
    if not any(m.binds_next or m.binds_previous for m in before):
        return False
    known = _neighbours(before)
    return any(not found <= known.get(key, found) for key, found in _neighbours(after).items())


def _neighbours(messages: Sequence[Message]) -> dict[tuple[bytes, int], set[object]]:
    found: dict[tuple[bytes, int], set[object]] = {}
    for i, message in enumerate(messages):
        for step, binds in ((1, message.binds_next), (-1, message.binds_previous)):
            if binds:
                at = i + step
                other = messages[at] if 0 <= at < len(messages) else None
                found.setdefault((message.digest, step), set()).add(_likeness(message, other))
    return found


def _likeness(message: Message, other: Message | None) -> object:
    """What must stay of a neighbour: its role for instructions, its calls too for reasoning."""
    if other is None or _fixed_role(message):
        return other and other.role
    return other.role, tuple((p.kind, p.id) for p in other.parts if p.kind != "thinking")


def _ids(messages: Sequence[Message]) -> set[str | None]:
    return {p.id for m in messages for p in m.parts if p.kind in ("tool_call", "tool_result")}


def _bare_calls(messages: Sequence[Message]) -> int:
    """Messages that call tools and hold no reasoning."""
    return sum(bool(m.of("tool_call")) and not m.of("thinking") for m in messages)


def _stale_thinking(before: Sequence[Message], after: Sequence[Message]) -> bool:
    """Whether thinking stands in or behind the first message that is not as it was."""
    same = next(
        (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a.digest != b.digest),
        min(len(before), len(after)),
    )
    return any(_thinks(m) for m in after[same:])


def _thinks(message: Message) -> bool:
    """Whether it holds thinking that its model has to see again unchanged."""
    return any(p.kind == "thinking" and p.path for p in message.parts)
