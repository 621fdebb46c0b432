"""Planning: from a conversation and a target to a new message array, checked and measured.

Strategies propose; here their edits are rendered, read again, held against the original, and turned into what
is sent, reported, archived and remembered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ctxproxy import rawjson
from ctxproxy.budget import Level, Usage
from ctxproxy.compaction import Compaction, CompactReason, Original, describe
from ctxproxy.conversation import (
    Conversation,
    Message,
    exchanges,
    first_typed,
    last_typed,
    prefix_digest,
    text_of,
)
from ctxproxy.cost import Weighed
from ctxproxy.edits import Drop, Edit, Item, Note, Param, Replace, Rules, Strip, apply, check, splice
from ctxproxy.effects import Call, Prepared
from ctxproxy.errors import ContextOverflowError
from ctxproxy.ledger import Entry
from ctxproxy.markers import bare
from ctxproxy.models import ModelInfo
from ctxproxy.policy import Policy, Step
from ctxproxy.strategies import shrink, start, truncate
from ctxproxy.strategies.window import cut_text
from ctxproxy.wire import thinking
from ctxproxy.wire.base import Reader, Wire
from ctxproxy.wire.profiles import rules_for

__all__ = [
    "Plan",
    "admitted",
    "cannot_fit",
    "checked",
    "finish",
    "locator",
    "make_plan",
    "render",
    "replay",
    "rules_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A shrunk array, checked and measured."""

    items: tuple[Item, ...]
    edits: tuple[Edit, ...]
    messages: tuple[Message, ...]
    tokens: int
    steps: tuple[str, ...]
    faults: tuple[str, ...]
    originals: tuple[Original, ...]
    params: tuple[Param, ...] = ()


def make_plan(
    reader: Reader,
    call: Call,
    conversation: Conversation,
    info: ModelInfo,
    target: int,
    steps: Sequence[Step],
    *,
    keep: int | None = None,
    summary: str | None = None,
) -> Plan:
    """Shrink to `target` tokens, render, read again, check; aim lower where the result measures over it.

    `summary` is the text of one that stands for what is dropped, beside the facts.
    """
    aim = target
    plan: Plan | None = None
    if conversation.stateful:
        steps = tuple(s for s in steps if s == "truncate")
    rules = rules_of(call, conversation)
    given = thinking.strips(conversation.messages) if rules.thinking == "bound" else ()
    # What only a word marks as a checkpoint stays as long as the rest fits beside it; what the caller pins, always.
    pinned = pins(conversation, call.policy)
    always = pins(conversation, replace(call.policy, preserve_checkpoints=False))
    for _ in range(4):
        begin = partial(
            start,
            conversation,
            window=info.window,
            target=aim,
            policy=call.policy,
            rules=rules,
            count=reader.scale_of(conversation.model)[1].count,
            locate=locator(call),
            pinned=pinned,
            summary=summary,
            extract=reader.extracts,
        )
        draft = begin()
        if given:
            # Most edits cost the thinking; cutting only the newest outputs may do without.
            light = truncate(draft) if "truncate" in steps and keep is None else draft
            spared = light.fits and not thinking.binds(conversation.messages, light.edits)
            draft = light if spared else begin(given=given).done("thinking")
        draft = shrink(draft, steps=steps, keep_messages=keep)
        items = apply(conversation.messages, draft.edits, call.wire)
        plan = checked(reader, call, conversation, items, draft.edits, draft.steps)
        if plan.tokens <= target or (not draft.fits and pinned == always):
            return plan
        if draft.fits:
            aim -= plan.tokens - target + 8
        else:
            pinned, aim = always, target
    assert plan is not None
    return plan


def checked(
    reader: Reader,
    call: Call,
    conversation: Conversation,
    items: tuple[Item, ...],
    edits: Sequence[Edit],
    steps: tuple[str, ...],
    *,
    before: tuple[Message, ...] | None = None,
) -> Plan:
    """Read the new array again, and hold it against what was there `before` (the request as it came)."""
    messages = render(reader, items, conversation, call.wire)
    faults = check(before or conversation.messages, messages, rules_of(call, conversation)) if edits else []
    return Plan(
        items=items,
        edits=tuple(edits),
        messages=messages,
        tokens=conversation.fixed.tokens + sum(m.tokens for m in messages),
        steps=steps,
        faults=tuple(faults),
        originals=originals_of(call, conversation, edits) if call.policy.archive else (),
    )


def finish(
    call: Call,
    base: Prepared,
    plan: Plan,
    usage: Usage,
    level: Level,
    reason: CompactReason,
    target: int,
    *,
    after: int | None = None,
    weighed: Weighed | None = None,
) -> tuple[Prepared, Entry | None]:
    """The request to send, its compaction and its report, and what the ledger keeps of it."""
    conversation, info = base.conversation, base.info
    dropped = {i for e in plan.edits if isinstance(e, Drop) for i in range(e.start, e.stop)}
    cut = sum(1 for g in exchanges(conversation.messages) if dropped.intersection(g))
    body = splice(call.body, call.wire.array, plan.items, plan.params)
    compaction = Compaction(
        id=hashlib.blake2b(body, digest_size=8, key=call.archive_key[:64]).hexdigest(),
        reason=reason,
        level=level.name,
        model=conversation.model,
        window=info.window,
        target=target,
        tokens_before=usage.value,
        tokens_after=plan.tokens if after is None else after,
        strategies=plan.steps,
        exchanges_cut=cut,
        messages_cut=len(dropped),
        archived=tuple(o.id for o in plan.originals),
        edits=_detailed(plan),
        at=call.now,
        cost_saved=-weighed.once if weighed else None,
        payback=weighed.payback if weighed and weighed.payback != float("inf") else None,
    )
    report = replace(
        base.report,
        level=level.name,
        reason=reason,
        tokens_before=conversation.tokens,
        tokens_after=plan.tokens if after is None else after,
        strategies=plan.steps,
        exchanges_cut=cut,
        archived=compaction.archived,
        changed=bool(plan.edits),
        replayed=False,
        cost_saved=compaction.cost_saved,
    )
    entry = entry_of(call, conversation, plan, compaction)
    return (
        replace(
            base,
            body=body,
            report=report,
            sent=plan.messages,
            entry=entry,
            compaction=compaction,
            explanation=describe(plan.edits),
        ),
        entry,
    )


def _detailed(plan: Plan) -> tuple[dict[str, Any], ...]:
    """The edits as plain values, each with the text that it put in and the archive id of what it took out."""
    texts = iter([original.id for original in plan.originals if original.kind == "output"])
    dropped = next((original.id for original in plan.originals if original.kind == "messages"), None)
    found: list[dict[str, Any]] = []
    for edit, told in zip(plan.edits, describe(plan.edits), strict=True):
        more: dict[str, Any] = {}
        if isinstance(edit, Replace):
            # A lone surrogate has no form in a store.
            more = {"text": edit.text.encode("utf-8", "replace").decode(), "archive": next(texts, None)}
        elif isinstance(edit, Note):
            more = {"text": edit.text.encode("utf-8", "replace").decode()}
        elif isinstance(edit, Drop):
            more = {"archive": dropped}
        found.append({**told, **more})
    return tuple(found)


def render(reader: Reader, items: Sequence[Item], conversation: Conversation, wire: Wire) -> tuple[Message, ...]:
    raws = [conversation.messages[item].raw if isinstance(item, int) else item for item in items]
    scale, counter = reader.scale_of(conversation.model)
    return reader.messages(raws, wire, scale, counter)


def rules_of(call: Call, conversation: Conversation) -> Rules:
    return rules_for(api=conversation.api, upstream=call.upstream, model=conversation.model, given=call.rules)


def admitted(info: ModelInfo, policy: Policy) -> int:
    """The largest prompt, in tokens, that leaves the smallest acceptable output."""
    if not info.shared and info.input_limit:
        return info.input_limit
    return max(1, info.window - min(policy.min_output, info.window // 10))


def replay(entry: Entry, conversation: Conversation) -> tuple[Item, ...]:
    """The whole array with a remembered prefix in place of the messages that it stands for."""
    head = conversation.head
    prefix = tuple(item + head if isinstance(item, int) else item for item in entry.items)
    return (*range(head), *prefix, *range(head + entry.length, len(conversation.messages)))


def entry_of(call: Call, conversation: Conversation, plan: Plan, compaction: Compaction) -> Entry | None:
    """What the ledger keeps of a plan: everything up to the last message that it touches."""
    head = conversation.head
    rest = conversation.messages[head:]
    last = 0
    for edit in plan.edits:
        match edit:
            case Drop():
                last = max(last, edit.stop)
            case Note():
                last = max(last, edit.at + 1 if edit.attach else edit.at)
            case Replace() | Strip():
                last = max(last, edit.index + 1)
            case Param():
                pass
    # Later plans may have edited an earlier replay: bytes anywhere belong to the prefix too.
    index_of_last = 0
    for item in plan.items:
        if isinstance(item, int):
            index_of_last = item + 1
        else:
            last = max(last, index_of_last)
    length = last - head
    if length <= 0:
        return None
    # A marker that stayed in there would count against the few that a later request may hold.
    items = tuple(
        item - head if isinstance(item, int) else bare(item)
        for item in plan.items
        if not isinstance(item, int) or head <= item < last
    )
    return Entry(
        scope=call.scope,
        first=rest[0].digest,
        length=length,
        chain=prefix_digest(rest[:length]),
        items=items,
        compaction=compaction,
    )


def pins(conversation: Conversation, policy: Policy) -> frozenset[int]:
    """Messages that hold a pinned text, or a checkpoint where the policy spares them."""
    words = (*policy.pins, *(("CHECKPOINT",) if policy.preserve_checkpoints else ()))
    # As a client writes it, with or without escapes for what is not ASCII.
    raws = {spelling[1:-1] for word in words for spelling in (rawjson.dump(word), rawjson.dump_ascii(word))}
    return frozenset(
        i
        for i, m in enumerate(conversation.messages)
        if m.role in ("user", "assistant") and any(word in m.raw for word in raws)
    )


def archive_id(call: Call, data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12, key=call.archive_key[:64]).hexdigest()


def originals_of(call: Call, conversation: Conversation, edits: Sequence[Edit]) -> tuple[Original, ...]:
    """What the edits cut: each replaced output's text, and all dropped messages together."""
    found: list[Original] = []
    gone: set[int] = set()
    for edit in edits:
        if isinstance(edit, Drop):
            gone.update(range(edit.start, edit.stop))
        elif isinstance(edit, Replace):
            message = conversation.messages[edit.index]
            part = next((p for p in message.parts if p.path == edit.path[: len(p.path)]), None)
            text = text_of(message, part) if part else ""
            data = text.encode("utf-8", "surrogateescape")
            found.append(Original(id=archive_id(call, data), data=data, kind="output"))
    if gone:
        data = cut_text(conversation.messages, gone).encode("utf-8", "surrogateescape")
        found.append(Original(id=archive_id(call, data), data=data, kind="messages"))
    return tuple(found)


def cannot_fit(conversation: Conversation, info: ModelInfo, plan: Plan, *, limit: int | None) -> ContextOverflowError:
    messages = plan.messages
    fixed = {
        "system": conversation.fixed.system + sum(m.tokens for m in messages if m.role in ("system", "developer")),
        "tools": conversation.fixed.tools,
        "parts that may not be touched": sum(m.tokens for m in messages if m.opaque),
    }
    newest, task = last_typed(messages), first_typed(messages)
    if newest is not None:
        fixed["newest user message"] = messages[newest].tokens
    if task is not None and task != newest:
        fixed["first user message"] = messages[task].tokens
    fixed["kept messages"] = plan.tokens - sum(fixed.values())
    return ContextOverflowError(
        model=conversation.model,
        context_window=limit or info.window,
        requested_tokens=plan.tokens,
        reason="overflow",
        fixed={k: v for k, v in fixed.items() if v},
        setting="models.<name>.window" if limit is None else "--target",
    )


def locator(call: Call) -> Callable[[str], str]:
    """What turns a cut text into words on where to get it back."""
    hint = call.hint
    if hint is None or not call.policy.archive:
        return lambda _: ""
    return lambda text: hint(archive_id(call, text.encode("utf-8", "surrogateescape")))
