from __future__ import annotations

from ctxproxy.monitor import Event
from ctxproxy.monitor.lines import human, nested


def test_a_line_says_what_happened():
    spawn = Event(type="spawn", at=0.0, session="a-session-id", agent="executor", level="COMPRESS", window=200_000,
                  before=165_000, after=142_000, strategies=("window",), allowed=True)  # fmt: skip
    line = human(spawn)
    for part in ("spawn", "a-session-id", "executor", "COMPRESS", "165,000 tokens (82.5% of 200,000) -> 142,000"):
        assert part in line
    assert line.endswith("window  allowed")
    refused = human(Event(type="request", at=0.0, status=400, input=10, cached=4, output=2, cost=0.5, retries=1))
    assert refused.endswith("1 resent  in 10 (cached 4)  out 2  $0.5000  HTTP 400")


def test_the_nested_form_groups_by_session_in_the_order_of_their_first_event():
    events = [
        Event(type="spawn", at=1_769_248_800.0, session="b", agent="planner", level="NORMAL", before=1, after=2),
        Event(type="request", at=1_769_248_801.0, session="a"),
        Event(type="compaction", at=1_769_248_802.0, session="b", level="EMERGENCY", before=9, after=4,
              reason="proactive", strategies=("prune", "window", "summarize")),
    ]  # fmt: skip
    found = nested(events)["sessions"]
    assert [session["session_id"] for session in found] == ["b", "a"]
    assert found[0]["events"][0] == {
        "timestamp": "2026-01-24T10:00:00Z", "type": "spawn", "agent": "planner", "context_before": 1,
        "context_after": 2, "trigger_level": "NORMAL",
    }  # fmt: skip
    assert found[0]["events"][1]["strategy"] == "prune+sliding_window+summarization"
    assert found[0]["events"][1]["tokens_saved"] == 5
    assert found[1]["events"][0]["trigger_level"] == "NORMAL"
