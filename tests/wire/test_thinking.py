"""ctxproxy/wire/thinking.py: thinking that is bound to its prefix, against a provider that signs and checks it."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from provider import Answer as Said
from provider import preserves_thinking, validate
from provider.memory import Memory
from wire.histories import dump, new_violations, prepare, runtime

from ctxproxy.edits import apply
from ctxproxy.effects import Answer, Outcome, Send, drive
from ctxproxy.policy import Policy
from ctxproxy.runtime import Runtime
from ctxproxy.wire import WIRES
from ctxproxy.wire.thinking import PLACEHOLDER, preserved, refused, strips

NEW, OLD = "claude-opus-5-5", "claude-sonnet-4-5"
Json = dict[str, Any]


@pytest.mark.parametrize(
    ("model", "bound"),
    [
        ("claude-opus-5-5", True),
        ("claude-sonnet-5-5-20260901", True),
        ("claude-haiku-5.5", True),
        ("us.anthropic.claude-fable-5-1-v1:0", True),
        ("anthropic/claude-mythos-5.2", True),
        ("claude-opus-6", True),
        ("claude-opus-5", False),
        ("claude-sonnet-4-5-20250929", False),
        ("claude-opus-4-20250514", False),
        ("claude-3-5-haiku-20241022", False),
        ("gpt-5.5", False),
        ("opus", False),
    ],
)
def test_which_models_bind_their_thinking(model: str, bound: bool) -> None:
    assert preserved(model) == bound


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (
            "messages.3.content.0: Invalid signature in thinking block. The block is bound to a different conversation",
            True,
        ),
        ("ValidationException: thinking block is bound to other content", True),
        ("messages.3: Invalid `signature` in `thinking` block", False),
        ("prompt is too long: 210000 tokens > 200000 maximum", False),
        ("", False),
    ],
)
def test_which_errors_ask_for_a_retry_without_thinking(error: str, found: bool) -> None:
    assert refused(dump({"type": "error", "error": {"message": error}})) == found


def test_strips_take_all_thinking_and_leave_no_message_empty() -> None:
    thought = {"type": "thinking", "thinking": "t", "signature": "s"}
    hidden = {"type": "redacted_thinking", "data": "d"}
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [thought, hidden, {"type": "text", "text": "b"}]},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": [thought, hidden]},
        {"role": "user", "content": "d"},
    ]
    reader = runtime().engine.reader
    conversation = reader.read(dump({"model": NEW, "messages": messages}), WIRES["messages"])
    edits = strips(conversation.messages)
    items = apply(conversation.messages, edits, WIRES["messages"])
    after = [messages[i] if isinstance(i, int) else json.loads(i) for i in items]
    assert after[1]["content"] == [{"type": "text", "text": "b"}]
    assert after[3]["content"] == [{"type": "text", "text": PLACEHOLDER}]
    assert [after[i] for i in (0, 2, 4)] == [messages[i] for i in (0, 2, 4)]


class Agent:
    """A client that keeps its whole history, and a provider that checks the thinking of every request."""

    def __init__(self, model: str, *, window: int) -> None:
        self.model, self.window = model, window
        self.messages: list[Json] = [{"role": "user", "content": "Read the files and sum the numbers."}]
        self.memory = Memory()
        self.refused: list[str] = []
        self.sent: list[Json] = []

    def turn(self, made: Runtime, number: int, *, result: str = "") -> Outcome:
        """One request, and the tool call that the answer asks for."""
        body = {
            "model": self.model,
            "max_tokens": 500,
            "messages": self.messages,
            "tools": [{"name": "read", "input_schema": {"type": "object"}}],
        }

        def perform(effect: Any) -> Any:
            if not isinstance(effect, Send):
                return made.perform(effect)
            value = json.loads(effect.body)
            found = [*validate(value, "messages"), *self.memory.verify(value, preserved=None, strict=True)]
            if found:
                self.refused.append(found[0].message)
                return Answer(status=400, body=dump({"type": "error", "error": {"message": found[0].message}}))
            self.sent.append(value)
            return Answer(status=200)

        call = made.call(api="messages", body=dump(body), window=self.window, policy=Policy(summaries=False))
        outcome = drive(made.engine.run(call), perform)
        text = f"Thought number {number}."
        signature = self.memory.sign(self.sent[-1], Said(thinking=text), preserved=None)
        self.messages += [
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": text, "signature": signature},
                    {"type": "tool_use", "id": f"toolu_{number}", "name": "read", "input": {"n": number}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": f"toolu_{number}",
                        "content": result or f"row {number} " * 60,
                    }
                ],
            },
        ]
        return outcome


def thoughts(body: Json) -> int:
    return sum(
        b["type"] == "thinking" for m in body["messages"] if isinstance(m["content"], list) for b in m["content"]
    )


def test_a_long_session_on_a_model_that_binds_is_never_refused() -> None:
    agent, made = Agent(NEW, window=2_500), runtime()
    reports = [agent.turn(made, n).report for n in range(60)]
    assert not agent.refused
    compactions = sum(r is not None and r.reason is not None for r in reports)
    assert 3 <= compactions <= 15
    # Between two compactions the prompt only grows at its end, and new thinking is kept.
    rewritten = sum(b["messages"][: len(a["messages"])] != a["messages"] for a, b in pairwise(agent.sent))
    assert rewritten == compactions
    assert max(thoughts(body) for body in agent.sent[20:]) > 2


def test_an_older_model_keeps_the_thinking_of_what_stays() -> None:
    agent, made = Agent(OLD, window=2_500), runtime()
    for n in range(40):
        agent.turn(made, n)
    assert not agent.refused
    calls = [m for m in agent.sent[-1]["messages"] if m["role"] == "assistant"]
    assert calls
    assert all(m["content"][0]["type"] == "thinking" for m in calls)


def test_a_forgotten_compaction_costs_one_retry_without_thinking() -> None:
    """A restart that loses the ledger makes the provider refuse; what is sent then is remembered again."""
    agent = Agent(NEW, window=2_500)
    made = runtime()
    for n in range(30):
        agent.turn(made, n)
    assert not agent.refused
    lost = runtime()
    agent.window = 1_000_000
    outcome = agent.turn(lost, 30)
    assert len(agent.refused) == 1
    assert "bound to a different conversation" in agent.refused[0]
    assert (outcome.sends, outcome.error) == (2, None)
    assert thoughts(agent.sent[-1]) == 0
    for n in range(31, 36):
        assert agent.turn(lost, n).sends == 1
    assert len(agent.refused) == 1
    assert thoughts(agent.sent[-1]) == 5


def test_an_error_that_stays_is_given_back_after_one_retry() -> None:
    messages = [
        {"role": "user", "content": "a"},
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "text", "text": "b"}],
        },
        {"role": "user", "content": "c"},
    ]
    made, sent = runtime(), list[bytes]()
    refusal = dump({"type": "error", "error": {"message": "The block is bound to a different conversation"}})

    def perform(effect: Any) -> Any:
        if isinstance(effect, Send):
            sent.append(effect.body)
            return Answer(status=400, body=refusal)
        return made.perform(effect)

    body = dump({"model": NEW, "max_tokens": 9, "messages": messages})
    outcome = drive(
        made.engine.run(made.call(api="messages", body=body, window=10_000, policy=Policy(summaries=False))), perform
    )
    assert len(sent) == 2
    assert b"thinking" not in sent[1]
    assert (outcome.answer.status, outcome.answer.body) == (400, refusal)


def test_cutting_only_the_newest_output_spares_the_thinking() -> None:
    agent, made = Agent(NEW, window=30_000), runtime()
    for n in range(5):
        agent.turn(made, n)
    agent.turn(made, 5, result="word " * 40_000)
    agent.turn(made, 6)
    assert not agent.refused
    assert thoughts(agent.sent[-1]) == 6
    assert "[output cut" in json.dumps(agent.sent[-1])
    agent.turn(made, 7)
    assert not agent.refused
    assert thoughts(agent.sent[-1]) == 7


def test_thinking_inside_untouchable_messages_goes_too() -> None:
    search = [
        {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []},
    ]
    thought = {"type": "thinking", "thinking": "t", "signature": "s"}
    messages: list[Json] = [{"role": "user", "content": "task"}]
    for n in range(10):
        messages += [
            {"role": "assistant", "content": [thought, {"type": "text", "text": f"row {n} " * 90}]},
            {"role": "user", "content": f"more {n}"},
        ]
    messages[5]["content"] = [thought, *search, {"type": "text", "text": "found"}]
    body = dump({"model": NEW, "max_tokens": 9, "messages": messages})
    prepared = prepare(runtime(), "messages", body, target_tokens=900)
    assert not prepared.report.faults
    after = json.loads(prepared.body)
    assert thoughts(after) == 0
    assert any(m["content"] == [*search, {"type": "text", "text": "found"}] for m in after["messages"])
    assert "thinking" in prepared.report.strategies
    assert not new_violations(body, prepared.body, "messages", "anthropic")


def test_the_models_here_are_those_of_the_strict_provider() -> None:
    for model in (
        NEW,
        OLD,
        "claude-fable-5-1",
        "claude-mythos-5-2",
        "claude-haiku-5-5",
        "claude-opus-5",
        "claude-opus-4-8",
    ):
        assert preserved(model) == preserves_thinking(model)
