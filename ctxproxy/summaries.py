"""Summaries of conversations: making the request for one, keeping what came, and knowing when to stop asking."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from ctxproxy import rawjson
from ctxproxy.conversation import Conversation, Message, prefix_digest
from ctxproxy.edits import Note, apply
from ctxproxy.effects import Answer, Call
from ctxproxy.errors import SummaryError, WireFormatError
from ctxproxy.planning import rules_of
from ctxproxy.strategies.draft import passages_of, start
from ctxproxy.strategies.summarize import instruction, serialize, validate
from ctxproxy.wire import asking

__all__ = ["Flight", "Summaries", "Summary", "read_summary", "summary_request", "talk_of"]

_MOST = 1_024  # conversations whose summaries are kept
_CALLS, _CALLS_SECONDS = 24, 600.0  # spend limit: summary calls of one scope
_FAILURES, _PAUSE_SECONDS = 2, 600.0  # breaker: failures in a row, and how long to wait then


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A validated summary of the first `length` messages after the head, whose prefix digest is `chain`."""

    length: int
    chain: bytes
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """A summary call under way, of a conversation whose prefix digest at `length` is `chain`.

    `until` is in seconds since the epoch: whoever made it may have died.
    """

    id: str
    length: int
    chain: bytes
    until: float

    def concerns(self, messages: Sequence[Message], *, now: float) -> bool:
        """Whether its summary will stand for a beginning of these messages."""
        return (
            self.until > now and self.length <= len(messages) and prefix_digest(messages[: self.length]) == self.chain
        )


@dataclass(slots=True)
class _Talk:
    summaries: tuple[Summary, ...] = ()
    flights: tuple[Flight, ...] = ()
    failures: int = 0
    until: float = 0.0


class Summaries:
    """The summaries of this process, with a breaker for each conversation and a spend limit for each scope."""

    def __init__(self) -> None:
        self.refused = 0  # answers that were no summary, and calls without one
        self._talks: OrderedDict[Hashable, _Talk] = OrderedDict()
        self._calls: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = threading.RLock()

    def find(self, key: Hashable, messages: Sequence[Message]) -> Summary | None:
        """The summary of the longest prefix that these messages still begin with."""
        talk = self._talks.get(key)
        fitting = [
            s
            for s in (talk.summaries if talk else ())
            if s.length <= len(messages) and prefix_digest(messages[: s.length]) == s.chain
        ]
        return max(fitting, key=lambda s: s.length, default=None)

    def may_ask(self, key: tuple[str, bytes], *, now: float) -> bool:
        """Whether another summary call is worth its cost; counts it if so."""
        with self._lock:
            return self._may_ask(key, now)

    def _may_ask(self, key: tuple[str, bytes], now: float) -> bool:
        talk = self._talks.get(key)
        if talk is not None and talk.until > now:
            return False
        calls = self._calls.setdefault(key[0], deque())
        while calls and calls[0] <= now - _CALLS_SECONDS:
            calls.popleft()
        if len(calls) >= _CALLS:
            return False
        calls.append(now)
        while len(self._calls) > _MOST:
            self._calls.popitem(last=False)
        return True

    def begin(self, key: Hashable, messages: Sequence[Message], *, now: float, seconds: float) -> Flight | None:
        """Take the one place for a summary call of a conversation, for at most `seconds`; None where it is taken."""
        flight = Flight(
            id=secrets.token_hex(8), length=len(messages), chain=prefix_digest(messages), until=now + seconds
        )
        with self._lock:
            talk = self._talk(key)
            if any(f.concerns(messages, now=now) for f in talk.flights):
                return None
            talk.flights = (*(f for f in talk.flights if f.until > now), flight)
        return flight

    def end(self, key: Hashable, flight: Flight) -> None:
        """Give the place back."""
        with self._lock:
            talk = self._talk(key)
            talk.flights = tuple(f for f in talk.flights if f.id != flight.id)

    def flying(self, key: Hashable, messages: Sequence[Message], *, now: float) -> bool:
        """Whether a summary call is under way whose result will stand for a beginning of these messages."""
        talk = self._talks.get(key)
        return talk is not None and any(f.concerns(messages, now=now) for f in talk.flights)

    def keep(self, key: Hashable, summary: Summary) -> None:
        """Keep a summary; the one before stays, for a fork that does not reach as far."""
        with self._lock:
            talk = self._talk(key)
            talk.summaries = (*talk.summaries[-1:], summary)
            talk.failures, talk.until = 0, 0.0

    def failed(self, key: Hashable, *, now: float) -> None:
        """Count a failure; after some in a row nothing is asked for a while."""
        with self._lock:
            self.refused += 1
            talk = self._talk(key)
            talk.failures += 1
            if talk.failures >= _FAILURES:
                talk.until, talk.failures = now + _PAUSE_SECONDS, 0

    def _talk(self, key: Hashable) -> _Talk:
        talk = self._talks.setdefault(key, _Talk())
        self._talks.move_to_end(key)
        while len(self._talks) > _MOST:
            self._talks.popitem(last=False)
        return talk


def talk_of(call: Call, conversation: Conversation) -> tuple[str, bytes]:
    """The key of a conversation: whose it is, and how it begins."""
    rest = conversation.messages[conversation.head : conversation.head + 1]
    return call.scope, rest[0].digest if rest else b""


def summary_request(
    call: Call,
    conversation: Conversation,
    current: Conversation,
    *,
    room: int,
    limit: int,
    previous: Summary | None,
    count: Callable[[str], int],
) -> bytes:
    """The body of a summary call: the request's own prefix with one instruction where that fits, else a transcript.

    The own prefix is in the provider's cache, and credentials that only admit the client's own requests admit
    it. `room` are the tokens that the summarizer's window admits, `limit` those of the summary.

    Raises:
        WireFormatError: the request can't be turned into one.
    """
    ask = instruction(limit=limit, previous=previous.text if previous else None)
    size = count(ask) + limit + 64
    rules, last = rules_of(call, conversation), current.messages[-1].role
    legal = rules.user_after_tool or last != "tool"
    shaped = current.stateful or asking.shapes_answer(call.wire.api, call.body)
    if legal and not shaped and current.tokens + size <= room:
        at = len(current.messages)
        attach = rules.alternate and last == "user"
        note = Note(at - 1 if attach else at, ask, "summary", attach=attach)
        items = apply(current.messages, (note,), call.wire)
        raws = [current.messages[item].raw if isinstance(item, int) else item for item in items]
        array = b"[" + b",".join(raws) + b"]"
        body = rawjson.replace(call.body, (call.wire.array,), array)
        return asking.quiet(call.wire.api, body, output=limit + conversation.thinking_budget)
    draft = start(
        conversation,
        window=room,
        target=room,
        policy=call.policy,
        rules=rules,
        count=count,
    )
    begin = previous.length + conversation.head if previous else conversation.head
    passages = passages_of(draft, tuple(range(begin, len(conversation.messages))))
    text = serialize(passages, budget=max(64, room - size - 32), count=count)
    return asking.ask(
        call.wire.api, conversation.model, f"{ask}\n\nThe conversation, as JSON strings:\n{text}", output=limit
    )


def read_summary(
    call: Call, conversation: Conversation, answer: Answer | None, *, limit: int, count: Callable[[str], int]
) -> Summary:
    """The summary in an answer.

    Raises:
        SummaryError: there is none that may be used; the message says why.
    """
    if answer is None:
        raise SummaryError("the summary call failed or took too long (setting: policy.summary_wait)")
    if answer.status != 200:
        raise SummaryError(f"the summary call was answered with status {answer.status}")
    try:
        text, complete = asking.reply(call.wire.api, answer.body)
    except WireFormatError as error:
        raise SummaryError(f"the answer to the summary call can't be read: {error}") from None
    rest = conversation.messages[conversation.head :]
    before = sum(m.tokens for m in rest)
    text = validate(text, complete=complete, before=before, limit=limit, count=count)
    return Summary(length=len(rest), chain=prefix_digest(rest), text=text)
