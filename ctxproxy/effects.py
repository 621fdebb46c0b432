"""What the engine asks of its surroundings, and what it answers: calls, effects, answers, reports.

A generator of the engine yields effects and is sent their results; `drive` and `adrive` carry them out with
a function of the caller's. So one engine serves sync and async clients and the proxy, and does no I/O itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Hashable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ctxproxy.compaction import Compaction, CompactReason, Original
from ctxproxy.conversation import Conversation, Message
from ctxproxy.edits import Rules
from ctxproxy.errors import ContextOverflowError
from ctxproxy.ledger import Entry
from ctxproxy.models import ModelInfo
from ctxproxy.policy import Policy
from ctxproxy.served import Question
from ctxproxy.wire.base import Wire

__all__ = [
    "Answer",
    "Await",
    "Call",
    "Count",
    "Effect",
    "Keep",
    "KeepForms",
    "Outcome",
    "Prepared",
    "Recall",
    "RecallForms",
    "Remember",
    "Report",
    "Send",
    "Summarize",
    "adrive",
    "drive",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request on its way.

    `scope` says whose conversation it is (wire, model family, account), `now` is in seconds since the epoch.
    `target_tokens` asks for a compaction down to it whatever the level, and `force` for one down to the policy's own
    target, which is then remembered as usual. `hint` turns the archive id of a cut
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
    force: bool = False
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
class RecallForms:
    """Effect: the forms in which messages of a conversation were first sent. Result: a mapping of those known."""

    scope: str
    first: bytes
    keys: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeepForms:
    """Effect: remember forms of messages. Result: None."""

    scope: str
    first: bytes
    forms: tuple[tuple[bytes, bytes], ...] = field(repr=False)


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


@dataclass(frozen=True, slots=True)
class Summarize:
    """Effect: ask a model for a summary, with the caller's own credentials. Result: an Answer, None on failure.

    `key` is the whole conversation: calls with the same key at the same time are one call. `seconds` bounds the wait.
    """

    key: tuple[str, bytes]
    body: bytes = field(repr=False)
    seconds: float


@dataclass(frozen=True, slots=True)
class Count:
    """Effect: ask the provider's counter, with the caller's own credentials. Result: an Answer, None on failure.

    Calls with the same key at the same time are one call. `seconds` bounds the wait.
    """

    key: tuple[Hashable, ...]
    question: Question
    seconds: float


@dataclass(frozen=True, slots=True)
class Await:
    """Effect: wait until `pending` says no, at most `seconds`. Result: None. Who can't wait goes on at once."""

    pending: Callable[[], bool] = field(repr=False)
    seconds: float


Effect = Await | Count | Recall | RecallForms | Keep | KeepForms | Remember | Send | Summarize


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was measured and done, the same for every surface.

    `cost_saved`: USD that this request costs less than it would without ctxproxy, negative where it costs more; an
    estimate by list prices, None where they are not known.
    """

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
    cost_saved: float | None = None

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
            "cost_saved": self.cost_saved,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A request ready to be sent: its bytes, and `sent`, its messages as the provider will see them.

    `forms` are to be remembered once it is accepted; `unsettled` is the request without those of earlier turns,
    None where that is the same.
    """

    body: bytes = field(repr=False)
    report: Report
    conversation: Conversation = field(repr=False)
    info: ModelInfo
    sent: tuple[Message, ...] = field(default=(), repr=False)
    entry: Entry | None = field(default=None, repr=False)
    compaction: Compaction | None = None
    explanation: tuple[dict[str, Any], ...] = ()
    forms: tuple[tuple[bytes, bytes], ...] = field(default=(), repr=False)
    unsettled: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the caller gets: the answer to relay, and the report. `prepared` is what was sent last, if measured."""

    answer: Answer
    report: Report | None
    prepared: Prepared | None = field(default=None, repr=False)
    compaction: Compaction | None = None
    error: ContextOverflowError | None = None
    sends: int = 1


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
