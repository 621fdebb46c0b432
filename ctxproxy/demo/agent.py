"""The demo's agent: renders the conversation for one API and sends it over plain HTTP, as any client would."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from ctxproxy.demo.child import DemoError
from ctxproxy.demo.script import SYSTEM, TOOLS, Answer, Entry, Question, Tool, ToolResult

__all__ = ["APIS", "Reply", "ask", "body", "count_tokens"]

_MAX_TOKENS = 16
_TIMEOUT = 600.0  # seconds; a cold prompt of 2,048 tokens takes about 12 on two idle cores, far more on busy ones
_NO_ANSWER = "Done."


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back for one request.

    text: the model's answer. prompt_tokens, cached_tokens: the server's own usage figures, None if absent.
    headers: lower-case names. error: status and body of an answer that is not 200, or why there was none.
    """

    status: int
    text: str = ""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    headers: Mapping[str, str]
    error: str | None = None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Api:
    path: str
    count_path: str
    render: Callable[[Sequence[Entry], str], dict[str, Any]]
    read: Callable[[Any], tuple[str, int, int]]


def ask(url: str, entries: Sequence[Entry], *, api: str, model: str) -> Reply:
    """Send the conversation to the server or proxy at `url`. An error answer is a Reply, not an exception."""
    wire = _wire(api)
    start = time.perf_counter()
    try:
        status, headers, data = _post(url, wire.path, body(entries, api=api, model=model))
    except (OSError, HTTPException) as error:
        return Reply(status=0, headers={}, error=f"no answer: {error!r}", seconds=time.perf_counter() - start)
    seconds = time.perf_counter() - start
    if status != 200:
        error = f"HTTP {status}: {data.decode(errors='replace').strip()}"
        return Reply(status=status, headers=headers, error=error, seconds=seconds)
    text, prompt, cached = wire.read(json.loads(data))
    return Reply(
        status=status,
        text=text.strip() or _NO_ANSWER,  # several APIs refuse an empty assistant message
        prompt_tokens=prompt,
        cached_tokens=cached,
        headers=headers,
        seconds=seconds,
    )


def count_tokens(url: str, entries: Sequence[Entry], *, api: str, model: str) -> int:
    """Tokens of the conversation by the model server's own template and tokenizer; nothing is generated."""
    wire = _wire(api)
    status, _, data = _post(url, wire.count_path, body(entries, api=api, model=model))
    if status != 200:
        raise DemoError(f"the model server can't count: HTTP {status} {data[:200].decode(errors='replace')}")
    return int(json.loads(data)["input_tokens"])


def body(entries: Sequence[Entry], *, api: str, model: str) -> dict[str, Any]:
    """The request body of that API: "chat", "responses" or "messages"."""
    return _wire(api).render(entries, model)


def _wire(api: str) -> _Api:
    if api not in APIS:
        raise DemoError(f"unknown API {api!r}; one of {', '.join(APIS)}")
    return APIS[api]


def _post(url: str, path: str, content: Mapping[str, Any]) -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=_TIMEOUT)
    try:
        headers = {"Content-Type": "application/json", "Authorization": "Bearer demo"}
        connection.request("POST", path, json.dumps(content).encode(), headers)
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    finally:
        connection.close()


def _schema(tool: Tool) -> dict[str, Any]:
    properties = {name: {"type": "string", "description": text} for name, text in tool.parameters.items()}
    return {"type": "object", "properties": properties, "required": list(properties)}


# --- OpenAI Chat Completions ---


def _chat(entries: Sequence[Entry], model: str) -> dict[str, Any]:
    tools = [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": _schema(tool)},
        }
        for tool in TOOLS
    ]
    messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]
    for entry in entries:
        match entry:
            case Question(text):
                messages.append({"role": "user", "content": text})
            case ToolResult(call_id, text):
                messages.append({"role": "tool", "tool_call_id": call_id, "content": text})
            case Answer(text, calls):
                message: dict[str, Any] = {"role": "assistant", "content": text}
                if calls:
                    message["tool_calls"] = [
                        {
                            "id": call.id,
                            "type": "function",
                            "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments))},
                        }
                        for call in calls
                    ]
                messages.append(message)
    return {"model": model, "messages": messages, "tools": tools, "max_tokens": _MAX_TOKENS, "temperature": 0}


def _read_chat(answer: Any) -> tuple[str, int, int]:
    usage = answer["usage"]
    cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
    return answer["choices"][0]["message"].get("content") or "", usage["prompt_tokens"], cached


# --- OpenAI Responses ---


def _responses(entries: Sequence[Entry], model: str) -> dict[str, Any]:
    tools = [
        {"type": "function", "name": tool.name, "description": tool.description, "parameters": _schema(tool)}
        for tool in TOOLS
    ]
    items: list[dict[str, Any]] = []
    for entry in entries:
        match entry:
            case Question(text):
                items.append({"role": "user", "content": text})
            case ToolResult(call_id, text):
                items.append({"type": "function_call_output", "call_id": call_id, "output": text})
            case Answer(text, calls):
                part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": []}
                items.append({"type": "message", "role": "assistant", "content": [part]})
                items.extend(
                    {
                        "type": "function_call",
                        "call_id": call.id,
                        "name": call.name,
                        "arguments": json.dumps(dict(call.arguments)),
                    }
                    for call in calls
                )
    return {
        "model": model,
        "instructions": SYSTEM,
        "input": items,
        "tools": tools,
        "max_output_tokens": _MAX_TOKENS,
        "temperature": 0,
        "store": False,
    }


def _read_responses(answer: Any) -> tuple[str, int, int]:
    usage = answer["usage"]
    parts = [part for item in answer["output"] if item["type"] == "message" for part in item["content"]]
    text = "".join(part.get("text", "") for part in parts)
    return text, usage["input_tokens"], usage.get("input_tokens_details", {}).get("cached_tokens", 0)


# --- Anthropic Messages ---


def _messages(entries: Sequence[Entry], model: str) -> dict[str, Any]:
    tools = [{"name": tool.name, "description": tool.description, "input_schema": _schema(tool)} for tool in TOOLS]
    messages: list[dict[str, Any]] = []
    for entry in entries:
        match entry:
            case Question(text):
                messages.append({"role": "user", "content": text})
            case ToolResult(call_id, text):
                block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
                messages.append({"role": "user", "content": [block]})
            case Answer(text, calls):
                blocks: list[dict[str, Any]] = [{"type": "text", "text": text}]
                blocks.extend(
                    {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)}
                    for call in calls
                )
                messages.append({"role": "assistant", "content": blocks})
    return {
        "model": model,
        "system": SYSTEM,
        "messages": messages,
        "tools": tools,
        "max_tokens": _MAX_TOKENS,
        "temperature": 0,
    }


def _read_messages(answer: Any) -> tuple[str, int, int]:
    usage = answer["usage"]
    cached = usage.get("cache_read_input_tokens", 0)
    text = "".join(block.get("text", "") for block in answer["content"])
    # input_tokens leaves out what came from the cache, unlike the two other APIs.
    return text, usage["input_tokens"] + cached, cached


APIS: dict[str, _Api] = {
    "chat": _Api(
        path="/v1/chat/completions",
        count_path="/v1/chat/completions/input_tokens",
        render=_chat,
        read=_read_chat,
    ),
    "responses": _Api(
        path="/v1/responses", count_path="/v1/responses/input_tokens", render=_responses, read=_read_responses
    ),
    "messages": _Api(
        path="/v1/messages", count_path="/v1/messages/count_tokens", render=_messages, read=_read_messages
    ),
}
