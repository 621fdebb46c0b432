"""The flow: read, replay, measure, decide, shrink, check, write, send, and once more if the provider refuses.

The engine does no I/O. `Engine.run` is a generator that yields effects and is sent their results; `drive` and
`adrive` carry them out. One engine serves sync and async clients and the proxy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from ctxproxy import rawjson
from ctxproxy.budget import Level, Usage, level_of, usage_of
from ctxproxy.compaction import Compaction, CompactReason, Original, describe
from ctxproxy.conversation import (
    Conversation,
    Message,
    exchanges,
    first_typed,
    last_typed,
    prefix_digests,
    text_of,
)
from ctxproxy.edits import Drop, Edit, Item, Note, Param, Replace, Rules, Strip, apply, check, splice
from ctxproxy.errors import ContextOverflowError, WireFormatError
from ctxproxy.ledger import Entry, match
from ctxproxy.limits import Breaker, Limits
from ctxproxy.models import ModelInfo
from ctxproxy.overflow import Sent, Verdict, classify
from ctxproxy.policy import Policy, Step
from ctxproxy.strategies import shrink, start, truncate
from ctxproxy.strategies.window import cut_text
from ctxproxy.wire import thinking
from ctxproxy.wire.base import Reader, Wire
from ctxproxy.wire.profiles import rules_for

__all__ = [
    "Answer",
    "Call",
    "Effect",
    "Engine",
    "Keep",
    "Outcome",
    "Prepared",
    "Recall",
    "Remember",
    "Report",
    "Send",
    "adrive",
    "drive",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request on its way.

    `scope` says whose conversation it is (wire, model family, account), `now` is in seconds since the epoch.
    `target_tokens` asks for a compaction down to it whatever the level. `hint` turns the archive id of a cut
    text into words for the reader of the prompt, None where the reader can't reach the archive.
    """

    wire: Wire
    body: bytes = field(repr=False)
    policy: Policy
    rules: Rules | None = None
    scope: str = ""
    upstream: str = ""
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    window: int | None = None
    target_tokens: int | None = None
    now: float = 0.0
    archive_key: bytes = field(default=b"", repr=False)
    hint: Callable[[str], str] | None = None


@dataclass(frozen=True, slots=True)
class Recall:
    """Effect: the ledger's entries for a conversation. Result: a sequence of Entry."""

    scope: str
    first: bytes


@dataclass(frozen=True, slots=True)
class Keep:
    """Effect: archive what is about to be cut. Result: whether it is safe."""

    scope: str
    originals: tuple[Original, ...]


@dataclass(frozen=True, slots=True)
class Remember:
    """Effect: put an entry into the ledger. Result: None."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Send:
    """Effect: send the body upstream. Result: an Answer."""

    body: bytes = field(repr=False)
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back, as far as it had to be read.

    `body` is the whole body of an error, or the data of the failed stream event named `event`; empty for an
    answer that is not looked into. `handle` is the driver's own: the response to relay.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    body: bytes = field(default=b"", repr=False)
    event: str | None = None
    handle: Any = field(default=None, repr=False)


Effect = Recall | Keep | Remember | Send


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was measured and done, the same for every surface."""

    model: str
    window: int
    window_source: str
    level: str
    reason: CompactReason | None
    tokens_before: int
    tokens_after: int
    basis: str
    margin: int
    by_category: Mapping[str, int]
    strategies: tuple[str, ...] = ()
    exchanges_cut: int = 0
    archived: tuple[str, ...] = ()
    changed: bool = False
    replayed: bool = False
    retries: int = 0
    faults: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "model": self.model,
            "window": self.window,
            "window_source": self.window_source,
            "level": self.level,
            "reason": self.reason,
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "basis": self.basis,
            "margin": self.margin,
            "by_category": dict(self.by_category),
            "strategies": list(self.strategies),
            "exchanges_cut": self.exchanges_cut,
            "archived": list(self.archived),
            "changed": self.changed,
            "replayed": self.replayed,
            "retries": self.retries,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A request ready to be sent."""

    body: bytes = field(repr=False)
    report: Report
    conversation: Conversation | None = field(default=None, repr=False)
    info: ModelInfo | None = None
    entry: Entry | None = field(default=None, repr=False)
    compaction: Compaction | None = None
    explanation: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the caller gets: the answer to relay, and the report."""

    answer: Answer
    report: Report | None
    compaction: Compaction | None = None
    error: ContextOverflowError | None = None
    sends: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """A shrunk array, checked and measured."""

    items: tuple[Item, ...]
    edits: tuple[Edit, ...]
    messages: tuple[Message, ...]
    tokens: int
    steps: tuple[str, ...]
    faults: tuple[str, ...]
    originals: tuple[Original, ...]
    params: tuple[Param, ...] = ()


class Engine:
    """Decides for one request at a time; remembers facts of messages, learned limits and failures.

    Args:
        reader: reads bodies into conversations.
        models: gives what is known of a model, by its name, the request's headers, an explicit window in
            tokens and a learned limit in tokens.
        limits: what providers refused before.
    """

    def __init__(
        self,
        *,
        reader: Reader,
        models: Callable[[str, Mapping[str, str], int | None, int | None], ModelInfo],
        limits: Limits | None = None,
        breaker: Breaker | None = None,
    ) -> None:
        self.reader = reader
        self.models = models
        self.limits = limits or Limits()
        self.breaker = breaker or Breaker()

    # -- measuring

    def info(self, call: Call, model: str) -> ModelInfo:
        """What is known of the call's model. A limit that the provider itself stated bounds any other figure."""
        learned = self.limits.get((call.upstream, call.scope, model), now=call.now)
        info = self.models(model, call.headers, call.window, learned)
        if learned is not None and learned < info.window:
            return replace(info, window=learned, source="learned")
        return info

    def measure(self, call: Call) -> Report:
        """The report of a request as it came. The reason is the one that would apply.

        Raises:
            WireFormatError: the body is not a request of the call's API.
        """
        conversation = self.reader.read(call.body, call.wire)
        info = self.info(call, conversation.model)
        usage = _usage(conversation, info, call)
        level = level_of(usage.fraction, call.policy.thresholds)
        return _report(conversation, info, usage, level, reason=_reason(level, call), after=usage.value)

    # -- before sending

    def prepare(self, call: Call) -> Generator[Effect, Any, Prepared]:
        """Replay what is remembered, measure, and compact where the policy says so.

        Raises:
            WireFormatError: the body is not a request of the call's API.
            ContextOverflowError: it certainly can't fit.
        """
        conversation = self.reader.read(call.body, call.wire)
        info = self.info(call, conversation.model)
        head = conversation.head
        rest = conversation.messages[head:]
        entry: Entry | None = None
        if rest and call.policy.mode == "compact" and not conversation.hands_off and call.target_tokens is None:
            entries: Sequence[Entry] = yield Recall(call.scope, rest[0].digest)
            entry = match(entries, rest)
        items: tuple[Item, ...] = tuple(range(len(conversation.messages)))
        current = conversation
        if entry is not None:
            items = _replay(entry, conversation)
            current = replace(conversation, messages=self._render(items, conversation, call.wire))
        usage = _usage(current, info, call)
        level = level_of(usage.fraction, call.policy.thresholds)
        reason = _reason(level, call)
        report = _report(conversation, info, usage, level, reason=None, after=usage.value)
        base = Prepared(
            body=splice(call.body, call.wire.array, items) if entry is not None else call.body,
            report=replace(
                report, tokens_before=conversation.tokens, changed=entry is not None, replayed=entry is not None
            ),
            conversation=conversation,
            info=info,
            entry=entry,
        )
        if conversation.hands_off or call.policy.mode == "off":
            return base
        acting = call.target_tokens is not None or level >= Level.COMPRESS
        if info.source == "default" and call.target_tokens is None:
            return base
        if not acting:
            if level == Level.WARNING and "truncate" in call.policy.steps.get(Level.WARNING, ()):
                return (yield from self._truncate_new(call, base, current, items, usage, level))
            return base
        if call.policy.mode == "observe" and call.target_tokens is None:
            return replace(base, report=replace(base.report, reason=reason))
        return (yield from self._compact(call, base, usage, level, reason))

    def _compact(
        self, call: Call, base: Prepared, usage: Usage, level: Level, reason: CompactReason | None
    ) -> Generator[Effect, Any, Prepared]:
        conversation, info = base.conversation, base.info
        assert conversation is not None and info is not None
        policy = call.policy
        total = info.window
        if call.target_tokens is not None:
            target = call.target_tokens
            if conversation.tokens <= target:
                return base
            steps = policy.steps[Level.OVERFLOW]
        else:
            target = policy.target_tokens(level, total=total, before=usage.value)
            steps = policy.steps.get(level, ())
        target = min(target, _admitted(info, policy)) if call.target_tokens is None else target
        literal = policy.literal_window and call.target_tokens is None
        keep = None
        if literal:
            keep = policy.emergency_keep_messages if level >= Level.EMERGENCY else policy.keep_messages
        plan = self._plan(call, conversation, info, target, steps, keep=keep)
        if plan.faults:
            return replace(base, report=replace(base.report, faults=plan.faults))
        if call.target_tokens is None:
            small = usage.value - plan.tokens < policy.min_saving.of(total)
            if small and level < Level.OVERFLOW:
                return base
            if plan.tokens >= usage.value and usage.value <= total:
                return base
        if plan.tokens > (target if call.target_tokens is not None else total):
            over = call.target_tokens is not None or (info.source in ("config", "learned", "served"))
            if over and not conversation.elastic:
                raise _cannot_fit(conversation, info, plan, limit=call.target_tokens)
        prepared, entry = self._finish(call, base, plan, usage, level, reason or "proactive", target)
        if plan.originals and policy.archive:
            safe = yield Keep(call.scope, plan.originals)
            if not safe and level < Level.OVERFLOW:
                return base
        if call.target_tokens is None and entry is not None:
            yield Remember(entry)
        return prepared

    def _truncate_new(
        self, call: Call, base: Prepared, current: Conversation, items: tuple[Item, ...], usage: Usage, level: Level
    ) -> Generator[Effect, Any, Prepared]:
        """At WARNING only outputs that were never sent before shrink: that costs no cached prefix."""
        conversation, info = base.conversation, base.info
        assert conversation is not None and info is not None
        draft = start(
            current,
            window=info.window,
            target=0,
            policy=call.policy,
            rules=_rules(call, conversation),
            count=self._count(call, conversation.model),
            locate=self._locate(call),
        )
        draft = truncate(draft, only_new=True)
        if not draft.edits or call.policy.mode != "compact":
            return base
        if _rules(call, conversation).thinking == "bound" and thinking.binds(current.messages, draft.edits):
            return base
        # The newest exchange lies behind whatever was replayed, so its messages map to the request's own.
        shift = len(conversation.messages) - len(current.messages)
        edits = tuple(replace(e, index=e.index + shift) for e in draft.edits if isinstance(e, Replace))
        covered = base.entry.length + conversation.head if base.entry else 0
        if any(edit.index < covered for edit in edits):
            return base
        fresh = apply(conversation.messages, edits, call.wire)
        joined = tuple(item if isinstance(item, bytes) else fresh[item] for item in items)
        plan = self._check(call, conversation, joined, edits, ("truncate",), before=current.messages)
        if plan.faults or plan.tokens >= usage.value:
            return replace(base, report=replace(base.report, faults=plan.faults))
        prepared, entry = self._finish(call, base, plan, usage, level, "proactive", plan.tokens)
        if plan.originals and call.policy.archive and not (yield Keep(call.scope, plan.originals)):
            return base
        if entry is not None:
            yield Remember(entry)
        return prepared

    # -- the whole way

    def run(self, call: Call) -> Generator[Effect, Any, Outcome]:
        """Prepare, send, and on a refusal shrink and send again, at most `policy.max_retries` times.

        A body that is no request of the API goes out untouched.

        Raises:
            ContextOverflowError: it certainly can't fit; nothing was sent.
        """
        if call.policy.mode == "off":
            answer: Answer = yield Send(call.body, 1)
            return Outcome(answer=answer, report=None)
        try:
            prepared = yield from self.prepare(call)
        except WireFormatError:
            answer = yield Send(call.body, 1)
            return Outcome(answer=answer, report=None)
        answer = yield Send(prepared.body, 1)
        sends = 1
        conversation = prepared.conversation
        if conversation is None or call.policy.mode != "compact" or conversation.hands_off:
            return Outcome(answer=answer, report=prepared.report, compaction=prepared.compaction)
        key = (
            call.scope,
            conversation.messages[conversation.head].digest if conversation.messages[conversation.head :] else b"",
        )
        first, error, mended = answer, None, False
        while True:
            verdict = _verdict(answer, call, prepared, conversation)
            if not mended and answer.body and thinking.refused(answer.body):
                mended = True
                again = self._without_thinking(call, prepared)
                if again is not None:
                    prepared, sends = again, sends + 1
                    answer = yield Send(prepared.body, sends)
                    continue
            if verdict is None or verdict.kind not in ("token_overflow", "output_too_long"):
                if verdict is None or answer.status < 400:
                    self.breaker.success(key)
                break
            self._learn(call, conversation.model, verdict)
            error = _overflow_error(verdict, conversation, prepared, sends)
            if sends > call.policy.max_retries or self.breaker.is_open(key):
                break
            again = yield from self._again(call, prepared, verdict)
            if again is None:
                break
            prepared = again
            sends += 1
            answer = yield Send(prepared.body, sends)
            error = None
        if error is not None:
            self.breaker.failure(key)
            answer = first if sends > 1 and answer.status < 400 else answer
        elif prepared.entry is not None and sends > 1:
            yield Remember(prepared.entry)
        report = replace(prepared.report, retries=sends - 1)
        return Outcome(answer=answer, report=report, compaction=prepared.compaction, error=error, sends=sends)

    def _again(self, call: Call, prepared: Prepared, verdict: Verdict) -> Generator[Effect, Any, Prepared | None]:
        """The next, strictly smaller request after a refusal; None where there is none. Deterministic, no gates."""
        conversation, info = prepared.conversation, prepared.info
        assert conversation is not None and info is not None
        if verdict.kind == "output_too_long":
            return self._lower_output(call, prepared, verdict)
        sent = prepared.report.tokens_after
        limit = verdict.context_window
        target = int(sent * call.policy.retry_target)
        if limit:
            room = limit
            if not verdict.limit_is_input and verdict.requested_kind == "total":
                room = max(limit // 2, limit - (verdict.max_tokens or conversation.max_tokens or 0))
            scale = 1.0
            if verdict.requested_tokens and verdict.requested_kind == "prompt" and sent:
                scale = max(1.0, verdict.requested_tokens / sent)
            target = min(int(room * call.policy.retry_target / scale), int(sent * 0.95))
        steps = tuple(s for s in call.policy.steps[Level.OVERFLOW] if s != "summarize")
        plan = self._plan(call, conversation, info, target, steps)
        if plan.faults or plan.tokens >= sent or (limit and plan.tokens > limit):
            return None
        usage = _usage(conversation, info, call)
        base = replace(prepared, report=replace(prepared.report, reason=None))
        ready, entry = self._finish(call, base, plan, usage, Level.OVERFLOW, "retry", target)
        if limit and verdict.max_tokens and conversation.max_tokens and plan.tokens + conversation.max_tokens > limit:
            lower = self._lower_output(
                call, ready, replace(verdict, requested_tokens=plan.tokens, requested_kind="prompt")
            )
            ready = lower or ready
        if plan.originals and call.policy.archive:
            yield Keep(call.scope, plan.originals)
        return replace(ready, entry=entry)

    def _without_thinking(self, call: Call, prepared: Prepared) -> Prepared | None:
        """The same request without any thinking, after the provider said that one block belongs elsewhere."""
        conversation = prepared.conversation
        assert conversation is not None
        entry = prepared.entry
        items = _replay(entry, conversation) if entry is not None else tuple(range(len(conversation.messages)))
        sent = self._render(items, conversation, call.wire)
        edits = thinking.strips(sent)
        if not edits:
            return None
        stripped = tuple(new if isinstance(new, bytes) else items[new] for new in apply(sent, edits, call.wire))
        # The edits as the ledger counts: by the request's own messages, its replayed prefix as one.
        covered = conversation.head + (entry.length if entry is not None else 0)
        places = [items[e.index] for e in edits if isinstance(e, (Replace, Strip))]
        marks = tuple(Strip(at if isinstance(at, int) else covered - 1, (), "thinking") for at in places)
        plan = self._check(call, conversation, stripped, marks, ("thinking",), before=sent)
        if plan.faults:
            return None
        usage = _usage(conversation, prepared.info, call) if prepared.info else None
        assert usage is not None
        level = level_of(usage.fraction, call.policy.thresholds)
        reason = prepared.report.reason or "retry"
        ready, _ = self._finish(call, prepared, plan, usage, level, reason, plan.tokens)
        return ready

    def _lower_output(self, call: Call, prepared: Prepared, verdict: Verdict) -> Prepared | None:
        """The same prompt with a smaller `max_tokens`: room by the provider's own numbers, nothing is cut."""
        conversation = prepared.conversation
        assert conversation is not None
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
        body = splice_params(prepared.body, (Param(key, room, "the provider has no room for more output"),))
        steps = prepared.report.strategies
        report = replace(prepared.report, strategies=(*steps, "max_tokens"), changed=True)
        return replace(prepared, body=body, report=report, conversation=replace(conversation, max_tokens=room))

    def _learn(self, call: Call, model: str, verdict: Verdict) -> None:
        if verdict.kind == "token_overflow" and verdict.context_window:
            self.limits.learn((call.upstream, call.scope, model), verdict.context_window, now=call.now)

    # -- planning

    def _plan(
        self,
        call: Call,
        conversation: Conversation,
        info: ModelInfo,
        target: int,
        steps: Sequence[Step],
        *,
        keep: int | None = None,
    ) -> _Plan:
        """Shrink to `target` tokens, render, read again, check; aim lower where the result measures over it."""
        aim = target
        plan: _Plan | None = None
        if conversation.stateful:
            steps = tuple(s for s in steps if s == "truncate")
        rules = _rules(call, conversation)
        given = thinking.strips(conversation.messages) if rules.thinking == "bound" else ()
        for _ in range(3):
            begin = partial(
                start,
                conversation,
                window=info.window,
                target=aim,
                policy=call.policy,
                rules=rules,
                count=self._count(call, conversation.model),
                locate=self._locate(call),
                pinned=_pins(conversation, call.policy),
            )
            draft = begin()
            if given:
                # Most edits cost the thinking; cutting only the newest outputs may do without.
                light = truncate(draft) if "truncate" in steps and keep is None else draft
                spared = light.fits and not thinking.binds(conversation.messages, light.edits)
                draft = light if spared else begin(given=given).done("thinking")
            draft = shrink(draft, steps=steps, keep_messages=keep)
            items = apply(conversation.messages, draft.edits, call.wire)
            plan = self._check(call, conversation, items, draft.edits, draft.steps)
            if plan.tokens <= target or not draft.fits:
                return plan
            aim -= plan.tokens - target + 8
        assert plan is not None
        return plan

    def _check(
        self,
        call: Call,
        conversation: Conversation,
        items: tuple[Item, ...],
        edits: Sequence[Edit],
        steps: tuple[str, ...],
        *,
        before: tuple[Message, ...] | None = None,
    ) -> _Plan:
        """Read the new array again, and hold it against what was there `before` (the request as it came)."""
        messages = self._render(items, conversation, call.wire)
        faults = check(before or conversation.messages, messages, _rules(call, conversation)) if edits else []
        return _Plan(
            items=items,
            edits=tuple(edits),
            messages=messages,
            tokens=conversation.fixed.tokens + sum(m.tokens for m in messages),
            steps=steps,
            faults=tuple(faults),
            originals=_originals(call, conversation, edits) if call.policy.archive else (),
        )

    def _finish(
        self,
        call: Call,
        base: Prepared,
        plan: _Plan,
        usage: Usage,
        level: Level,
        reason: CompactReason,
        target: int,
    ) -> tuple[Prepared, Entry | None]:
        conversation, info = base.conversation, base.info
        assert conversation is not None and info is not None
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
            tokens_after=plan.tokens,
            strategies=plan.steps,
            exchanges_cut=cut,
            messages_cut=len(dropped),
            archived=tuple(o.id for o in plan.originals),
            at=call.now,
        )
        report = replace(
            base.report,
            level=level.name,
            reason=reason,
            tokens_before=conversation.tokens,
            tokens_after=plan.tokens,
            strategies=plan.steps,
            exchanges_cut=cut,
            archived=compaction.archived,
            changed=bool(plan.edits),
            replayed=False,
        )
        entry = _entry(call, conversation, plan, compaction)
        return (
            replace(
                base,
                body=body,
                report=report,
                entry=entry,
                compaction=compaction,
                explanation=describe(plan.edits),
            ),
            entry,
        )

    def _render(self, items: Sequence[Item], conversation: Conversation, wire: Wire) -> tuple[Message, ...]:
        raws = [conversation.messages[item].raw if isinstance(item, int) else item for item in items]
        scale, counter = self.reader.scale_of(conversation.model)
        return self.reader.messages(raws, wire, scale, counter)

    def _count(self, call: Call, model: str) -> Callable[[str], int]:
        return self.reader.scale_of(model)[1].count

    def _locate(self, call: Call) -> Callable[[str], str]:
        hint = call.hint
        if hint is None or not call.policy.archive:
            return lambda _: ""
        return lambda text: hint(_archive_id(call, text.encode("utf-8", "surrogateescape")))


def _rules(call: Call, conversation: Conversation) -> Rules:
    return rules_for(api=conversation.api, upstream=call.upstream, model=conversation.model, given=call.rules)


def splice_params(body: bytes, params: Sequence[Param]) -> bytes:
    """The request with some members of its top level changed, nothing else."""
    for param in params:
        body = rawjson.put(body, param.key, rawjson.dump(param.value))
    return body


def _usage(conversation: Conversation, info: ModelInfo, call: Call) -> Usage:
    return usage_of(conversation, total=info.window)


def _admitted(info: ModelInfo, policy: Policy) -> int:
    """The largest prompt, in tokens, that leaves the smallest acceptable output."""
    if not info.shared and info.input_limit:
        return info.input_limit
    return max(1, info.window - min(policy.min_output, info.window // 10))


def _reason(level: Level, call: Call) -> CompactReason | None:
    if level >= Level.OVERFLOW and call.target_tokens is None:
        return "overflow"
    return "proactive" if level >= Level.COMPRESS or call.target_tokens is not None else None


def _report(
    conversation: Conversation, info: ModelInfo, usage: Usage, level: Level, *, reason: CompactReason | None, after: int
) -> Report:
    return Report(
        model=conversation.model,
        window=info.window,
        window_source=info.source,
        level=level.name,
        reason=reason,
        tokens_before=usage.value,
        tokens_after=after,
        basis=usage.basis,
        margin=usage.margin,
        by_category=usage.by_category,
    )


def _replay(entry: Entry, conversation: Conversation) -> tuple[Item, ...]:
    """The whole array with a remembered prefix in place of the messages that it stands for."""
    head = conversation.head
    prefix = tuple(item + head if isinstance(item, int) else item for item in entry.items)
    return (*range(head), *prefix, *range(head + entry.length, len(conversation.messages)))


def _entry(call: Call, conversation: Conversation, plan: _Plan, compaction: Compaction) -> Entry | None:
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
    items = tuple(
        item - head if isinstance(item, int) else item
        for item in plan.items
        if not isinstance(item, int) or head <= item < last
    )
    return Entry(
        scope=call.scope,
        first=rest[0].digest,
        length=length,
        chain=prefix_digests(rest[:length])[-1],
        items=items,
        compaction=compaction,
    )


def _pins(conversation: Conversation, policy: Policy) -> frozenset[int]:
    """Messages that hold a pinned text, or a checkpoint where the policy spares them."""
    words = (*policy.pins, *(("CHECKPOINT",) if policy.preserve_checkpoints else ()))
    # As a client writes it, with or without escapes for what is not ASCII.
    raws = {spelling[1:-1] for word in words for spelling in (rawjson.dump(word), rawjson.dump_ascii(word))}
    return frozenset(
        i
        for i, m in enumerate(conversation.messages)
        if m.role in ("user", "assistant") and any(word in m.raw for word in raws)
    )


def _archive_id(call: Call, data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12, key=call.archive_key[:64]).hexdigest()


def _originals(call: Call, conversation: Conversation, edits: Sequence[Edit]) -> tuple[Original, ...]:
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
            found.append(Original(id=_archive_id(call, data), data=data, kind="output"))
    if gone:
        data = cut_text(conversation.messages, gone).encode("utf-8", "surrogateescape")
        found.append(Original(id=_archive_id(call, data), data=data, kind="messages"))
    return tuple(found)


def _cannot_fit(conversation: Conversation, info: ModelInfo, plan: _Plan, *, limit: int | None) -> ContextOverflowError:
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


def _verdict(answer: Answer, call: Call, prepared: Prepared, conversation: Conversation) -> Verdict | None:
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
            max_tokens=conversation.max_tokens,
            window=prepared.report.window,
        ),
    )


def _overflow_error(
    verdict: Verdict, conversation: Conversation, prepared: Prepared, sends: int
) -> ContextOverflowError:
    return ContextOverflowError(
        model=conversation.model,
        context_window=verdict.context_window or prepared.report.window,
        requested_tokens=verdict.requested_tokens or prepared.report.tokens_after,
        reason="retry",
        attempts=sends,
        limit_is_input=verdict.limit_is_input,
        max_tokens=verdict.max_tokens or conversation.max_tokens,
        provider=verdict.provider,
        setting="policy.max_retries",
    )


def drive(steps: Generator[Effect, Any, Any], perform: Callable[[Effect], Any]) -> Any:
    """Carry out a generator's effects with `perform` and return its result."""
    try:
        effect = next(steps)
        while True:
            effect = steps.send(perform(effect))
    except StopIteration as stop:
        return stop.value


async def adrive(steps: Generator[Effect, Any, Any], perform: Callable[[Effect], Awaitable[Any]]) -> Any:
    """`drive` for coroutines."""
    try:
        effect = next(steps)
        while True:
            effect = steps.send(await perform(effect))
    except StopIteration as stop:
        return stop.value
