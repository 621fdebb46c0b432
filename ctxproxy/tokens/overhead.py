"""What a request costs besides its text: framing of messages and parts, tool schemas, reply priming."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from ctxproxy.tokens.families import Counter

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
    "smollm": 5,
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
    "smollm": 3,
}
_REQUEST_OTHER = 3

# Tokens around a part besides its text, name and arguments; fitted on usage that the APIs reported for
# recorded requests (gpt-4o 8 and gpt-5 13 for a call with its result; Claude 36 up to 4.6, 35 for Opus 5).
_PART = {
    "openai": {"tool_call": 6, "tool_result": 4},
    "claude": {"tool_call": 22, "tool_result": 14},
    "other": {"tool_call": 12, "tool_result": 6},
}

# What a request with tools costs beside their definitions, from reported usage too:
#  gpt-5 and later: 83 tokens of instructions about channels; gpt-4o and gpt-4.1: none.
#  Claude's hidden system prompt, for tool_choice auto and for a forced tool. platform.claude.com lists
#  346 and 313 for models up to 4.1; 4.5 and 4.6 showed about 500 and 605, Opus 5 showed 390 (auto).
_OPENAI_TOOLS = 83
_CLAUDE_TOOLS = {"claude-old": (500, 605), "claude-4.7": (390, 490), "claude": (390, 490)}
_CLAUDE_TOOLS_FIRST = (346, 313)
_CLAUDE_FIRST = re.compile(r"claude-3|(?:opus|sonnet)-4(?:[-.][01])?(?:$|[-@]20|-v\d|@)")
_OPENAI_LATER = re.compile(r"gpt-[5-9](?!.*chat)")
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


def tools_tokens(
    tools: Sequence[object], *, wire: str, counter: Counter, family: str, model: str = "", forced: bool = False
) -> int:
    """Tokens of the tool definitions (decoded JSON), with what the provider adds because there are tools.

    OpenAI's models see function schemas as a TypeScript namespace, which is shorter than the JSON; other
    models see JSON. A tool of a kind that is not known (a provider's own tool) costs its JSON. `forced`: the
    request's tool_choice demands a call. Checked against reported usage: within 3 % for 24 tools on gpt-4o.
    """
    if not tools:
        return 0
    name = model.rpartition("/")[2].lower()
    if family in ("o200k", "cl100k"):
        functions = [_function(tool) for tool in tools]
        texts = [_dump(tool) for tool, function in zip(tools, functions, strict=True) if function is None]
        known = [function for function in functions if function is not None]
        if known:
            texts.append(_namespace(known))
        return sum(counter.count_many(texts)) + (_OPENAI_TOOLS if _OPENAI_LATER.match(name) else 0)
    fixed = _OPEN_TOOLS
    if family.startswith("claude"):
        pair = _CLAUDE_TOOLS.get(family, _CLAUDE_TOOLS["claude"])
        if _CLAUDE_FIRST.search(name):
            pair = _CLAUDE_TOOLS_FIRST
        fixed = pair[forced]
    return sum(counter.count_many([_dump(tool) for tool in tools])) + fixed


def _dump(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    except (RecursionError, ValueError):
        return _flat(value)


def _flat(value: object) -> str:
    """The keys and leaves of a value that is nested too deep to be encoded; about as many tokens as its JSON."""
    found: list[str] = []
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            for key, inner in cast("dict[object, object]", item).items():
                found.append(f'{{"{key}":')
                waiting.append(inner)
        elif isinstance(item, list | tuple):
            waiting.extend(cast("Sequence[object]", item))
        else:
            found.append(f'"{item}"}},')
    return "".join(found)


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
    return [f"// {text.strip()}"] if isinstance(text, str) and text.strip() else []


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


def _fields(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _object(fields: Mapping[str, Any], depth: int) -> str:
    properties: object = fields.get("properties")
    if not isinstance(properties, dict) or not properties:
        return "object"
    required: object = fields.get("required")
    needed: set[object] = set(cast("list[str]", required)) if isinstance(required, list) else set()
    lines = ["{"]
    for name, schema in cast("Mapping[str, object]", properties).items():
        facts = _fields(schema)
        lines.extend(_comment(facts.get("description")))
        mark = "" if name in needed else "?"
        default = f" // default: {_dump(facts['default'])}" if "default" in facts else ""
        lines.append(f"{name}{mark}: {_type(schema, depth + 1)},{default}")
    lines.append("}")
    return "\n".join(lines)
