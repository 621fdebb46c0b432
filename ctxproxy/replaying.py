"""Recorded requests once more, under other rules: what would have been compacted, sent, paid and forgotten.

What the model would have answered to other prompts nobody knows: each request is the one that was recorded, whatever
the new rules made of those before it. Summaries are off, since they need a model; what is dropped leaves notes.

Tokens are the provider's where it stated them. For other prompts than the one it saw they are our own count times
its figure for that prompt by our count of it, and the engine is told such scaled figures too, so that it measures as
it would have measured then. A figure that is off by more than two is that of a prompt which was cut there, or of
history that lies there: it scales nothing.

Money: the recorded request by the provider's figures; the others by what they share with the prompt before them, which
is read from the cache where the recording shows that there is one and the last answer is not older than five minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, cast

from ctxproxy import rawjson
from ctxproxy.conversation import Conversation, Message, texts_of
from ctxproxy.effects import Answer, Outcome, Prepared, drive
from ctxproxy.errors import ContextOverflowError, WireFormatError
from ctxproxy.monitor.money import cost_of
from ctxproxy.policy import Policy
from ctxproxy.runtime import Runtime
from ctxproxy.strategies.shapes import tokens
from ctxproxy.tokens.spent import Spent
from ctxproxy.wire import WIRES

__all__ = ["Recorded", "Replay", "Tally", "parse", "total"]

_HARD = 2.0  # the weight of a token from which on nobody can guess it
_TTL = 300.0  # seconds that a provider keeps a prefix at least
_NONE: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A line of a recording. `sent` is our count of what was sent, tokens; 0 where nothing was."""

    at: float
    api: str
    body: bytes = field(repr=False)
    session: str = ""
    agent: str = ""
    upstream: str = ""
    model: str = ""
    window: int | None = None
    status: int = 200
    sent: int = 0
    compaction: str | None = None
    spent: Spent = Spent()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Sums over requests: as recorded, as the client wrote them (`none`), and as they were replayed.

    `refused` are those that no compaction could make fit, `over` those that the client wrote over the window. The
    costs, USD, are of the `priced` requests only, whose usage and prices are known. Of the facts `used` in messages
    that came later, and seen before, `kept` were still in the replayed prompt that these messages followed.
    """

    session: str = ""
    requests: int = 0
    refused: int = 0
    over: int = 0
    compactions: Mapping[str, int] = field(default_factory=lambda: _NONE)
    compactions_recorded: Mapping[str, int] = field(default_factory=lambda: _NONE)
    tokens: int = 0
    tokens_recorded: int = 0
    tokens_none: int = 0
    priced: int = 0
    cost: float = 0.0
    cost_recorded: float = 0.0
    cost_none: float = 0.0
    used: int = 0
    kept: int = 0

    def __add__(self, other: Tally) -> Tally:
        values: dict[str, Any] = {"session": self.session}
        for name in _SUMMED:
            mine, others = getattr(self, name), getattr(other, name)
            if isinstance(mine, Mapping):
                counts, more = cast("Mapping[str, int]", mine), cast("Mapping[str, int]", others)
                values[name] = {key: counts.get(key, 0) + more.get(key, 0) for key in [*counts, *more]}
            else:
                values[name] = mine + others
        return Tally(**values)

    @property
    def facts_kept(self) -> float | None:
        """The share of the used facts that were kept; None where none was used."""
        return self.kept / self.used if self.used else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; costs are null where no request is priced."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in ("compactions", "compactions_recorded"):
            found[name] = dict(found[name])
        for name in ("cost", "cost_recorded", "cost_none"):
            found[name] = round(found[name], 6) if self.priced else None
        return {**found, "facts_kept": self.facts_kept}


_SUMMED = tuple(f.name for f in fields(Tally) if f.name != "session")


def total(tallies: Iterable[Tally]) -> Tally:
    """The sum of all."""
    return sum(tallies, Tally())


def parse(line: bytes) -> Recorded:
    """The request of a line.

    Raises:
        WireFormatError: it is no line of a recording.
    """
    line = line.removeprefix(b"\xef\xbb\xbf").strip()
    if not line.startswith(b"{"):
        raise WireFormatError("not a JSON object")
    raw = rawjson.members(line)
    body = raw.pop("body", None)
    if body is None or not body.startswith(b"{"):
        raise WireFormatError("`body` is missing" if body is None else "`body` must be an object")
    values = {name: rawjson.load(value) for name, value in raw.items()}
    api = values.get("api")
    if not isinstance(api, str) or api not in WIRES:
        raise WireFormatError(f"`api` must be {', '.join(WIRES)}, not {api!r}")
    at = values.get("at")
    if isinstance(at, bool) or not isinstance(at, int | float):
        raise WireFormatError("`at` must be a number of seconds")
    compaction, usage = values.get("compaction"), values.get("usage")
    guessed = values.get("window_source") == "default"  # a guessed window must trigger nothing here either
    return Recorded(
        at=float(at),
        api=api,
        body=body,
        **{name: _text(values.get(name)) for name in ("session", "agent", "upstream", "model")},
        window=None if guessed else _number(values.get("window")) or None,
        status=_number(values.get("status", 200)),
        sent=_number(values.get("sent")),
        compaction=compaction if isinstance(compaction, str) else None,
        spent=_spent(usage),
    )


def _spent(usage: object) -> Spent:
    if not isinstance(usage, Mapping):
        return Spent()
    given = cast("Mapping[str, object]", usage)
    return Spent(**{f.name: _number(given.get(f.name)) for f in fields(Spent)})


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else 0


@dataclass(frozen=True, slots=True)
class _Sent:
    """The last prompt of a conversation: the whole one as the client wrote it, and what was sent in its place."""

    at: float
    whole: Conversation
    sent: tuple[Message, ...]
    scale: float


class Replay:
    """Runs recorded requests, in the order of the recording, through an engine.

    Args:
        runtime: a fresh one with stores in memory.
        policy: gives the rules of a request.
        window: tokens for every request, None for the recorded ones.
    """

    def __init__(self, *, runtime: Runtime, policy: Callable[[Recorded], Policy], window: int | None = None) -> None:
        self._runtime = runtime
        self._policy = policy
        self._window = window
        self._last: dict[Hashable, _Sent] = {}
        self._caching: dict[Hashable, tuple[bool, bool]] = {}
        self._facts: dict[bytes, frozenset[str]] = {}
        self._tallies: dict[str, Tally] = {}

    @property
    def sessions(self) -> Sequence[Tally]:
        """One tally a session, in the order in which they began."""
        return tuple(self._tallies.values())

    def add(self, request: Recorded) -> Tally:
        """Run the next request, and what it adds.

        Raises:
            WireFormatError: its body is no request of its API.
        """
        rules = replace(self._policy(request), mode="compact", summaries=False, archive=False, provider_count="off")
        call = replace(
            self._runtime.call(
                api=request.api,
                body=request.body,
                upstream=request.upstream,
                policy=rules,
                window=self._window or request.window,
            ),
            now=request.at,
        )
        engine = self._runtime.engine
        prepared: Prepared | None = None
        refusal: ContextOverflowError | None = None
        try:
            prepared = drive(engine.prepare(call), self._runtime.perform)
        except ContextOverflowError as error:
            refusal = error
        whole = prepared.conversation if prepared else engine.reader.read(call.body, call.wire)
        info = prepared.info if prepared else engine.info(call, whole.model)
        talk = _talk(request, whole)
        last = self._last.get(talk)
        known = bool(request.spent.input and request.sent and 0.5 <= request.spent.input / request.sent <= 2)
        scale = request.spent.input / request.sent if known else last.scale if last else 1.0
        sent = prepared.sent if prepared else ()
        size = _size(whole, sent) if prepared else 0
        tally = Tally(
            session=request.session,
            requests=1,
            refused=int(refusal is not None),
            over=int(round(whole.tokens * scale) > info.window),
            compactions={prepared.compaction.reason: 1} if prepared and prepared.compaction else _NONE,
            compactions_recorded={request.compaction: 1} if request.compaction else _NONE,
            tokens=round(size * scale),
            tokens_recorded=request.spent.input or round(request.sent * scale),
            tokens_none=round(whole.tokens * scale),
            **self._kept(last, whole),
        )
        if prepared is not None:
            tally = replace(tally, **self._costs(request, prepared, last, scale))
            if known:
                outcome = Outcome(answer=Answer(status=200), report=prepared.report, prepared=prepared)
                engine.observe(call, outcome, _usage(request, round(size * scale)))
            self._last[talk] = _Sent(request.at, whole, sent, scale)
        so_far = self._tallies.get(request.session, Tally(session=request.session))
        self._tallies[request.session] = so_far + tally
        return tally

    # -- money

    def _costs(self, request: Recorded, prepared: Prepared, last: _Sent | None, scale: float) -> dict[str, Any]:
        spent, info, whole = request.spent, prepared.info, prepared.conversation
        key = (request.upstream, whole.model)
        reads, writes = self._caching.get(key, (False, False))
        reads, writes = reads or spent.cached > 0 or spent.written > 0, writes or spent.written > 0
        self._caching[key] = reads, writes
        paid = cost_of(spent, info.prices) if spent.input else None
        if paid is None:
            return {}
        warm = last if reads and last is not None and 0 <= request.at - last.at < _TTL else None

        def cost(messages: Sequence[Message], before: Sequence[Message]) -> float:
            """USD of a prompt, of which what it shares with `before` is in the cache."""
            size = round(_size(whole, messages) * scale)
            held = 0
            if warm is not None and warm.whole.fixed_digest == whole.fixed_digest:
                shared = messages[: _shared(messages, before)]
                held = min(size, round((whole.fixed.tokens + sum(m.tokens for m in shared)) * scale))
            held = held if held >= (info.min_cache_tokens or 0) else 0
            made = Spent(input=size, cached=held, written=size - held if writes else 0, output=spent.output)
            return cost_of(made, info.prices) or 0.0

        return {
            "priced": 1,
            "cost_recorded": paid,
            "cost_none": cost(whole.messages, warm.whole.messages if warm else ()),
            "cost": cost(prepared.sent, warm.sent if warm else ()),
        }

    # -- facts

    def _kept(self, last: _Sent | None, whole: Conversation) -> dict[str, int]:
        """Of the facts in new messages that the conversation had before: how many, and how many of them were sent."""
        if last is None:
            return {}
        start = _shared(whole.messages, last.whole.messages)
        used = self._hard(whole.messages[start:]) & self._hard(last.whole.messages)
        known = {m.digest for m in last.whole.messages}
        found = used & self._hard([m for m in last.sent if m.digest in known])
        changed = "\n".join(text for m in last.sent if m.digest not in known for text in texts_of(m))
        return {"used": len(used), "kept": sum(fact in found or fact in changed for fact in used)}

    def _hard(self, messages: Sequence[Message]) -> set[str]:
        found: set[str] = set()
        for message in messages:
            facts = self._facts.get(message.digest)
            if facts is None:
                texts = texts_of(message)
                facts = frozenset(t for text in texts for _, _, t, weight in tokens(text) if weight >= _HARD)
                self._facts[message.digest] = facts
            found |= facts
        return found


def _talk(request: Recorded, whole: Conversation) -> Hashable:
    """Which conversation of a session a request belongs to: agents of one name may have several."""
    first = whole.messages[whole.head].digest if whole.head < len(whole.messages) else b""
    return request.session, request.agent, request.api, first


def _size(whole: Conversation, messages: Sequence[Message]) -> int:
    return whole.fixed.tokens + sum(m.tokens for m in messages)


def _shared(messages: Sequence[Message], before: Sequence[Message]) -> int:
    """How many messages at the beginning are the same."""
    for i, (one, other) in enumerate(zip(messages, before, strict=False)):
        if one.digest != other.digest:
            return i
    return min(len(messages), len(before))


def _usage(request: Recorded, size: int) -> dict[str, Any]:
    """The recorded usage for a prompt of another size, as the API of the request would state it."""
    spent = request.spent
    share = size / spent.input
    cached, written = int(spent.cached * share), int(spent.written * share)
    if request.api == "messages":
        return {
            "input_tokens": size - cached - written,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": written,
            "output_tokens": spent.output,
        }
    details = {"cached_tokens": cached, "cache_write_tokens": written}
    return {"input_tokens": size, "output_tokens": spent.output, "input_tokens_details": details}
