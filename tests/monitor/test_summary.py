from __future__ import annotations

from typing import Any

import pytest

from ctxproxy.monitor import Event
from ctxproxy.monitor.advice import advise
from ctxproxy.monitor.summary import snapshot_of


def request(at: float = 1.0, **more: Any) -> Event:
    given = {"session": "s", "model": "m", "window": 1_000, "window_source": "config", "before": 500, "after": 500}
    return Event(type="request", at=at, **{**given, "status": 200, "input": 500, **more})


def compaction(at: float = 1.0, **more: Any) -> Event:
    given = {"id": "c", "session": "s", "model": "m", "window": 1_000, "before": 920, "after": 600, "level": "COMPRESS"}
    return Event(type="compaction", at=at, **{**given, "reason": "proactive", **more})


def keys(*events: Event) -> set[str]:
    return {advice.key for advice in advise(snapshot_of(events))}


def test_no_events_make_an_empty_picture() -> None:
    seen = snapshot_of([])
    assert (seen.conversations, seen.compactions, seen.totals.requests) == ((), (), 0)
    assert advise(seen) == ()


def test_a_conversation_has_its_newest_usage_and_its_history() -> None:
    seen = snapshot_of([request(1, after=500), compaction(2), request(2, before=920, after=600)])
    [talk] = seen.conversations
    assert (talk.tokens, talk.unedited, talk.level, talk.requests, talk.compactions) == (600, 920, "NORMAL", 2, 1)
    assert [(point.fraction, point.peak, point.compaction) for point in talk.history] == [
        (0.5, 0.5, ""),
        (0.6, 0.92, "c"),
    ]
    assert talk.last is not None
    assert talk.last.removed == seen.totals.removed == 320


def test_agents_of_a_session_have_a_bar_each() -> None:
    seen = snapshot_of([request(1, agent="planner"), request(2, agent="executor")])
    assert [talk.agent for talk in seen.conversations] == ["executor", "planner"]


@pytest.mark.parametrize("name", ["session", "model", "tool"])
def test_ten_thousand_events_stay_bounded(name: str) -> None:
    seen = snapshot_of(request(n, largest=900, **{name: f"x{n}"}) for n in range(10_000))
    assert seen.totals.requests == 10_000
    assert len(seen.conversations) <= 500
    assert len(seen.models) <= 100
    assert len(seen.tools) <= 100
    assert all(len(talk.history) <= 240 for talk in seen.conversations)


def test_money_counts_once_and_follows_the_compaction_that_made_it() -> None:
    less = {"before": 920, "after": 600}
    seen = snapshot_of(
        [compaction(saved_usd=-0.5), request(1, saved_usd=-0.5, **less), request(2, saved_usd=0.2, **less)]
    )
    assert seen.totals.saved_usd == pytest.approx(-0.3)
    assert seen.compactions[0].net_usd == pytest.approx(-0.3)
    assert seen.compactions[0].turns == 2


def test_each_recommendation_appears_where_it_is_due() -> None:
    less = {"before": 920, "after": 600, "saved_usd": -0.2}
    assert keys(request()) == {"nothing"}
    assert keys(request(window_source="default")) == {"window_guess"}
    assert keys(request(truncated=True)) == {"silent_truncation"}
    assert keys(request(window=30_000, largest=8_000, tool="read")) == {"large_outputs"}
    assert keys(compaction(), request(1, **less), request(2, **less)) == {"compaction_lost_money"}
    refused = Event(type="overflow", at=1, model="m", session="s", window=1_000, before=600, after=400, reason="retry")
    assert keys(request(), refused) == {"window_too_large"}
    assert keys(request(input=2_000)) == {"window_too_small"}
    assert keys(*(request(input=9_000, window=10_000, cached=100) for _ in range(5))) == {"cache_low"}
    assert keys(request(by_category={"warmth": 90})) == {"warmth_large"}
    assert "warmth_fine" in keys(request(by_category={"warmth": 20}))
