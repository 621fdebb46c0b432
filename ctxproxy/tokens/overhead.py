"""What a request costs besides its text: framing of messages and parts, tool schemas, reply priming."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from ctxproxy.tokens.counter import Counter

__all__ = ["message_overhead", "part_overhead", "request_overhead", "tools_tokens"]

Wire = Literal["chat", "responses", "messages"]

# Tokens around each message, role included.
#  o200k, cl100k: 3 a message and 1 for the role; openai-cookbook, "How to count tokens with tiktoken".
#  claude: a one-message request has 7 tokens beside its text up to Opus 4.6, 11 on Opus 4.7 and 6 from
#    4.8 on (recorded count_tokens answers of the ctok project); split into message and reply priming.
#  The others: their published chat templates, e.g. <|im_start|>user\n ... <|im_end|>\n is 5.
_MESSAGE = {
    "o200k": 4,
    "cl100k": 4,
    "claude": 3,
    "claude-4.7": 6,
    "claude-old": 4,
    "gemini": 5,
    "llama": 5,
    "deepseek": 2,
    "qwen": 5,
    "mistral": 2,
    "glm": 2,
    "kimi": 4,
}
_MESSAGE_OTHER = 4

# Tokens once a request: the start of the reply, and the start-of-text token where there is one.
_REQUEST = {
    "o200k": 3,
    "cl100k": 3,
    "claude": 3,
    "claude-4.7": 5,
    "claude-old": 3,
    "gemini": 4,
    "llama": 5,
    "deepseek": 2,
    "qwen": 3,
    "mistral": 1,
    "glm": 4,
    "kimi": 3,
}
_REQUEST_OTHER = 3

# Tokens around a part besides its text, name and arguments.
#  openai: a call is a message of its own in the harmony format, addressed to functions.NAME
#    (openai-harmony's rendering: 11 tokens beside name and arguments, 4 of which are the message's).
#  claude: XML-like calls and results; fitted on recorded usage.
_PART = {
    "openai": {"tool_call": 7, "tool_result": 6},
    "claude": {"tool_call": 30, "tool_result": 20},
    "other": {"tool_call": 12, "tool_result": 6},
}

# The hidden system prompt that a request with tools gets: platform.claude.com, "Tool use", pricing
# (346 for tool_choice auto or none). Newer models: not published; calibration learns the difference.
_CLAUDE_TOOLS = 346
# "# Tools ... <tools></tools> ... <tool_call> ..." of the usual open chat templates (Qwen's has about 120).
_OPEN_TOOLS = 100
_MAX_DEPTH = 40


def _kin(family: str) -> str:
    if family in ("o200k", "cl100k"):
        return "openai"
    return "claude" if family.startswith("claude") else "other"


def message_overhead(wire: str, family: str) -> int:
    """Tokens that each message costs beside its parts, its role included."""
    return _MESSAGE.get(family, _MESSAGE_OTHER)


def part_overhead(kind: str, wire: str, family: str) -> int:
    """Tokens that a part of `kind` (text, tool_call, tool_result, ...) costs beside its own text."""
    return _PART[_kin(family)].get(kind, 0)


def request_overhead(wire: str, family: str) -> int:
    """Tokens that a request costs once: the reply's priming."""
    return _REQUEST.get(family, _REQUEST_OTHER)


def tools_tokens(tools: Sequence[object], *, wire: str, counter: Counter, family: str) -> int:
    """Tokens of the tool definitions (decoded JSON), with what the provider adds because there are tools.

    OpenAI's models see function schemas as a TypeScript namespace, which is shorter than the JSON; other
    models see JSON. A tool of a kind that is not known (a provider's own tool) costs its JSON.
    """
    if not tools:
        return 0
    kin = _kin(family)
    if kin == "openai":
        functions = [_function(tool) for tool in tools]
        texts = [_dump(tool) for tool, function in zip(tools, functions, strict=True) if function is None]
        known = [function for function in functions if function is not None]
        if known:
            texts.append(_namespace(known))
        return sum(counter.count_many(texts))
    total = sum(counter.count_many([_dump(tool) for tool in tools]))
    return total + (_CLAUDE_TOOLS if kin == "claude" else _OPEN_TOOLS)


def _dump(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    except (RecursionError, ValueError):
        return str(value)[:100_000]


def _function(tool: object) -> Mapping[str, Any] | None:
    """The name, description and parameters of a function tool of any wire; None for another kind."""
    if not isinstance(tool, dict):
        return None
    fields = cast("Mapping[str, Any]", tool)
    inner: object = fields.get("function")
    if isinstance(inner, dict):
        fields = cast("Mapping[str, Any]", inner)
    elif fields.get("type", "function") != "function" and "input_schema" not in fields:
        return None
    return fields if isinstance(fields.get("name"), str) else None


def _namespace(functions: Sequence[Mapping[str, Any]]) -> str:
    """The functions as openai-harmony renders them into the developer message."""
    lines = ["# Tools\n\n## functions\n\nnamespace functions {\n"]
    for function in functions:
        lines.extend(_comment(function.get("description")))
        schema: object = function.get("parameters", function.get("input_schema"))
        if isinstance(schema, dict) and cast("Mapping[str, Any]", schema).get("properties"):
            lines.append(f"type {function['name']} = (_: {_type(cast('object', schema), 0)}) => any;\n")
        else:
            lines.append(f"type {function['name']} = () => any;\n")
    lines.append("} // namespace functions")
    return "\n".join(lines)


def _comment(text: object) -> list[str]:
    return [f"// {line}" for line in text.splitlines()] if isinstance(text, str) else []


def _type(schema: object, depth: int) -> str:
    """A JSON schema as a TypeScript type."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return "any"
    fields = cast("Mapping[str, Any]", schema)
    for union in ("anyOf", "oneOf", "allOf"):
        options: object = fields.get(union)
        if isinstance(options, list):
            return " | ".join(_type(option, depth + 1) for option in cast("list[object]", options))
    enum: object = fields.get("enum")
    if isinstance(enum, list):
        return " | ".join(_dump(item) for item in cast("list[object]", enum))
    kind: object = fields.get("type")
    if isinstance(kind, list):
        return " | ".join(_type({**fields, "type": one}, depth + 1) for one in cast("list[object]", kind))
    if kind == "array":
        return _type(fields.get("items"), depth + 1) + "[]"
    if kind == "object" or "properties" in fields:
        return _object(fields, depth)
    return {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}.get(
        str(kind), "any"
    )


def _object(fields: Mapping[str, Any], depth: int) -> str:
    properties: object = fields.get("properties")
    if not isinstance(properties, dict) or not properties:
        return "object"
    required: object = fields.get("required")
    needed: set[object] = set(cast("list[str]", required)) if isinstance(required, list) else set()
    lines = ["{"]
    for name, schema in cast("Mapping[str, object]", properties).items():
        facts: Mapping[str, Any] = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
        lines.extend(_comment(facts.get("description")))
        mark = "" if name in needed else "?"
        default = f" // default: {_dump(facts['default'])}" if "default" in facts else ""
        lines.append(f"{name}{mark}: {_type(schema, depth + 1)},{default}")
    lines.append("}")
    return "\n".join(lines)
