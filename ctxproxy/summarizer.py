"""The summary for a compaction: one that is ready, one that another request is waiting for, or a new one.

There is one call of a conversation at a time, in all processes that share a store. Whoever comes second waits for
that one and takes its summary, so that both send the same bytes.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from ctxproxy.conversation import Conversation, prefix_digest
from ctxproxy.effects import Answer, Await, Call, Effect, Prepared, Summarize
from ctxproxy.errors import SummaryError, WireFormatError
from ctxproxy.planning import admitted
from ctxproxy.policy import Step
from ctxproxy.summaries import Summaries, Summary, read_summary, summary_request, talk_of
from ctxproxy.wire.asking import DIALECTS
from ctxproxy.wire.base import Reader

__all__ = ["prepare_ahead", "summary_for"]

_PATIENCE = 4  # times policy.summary_wait


def summary_for(
    reader: Reader, summaries: Summaries, call: Call, base: Prepared, current: Conversation, steps: Sequence[Step]
) -> Generator[Effect, Any, Summary | None]:
    """The summary for a compaction by these steps. `current` is the conversation as it would be sent without it.

    One that is ready is taken where it stands for at least half of the messages, or where no new one is allowed.
    """
    if not call.policy.summaries:
        return None
    ready, fresh = _ready(summaries, call, base.conversation)
    if fresh or "summarize" not in steps:
        return ready
    return (yield from _ask(reader, summaries, call, base, current, ready, wait=True)) or ready


def prepare_ahead(
    reader: Reader, summaries: Summaries, call: Call, base: Prepared, current: Conversation
) -> Generator[Effect, Any, bool]:
    """Make the summary that a later turn will need; whether one was made. Waits for nobody."""
    ready, fresh = _ready(summaries, call, base.conversation)
    if fresh:
        return False
    return (yield from _ask(reader, summaries, call, base, current, ready, wait=False)) is not None


def _ready(summaries: Summaries, call: Call, conversation: Conversation) -> tuple[Summary | None, bool]:
    """The summary that is there, and whether it is good enough to make no other."""
    rest = conversation.messages[conversation.head :]
    ready = summaries.find(talk_of(call, conversation), rest)
    return ready, ready is not None and 2 * ready.length >= len(rest)


def _ask(
    reader: Reader,
    summaries: Summaries,
    call: Call,
    base: Prepared,
    current: Conversation,
    previous: Summary | None,
    *,
    wait: bool,
) -> Generator[Effect, Any, Summary | None]:
    """A new summary; where one of this conversation is under way, that one, waited for with `wait`."""
    conversation = base.conversation
    key, rest = talk_of(call, conversation), conversation.messages[conversation.head :]
    if call.wire.api not in DIALECTS:
        return None
    # In the background nobody waits, and a slow model may take its time.
    seconds = call.policy.summary_wait * (1 if wait else _PATIENCE)
    # Who holds the place gives it back after `seconds` at the latest; only a process that died does not.
    flight = summaries.begin(key, rest, now=call.now, seconds=2 * seconds)
    if flight is None:
        if not wait:
            return None
        yield Await(lambda: summaries.flying(key, rest, now=call.now), seconds)
        return summaries.find(key, rest)
    try:
        if not summaries.may_ask(key, now=call.now):
            return None
        return (yield from _new(reader, summaries, call, base, current, previous, seconds=seconds))
    finally:
        summaries.end(key, flight)


def _new(
    reader: Reader,
    summaries: Summaries,
    call: Call,
    base: Prepared,
    current: Conversation,
    previous: Summary | None,
    *,
    seconds: float,
) -> Generator[Effect, Any, Summary | None]:
    conversation, info = base.conversation, base.info
    key, rest = talk_of(call, conversation), conversation.messages[conversation.head :]
    count = reader.scale_of(conversation.model)[1].count
    limit = max(64, call.policy.summary.of(info.window))
    try:
        room = admitted(info, call.policy)
        body = summary_request(call, conversation, current, room=room, limit=limit, previous=previous, count=count)
        answer: Answer | None = yield Summarize((call.scope, prefix_digest(rest)), body, seconds)
        summary = read_summary(call, conversation, answer, limit=limit, count=count)
    except (SummaryError, WireFormatError):
        summaries.failed(key, now=call.now)
        return None
    summaries.keep(key, summary)
    return summary
