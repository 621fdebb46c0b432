"""allot: a plan and warmth in tags (`<plan>...</plan>`) that are over their shares of the window come down to them.

The first step of a compaction. The newest text takes its share first, since it stands for the older ones. What
stands outside the tags stays as it is, and so does a text that no compressor can read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ctxproxy import rawjson
from ctxproxy.budget import Category, TokenBudget
from ctxproxy.conversation import Part, first_typed, last_typed, texts_of
from ctxproxy.edits import Replace
from ctxproxy.strategies.draft import Draft
from ctxproxy.strategies.handed import shorter_plan, shorter_warmth

__all__ = ["Stretch", "allot", "stretches"]

_HEAD = 200  # characters at the beginning of the task and of the newest message that a check looks for
_FORMS = {"plan": shorter_plan, "warmth": shorter_warmth}


@dataclass(frozen=True, slots=True)
class Stretch:
    """A text between tags: code points [start, stop) of the text around it."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class _Place:
    """A text part with tagged texts: as it came, and as it stands after the edits so far."""

    index: int
    part: Part
    whole: str
    text: str
    inside: tuple[Stretch, ...]


def stretches(text: str, tags: Sequence[str]) -> tuple[Stretch, ...]:
    """The innermost texts between tags of these names, in order; tags that have no counterpart are none."""
    found: list[Stretch] = []
    opened: tuple[str, int] | None = None
    for tag in re.finditer(rf"<(/?)({'|'.join(map(re.escape, tags))})(?:\s[^<>]*)?>", text):
        if not tag[1]:
            opened = None if tag[0].endswith("/>") else (tag[2], tag.end())
        elif opened and opened[0] == tag[2]:
            found.append(Stretch(opened[1], tag.start()))
            opened = None
    return tuple(found)


def allot(draft: Draft, *, newest: bool = False) -> Draft:
    """Compress each plan and each warmth, newest first, to what is left of its category's share of the window.

    System and developer messages, entries nobody may touch and our own notes stay as they are; the newest typed user
    message too, unless `newest`.
    """
    budget = TokenBudget(total=draft.window, shares=draft.policy.shares)
    names: tuple[tuple[Category, tuple[str, ...]], ...] = (
        ("plan", draft.policy.tags.plan),
        ("warmth", draft.policy.tags.warmth),
    )
    for category, tags in names:
        if tags and category in budget.shares:
            draft = _category(draft, category, tags, budget.allocation(category), newest=newest)
    return draft


def _category(draft: Draft, category: str, tags: Sequence[str], room: int, *, newest: bool) -> Draft:
    places = _places(draft, tags)
    sizes = [[draft.count(p.text[s.start : s.stop]) for s in p.inside] for p in places]
    if sum(map(sum, sizes)) <= room:
        return draft
    typed = last_typed(draft.messages)
    guarded = {first_typed(draft.messages), typed}
    # An answer that the model is asked to continue is not ours to change.
    begun = len(draft.messages) - 1 if draft.messages[-1].role == "assistant" else None
    for place, costs in zip(places, sizes, strict=True):
        i, text = place.index, place.text
        spared = i == begun or (i == typed and not newest)
        # What a check looks for at the beginning of a message stays there.
        begin = len(text) - len(text.lstrip()) + _HEAD if i in guarded else 0
        new = text
        for stretch, cost in zip(reversed(place.inside), reversed(costs), strict=True):
            if cost > room and not spared:
                short = _FORMS[category](
                    text[stretch.start : stretch.stop],
                    room,
                    keep=max(0, min(stretch.stop, begin) - stretch.start),
                    place=draft.locate(place.whole),
                    count=draft.count,
                )
                if short is not None and (size := draft.count(short)) < cost:
                    changed = new[: stretch.start] + short + new[stretch.stop :]
                    if _may_stand(draft, place.whole, changed, guarded=i in guarded):
                        new, cost = changed, size
            room = max(0, room - cost)
        if new != text:
            cause = f"{category} over its share of the window"
            draft = draft.rewrite(i, place.part, new, cause).done("allocations")
    return draft


def _places(draft: Draft, tags: Sequence[str]) -> list[_Place]:
    """The text parts with tagged texts, the newest first."""
    gone = draft.dropped
    now = {(edit.index, edit.path): edit.text for edit in draft.edits if isinstance(edit, Replace)}
    needles = _needles(tags)
    found: list[_Place] = []
    for i in range(len(draft.messages) - 1, -1, -1):
        message = draft.messages[i]
        if message.role in ("system", "developer") or message.opaque or message.note or i in gone:
            continue
        if not any(needle in message.raw for needle in needles):
            continue
        for part, whole in zip(reversed(message.parts), reversed(texts_of(message)), strict=True):
            if part.kind == "text" and part.id is None:
                text = now.get((i, part.path), whole)
                inside = stretches(text, tags)
                if inside:
                    found.append(_Place(i, part, whole, text, inside))
    return found


def _needles(tags: Sequence[str]) -> tuple[bytes, ...]:
    """How an opening tag can look in JSON: Go and .NET write `<` as an escape."""
    found: list[bytes] = []
    for tag in tags:
        for dumped in (rawjson.dump(tag)[1:-1], rawjson.dump_ascii(tag)[1:-1]):
            found += [b"<" + dumped, b"\\u003c" + dumped, b"\\u003C" + dumped]
    return tuple(dict.fromkeys(found))


def _may_stand(draft: Draft, old: str, new: str, *, guarded: bool) -> bool:
    """Whether all is still there that a check or the policy wants to stay."""
    if guarded and old.strip()[:_HEAD] not in new:
        return False
    words = (*draft.policy.pins, *(("CHECKPOINT",) if draft.policy.preserve_checkpoints else ()))
    return all(word in new for word in words if word in old)


