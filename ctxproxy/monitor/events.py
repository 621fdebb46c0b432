"""What happened, as small flat values: one event for each request, compaction, overflow, spawn, gate and checkpoint.

Events hold numbers, names and ids, and never the text of a message or a credential.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from ctxproxy.budget import usage_of
from ctxproxy.compaction import Compaction, CompactReason
from ctxproxy.conversation import Conversation
from ctxproxy.effects import Call, Outcome, Prepared, Report
from ctxproxy.errors import ContextOverflowError
from ctxproxy.monitor.money import cost_of, saved_of
from ctxproxy.tokens.spent import Spent

__all__ = ["Event", "EventType", "Finished", "events_of", "session_of"]

EventType = Literal["spawn", "request", "compaction", "overflow", "gate", "checkpoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event. Tokens are ctxproxy's own measure; `input`, `cached`, `written`, `output` the provider's figures.

    `id` is that of the request, of a compaction its own. `at` is in seconds since the epoch, `overhead` in seconds,
    `cost` and `saved_usd` in USD (None where prices are not known). `account` is a keyed hash of the credential.
    `seconds` is how long the request took, `largest` the tokens of the largest tool output that came with it, `tool`
    the name of that tool. `truncated`: the provider read far less than was sent.
    """

    type: EventType
    at: float
    id: str = ""
    session: str = ""
    agent: str = ""
    account: str = ""
    api: str = ""
    upstream: str = ""
    model: str = ""
    reason: CompactReason | None = None
    level: str = ""
    window: int = 0
    window_source: str = ""
    before: int = 0
    after: int = 0
    by_category: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    strategies: tuple[str, ...] = ()
    exchanges_cut: int = 0
    archived: tuple[str, ...] = ()
    replayed: bool = False
    retries: int = 0
    status: int = 0
    overhead: float = 0.0
    seconds: float = 0.0
    largest: int = 0
    tool: str = ""
    truncated: bool = False
    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    cost: float | None = None
    saved_usd: float | None = None
    allowed: bool | None = None
    label: str = ""
    message: str = ""

    @property
    def tokens_saved(self) -> int:
        return self.before - self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A request whose answer has ended, or that was refused here with `error`. The surfaces tell the runtime of it.

    `session` and `agent` are names that the caller gave, "" where it gave none; `upstream` is a name or an address.
    """

    id: str
    call: Call
    outcome: Outcome | None
    error: ContextOverflowError | None = None
    status: int
    spent: Spent = Spent()
    account: str = ""
    session: str = ""
    agent: str = ""
    upstream: str = ""
    overhead: float = 0.0


def events_of(
    finished: Finished, *, session: str, ended: float = 0.0, truncated: bool = False, caches: bool = False
) -> tuple[Event, ...]:
    """The events of a request, in order: a refusal by the provider or by us, a compaction, the request itself.

    `ended` is in seconds since the epoch. `caches`: the provider is known to keep prompts of this model in a cache.
    """
    call, outcome = finished.call, finished.outcome
    report = outcome.report if outcome else None
    error = finished.error or (outcome.error if outcome else None)
    compaction = outcome.compaction if outcome else None
    found: list[Event] = []

    def event(type: EventType, **more: object) -> Event:
        values: dict[str, object] = {
            "at": call.now,
            "id": finished.id,
            "session": session,
            "agent": finished.agent,
            "account": finished.account,
            "api": call.wire.api,
            "upstream": finished.upstream,
            "model": report.model if report else error.model if error else "",
            "window": report.window if report else (error.context_window or 0) if error else 0,
            "window_source": report.window_source if report else "",
            "level": report.level if report else "",
        }
        return Event(type=type, **{**values, **more})  # type: ignore[arg-type]

    if error is not None or (report is not None and report.retries):
        found.append(event("overflow", **_refused(report, error)))
    prepared, spent = outcome.prepared if outcome else None, finished.spent
    prices = prepared.info.prices if prepared else None
    new, largest, tool = _newest(prepared.conversation) if prepared else (0, 0, "")
    saved = saved_of(report, spent, prices, new=new, caches=caches) if report else None
    if compaction is not None:
        found.append(
            event("compaction", **_compacted(compaction), overhead=finished.overhead, saved_usd=saved),
        )
    found.append(
        event(
            "request",
            **(_reported(report, prepared if compaction else None) if report else {}),
            status=finished.status,
            overhead=finished.overhead,
            seconds=max(0.0, ended - call.now) if ended else 0.0,
            largest=largest,
            tool=tool,
            truncated=truncated,
            cost=cost_of(spent, prices),
            saved_usd=saved,
            input=spent.input,
            cached=spent.cached,
            written=spent.written,
            output=spent.output,
        )
    )
    return tuple(found)


def _refused(report: Report | None, error: ContextOverflowError | None) -> dict[str, object]:
    before = report.tokens_before if report else 0
    if error is not None:
        return {
            "reason": error.reason,
            "before": error.requested_tokens or before,
            "after": error.requested_tokens or before,
            "message": "the prompt does not fit",
        }
    return {
        "reason": "retry",
        "before": before,
        "after": report.tokens_after if report else 0,
        "retries": report.retries if report else 0,
        "message": "refused by the provider, and sent again smaller",
    }


def _compacted(compaction: Compaction) -> dict[str, object]:
    return {
        "id": compaction.id,
        "reason": compaction.reason,
        "level": compaction.level,
        "before": compaction.tokens_before,
        "after": compaction.tokens_after,
        "strategies": compaction.strategies,
        "exchanges_cut": compaction.exchanges_cut,
        "archived": compaction.archived,
    }


def _reported(report: Report, compacted: Prepared | None) -> dict[str, object]:
    split = report.by_category
    if compacted is not None:  # the report has the split of what came, an event that of what was sent
        sent = replace(compacted.conversation, messages=compacted.sent)
        split = usage_of(sent, total=report.window, reserve=split.get("reserve", 0)).by_category
    return {
        "reason": report.reason,
        "before": report.tokens_before,
        "after": report.tokens_after,
        "by_category": split,
        "strategies": report.strategies,
        "exchanges_cut": report.exchanges_cut,
        "archived": report.archived,
        "replayed": report.replayed,
        "retries": report.retries,
    }


def _newest(conversation: Conversation) -> tuple[int, int, str]:
    """Of what came since the last answer: its tokens, those of its largest tool output, and that tool's name."""
    new, largest, id, names, answered = 0, 0, None, dict[str, str](), False
    for message in reversed(conversation.messages):
        calls = message.of("tool_call")
        if calls or message.role == "assistant":
            answered = True
            names.update({part.id: part.name for part in calls if part.id and part.name})
            continue
        if answered:
            break
        new += message.tokens
        for part in message.of("tool_result"):
            if part.tokens > largest:
                largest, id = part.tokens, part.id
                if part.name:
                    names[part.id or ""] = part.name
    return new, largest, names.get(id or "", "")[:64]


def session_of(finished: Finished, *, secret: bytes) -> str:
    """The caller's name for the session, else one made of how the conversation begins: stable from turn to turn."""
    if finished.session:
        return finished.session
    prepared = finished.outcome.prepared if finished.outcome else None
    if prepared is None:
        return ""
    conversation = prepared.conversation
    first = conversation.messages[conversation.head : conversation.head + 1]
    digest = first[0].digest if first else b""
    return hashlib.blake2b(finished.call.scope.encode() + digest, key=secret[:64], digest_size=6).hexdigest()
