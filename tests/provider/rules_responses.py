"""Rules of Responses: item shapes, calls and outputs by call_id, reasoning and the items that it leads to.

OpenAI pairs a call with its output anywhere in the input; DeepSeek wants them side by side. A request whose history is
on the server (previous_response_id, conversation, item_reference) may answer calls that it does not show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .violation import Violation, empty_array, missing, wrong_type

__all__ = ["check", "item_requirements"]

_CALLS = {
    "function_call": "function call",
    "custom_tool_call": "custom tool call",
    "local_shell_call": "local shell call",
    "shell_call": "shell call",
    "computer_call": "computer call",
    "apply_patch_call": "apply patch call",
    "tool_search_call": "tool search call",
}
_OUTPUTS = {
    "function_call_output": "function_call",
    "custom_tool_call_output": "custom_tool_call",
    "local_shell_call_output": "local_shell_call",
    "shell_call_output": "shell_call",
    "computer_call_output": "computer_call",
    "apply_patch_call_output": "apply_patch_call",
    "tool_search_output": "tool_search_call",
}
_PREFIX = {"function_call": "fc", "reasoning": "rs", "message": "msg"}
_ROLES = ("user", "assistant", "system", "developer")
_PARTS = {
    "assistant": frozenset({"output_text", "refusal"}),
    "user": frozenset({"input_text", "input_image", "input_file", "input_audio"}),
}
_MAX_CHARS = 10_485_760
_MIN_OUTPUT = 16


def check(body: Mapping[str, Any], profile: str, required: Mapping[str, str]) -> Iterator[Violation]:
    items = body.get("input")
    elsewhere = [k for k in ("previous_response_id", "conversation") if body.get(k)]
    if len(elsewhere) == 2:
        text = (
            "Mutually exclusive parameters. Ensure you are only providing one of: "
            "'previous_response_id' or 'conversation'."
        )
        yield Violation("two-histories", text, "previous_response_id", "mutually_exclusive_parameters")
    most = body.get("max_output_tokens")
    if most is not None and (not isinstance(most, int) or most < _MIN_OUTPUT):
        text = (
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= "
            f"{_MIN_OUTPUT}, but got {most} instead."
        )
        yield Violation("max-tokens", text, "max_output_tokens", "integer_below_min_value")
    if not items and not elsewhere and not body.get("prompt"):
        text = 'One of "input" or "previous_response_id" or "prompt" or "conversation_id" must be provided.'
        yield Violation("no-input", text, "input", "missing_required_parameter")
        return
    if items is None or isinstance(items, str):
        return
    if not isinstance(items, list):
        yield wrong_type("input", "one of a string or array of input items", items)
        return
    for i, item in enumerate(items):
        if not isinstance(item, dict):
            yield wrong_type(f"input[{i}]", "an object", item)
            return
        yield from _item(item, i, stored=body.get("store") is not False)
        if profile == "openai":  # compatible servers have other ids
            yield from _item_id(item, i)
    yield from _pairs(items, delta=bool(elsewhere) or any(_kind(x) == "item_reference" for x in items))
    yield from _reasoning(items, required)
    yield from _unique(items)
    if profile == "deepseek":
        yield from _adjacent(items)


def _kind(item: Mapping[str, Any]) -> str:
    return str(item.get("type") or ("message" if "role" in item else "item_reference"))


# --- one item ---


def _item(item: Mapping[str, Any], i: int, *, stored: bool) -> Iterator[Violation]:
    kind, where = _kind(item), f"input[{i}]"
    ident = item.get("id")
    if kind == "message":
        yield from _message(item, where)
    elif kind in ("function_call", "custom_tool_call"):
        for key in ("call_id", "name", "arguments" if kind == "function_call" else "input"):
            if not isinstance(item.get(key), str):
                yield missing(f"{where}.{key}")
    elif kind in ("function_call_output", "custom_tool_call_output"):
        if not isinstance(item.get("call_id"), str):
            yield missing(f"{where}.call_id")
        yield from _output(item.get("output"), f"{where}.output")
    elif kind == "reasoning":
        if not isinstance(item.get("summary"), list):
            yield missing(f"{where}.summary")
        if ident and not stored and not item.get("encrypted_content"):
            text = (
                f"Item with id '{ident}' not found. Items are not persisted when `store` is set to false. "
                "Try again with `store` set to true, or remove this item from your input."
            )
            yield Violation("item-not-found", text, "input", status=404)


def _item_id(item: Mapping[str, Any], i: int) -> Iterator[Violation]:
    ident, prefix = item.get("id"), _PREFIX.get(_kind(item), "")
    if isinstance(ident, str) and not ident.startswith(prefix):
        text = f"Invalid 'input[{i}].id': '{ident}'. Expected an ID that begins with '{prefix}'."
        yield Violation("item-id", text, f"input[{i}].id", "invalid_value")


def _message(item: Mapping[str, Any], where: str) -> Iterator[Violation]:
    role, content = item.get("role"), item.get("content")
    if role not in _ROLES:
        names = ", ".join(f"'{r}'" for r in _ROLES)
        yield Violation(
            "role", f"Invalid value: '{role}'. Supported values are: {names}.", f"{where}.role", "invalid_value"
        )
    elif content is None:
        yield missing(f"{where}.content")
    elif isinstance(content, list):
        if not content:
            yield empty_array(f"{where}.content")
        yield from _parts(content, f"{where}.content", _PARTS.get(role, _PARTS["user"]))
    elif not isinstance(content, str):
        yield wrong_type(f"{where}.content", "one of an array of objects or string", content)
    elif len(content) > _MAX_CHARS:
        yield _too_long(f"{where}.content", len(content))


def _output(output: Any, where: str) -> Iterator[Violation]:
    if isinstance(output, str):
        if len(output) > _MAX_CHARS:
            yield _too_long(where, len(output))
    elif isinstance(output, list):
        yield from _parts(output, where, _PARTS["user"])
    else:
        yield missing(where) if output is None else wrong_type(where, "one of an array of objects or string", output)


def _parts(parts: list[Any], where: str, allowed: frozenset[str]) -> Iterator[Violation]:
    for j, part in enumerate(parts):
        at, kind = f"{where}[{j}]", part.get("type") if isinstance(part, dict) else None
        if kind not in allowed:
            names = ", ".join(f"'{k}'" for k in sorted(allowed))
            yield Violation(
                "part-type", f"Invalid value: '{kind}'. Supported values are: {names}.", at, "invalid_value"
            )
        elif str(kind).endswith("_text") and not isinstance(part.get("text"), str):
            yield missing(f"{at}.text")


def _too_long(param: str, length: int) -> Violation:
    text = (
        f"Invalid '{param}': string too long. Expected a string with maximum length {_MAX_CHARS}, "
        f"but got a string with length {length} instead."
    )
    return Violation("string-length", text, param, "string_above_max_length")


def _unique(items: list[Any]) -> Iterator[Violation]:
    """Item ids (not call ids) are unique; a reference names an item, it is none."""
    counts = Counter(str(x["id"]) for x in items if x.get("id") and _kind(x) not in ("item_reference", *_OUTPUTS))
    for ident, count in counts.items():
        if count > 1:
            text = f"Duplicate item found with id {ident}. Remove duplicate items from your input and try again."
            yield Violation("item-duplicate", text, "input")
    for i, item in enumerate(items):
        if _kind(item) == "compaction_trigger" and i != len(items) - 1:
            text = "Invalid 'input': a 'compaction_trigger' item must be the last input item."
            yield Violation("trigger-last", text, f"input[{i}]")


# --- calls and outputs ---


def _call_id(item: Mapping[str, Any]) -> Any:
    """The id that an output names; None for calls that the server runs itself (tool search)."""
    return item.get("call_id")


def _pairs(items: list[Any], *, delta: bool) -> Iterator[Violation]:
    """Each call_id has as many outputs as calls, of the matching type; the order between them is free."""
    calls: dict[tuple[str, Any], int] = {}
    outputs: dict[tuple[str, Any], int] = {}
    for item in items:
        kind = _kind(item)
        if kind in _CALLS and _call_id(item) is not None:
            calls[kind, _call_id(item)] = calls.get((kind, _call_id(item)), 0) + 1
        elif kind in _OUTPUTS:
            if kind == "tool_search_output" and item.get("call_id") is None:
                continue  # run by the server
            ident = item.get("call_id") or item.get("id")
            key = (_OUTPUTS[kind], ident)
            if key not in calls and kind == "function_call_output" and any(_is_shell(x, ident) for x in items):
                key = ("local_shell_call", ident)  # Codex answers its local shell so
            outputs[key] = outputs.get(key, 0) + 1
    for (kind, ident), count in calls.items():
        if outputs.get((kind, ident), 0) < count:
            yield Violation("call-unanswered", f"No tool output found for {_CALLS[kind]} {ident}.", "input")
    for (kind, ident), count in outputs.items():
        if count > calls.get((kind, ident), 0) and not delta:
            text = f"No tool call found for {_CALLS[kind]} output with call_id {ident}."
            yield Violation("output-orphan", text, "input")
    asked = {x.get("id") for x in items if _kind(x) == "mcp_approval_request"}
    for item in items:
        if _kind(item) == "mcp_approval_response" and item.get("approval_request_id") not in asked and not delta:
            text = f"No approval request found for approval response with id {item.get('approval_request_id')}."
            yield Violation("approval-orphan", text, "input")


def _is_shell(item: Mapping[str, Any], ident: Any) -> bool:
    return _kind(item) == "local_shell_call" and _call_id(item) == ident


def _adjacent(items: list[Any]) -> Iterator[Violation]:
    """DeepSeek: the outputs follow their calls with nothing between."""
    open_ids: list[Any] = []
    for i, item in enumerate(items):
        kind = _kind(item)
        if kind in _OUTPUTS:
            if item.get("call_id") not in open_ids:
                text = f"No tool call found for function call output with call_id {item.get('call_id')}."
                yield Violation("output-not-adjacent", text, f"input[{i}]")
            else:
                open_ids.remove(item.get("call_id"))
        elif open_ids and kind not in _CALLS:
            text = f"No tool output found for function call {open_ids[0]}."
            yield Violation("call-not-adjacent", text, f"input[{i}]")
            open_ids = []
        elif kind in _CALLS:
            open_ids.append(item.get("call_id"))


# --- reasoning ---


def _produced(item: Mapping[str, Any]) -> bool:
    """Is it an item that a model writes, which may be the one that a reasoning item leads to?"""
    kind = _kind(item)
    if kind == "message":
        return item.get("role") == "assistant"
    return kind not in _OUTPUTS and kind not in ("item_reference", "compaction_trigger", "mcp_approval_response")


def _reasoning(items: list[Any], required: Mapping[str, str]) -> Iterator[Violation]:
    """A reasoning item needs what follows it, and an item with an id needs the reasoning that led to it."""
    has_reference = any(_kind(x) == "item_reference" for x in items)
    for i, item in enumerate(items):
        if _kind(item) != "reasoning":
            continue
        follower = items[i + 1] if i + 1 < len(items) else None
        if follower is None or not (_produced(follower) or _kind(follower) == "item_reference"):
            text = f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."
            yield Violation("reasoning-alone", text, "input")
    present: set[str] = set()
    for item in items:
        ident, kind = item.get("id"), _kind(item)
        if kind in ("reasoning", "item_reference"):
            present.add(str(ident))
        elif ident in required and required[ident] not in present and not has_reference:
            text = (
                f"Item '{ident}' of type '{kind}' was provided without its required "
                f"'reasoning' item: '{required[ident]}'."
            )
            yield Violation("item-without-reasoning", text, "input")


def item_requirements(items: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """item id -> id of the reasoning item before it, read from the order of a sound input or output list.

    A reasoning item leads to all items that the model wrote after it, up to the next reasoning, output or user item.
    """
    found: dict[str, str] = {}
    current = None
    for item in items:
        if _kind(item) == "reasoning":
            current = item.get("id")
        elif not _produced(item):
            current = None
        elif current and item.get("id"):
            found[str(item["id"])] = str(current)
    return found
