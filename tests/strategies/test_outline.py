"""The tight case: what must stay leaves the notes on everything else their room."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ctxproxy import Policy, compact, measure
from ctxproxy.strategies.truncate import preview
from ctxproxy.tokens import counter

COUNT = counter("o200k").count


def step(n: int, output: str, name: str = "lookup") -> list[dict[str, Any]]:
    call = {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": json.dumps({"order": f"#W{n}"})}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{n}", "content": output},
    ]


def order(n: int) -> str:
    rows = [{"item_id": f"{n}00{k}17", "name": f"Lamp {k}", "price": 10.5 * k, "state": "open"} for k in range(6)]
    return json.dumps({"order_id": f"#W{n}", "email": f"user{n}@example.com", "items": rows})


def history(*, newest: int = 60, name: str = "lookup") -> list[dict[str, Any]]:
    """Eight old steps, and a newest one whose output alone could fill the target."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Cancel the lamps of my last orders."}]
    for n in range(8):
        messages += step(4001 + n, order(4001 + n))
    big = "\n".join(f"line {k} of the newest report, code QX-{7000 + k}" for k in range(newest))
    return [*messages, *step(9999, big, name)]


def told(messages: list[dict[str, Any]]) -> str:
    return json.dumps(messages, ensure_ascii=False)


@pytest.mark.parametrize("target", [700, 900, 1200])
def test_an_output_that_fills_the_target_leaves_the_notes_their_room(target: int) -> None:
    messages = history()
    result = compact(messages, model="gpt-4o", target_tokens=target)
    assert measure(result, model="gpt-4o").tokens_before <= target
    text = told(result)
    kept = [n for n in range(8) if f"#W{4001 + n}" in text]
    assert len(kept) >= 6
    assert result[-1]["content"] != messages[-1]["content"]
    assert messages[-1]["content"][:200] in result[-1]["content"]


def test_what_is_cut_out_of_the_newest_output_is_noted_too() -> None:
    result = compact(history(), model="gpt-4o", target_tokens=1000)
    middle = [k for k in range(20, 50) if f"QX-{7000 + k}" in told(result)]
    assert len(middle) > 10


def test_an_output_that_leaves_room_enough_stays_whole() -> None:
    messages = history(newest=5)
    result = compact(messages, model="gpt-4o", target_tokens=1000)
    assert result[-1] is messages[-1]


def test_the_output_of_a_protected_tool_stays_whole_as_long_as_it_fits() -> None:
    messages = history(name="plan")
    policy = Policy(protected_tools=("plan",))
    result = compact(messages, model="gpt-4o", target_tokens=1400, policy=policy)
    assert result[-1] is messages[-1]


def test_messages_that_say_little_do_not_all_give_way_to_notes() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Find out why it does not start."}]
    for n in range(20):
        messages += step(n, f"step {n} says {n * 37}\n" * 60)
    result = compact(messages, model="gpt-4o", target_tokens=1500)
    assert measure(result, model="gpt-4o").tokens_before >= 0.6 * 1500
    assert len(result) > 4


@pytest.mark.parametrize("limit", [120, 200, 600])
def test_a_preview_begins_long_enough_to_be_known(limit: int) -> None:
    text = "".join(f"{k:04d} words and more words, " for k in range(400))
    short = preview(text, limit=limit, count=COUNT)
    assert text[:200] in short
    assert COUNT(short) <= limit
