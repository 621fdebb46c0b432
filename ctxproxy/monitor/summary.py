"""From events to a picture: conversations with their usage, compactions with what they saved, totals.

`Tally` takes one event at a time, so that a view costs what is new; `snapshot_of` is the same for a whole log.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ctxproxy.budget import CATEGORIES, SHARES, Thresholds, level_of
from ctxproxy.monitor.events import Event

__all__ = [
    "Conversation",
    "Cut",
    "ModelSeen",
    "Point",
    "Snapshot",
    "Tally",
    "ToolSeen",
    "Totals",
    "snapshot_of",
]

_MOST_CONVERSATIONS = 500
_MOST_POINTS = 240  # of one conversation
_MOST_CUTS = 500
_MOST_NAMES = 100  # models and tools
_LARGE_SHARE, _LARGE_LEAST = 0.10, 1_000  # of the window, and tokens: from there on a tool output counts as large


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One moment of a conversation: `fraction` of the window that was sent, `peak` before a compaction of that turn."""

    at: float
    type: str
    tokens: int
    fraction: float
    peak: float
    level: str
    compaction: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One compaction. `saved_usd` is what its own turn saved, `net_usd` with the `turns` that it served since."""

    id: str
    at: float
    session: str
    agent: str
    account: str
    api: str
    model: str
    reason: str
    level: str
    window: int
    before: int
    after: int
    strategies: tuple[str, ...] = ()
    exchanges_cut: int = 0
    originals: int = 0
    seconds: float = 0.0
    saved_usd: float | None = None
    net_usd: float | None = None
    turns: int = 0

    @property
    def removed(self) -> int:
        return self.before - self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One conversation as it stands: tokens are those of its newest request, as it was sent."""

    session: str
    agent: str
    account: str
    api: str
    model: str
    upstream: str
    window: int
    window_source: str
    level: str
    tokens: int
    unedited: int
    fraction: float
    by_category: Mapping[str, int]
    allocations: Mapping[str, int]
    note: str
    began: float
    at: float
    requests: int
    compactions: int
    input: int
    cached: int
    output: int
    cost: float | None
    saved_usd: float | None
    last: Cut | None
    history: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSeen:
    """What was seen of a model: its window and who said so, the largest prompt taken, the smallest refused."""

    model: str
    window: int
    window_source: str
    requests: int = 0
    accepted: int = 0
    refused: int = 0
    least_refused: int = 0
    truncated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSeen:
    """Large outputs of a tool: how many, the largest one in tokens, and its share of the window."""

    tool: str
    large: int
    largest: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over all events. `removed` by compactions; `spared` were not sent, on every turn that had less to send."""

    requests: int = 0
    failed: int = 0
    compactions: int = 0
    proactive: int = 0
    overflow: int = 0
    retry: int = 0
    refused: int = 0
    blocked: int = 0
    truncated: int = 0
    removed: int = 0
    spared: int = 0
    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    cost: float | None = None
    saved_usd: float | None = None
    overhead: float = 0.0

    @property
    def cache_share(self) -> float:
        return self.cached / self.input if self.input else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The picture: the conversation used last comes first, and so does the newest compaction."""

    conversations: tuple[Conversation, ...] = ()
    compactions: tuple[Cut, ...] = ()
    totals: Totals = Totals()
    models: tuple[ModelSeen, ...] = ()
    tools: tuple[ToolSeen, ...] = ()
    began: float = 0.0
    at: float = 0.0
    thresholds: tuple[float, float, float, float] = (0.8, 0.9, 0.95, 1.0)


@dataclass(slots=True)
class _Talk:
    first: Event
    newest: Event
    requests: int = 0
    compactions: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    cost: float | None = None
    saved: float | None = None
    cut: str = ""
    pending: Event | None = None
    points: deque[Point] = field(default_factory=lambda: deque(maxlen=_MOST_POINTS))


class Tally:
    """Adds up events; `add` may be a monitor's listener. Safe to use from several threads.

    Args:
        thresholds: shares of the window at which the levels begin.
        shares: how the window is split into categories.
    """

    def __init__(self, *, thresholds: Thresholds = Thresholds(), shares: Mapping[str, float] = SHARES) -> None:
        self._thresholds = thresholds
        self._shares = dict(shares)
        self._lock = threading.Lock()
        self._talks: OrderedDict[tuple[str, str, str], _Talk] = OrderedDict()
        self._cuts: OrderedDict[tuple[str, str], Cut] = OrderedDict()
        self._models: OrderedDict[str, ModelSeen] = OrderedDict()
        self._tools: OrderedDict[str, ToolSeen] = OrderedDict()
        self._totals = Totals()
        self._began = self._at = 0.0

    def add(self, event: Event) -> None:
        """Count one event."""
        with self._lock:
            self._began = self._began or event.at
            self._at = max(self._at, event.at)
            if event.session or event.type in ("request", "compaction"):
                self._talk(event)
            match event.type:
                case "request":
                    self._request(event)
                case "compaction":
                    self._compaction(event)
                case "overflow":
                    self._overflow(event)
                case _:
                    pass

    def snapshot(self, *, conversations: int = 50, compactions: int = 100) -> Snapshot:
        """The picture now, with at most that many conversations and compactions."""
        with self._lock:
            marks = self._thresholds
            return Snapshot(
                conversations=tuple(
                    self._conversation(talk) for talk in list(reversed(self._talks.values()))[:conversations]
                ),
                compactions=tuple(list(reversed(self._cuts.values()))[:compactions]),
                totals=self._totals,
                models=tuple(self._models.values()),
                tools=tuple(sorted(self._tools.values(), key=lambda tool: -tool.large * tool.largest)),
                began=self._began,
                at=self._at,
                thresholds=(marks.warning, marks.compress, marks.emergency, marks.overflow),
            )

    # -- one event

    def _talk(self, event: Event) -> None:
        key = (event.account, event.session, event.agent)
        talk = self._talks.get(key)
        if talk is None:
            talk = self._talks[key] = _Talk(event, event)
            while len(self._talks) > _MOST_CONVERSATIONS:
                self._talks.popitem(last=False)
        self._talks.move_to_end(key)
        if event.type == "compaction":
            talk.pending = event
            talk.compactions += 1
            talk.cut = event.id
            return
        if event.type == "request":
            talk.newest = event
            talk.requests += 1
            talk.input += event.input
            talk.cached += event.cached
            talk.output += event.output
            talk.cost = _plus(talk.cost, event.cost)
            talk.saved = _plus(talk.saved, event.saved_usd)
        self._point(talk, event)

    def _point(self, talk: _Talk, event: Event) -> None:
        if not event.window or (event.type == "overflow" and not event.message):
            return
        made, talk.pending = (talk.pending, None) if event.type == "request" else (None, talk.pending)
        tokens = event.after or event.before
        fraction = tokens / event.window
        talk.points.append(
            Point(
                at=event.at,
                type=event.type,
                tokens=tokens,
                fraction=fraction,
                peak=made.before / event.window if made else max(fraction, 0.0),
                level=level_of(fraction, self._thresholds).name,
                compaction=made.id if made else "",
                label=event.label or (event.message if event.type in ("overflow", "gate") else ""),
            )
        )

    def _request(self, event: Event) -> None:
        old = self._totals
        self._totals = replace(
            old,
            requests=old.requests + 1,
            failed=old.failed + (event.status >= 400),
            truncated=old.truncated + event.truncated,
            spared=old.spared + max(0, event.before - event.after),
            input=old.input + event.input,
            cached=old.cached + event.cached,
            written=old.written + event.written,
            output=old.output + event.output,
            cost=_plus(old.cost, event.cost),
            saved_usd=_plus(old.saved_usd, event.saved_usd),
            overhead=old.overhead + event.overhead,
        )
        seen = self._model(event)
        if seen is not None:
            good = event.status == 200 and not event.truncated
            self._models[event.model] = replace(
                seen,
                requests=seen.requests + 1,
                accepted=max(seen.accepted, event.input) if good else seen.accepted,
                truncated=seen.truncated + event.truncated,
                window=event.window or seen.window,
                window_source=event.window_source or seen.window_source,
            )
        if event.window and event.largest >= max(_LARGE_LEAST, _LARGE_SHARE * event.window):
            self._large(event)
        talk = self._talks.get((event.account, event.session, event.agent))
        cut = self._cuts.get((event.account, talk.cut)) if talk else None
        if cut is not None and event.before > event.after:
            self._cuts[event.account, cut.id] = replace(
                cut, net_usd=_plus(cut.net_usd, event.saved_usd), turns=cut.turns + 1
            )

    def _compaction(self, event: Event) -> None:
        old = self._totals
        reason = event.reason or "proactive"
        self._totals = replace(
            old,
            compactions=old.compactions + 1,
            removed=old.removed + max(0, event.tokens_saved),
            **{reason: getattr(old, reason) + 1},
        )
        self._cuts[event.account, event.id] = Cut(
            id=event.id,
            at=event.at,
            session=event.session,
            agent=event.agent,
            account=event.account,
            api=event.api,
            model=event.model,
            reason=reason,
            level=event.level,
            window=event.window,
            before=event.before,
            after=event.after,
            strategies=event.strategies,
            exchanges_cut=event.exchanges_cut,
            originals=len(event.archived),
            seconds=event.overhead,
            saved_usd=event.saved_usd,
        )
        while len(self._cuts) > _MOST_CUTS:
            self._cuts.popitem(last=False)

    def _overflow(self, event: Event) -> None:
        refused = event.reason == "retry"
        self._totals = replace(
            self._totals,
            refused=self._totals.refused + refused,
            blocked=self._totals.blocked + (not refused),
        )
        seen = self._model(event)
        if refused and seen is not None:
            least = min(seen.least_refused or event.before, event.before)
            self._models[event.model] = replace(seen, refused=seen.refused + 1, least_refused=least)

    def _model(self, event: Event) -> ModelSeen | None:
        if event.model not in self._models and len(self._models) < _MOST_NAMES:
            self._models[event.model] = ModelSeen(
                model=event.model, window=event.window, window_source=event.window_source
            )
        return self._models.get(event.model)

    def _large(self, event: Event) -> None:
        name = event.tool or "a tool"
        seen = self._tools.get(name) or ToolSeen(tool=name, large=0, largest=0, share=0.0)
        if name in self._tools or len(self._tools) < _MOST_NAMES:
            self._tools[name] = ToolSeen(
                tool=name,
                large=seen.large + 1,
                largest=max(seen.largest, event.largest),
                share=max(seen.share, event.largest / event.window),
            )

    # -- the picture

    def _conversation(self, talk: _Talk) -> Conversation:
        event = talk.newest
        tokens = event.after or event.before
        fraction = tokens / event.window if event.window else 0.0
        cut = self._cuts.get((event.account, talk.cut)) if talk.cut else None
        level = level_of(fraction, self._thresholds).name
        return Conversation(
            session=event.session,
            agent=event.agent,
            account=event.account,
            api=event.api,
            model=event.model,
            upstream=event.upstream,
            window=event.window,
            window_source=event.window_source,
            level=level,
            tokens=tokens,
            unedited=event.before,
            fraction=fraction,
            by_category={name: event.by_category.get(name, 0) for name in CATEGORIES},
            allocations={name: round(event.window * share) for name, share in self._shares.items()},
            note=_note(event, level, self._thresholds),
            began=talk.first.at,
            at=event.at,
            requests=talk.requests,
            compactions=talk.compactions,
            input=talk.input,
            cached=talk.cached,
            output=talk.output,
            cost=talk.cost,
            saved_usd=talk.saved,
            last=cut,
            history=tuple(talk.points),
        )


def snapshot_of(
    events: Iterable[Event], *, thresholds: Thresholds = Thresholds(), shares: Mapping[str, float] = SHARES
) -> Snapshot:
    """The picture of a whole log."""
    tally = Tally(thresholds=thresholds, shares=shares)
    for event in events:
        tally.add(event)
    return tally.snapshot(conversations=_MOST_CONVERSATIONS, compactions=_MOST_CUTS)


def _note(event: Event, level: str, marks: Thresholds) -> str:
    """What the level means for the next request, in words."""
    if event.truncated:
        return "The provider read far less than was sent: it cut the prompt without a word"
    if event.window_source == "default":
        return "The window is a guess: nothing is compacted before the provider refuses"
    if level == "WARNING":
        return f"Approaching the compaction threshold ({marks.compress:.0%})"
    if level == "OVERFLOW":
        return "Over the window: the provider may refuse it"
    if level != "NORMAL":
        return f"Over the compaction threshold ({marks.compress:.0%}): compacted as soon as that frees enough"
    return ""


def _plus(one: float | None, other: float | None) -> float | None:
    return one if other is None else (one or 0.0) + other
