"""Session: a loop's context, its agents, its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest
from provider import FakeProvider

from ctxproxy import ConfigError, ContextOverflowError, GateError, Session
from ctxproxy.monitor.log import read_log


def talk(count: int) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[i % 2], "content": f"message {i} " * 30} for i in range(count)]


def test_compact_remembers_and_observe_learns(tmp_path: Path):
    session = Session(model="gpt-4o", window=2_000, session_id="s", log_file=tmp_path / "log.yaml")
    first = session.compact(talk(41))
    session.observe({"usage": {"prompt_tokens": 1_300, "completion_tokens": 5}})
    again = session.compact([*talk(41), {"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}])
    assert again[: len(first)] == first
    assert [event.type for event in session.events] == ["compaction", "request"]
    assert session.events[-1].input == 1_300
    assert [event.type for event in read_log(tmp_path / "log.yaml")] == ["compaction", "request"]
    assert session.usage.value < 2_000
    cut = session.events[0].archived[0]
    assert "message 3 " in (session.restore(cut) or "")


def test_measure_sees_what_is_remembered_and_changes_nothing():
    session = Session(model="gpt-4o", window=2_000)
    before = session.measure(talk(41))
    assert before.level == "OVERFLOW"
    session.compact(talk(41))
    assert session.measure(talk(41)).tokens_after < 2_000 < before.tokens_after


def test_what_cannot_fit_is_an_overflow_event_and_the_error():
    session = Session(model="gpt-4o", window=100, system="rule " * 500)
    with pytest.raises(ContextOverflowError):
        session.compact(talk(3))
    assert [event.type for event in session.events] == ["overflow"]


def test_a_checkpoint_without_messages_compacts_the_next_call():
    session = Session(model="gpt-4o", window=20_000)
    history = talk(141)
    assert session.compact(history) == history
    session.checkpoint("half way")
    assert session.events[-1].label == "half way"
    assert len(session.compact(history)) < len(history)
    assert session.usage.value <= 0.35 * 20_000
    with pytest.raises(ConfigError, match="target"):
        session.checkpoint("x", target=35)


def test_a_child_shares_the_session_and_has_a_context_of_its_own():
    session = Session(model="gpt-4o", window=20_000, session_id="s", agent="planner")
    session.compact(talk(21))
    warmth = {"gotchas": [f"item {i} is longer than it has to be" for i in range(400)]}
    child = session.spawn(agent="executor", warmth=warmth, plan="# Objective\nShip it.\n")
    assert (child.session_id, child.agent, child.runtime) == ("s", "executor", session.runtime)
    assert child.usage.value == 0
    assert 0 < len(child.warmth["gotchas"]) < 400
    assert child.plan == "# Objective\nShip it.\n"
    assert [(event.type, event.agent) for event in session.events] == [("gate", "executor"), ("spawn", "executor")]


def test_the_gate_blocks_and_says_why():
    session = Session(model="gpt-4o", window=1_000, cost_limit=0.001)
    with pytest.raises(GateError) as raised:
        session.spawn(agent="a", messages=talk(3))
    result: Any = raised.value.result
    assert result.required_action == "raise_cost_budget"
    with pytest.raises(GateError, match="cannot spawn without compression") as raised:
        Session(model="gpt-4o", window=1_000).spawn(agent="a", messages=talk(60))
    with pytest.raises(ConfigError):
        session.gate(estimated_tokens=-1)


def test_a_wrapped_client_shares_runtime_and_names():
    with FakeProvider() as provider:
        session = Session(model="gpt-4o", window=4_000, session_id="s", agent="planner")
        with openai.OpenAI(base_url=f"{provider.base_url}/v1", api_key="k") as client:
            session.wrap(client).chat.completions.create(model="gpt-4o", messages=talk(3))
    (event,) = session.events
    assert (event.type, event.session, event.agent) == ("request", "s", "planner")
    assert session.spent() == session.spent("planner")


@pytest.mark.parametrize("options", [{"window": 0}, {"api": "chat2"}, {"policy": "gentel"}])
def test_mistakes_are_told(options: dict[str, Any]):
    with pytest.raises(ConfigError):
        Session(**options)
