"""The provider's own counter: when it is asked, what is believed, and what a failure costs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxproxy.budget import Thresholds, Usage
from ctxproxy.effects import Answer, Count, Effect, drive
from ctxproxy.models import resolve
from ctxproxy.policy import Policy
from ctxproxy.provider_count import Counts, counted, straddles
from ctxproxy.runtime import Runtime
from ctxproxy.served import Fact, Served

UPSTREAM = "http://127.0.0.1:8080"
NEAR = Policy(provider_count="near")
BODIES: dict[str, dict[str, Any]] = {
    "messages": {
        "model": "m", "max_tokens": 9, "stream": True, "system": "s", "messages": [{"role": "user", "content": "hi"}],
    },
    "responses": {"model": "m", "input": [{"role": "user", "content": "hi"}], "max_output_tokens": 9},
    "chat": {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9},
}  # fmt: skip


def usage(value: int = 900, margin: int = 50, total: int = 1_000) -> Usage:
    return Usage(value=value, margin=margin, basis="estimated", by_category={}, total=total)


class Asked:
    """Answers counts with bodies by the end of the path, and remembers what it was asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.seen: list[Count] = []

    def __call__(self, effect: Effect) -> Answer | None:
        assert isinstance(effect, Count)
        self.seen.append(effect)
        found = self.answers.get(effect.question.url.rpartition("/")[2].replace("-", "_"))
        if found is None or isinstance(found, Answer):
            return found
        return Answer(status=200, body=found if isinstance(found, bytes) else json.dumps(found).encode())

    @property
    def urls(self) -> list[str]:
        return [c.question.url.removeprefix(UPSTREAM) for c in self.seen]


def run(
    api: Any,
    asked: Asked,
    *,
    counts: Counts | None = None,
    server: Any = "",
    policy: Policy = NEAR,
    now: float = 0.0,
    given: Usage | None = None,
    window: int | None = 1_000,
    account: str = "a",
) -> Usage:
    clock = lambda: now  # noqa: E731
    runtime = Runtime(clock=clock)
    body = json.dumps(BODIES[api]).encode()
    call = runtime.call(api=api, body=body, upstream=UPSTREAM, policy=policy, account=account)
    served = Served()
    served.put((UPSTREAM, "m"), Fact(window=1_000, server=server), now=now)
    current = runtime.engine.reader.read(body, call.wire)
    info = resolve("m", config=window)
    return drive(counted(counts or Counts(), served, call, body, current, info, given or usage()), asked)


@pytest.mark.parametrize(
    ("value", "margin", "near"),
    [(500, 300, False), (850, 49, False), (850, 50, True), (900, 0, False), (901, 2, True), (930, 10, False),
     (990, 20, True), (2_000, 100, False)],
)  # fmt: skip
def test_only_a_figure_whose_margin_reaches_over_a_threshold_is_near(value: int, margin: int, near: bool) -> None:
    assert straddles(usage(value, margin), Thresholds()) is near


PATHS = {
    "messages": ("messages", "", {"count_tokens": {"input_tokens": 877}}, ["/v1/messages/count_tokens"]),
    "responses": ("responses", "", {"input_tokens": {"input_tokens": 877}}, ["/v1/responses/input_tokens"]),
    "vLLM": ("chat", "vllm", {"tokenize": {"count": 877, "tokens": []}}, ["/tokenize"]),
    "llama.cpp": (
        "chat", "llama.cpp", {"input_tokens": {"input_tokens": 877}}, ["/v1/chat/completions/input_tokens"],
    ),
    "older llama.cpp": (
        "chat",
        "llama.cpp",
        {"apply_template": {"prompt": "hi"}, "tokenize": {"tokens": [1] * 877}},
        ["/v1/chat/completions/input_tokens", "/apply-template", "/tokenize"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PATHS)
def test_each_api_has_its_counter_and_is_sent_only_what_counts(name: str) -> None:
    api, server, answers, urls = PATHS[name]
    asked = Asked(**answers)
    found = run(api, asked, server=server)
    assert (found.value, found.basis, asked.urls) == (877, "provider", urls)
    assert found.margin <= 8
    first = json.loads(asked.seen[0].question.body)
    assert not first.keys() & {"max_tokens", "max_output_tokens", "stream"}
    assert first["model"] == "m"


@pytest.mark.parametrize(
    "options",
    [
        {"policy": Policy()},
        {"policy": Policy(provider_count="near", mode="observe")},
        {"given": usage(500)},
        {"window": None},
    ],
)
def test_nobody_is_asked_without_need(options: dict[str, Any]) -> None:
    asked = Asked(count_tokens={"input_tokens": 877})
    found = run("messages", asked, **options)
    assert asked.seen == []
    assert found.basis == "estimated"


def test_an_openai_chat_request_has_no_counter_and_is_not_held_against_the_server() -> None:
    counts, asked = Counts(), Asked(tokenize={"count": 877})
    assert run("chat", asked, counts=counts).basis == "estimated"
    assert run("chat", asked, counts=counts, server="vllm").value == 877


def test_a_conversation_is_counted_once_per_account() -> None:
    counts, asked = Counts(), Asked(count_tokens={"input_tokens": 877})
    for _ in range(3):
        assert run("messages", asked, counts=counts).value == 877
    assert len(asked.seen) == 1
    run("messages", asked, counts=counts, account="b")
    assert len(asked.seen) == 2


BAD = {
    "nothing": None,
    "an error": Answer(status=429, body=b'{"input_tokens": 877}'),
    "no JSON": b"<html>",
    "deep": b"[" * 100_000,
    "a list": [877],
    "zero": {"input_tokens": 0},
    "negative": {"input_tokens": -877},
    "a text": {"input_tokens": "877"},
    "true": {"input_tokens": True},
    "absurd": {"input_tokens": 10**12},
    "far too little": {"input_tokens": 7},
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_right_is_our_own_figure_and_a_pause(name: str) -> None:
    counts, asked = Counts(), Asked(count_tokens=BAD[name])
    assert run("messages", asked, counts=counts) == usage()
    assert run("messages", asked, counts=counts, now=299) == usage()
    assert len(asked.seen) == 1
    asked.answers["count_tokens"] = {"input_tokens": 877}
    assert run("messages", asked, counts=counts, now=301).value == 877


@given(st.binary(max_size=60), st.sampled_from(["vllm", "llama.cpp", ""]), st.sampled_from(list(BODIES)))
def test_any_bytes_are_survived(data: bytes, server: str, api: str) -> None:
    names = ("count_tokens", "input_tokens", "tokenize", "apply_template")
    found = run(api, Asked(**dict.fromkeys(names, data)), server=server)
    assert found.value > 0
