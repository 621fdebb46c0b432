from __future__ import annotations

import json
from typing import Any

import pytest

from ctxproxy.tokens import counter, message_overhead, part_overhead, request_overhead, tools_tokens
from ctxproxy.tokens.families import FAMILIES

o200k = counter("o200k")


def function(name: str, description: str = "", **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


CITY = {"type": "string", "description": "The city to look up"}


def test_openai_messages():
    assert message_overhead("chat", "o200k") == 4
    assert request_overhead("chat", "o200k") == 3


@pytest.mark.parametrize("family", [*FAMILIES, "?"])
@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
def test_every_family_has_overheads(wire: str, family: str):
    assert 1 <= message_overhead(wire, family) <= 10
    assert 1 <= request_overhead(wire, family) <= 10
    assert part_overhead("text", wire, family) == 0
    assert part_overhead("tool_call", wire, family) > 0
    assert part_overhead("tool_result", wire, family) > 0


@pytest.mark.parametrize("family", FAMILIES)
def test_no_tools_cost_nothing(family: str):
    assert tools_tokens([], wire="chat", counter=o200k, family=family) == 0


@pytest.mark.skipif(not o200k.exact, reason="toktok-rs is not installed")
def test_openai_tools_are_near_what_the_api_reported():
    # gpt-4o reported 68 input tokens for this request; gpt-4.1-mini 51 for the other one.
    tools = [
        function("get_user_country"),
        function(
            "final_result",
            "The final response which ends this conversation",
            city={"type": "string"},
            country={"type": "string"},
        ),
    ]
    text = o200k.count("What is the largest city in the user country?")
    assert abs(text + 7 + tools_tokens(tools, wire="chat", counter=o200k, family="o200k") - 68) <= 3
    one = [{"type": "function", "name": "get_weather", "description": "Get the weather for a location",
            "parameters": {"type": "object", "properties": {"location": {"type": "string"}}}}]  # fmt: skip
    text = o200k.count("What is the weather in Paris?")
    assert abs(text + 7 + tools_tokens(one, wire="responses", counter=o200k, family="o200k") - 51) <= 3


def test_the_three_ways_to_write_a_function_cost_the_same():
    chat = function("weather", "Look up the weather", city=CITY)
    inner = chat["function"]
    responses = {"type": "function", **inner}
    messages = {"name": inner["name"], "description": inner["description"], "input_schema": inner["parameters"]}
    costs = {tools_tokens([tool], wire="chat", counter=o200k, family="o200k") for tool in (chat, responses, messages)}
    assert len(costs) == 1


def test_openai_sees_less_than_the_json():
    tools = [function(f"tool_{number}", "Do a thing", city=CITY) for number in range(10)]
    rendered = tools_tokens(tools, wire="chat", counter=o200k, family="o200k", model="gpt-4o")
    assert rendered < o200k.count(json.dumps(tools))


def test_models_differ_in_what_they_add():
    tools = [function("weather", city=CITY)]

    def cost(family: str, model: str, *, forced: bool = False) -> int:
        return tools_tokens(tools, wire="chat", counter=o200k, family=family, model=model, forced=forced)

    assert cost("o200k", "openai/gpt-5.6") - cost("o200k", "gpt-4o") == 83
    assert cost("o200k", "gpt-5-chat-latest") == cost("o200k", "gpt-4o")
    assert cost("claude-old", "claude-sonnet-4-20250514") < cost("claude-old", "claude-sonnet-4-5")
    assert cost("claude-old", "claude-3-7-sonnet-latest") < cost("claude-old", "claude-opus-4-6")
    assert cost("claude", "claude-opus-5", forced=True) > cost("claude", "claude-opus-5")
    assert cost("qwen", "qwen3") > cost("o200k", "gpt-4o")


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search", "filters": {"allowed_domains": ["example.com"] * 20}},
        {"type": "custom", "name": "patch", "format": {"type": "grammar", "definition": "start: WORD+ " * 20}},
        {"type": "function", "function": {"description": "no name " * 20}},
        "a plain string " * 20,
        ["a", "list"] * 20,
    ],
)
def test_tools_of_unknown_kinds_cost_their_json(tool: object):
    compact = o200k.count(json.dumps(tool, separators=(",", ":")))
    assert tools_tokens([tool], wire="responses", counter=o200k, family="o200k") == compact
    assert tools_tokens([tool], wire="messages", counter=o200k, family="claude") >= compact


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        "string",
        {"properties": []},
        {"properties": {"a": None, "b": 7, "c": {"type": ["string", "null"]}}},
        {"properties": {"a": {"anyOf": [{"type": "integer"}, {"enum": ["x", 1, None]}], "default": {"k": 1}}}},
        {"properties": {"a": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "number"}}}}}},
        {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "object"}}, "required": 5},
    ],
)
def test_odd_schemas_are_counted(schema: object):
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    assert 0 < tools_tokens([tool], wire="chat", counter=o200k, family="o200k") < 120


def test_a_schema_that_is_nested_too_deep_does_not_fail():
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(2000):
        schema = {"type": "object", "properties": {"a": schema}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    for family in ("o200k", "claude"):
        assert tools_tokens([tool], wire="chat", counter=o200k, family=family) > 0
