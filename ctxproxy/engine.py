"""The flow: read, replay, measure, decide, shrink, check, write, send, and once more if the provider refuses."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ctxproxy.budget import Level, Usage, level_of, usage_of
from ctxproxy.compaction import CompactReason
from ctxproxy.conversation import Conversation
from ctxproxy.cost import CacheWatch, Weighed, replay_saving
from ctxproxy.edits import Drop, Item, Replace, apply, splice
from ctxproxy.effects import (
    Answer,
    Call,
    Effect,
    Keep,
    Outcome,
    Prepared,
    Recall,
    Remember,
    Report,
    Send,
)
from ctxproxy.errors import WireFormatError
from ctxproxy.forms import keep_forms, settle, unsettled
from ctxproxy.ledger import Entry, match
from ctxproxy.limits import Breaker, Limits
from ctxproxy.meter import Meter
from ctxproxy.models import ModelInfo, with_served
from ctxproxy.overflow import Verdict
from ctxproxy.planning import (
    Plan,
    admitted,
    cannot_fit,
    checked,
    finish,
    locator,
    make_plan,
    render,
    replay,
    rules_of,
)
from ctxproxy.provider_count import Counts, counted
from ctxproxy.reaction import again, curable, overflow_error, verdict_of, within, without_thinking
from ctxproxy.served import Served
from ctxproxy.strategies import start, truncate
from ctxproxy.summaries import Summaries, Summary, talk_of
from ctxproxy.summarizer import prepare_ahead, summary_for
from ctxproxy.tokens.spent import Spent, spent_of
from ctxproxy.weighing import keys_of, pays_late, weigh_plan
from ctxproxy.wire import thinking
from ctxproxy.wire.base import Reader

__all__ = ["Engine", "Observed"]

_LEAST_WINDOW = 1_024  # tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What a finished answer told: the provider's figure for the prompt, and whether it cut it silently."""

    spent: Spent = Spent()
    truncated: bool = False
    window_reached: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """One request, read and measured, with what the ledger knew in place."""

    base: Prepared
    current: Conversation
    items: tuple[Item, ...]
    usage: Usage
    level: Level


class Engine:
    """Decides for one request at a time; remembers what it learned from the providers' answers.

    Args:
        reader: reads bodies into conversations.
        models: gives what is known of a model, by its name, the request's headers, an explicit window in
            tokens and a learned limit in tokens.
        limits: what providers refused before.
        served: what the upstreams say of themselves.
    """

    def __init__(
        self,
        *,
        reader: Reader,
        models: Callable[[str, Mapping[str, str], int | None, int | None], ModelInfo],
        limits: Limits | None = None,
        breaker: Breaker | None = None,
        summaries: Summaries | None = None,
        served: Served | None = None,
    ) -> None:
        self.reader = reader
        self.models = models
        self.limits = limits or Limits()
        self.breaker = breaker or Breaker()
        self.meter = Meter()
        self.caches = CacheWatch()
        self.served = served
        self.counts = Counts()
        self.summaries = summaries or Summaries()
        self.faults = 0

    # -- measuring

    def info(self, call: Call, model: str) -> ModelInfo:
        """What is known of the call's model. A limit that the provider itself stated bounds any other figure."""
        learned = self.limits.get((call.upstream, call.scope, model), now=call.now)
        info = self.models(model, call.headers, call.window, learned)
        if self.served is not None and info.source != "config":
            stated = self.served.get((call.upstream, model), now=call.now).window
            info = with_served(info, stated) if stated else info
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
        usage = self._usage(call, conversation, conversation, info)
        level = level_of(usage.fraction, call.policy.thresholds)
        return _report(conversation, info, usage, level, reason=_reason(level, call))

    def _usage(self, call: Call, conversation: Conversation, current: Conversation, info: ModelInfo) -> Usage:
        measured = self.meter.measure(
            conversation,
            current.messages,
            model=(call.upstream, conversation.model),
            talk=talk_of(call, conversation),
            counter=self.reader.scale_of(conversation.model)[1],
        )
        return usage_of(current, total=info.window, value=measured.value, margin=measured.margin, basis=measured.basis)

    def observe(
        self, call: Call, outcome: Outcome, usage: Mapping[str, Any] | None, *, stop: str | None = None
    ) -> Observed:
        """Learn from a finished answer: its `usage` object and its stop reason, as the API states them.

        A prompt that the provider reports far smaller than it was sent was cut without a word; one that ended at
        the window's edge left no room to answer. Both teach a limit, so that the next turn is compacted.
        """
        prepared = outcome.prepared
        spent = spent_of(usage, wire=call.wire.api)
        if prepared is None or outcome.error is not None or not spent.input:
            return Observed(spent=spent)
        conversation = prepared.conversation
        key = (call.upstream, call.scope, conversation.model)
        self.caches.note(*keys_of(call, conversation), spent, now=call.now)
        verdict = self.meter.observe(
            conversation,
            prepared.sent,
            spent.input,
            model=(call.upstream, conversation.model),
            talk=talk_of(call, conversation),
            counter=self.reader.scale_of(conversation.model)[1],
        )
        if verdict == "truncated":
            # A figure that no window has is a server that does not count, not one that cuts.
            if spent.input < _LEAST_WINDOW:
                return Observed(spent=spent)
            self.limits.learn(key, spent.input, now=call.now)
            return Observed(spent=spent, truncated=True)
        # Some servers only say that they stopped for length; with no room left and nothing said, it was the window.
        starved = stop in ("length", "max_tokens") and spent.output < 16 and spent.input >= 0.99 * prepared.info.window
        if stop == "model_context_window_exceeded" or starved:
            self.limits.learn(key, spent.input + spent.output, now=call.now)
            return Observed(spent=spent, window_reached=True)
        return Observed(spent=spent)

    # -- before sending

    def prepare(self, call: Call) -> Generator[Effect, Any, Prepared]:
        """Replay what is remembered, measure, and compact where the policy says so.

        Raises:
            WireFormatError: the body is not a request of the call's API.
            ContextOverflowError: it certainly can't fit.
        """
        state = yield from self._look(call)
        base, level = state.base, state.level
        explicit = call.target_tokens is not None
        if base.conversation.hands_off or call.policy.mode == "off":
            return base
        # A window that is only a guess never triggers anything: the provider's refusal will.
        asked = explicit or call.force
        if base.info.source == "default" and not asked:
            return base
        if not asked and level < Level.COMPRESS:
            if level == Level.WARNING and "truncate" in call.policy.steps.get(Level.WARNING, ()):
                return (yield from self._truncate_new(call, state))
            return base
        reason = _reason(level, call) or "proactive"
        if call.policy.mode == "observe" and not explicit:
            return replace(base, report=replace(base.report, reason=reason))
        return (yield from self._compact(call, state, reason))

    def _look(self, call: Call) -> Generator[Effect, Any, _State]:
        """Read the request, put what the ledger remembers in its place, and measure the result."""
        conversation = self.reader.read(call.body, call.wire)
        info = self.info(call, conversation.model)
        rest = conversation.messages[conversation.head :]
        entry: Entry | None = None
        if rest and call.policy.mode == "compact" and not conversation.hands_off and call.target_tokens is None:
            entries: Sequence[Entry] = yield Recall(call.scope, rest[0].digest)
            entry = match(entries, rest)
        items: tuple[Item, ...] = tuple(range(len(conversation.messages)))
        current = conversation
        if entry is not None:
            items = replay(entry, conversation)
            current = replace(conversation, messages=render(self.reader, items, conversation, call.wire))
        body = splice(call.body, call.wire.array, items) if entry is not None else call.body
        if call.target_tokens is None:
            usage = self._usage(call, conversation, current, info)
            usage = yield from counted(self.counts, self.served, call, body, current, info, usage)
        else:
            usage = usage_of(current, total=info.window)
        level = level_of(usage.fraction, call.policy.thresholds)
        report = _report(conversation, info, usage, level, reason=None)
        if entry is not None:
            cache = self.caches.state(*keys_of(call, conversation), now=call.now)
            saved = replay_saving(info, before=conversation.tokens, after=usage.value, cache=cache)
            report = replace(report, tokens_before=conversation.tokens, changed=True, replayed=True, cost_saved=saved)
        return _State(
            base=Prepared(
                body=body,
                report=report,
                conversation=conversation,
                info=info,
                sent=current.messages,
                entry=entry,
            ),
            current=current,
            items=items,
            usage=usage,
            level=level,
        )

    def _compact(self, call: Call, state: _State, reason: CompactReason) -> Generator[Effect, Any, Prepared]:
        base, usage, level, policy = state.base, state.usage, state.level, call.policy
        conversation, info = base.conversation, base.info
        explicit = call.target_tokens is not None
        # What is counted here may be measured differently there: targets are converted, and keep the margin.
        scale = usage.value / max(1, state.current.tokens)
        if call.target_tokens is not None:
            target = call.target_tokens
            if conversation.tokens <= target:
                return base
            steps = policy.steps[Level.OVERFLOW]
        else:
            limit = min(policy.target_tokens(level, total=info.window, before=usage.value), admitted(info, policy))
            target = max(1, int(limit / (1 + usage.margin / max(1, usage.value)) / scale))
            steps = policy.steps.get(max(level, Level.COMPRESS), ())
        keep = None
        if policy.literal_window and not explicit:
            keep = policy.emergency_keep_messages if level >= Level.EMERGENCY else policy.keep_messages
        plan = make_plan(self.reader, call, conversation, info, target, steps, keep=keep)
        after = round(plan.tokens * scale)
        if self._certainly_too_long(call, state, plan, after):
            raise cannot_fit(conversation, info, plan, limit=call.target_tokens)
        weighed = self._weigh(call, state, plan)
        if not explicit and level < Level.EMERGENCY and not plan.faults and pays_late(weighed, policy):
            return base
        if not explicit and not plan.faults and any(isinstance(edit, Drop) for edit in plan.edits):
            # Only what is dropped needs a summary: cheaper steps may have been enough.
            summary = yield from summary_for(self.reader, self.summaries, call, base, state.current, steps)
            if summary is not None:
                text = summary.text
                plan = make_plan(self.reader, call, conversation, info, target, steps, keep=keep, summary=text)
                weighed = self._weigh(call, state, plan, summary)
        if plan.faults:
            self.faults += 1
            return replace(base, report=replace(base.report, faults=plan.faults))
        after = round(plan.tokens * scale)
        if not explicit:
            if usage.value - after < policy.min_saving.of(info.window) and level < Level.OVERFLOW:
                return base
            if after >= usage.value and usage.value <= info.window:
                return base
        prepared, entry = finish(call, base, plan, usage, level, reason, target, after=after, weighed=weighed)
        if plan.originals and policy.archive:
            safe = yield Keep(call.scope, plan.originals)
            if not safe and level < Level.OVERFLOW:
                return base
        if not explicit and entry is not None:
            yield Remember(entry)
        return prepared

    def _certainly_too_long(self, call: Call, state: _State, plan: Plan, after: int) -> bool:
        base, usage = state.base, state.usage
        if base.conversation.elastic or plan.faults:
            return False
        if call.target_tokens is not None:
            return plan.tokens > call.target_tokens
        known = base.info.source in ("config", "learned", "served")
        margin = usage.margin * after / max(1, usage.value)
        return known and after - margin > base.info.window

    def _truncate_new(self, call: Call, state: _State) -> Generator[Effect, Any, Prepared]:
        """At WARNING only outputs that were never sent before shrink: that costs no cached prefix."""
        base, current, usage = state.base, state.current, state.usage
        conversation, info = base.conversation, base.info
        draft = start(
            current,
            window=info.window,
            target=0,
            policy=call.policy,
            rules=rules_of(call, conversation),
            count=self.reader.scale_of(conversation.model)[1].count,
            locate=locator(call),
        )
        draft = truncate(draft, only_new=True)
        if not draft.edits or call.policy.mode != "compact":
            return base
        if rules_of(call, conversation).thinking == "bound" and thinking.binds(current.messages, draft.edits):
            return base
        # The newest exchange lies behind whatever was replayed, so its messages map to the request's own.
        shift = len(conversation.messages) - len(current.messages)
        edits = tuple(replace(e, index=e.index + shift) for e in draft.edits if isinstance(e, Replace))
        covered = base.entry.length + conversation.head if base.entry else 0
        if any(edit.index < covered for edit in edits):
            return base
        fresh = apply(conversation.messages, edits, call.wire)
        joined = tuple(item if isinstance(item, bytes) else fresh[item] for item in state.items)
        plan = checked(self.reader, call, conversation, joined, edits, ("truncate",), before=current.messages)
        if plan.faults or plan.tokens >= current.tokens:
            self.faults += bool(plan.faults)
            return replace(base, report=replace(base.report, faults=plan.faults))
        after = round(plan.tokens * usage.value / max(1, current.tokens))
        weighed = self._weigh(call, state, plan)
        prepared, entry = finish(
            call, base, plan, usage, state.level, "proactive", plan.tokens, after=after, weighed=weighed
        )
        if plan.originals and call.policy.archive and not (yield Keep(call.scope, plan.originals)):
            return base
        if entry is not None:
            yield Remember(entry)
        return prepared

    def _weigh(self, call: Call, state: _State, plan: Plan, summary: Summary | None = None) -> Weighed | None:
        counter = self.reader.scale_of(state.base.conversation.model)[1]
        return weigh_plan(self.caches, call, state.base, plan, state.usage, counter=counter, summary=summary)

    # -- summaries

    def summarize_ahead(self, call: Call) -> Generator[Effect, Any, bool]:
        """Prepare the summary that a later turn will need, so that it does not wait; whether one was made.

        To be driven in the background, once a request has reached WARNING.
        """
        if not call.policy.summaries or call.policy.mode != "compact":
            return False
        state = yield from self._look(call)
        conversation = state.base.conversation
        if state.level < Level.WARNING or conversation.hands_off or state.base.info.source == "default":
            return False
        return (yield from prepare_ahead(self.reader, self.summaries, call, state.base, state.current))

    # -- the whole way

    def run(self, call: Call) -> Generator[Effect, Any, Outcome]:
        """Prepare, send, and on a refusal shrink and send again, at most `policy.max_retries` times.

        A body that is no request of the API goes out untouched.

        Raises:
            ContextOverflowError: it certainly can't fit; nothing was sent.
        """
        if call.policy.mode == "off":
            return Outcome(answer=(yield Send(call.body, 1)), report=None)
        try:
            prepared = yield from self.prepare(call)
        except WireFormatError:
            return Outcome(answer=(yield Send(call.body, 1)), report=None)
        prepared = yield from settle(call, prepared)
        total = self.limits.get(_total_of(call, prepared.conversation), now=call.now)
        if total is not None and call.policy.mode == "compact" and not prepared.conversation.hands_off:
            prepared = within(call, prepared, total)
        answer: Answer = yield Send(prepared.body, 1)
        if call.policy.mode != "compact" or prepared.conversation.hands_off:
            return Outcome(answer=answer, report=prepared.report, prepared=prepared, compaction=prepared.compaction)
        return (yield from self._react(call, prepared, answer))

    def _react(self, call: Call, prepared: Prepared, answer: Answer) -> Generator[Effect, Any, Outcome]:
        """Look at the answer, and send less while the provider says that it was too much."""
        key = talk_of(call, prepared.conversation)
        error, sends, mended, fresh = None, 1, False, False
        while True:
            verdict = verdict_of(answer, call, prepared)
            if not mended and answer.body and thinking.refused(answer.body):
                mended = True
                smaller = without_thinking(self.reader, call, prepared)
                if smaller is not None:
                    prepared, sends, fresh = smaller, sends + 1, True
                    answer = yield Send(prepared.body, sends)
                    continue
            if answer.status in (400, 422) and not curable(verdict, call) and (own := unsettled(prepared)) is not None:
                prepared, sends = own, sends + 1
                answer = yield Send(prepared.body, sends)
                continue
            if verdict is None or not curable(verdict, call):
                if verdict is None or answer.status < 400:
                    self.breaker.success(key)
                break
            self._learn(call, prepared, verdict)
            error = overflow_error(verdict, prepared, sends)
            if sends > call.policy.max_retries or self.breaker.is_open(key):
                break
            smaller = yield from again(self.reader, call, prepared, verdict)
            if smaller is None:
                break
            prepared, sends, fresh = (yield from settle(call, smaller)), sends + 1, True
            answer = yield Send(prepared.body, sends)
            error = None
        if error is not None:
            self.breaker.failure(key)
        elif prepared.entry is not None and fresh:
            yield Remember(prepared.entry)
        if answer.status < 400 and error is None:
            yield from keep_forms(call, prepared)
        return Outcome(
            answer=answer,
            report=replace(prepared.report, retries=sends - 1),
            prepared=prepared,
            compaction=prepared.compaction,
            error=error,
            sends=sends,
        )

    def _learn(self, call: Call, prepared: Prepared, verdict: Verdict) -> None:
        window, prompt, output = verdict.context_window, verdict.prompt_tokens, verdict.max_tokens
        # A refusal such as "60869 + 32000 > 64000" states the window as well as one of the prompt alone.
        summed = verdict.kind == "output_too_long" and prompt and output and prompt + output > (window or 0)
        if window and (verdict.kind == "token_overflow" or summed):
            key = (call.upstream, call.scope, prepared.conversation.model)
            self.limits.learn(key, window, now=call.now)
        if window and verdict.kind == "output_too_long":
            self.limits.learn(_total_of(call, prepared.conversation), window, now=call.now)


def _total_of(call: Call, conversation: Conversation) -> tuple[str, str, str, str]:
    """The key of the limit of prompt and output together, where a provider refused their sum."""
    return call.upstream, call.scope, conversation.model, "total"


def _reason(level: Level, call: Call) -> CompactReason | None:
    if level >= Level.OVERFLOW and call.target_tokens is None:
        return "overflow"
    return "proactive" if level >= Level.COMPRESS or call.target_tokens is not None else None


def _report(
    conversation: Conversation, info: ModelInfo, usage: Usage, level: Level, *, reason: CompactReason | None
) -> Report:
    return Report(
        model=conversation.model,
        window=info.window,
        window_source=info.source,
        level=level.name,
        reason=reason,
        tokens_before=usage.value,
        tokens_after=usage.value,
        basis=usage.basis,
        margin=usage.margin,
        by_category=usage.by_category,
    )
