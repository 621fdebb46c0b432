"""Replaying: what is compacted, sent, paid and kept under other rules."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ctxproxy.errors import WireFormatError
from ctxproxy.policy import Policy, preset
from ctxproxy.replaying import Recorded, Replay, Tally, parse, total
from ctxproxy.runtime import Runtime
from ctxproxy.tokens.spent import Spent

FACT = "/srv/harbour/tide_gauge_7714.csv"


def turns(count: int, *, uses: str = "") -> list[dict[str, Any]]:
    """A task with a fact in an early tool-like text, and an answer that uses it in the end."""
    found = [
        {"role": "user", "content": "Keep the tide records."},
        {"role": "assistant", "content": f"The gauge writes to {FACT} now."},
    ]
    for n in range(count):
        found.append({"role": "user", "content": f"Step {n}: " + "please go on with the next one " * 12})
        found.append({"role": "assistant", "content": f"Done with {n}. " + "nothing else of note here " * 12})
    return [*found, {"role": "user", "content": f"And now? {uses}"}]


def request(messages: list[dict[str, Any]], **more: Any) -> Recorded:
    body = json.dumps({"model": "gpt-4o", "messages": messages}).encode()
    return Recorded(**{"at": 1.0, "api": "chat", "body": body, "session": "s", "model": "gpt-4o", **more})


def replaying(policy: Policy | None = None, window: int | None = None) -> Replay:
    return Replay(runtime=Runtime(), policy=lambda _: policy or Policy(), window=window)


def test_a_small_window_compacts_and_a_large_one_does_not():
    small, large = replaying(window=3_000), replaying()
    for count in range(5, 40, 5):
        small.add(request(turns(count)))
        large.add(request(turns(count)))
    (there,), (here,) = large.sessions, small.sessions
    assert there.requests == here.requests == 7
    assert there.compactions == {}
    assert there.tokens == there.tokens_none == here.tokens_none
    assert here.tokens < here.tokens_none
    assert sum(here.compactions.values()) >= 2
    assert set(here.compactions) <= {"proactive", "overflow"}
    assert here.over > 0
    assert there.over == 0


def test_the_recorded_window_counts_where_none_is_given():
    run = replaying()
    assert run.add(request(turns(30), window=3_000)).compactions != {}
    assert run.add(request(turns(30), session="t", window=100_000)).compactions == {}
    assert [tally.session for tally in run.sessions] == ["s", "t"]


def test_presets_differ():
    figures = []
    for name in ("gentle", "aggressive"):
        run = replaying(preset(name), window=6_000)
        for count in range(2, 60, 3):
            run.add(request(turns(count)))
        figures.append(run.sessions[0].tokens)
    assert figures[1] < figures[0]


def test_facts_that_later_messages_use_are_looked_for_in_the_prompt_before_them():
    whole = replaying()
    whole.add(request(turns(20)))
    tally = whole.add(request([*turns(20), {"role": "assistant", "content": f"I read {FACT}."}]))
    assert (tally.used, tally.kept) == (1, 1)


def test_what_was_never_seen_before_can_not_be_forgotten():
    run = replaying(window=3_000)
    run.add(request(turns(30)))
    tally = run.add(request([*turns(30), {"role": "assistant", "content": "I read /no/such/path_77.csv."}]))
    assert (tally.used, tally.facts_kept) == (0, None)


def test_a_fact_counts_as_lost_when_nothing_sent_holds_it():
    many = [{"role": "user", "content": "Task."}]
    for n in range(400):
        many += [
            {"role": "assistant", "content": f"ticket HBX{n * 7919 + 100_000} is at /srv/q{n}/file_{n * 31}.log"},
            {"role": "user", "content": "go on"},
        ]
    used = " ".join(f"HBX{n * 7919 + 100_000}" for n in range(400))
    run = replaying(window=2_500)
    run.add(request(many))
    tally = run.add(request([*many, {"role": "assistant", "content": used}]))
    assert tally.used == 400
    assert 0 < tally.kept < 400
    assert tally.facts_kept == tally.kept / 400


def test_tokens_are_the_providers_where_it_stated_them():
    plain = replaying().add(request(turns(10)))
    size = plain.tokens_none
    tally = replaying().add(request(turns(10), sent=size, spent=Spent(input=round(size * 1.2), output=5)))
    assert tally.tokens == tally.tokens_none == tally.tokens_recorded == round(size * 1.2)
    # A prompt that the provider cut says nothing about how it counts.
    cut = replaying().add(request(turns(10), sent=size, spent=Spent(input=size // 4, output=5)))
    assert (cut.tokens, cut.tokens_recorded) == (size, size // 4)


def test_the_scaled_usage_calibrates_the_engine():
    size = replaying().add(request(turns(10))).tokens_none
    window = int(size * 1.5)
    first = request(turns(9), sent=size, spent=Spent(input=int(size * 1.6), output=5))
    told, untold = replaying(window=window), replaying(window=window)
    told.add(first)
    untold.add(replace(first, spent=Spent()))
    assert told.add(request(turns(10))).compactions != {}
    assert untold.add(request(turns(10))).compactions == {}


def test_costs_are_those_of_requests_with_usage_and_prices():
    size = replaying().add(request(turns(10))).tokens_none
    run = replaying()
    first = run.add(request(turns(10), sent=size, spent=Spent(input=size, output=10)))
    assert first.priced == 1
    assert first.cost == pytest.approx(first.cost_recorded) == pytest.approx(first.cost_none)
    assert first.cost > 0
    cached = request(turns(10), at=5.0, sent=size, spent=Spent(input=size, cached=size - 10, output=10))
    second = run.add(cached)
    assert second.cost < first.cost  # the recording shows that this provider caches
    late = run.add(replace(cached, at=5_000.0))
    assert late.cost == pytest.approx(first.cost)
    assert run.add(request(turns(10))).priced == 0


def test_a_prompt_that_can_not_fit_is_counted_and_the_rest_goes_on():
    run = replaying(window=1_200)
    huge = [{"role": "system", "content": "rule " * 4_000}, {"role": "user", "content": "hello"}]
    assert run.add(request(huge)).refused == 1
    assert run.add(request(turns(1))).refused == 0
    assert run.sessions[0].requests == 2


def test_a_sum_of_tallies():
    one = Tally(session="a", requests=1, compactions={"proactive": 1}, used=2, kept=1)
    both = total([one, Tally(session="b", requests=2, compactions={"proactive": 2, "overflow": 1}, used=2, kept=2)])
    assert (both.requests, both.compactions, both.facts_kept) == (3, {"proactive": 3, "overflow": 1}, 0.75)
    assert Tally().as_dict()["cost"] is None


def line(**more: Any) -> bytes:
    fields = {"at": 2.5, "api": "messages", "body": {"model": "m", "messages": []}, "usage": {"input": 5}, **more}
    return json.dumps({key: value for key, value in fields.items() if value is not ...}).encode()


def test_a_line_is_read_back():
    found = parse(line(window=9_000, session="s", usage={"input": 5, "cached": True, "output": "x"}))
    assert (found.at, found.api, found.window, found.spent) == (2.5, "messages", 9_000, Spent(input=5))
    assert json.loads(found.body) == {"model": "m", "messages": []}
    assert parse(line(window=128_000, window_source="default")).window is None


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (line(body=...), "`body` is missing"),
        (line(body="text"), "`body` must be an object"),
        (line(api="fax"), "`api` must be"),
        (line(api=["chat"]), "`api` must be"),
        (line(at="noon"), "`at` must be"),
        (line(at=True), "`at` must be"),
        (b"[1, 2]", "not a JSON object"),
        (b'{"at": 1, "api": "ch', "JSON"),
        (b"\xff\xfe", "not a JSON object"),
    ],
)
def test_what_is_no_line_is_refused(data: bytes, told: str):
    with pytest.raises(WireFormatError, match=told):
        parse(data)
