"""Events for people: one line each, and the nested form of the Grid design."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from ctxproxy.monitor.events import Event

__all__ = ["GRID_NAMES", "human", "nested"]

# The Grid design's names of the strategies; the others have none there.
GRID_NAMES = {"window": "sliding_window", "summarize": "summarization", "prioritize": "prioritization"}


def human(event: Event) -> str:
    """An event in one line: local time, what, who, tokens, level, and what came of it."""
    at = datetime.fromtimestamp(event.at).strftime("%H:%M:%S")
    who = " ".join(filter(None, (event.session[:12] or "-", event.agent)))
    return f"{at}  {event.type:<10}  {who:<20}  {_told(event)}".rstrip()


def _told(event: Event) -> str:
    share = f" ({event.before / event.window:.1%} of {event.window:,})" if event.window and event.before else ""
    told = [event.level, f"{event.before:,} tokens{share}" if event.before else ""]
    if event.before != event.after:
        told[1] += f" -> {event.after:,}"
    if event.reason:
        told.append(event.reason)
    if event.strategies:
        told.append("+".join(event.strategies))
    if event.replayed and event.type == "request":
        told.append("replayed")
    if event.retries:
        told.append(f"{event.retries} resent")
    if event.allowed is not None:
        told.append("allowed" if event.allowed else "blocked")
    if event.input or event.output:
        told.append(f"in {event.input:,}" + (f" (cached {event.cached:,})" if event.cached else ""))
        told.append(f"out {event.output:,}")
    if event.cost is not None:
        told.append(f"${event.cost:.4f}")
    if event.status >= 400:
        told.append(f"HTTP {event.status}")
    told += [event.label, event.message]
    return "  ".join(filter(None, told))


def nested(events: Iterable[Event]) -> dict[str, Any]:
    """The events as the Grid design's log has them: `sessions`, each with `session_id` and `events`."""
    sessions: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        sessions.setdefault(event.session, []).append(_grid(event))
    return {"sessions": [{"session_id": id, "events": found} for id, found in sessions.items()]}


def _grid(event: Event) -> dict[str, Any]:
    found: dict[str, Any] = {
        "timestamp": datetime.fromtimestamp(event.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "type": event.type,
        "agent": event.agent,
        "context_before": event.before,
        "context_after": event.after,
        "trigger_level": event.level or "NORMAL",
    }
    if event.type == "compaction" or (event.type in ("spawn", "gate") and event.strategies):
        found["compression_applied"] = True
        found["tokens_saved"] = event.tokens_saved
        found["strategy"] = "+".join(GRID_NAMES.get(name, name) for name in event.strategies)
    if event.reason:
        found["reason"] = event.reason
    return found
