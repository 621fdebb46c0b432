"""The reactive path: what to send after the provider refused, always strictly less. Deterministic, no gates."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

from ctxproxy import rawjson
from ctxproxy.budget import Level, level_of, usage_of
from ctxproxy.edits import Param, Replace, Strip, apply
from ctxproxy.effects import Answer, Call, Effect, Keep, Prepared
from ctxproxy.errors import ContextOverflowError
from ctxproxy.overflow import Sent, Verdict, classify
from ctxproxy.planning import checked, finish, locator, make_plan, render, replay, rules_of
from ctxproxy.policy import Step
from ctxproxy.strategies import start
from ctxproxy.strategies.truncate import preview
from ctxproxy.wire import thinking
from ctxproxy.wire.base import Reader

__all__ = ["again", "curable", "overflow_error", "verdict_of", "within", "without_thinking"]


def again(reader: Reader, call: Call, prepared: Prepared, verdict: Verdict) -> Generator[Effect, Any, Prepared | None]:
    """The next, strictly smaller request after a refusal; None where there is none. Deterministic, no gates."""
    conversation, info = prepared.conversation, prepared.info
    if verdict.kind == "output_too_long":
        # No room that would do for the output (thinking needs its budget) means that the prompt is too long.
        lower = _lower_output(call, prepared, verdict)
        if lower is not None or verdict.context_window is None:
            return lower
    if verdict.kind == "payload_too_large":
        return (yield from _fewer_bytes(reader, call, prepared))
    # In our own tokens: what is measured there may differ, and both sides of a comparison must be of one kind.
    sent = conversation.fixed.tokens + sum(m.tokens for m in prepared.sent)
    limit = verdict.tpm_limit if verdict.kind == "rate_limit" else verdict.context_window
    target = int(sent * call.policy.retry_target)
    if limit:
        room = limit
        if verdict.kind == "output_too_long":
            room = max(limit // 4, limit - max(call.policy.min_output, conversation.thinking_budget + 1))
        elif not verdict.limit_is_input and verdict.requested_kind == "total":
            room = max(limit // 2, limit - (verdict.max_tokens or conversation.max_tokens or 0))
        scale = max(1.0, prepared.report.tokens_after / max(1, sent))
        if verdict.requested_tokens and verdict.requested_kind == "prompt" and sent:
            scale = max(1.0, verdict.requested_tokens / sent)
        target = min(int(room * call.policy.retry_target / scale), int(sent * 0.95))
    steps: tuple[Step, ...] = tuple(s for s in call.policy.steps[Level.OVERFLOW] if s != "summarize")
    plan = make_plan(reader, call, conversation, info, target, steps)
    if plan.faults or plan.tokens >= sent or (limit and plan.tokens > limit):
        return None
    usage = usage_of(conversation, total=info.window)
    base = replace(prepared, report=replace(prepared.report, reason=None))
    ready, entry = finish(call, base, plan, usage, Level.OVERFLOW, "retry", target)
    if limit and verdict.max_tokens and conversation.max_tokens and plan.tokens + conversation.max_tokens > limit:
        now = replace(verdict, requested_tokens=plan.tokens, requested_kind="prompt", room_tokens=None)
        lower = _lower_output(call, ready, now)
        ready = lower or ready
    if plan.originals and call.policy.archive:
        yield Keep(call.scope, plan.originals)
    return replace(ready, entry=entry)


def curable(verdict: Verdict | None, call: Call) -> bool:
    """Whether sending less can help."""
    if verdict is None:
        return False
    if verdict.kind == "rate_limit":
        return call.policy.tpm_compaction and verdict.tpm_limit is not None
    return verdict.kind in ("token_overflow", "output_too_long", "payload_too_large") and not verdict.answered


def _fewer_bytes(reader: Reader, call: Call, prepared: Prepared) -> Generator[Effect, Any, Prepared | None]:
    """Old media first, then the largest old text: the body is too large, whatever its tokens."""
    conversation, info = prepared.conversation, prepared.info
    draft = start(
        conversation,
        window=info.window,
        target=0,
        policy=call.policy,
        rules=rules_of(call, conversation),
        count=reader.scale_of(conversation.model)[1].count,
        locate=locator(call),
    )
    newest = draft.groups[-1].start if draft.groups else 0
    parts = [(i, part) for i, m in enumerate(conversation.messages) if not m.opaque for part in m.parts]
    media = [
        (i, part) for i, part in parts if part.kind == "media" and i < newest and i not in conversation.typed_users[-1:]
    ]
    for i, part in media:
        draft = draft.rewrite(i, part, "[media removed: the request was too large in bytes]", "payload too large")
    if not media:
        texts = [(part.chars, i, part) for i, part in parts if part.kind == "tool_result"]
        if not texts:
            return None
        _, i, part = max(texts, key=lambda found: found[0])
        text = preview(draft.text(i, part), limit=max(64, part.tokens // 4), count=draft.count, where=draft.locate)
        draft = draft.rewrite(i, part, text, "payload too large")
    items = apply(conversation.messages, draft.edits, call.wire)
    plan = checked(reader, call, conversation, items, draft.edits, ("media",) if media else ("truncate",))
    usage = usage_of(conversation, total=info.window)
    level = level_of(usage.fraction, call.policy.thresholds)
    ready, _ = finish(call, prepared, plan, usage, level, "retry", plan.tokens)
    if plan.faults or len(ready.body) >= len(prepared.body):
        return None
    if plan.originals and call.policy.archive:
        yield Keep(call.scope, plan.originals)
    return ready


def without_thinking(reader: Reader, call: Call, prepared: Prepared) -> Prepared | None:
    """The same request without any thinking, after the provider said that one block belongs elsewhere."""
    conversation = prepared.conversation
    entry = prepared.entry
    items = replay(entry, conversation) if entry is not None else tuple(range(len(conversation.messages)))
    sent = render(reader, items, conversation, call.wire)
    edits = thinking.strips(sent)
    if not edits:
        return None
    stripped = tuple(new if isinstance(new, bytes) else items[new] for new in apply(sent, edits, call.wire))
    # The edits as the ledger counts: by the request's own messages, its replayed prefix as one.
    covered = conversation.head + (entry.length if entry is not None else 0)
    places = [items[e.index] for e in edits if isinstance(e, (Replace, Strip))]
    marks = tuple(Strip(at if isinstance(at, int) else covered - 1, (), "thinking") for at in places)
    plan = checked(reader, call, conversation, stripped, marks, ("thinking",), before=sent)
    if plan.faults:
        return None
    usage = usage_of(conversation, total=prepared.info.window)
    level = level_of(usage.fraction, call.policy.thresholds)
    reason = prepared.report.reason or "retry"
    ready, _ = finish(call, prepared, plan, usage, level, reason, plan.tokens)
    return ready


def _lower_output(call: Call, prepared: Prepared, verdict: Verdict) -> Prepared | None:
    """The same prompt with a smaller `max_tokens`: room by the provider's own numbers, nothing is cut."""
    conversation = prepared.conversation
    asked, key = conversation.max_tokens, conversation.max_tokens_key
    if asked is None or key is None:
        return None
    room = verdict.room_tokens
    if room is None and verdict.context_window:
        prompt = verdict.requested_tokens if verdict.requested_kind == "prompt" else None
        room = verdict.context_window - (prompt or prepared.report.tokens_after) - 16
    if room is None or room >= asked:
        room = asked // 2
    if room < max(min(asked, 16), conversation.thinking_budget + 1):
        return None
    body = _with_params(prepared.body, (Param(key, room, "the provider has no room for more output"),))
    steps = prepared.report.strategies
    report = replace(prepared.report, strategies=(*steps, "max_tokens"), changed=True)
    return replace(prepared, body=body, report=report, conversation=replace(conversation, max_tokens=room))


def within(call: Call, prepared: Prepared, limit: int) -> Prepared:
    """The request with `max_tokens` lowered to what is left of `limit` tokens beside the prompt.

    For a provider that refused a sum of prompt and output before: asking for more would only be refused again. It is
    left alone where too little would remain, under the thinking budget or `policy.min_output`.
    """
    conversation, report = prepared.conversation, prepared.report
    asked, key = conversation.max_tokens, conversation.max_tokens_key
    if asked is None or key is None:
        return prepared
    room = limit - report.tokens_after - report.margin - 16
    if room >= asked or room < max(min(asked, call.policy.min_output, limit // 8), conversation.thinking_budget + 1):
        return prepared
    body = _with_params(prepared.body, (Param(key, room, "the provider refuses more"),))
    return replace(
        prepared,
        body=body,
        report=replace(report, strategies=(*report.strategies, "max_tokens"), changed=True),
        conversation=replace(conversation, max_tokens=room),
    )


def _with_params(body: bytes, params: Sequence[Param]) -> bytes:
    """The request with some members of its top level changed, nothing else."""
    for param in params:
        body = rawjson.put(body, param.key, rawjson.dump(param.value))
    return body


def verdict_of(answer: Answer, call: Call, prepared: Prepared) -> Verdict | None:
    """What an answer says about the prompt's size; None for an answer that is fine."""
    if answer.status < 400 and answer.event is None:
        return None
    return classify(
        status=answer.status,
        headers=answer.headers,
        body=answer.body,
        wire=call.wire.api,
        stream_event=answer.event,
        sent=Sent(
            tokens=prepared.report.tokens_after,
            max_tokens=prepared.conversation.max_tokens,
            window=prepared.report.window,
        ),
    )


def overflow_error(verdict: Verdict, prepared: Prepared, sends: int) -> ContextOverflowError:
    """The typed error of a refusal that was not cured."""
    conversation = prepared.conversation
    size = verdict.requested_tokens or prepared.report.tokens_after
    return ContextOverflowError(
        model=conversation.model,
        # Our own idea of the window is not what the prompt failed to fit, unless it measures over it.
        context_window=verdict.context_window or (prepared.report.window if size > prepared.report.window else None),
        requested_tokens=size,
        reason="retry",
        attempts=sends,
        limit_is_input=verdict.limit_is_input,
        max_tokens=verdict.max_tokens or conversation.max_tokens,
        provider=verdict.provider,
        setting="policy.max_retries",
    )
