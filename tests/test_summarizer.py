"""The summary for a compaction: ready ones, one call at a time, and what the second in line does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flipping import Client

from ctxproxy.effects import Answer, Await, Call, Effect, Send, Summarize, drive
from ctxproxy.policy import Policy
from ctxproxy.runtime import Runtime
from ctxproxy.strategies.summarize import SECTIONS
from ctxproxy.summaries import talk_of

GOOD = "\n".join(f"### {name}\n- about {name.lower()} of src/m1.py and ticket 4711" for name in SECTIONS)


class Upstream:
    """Answers sends and summary calls; `meanwhile` runs while a summary call is under way."""

    def __init__(self) -> None:
        self.runtime = Runtime(policy=Policy(), window=6_000, clock=lambda: 1_000.0, secret=b"s" * 32)
        self.sent: list[bytes] = []
        self.asked = 0
        self.seconds: list[float] = []
        self.waited = 0
        self.meanwhile: Any = None
        self.text = GOOD

    def __call__(self, effect: Effect) -> Any:
        if isinstance(effect, Send):
            self.sent.append(effect.body)
            return Answer(status=200)
        if isinstance(effect, Await):
            self.waited += effect.pending()
            return None
        if isinstance(effect, Summarize):
            self.asked += 1
            self.seconds.append(effect.seconds)
            if self.meanwhile is not None:
                work, self.meanwhile = self.meanwhile, None
                work()
            choice = {"message": {"role": "assistant", "content": self.text}, "finish_reason": "stop"}
            return Answer(status=200, body=json.dumps({"choices": [choice]}).encode())
        return self.runtime.perform(effect)

    def call(self, client: Client) -> Call:
        return self.runtime.call(api="chat", body=client.body(), account="a", upstream="http://u")

    def turn(self, client: Client) -> Any:
        return drive(self.runtime.engine.run(self.call(client)), self)


@pytest.fixture
def upstream() -> Upstream:
    return Upstream()


@pytest.fixture
def full() -> Client:
    client = Client("chat", flips=False)
    while len(client.body()) < 25_000:
        client.talk()
    return client


def test_a_second_request_waits_for_the_call_that_is_under_way(upstream: Upstream, full: Client) -> None:
    upstream.meanwhile = lambda: upstream.turn(full)
    upstream.turn(full)
    assert (upstream.asked, upstream.waited) == (1, 1)
    assert b"about pending" in upstream.sent[1]


def test_another_conversation_with_the_same_beginning_asks_for_itself(upstream: Upstream, full: Client) -> None:
    other = Client("chat", flips=False)
    other.entries = [dict(entry) for entry in full.entries]
    other.entries[1]["text"] += " Something else."
    upstream.meanwhile = lambda: upstream.turn(other)
    upstream.turn(full)
    assert (upstream.asked, upstream.waited) == (2, 0)


def test_in_the_background_nobody_waits(upstream: Upstream, full: Client) -> None:
    engine = upstream.runtime.engine
    upstream.meanwhile = lambda: drive(engine.summarize_ahead(upstream.call(full)), upstream)
    upstream.turn(full)
    assert (upstream.asked, upstream.waited) == (1, 0)


def test_in_the_background_a_slow_model_may_take_its_time(upstream: Upstream, full: Client) -> None:
    upstream.text = ""
    drive(upstream.runtime.engine.summarize_ahead(upstream.call(full)), upstream)
    upstream.turn(full)
    assert upstream.seconds == [60.0, 15.0]


def test_a_summary_that_is_ready_is_taken_without_a_call(upstream: Upstream, full: Client) -> None:
    assert drive(upstream.runtime.engine.summarize_ahead(upstream.call(full)), upstream)
    assert not drive(upstream.runtime.engine.summarize_ahead(upstream.call(full)), upstream)
    upstream.turn(full)
    assert upstream.asked == 1
    assert upstream.sent[0].count(b"about pending") == 1


def flying(upstream: Upstream, client: Client) -> bool:
    engine, call = upstream.runtime.engine, upstream.call(client)
    conversation = engine.reader.read(call.body, call.wire)
    rest = conversation.messages[conversation.head :]
    return engine.summaries.flying(talk_of(call, conversation), rest, now=1_000.0)


def test_the_place_is_given_back_after_a_failure(upstream: Upstream, full: Client) -> None:
    seen: list[bool] = []
    upstream.meanwhile = lambda: seen.append(flying(upstream, full))
    upstream.text = "Error: overloaded"
    upstream.turn(full)
    assert seen == [True]
    assert not flying(upstream, full)


def test_the_place_is_given_back_by_a_client_that_goes_away(upstream: Upstream, full: Client) -> None:
    steps = upstream.runtime.engine.run(upstream.call(full))
    effect = next(steps)
    while not isinstance(effect, Summarize):
        effect = steps.send(upstream(effect))
    assert flying(upstream, full)
    steps.close()
    assert not flying(upstream, full)
