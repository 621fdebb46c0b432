"""Normal answers of the three wires, whole and as server-sent events.

`Answer` says what the model says; `plain` and `events` render it with ids made from the call's number, so that two
runs give the same bytes. Usage follows each wire's own arithmetic (Messages: input_tokens is only the uncached rest).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .counting import compact_json, count_texts

__all__ = ["Answer", "Event", "Rendering", "ToolCall", "Usage", "events", "output_tokens", "plain", "sse"]

CREATED = 1_790_000_000  # a fixed time stamp, seconds
_PIECE = 12  # characters of a streamed piece

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model makes; `arguments` an object, or a string that is sent as it is (chat, responses)."""

    name: str
    arguments: Json | str = field(default_factory=dict)
    id: str | None = None

    @property
    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else compact_json(self.arguments)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says. `stop` replaces the finish or stop reason (in the wire's own word)."""

    text: str = "Understood."
    tool_calls: tuple[ToolCall, ...] = ()
    thinking: str | None = None
    stop: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call. `cached` and `written` are parts of `input`."""

    input: int
    output: int
    cached: int = 0
    written: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Rendering:
    """What an answer needs besides its content: the call's number, the model's name, usage, thinking's signature."""

    number: int
    model: str
    usage: Usage
    signature: str = ""
    include_usage: bool = True
    choices: int = 1

    def id(self, prefix: str, index: int = 0) -> str:
        return f"{prefix}{self.number:06d}{index:02d}fake"


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event; `content` marks those that carry what the model says."""

    name: str | None
    data: Json | str
    content: bool = False


def output_tokens(answer: Answer) -> int:
    return count_texts([answer.text, answer.thinking or "", *(c.text for c in answer.tool_calls)])


def plain(wire: str, answer: Answer, r: Rendering) -> Json:
    """The whole response body."""
    return {"chat": _chat, "responses": _response, "messages": _message}[wire](answer, r)


def events(wire: str, answer: Answer, r: Rendering) -> list[Event]:
    """The response as a list of events, the last one included ([DONE], response.completed, message_stop)."""
    return list({"chat": _chat_events, "responses": _response_events, "messages": _message_events}[wire](answer, r))


def sse(event: Event, *, crlf: bool = False) -> bytes:
    """An event as bytes; a string is sent as it is (`[DONE]`)."""
    data = event.data if isinstance(event.data, str) else json.dumps(event.data, ensure_ascii=False)
    text = (f"event: {event.name}\n" if event.name else "") + f"data: {data}\n\n"
    return (text.replace("\n", "\r\n") if crlf else text).encode()


def _pieces(text: str) -> Iterator[str]:
    for i in range(0, len(text), _PIECE):
        yield text[i : i + _PIECE]


# --- chat completions ---


def _chat_usage(u: Usage) -> Json:
    return {
        "prompt_tokens": u.input,
        "completion_tokens": u.output,
        "total_tokens": u.input + u.output,
        "prompt_tokens_details": {"cached_tokens": u.cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": u.reasoning, "audio_tokens": 0},
    }


def _chat_stop(answer: Answer) -> str:
    return answer.stop or ("tool_calls" if answer.tool_calls else "stop")


def _chat_calls(answer: Answer, r: Rendering) -> list[Json]:
    return [
        {"id": c.id or r.id("call_", i), "type": "function", "function": {"name": c.name, "arguments": c.text}}
        for i, c in enumerate(answer.tool_calls)
    ]


def _chat(answer: Answer, r: Rendering) -> Json:
    message: Json = {"role": "assistant", "content": answer.text or None, "refusal": None, "annotations": []}
    if answer.thinking is not None:
        message["reasoning_content"] = answer.thinking
    if answer.tool_calls:
        message["tool_calls"] = _chat_calls(answer, r)
    choice = {"message": message, "logprobs": None, "finish_reason": _chat_stop(answer)}
    return {
        "id": r.id("chatcmpl-"),
        "object": "chat.completion",
        "created": CREATED,
        "model": r.model,
        "choices": [{"index": i, **choice} for i in range(r.choices)],
        "usage": _chat_usage(r.usage),
        "system_fingerprint": "fp_fake",
    }


def _chat_events(answer: Answer, r: Rendering) -> Iterator[Event]:
    head = {"id": r.id("chatcmpl-"), "object": "chat.completion.chunk", "created": CREATED, "model": r.model}
    tail: Json = {"usage": None} if r.include_usage else {}

    def chunk(index: int, delta: Json, finish: str | None = None, *, content: bool = True) -> Event:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
        return Event(None, {**head, "choices": [choice], **tail}, content)

    for i in range(r.choices):
        yield chunk(i, {"role": "assistant", "content": "", "refusal": None}, content=False)
        for piece in _pieces(answer.thinking or ""):
            yield chunk(i, {"reasoning_content": piece})
        for piece in _pieces(answer.text):
            yield chunk(i, {"content": piece})
        for n, call in enumerate(_chat_calls(answer, r)):
            text = call["function"]["arguments"]
            call["function"]["arguments"] = ""
            yield chunk(i, {"tool_calls": [{"index": n, **call}]})
            for piece in _pieces(text):
                yield chunk(i, {"tool_calls": [{"index": n, "function": {"arguments": piece}}]})
        yield chunk(i, {}, _chat_stop(answer), content=False)
    if r.include_usage:
        yield Event(None, {**head, "choices": [], "usage": _chat_usage(r.usage)})
    yield Event(None, "[DONE]")


# --- responses ---


def _items(answer: Answer, r: Rendering) -> list[Json]:
    items: list[Json] = []
    if answer.thinking is not None:
        summary = [{"type": "summary_text", "text": answer.thinking}] if answer.thinking else []
        sealed = r.id("gAAAAfake")
        items.append({"id": r.id("rs_"), "type": "reasoning", "summary": summary, "encrypted_content": sealed})
    if answer.text:
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        done = {"type": "message", "role": "assistant", "status": "completed"}
        items.append({"id": r.id("msg_"), **done, "content": [part]})
    for i, c in enumerate(answer.tool_calls):
        call = {"type": "function_call", "name": c.name, "arguments": c.text, "status": "completed"}
        items.append({"id": r.id("fc_", i), "call_id": c.id or r.id("call_", i), **call})
    return items


def _response(answer: Answer, r: Rendering, *, output: list[Json] | None = None, status: str | None = None) -> Json:
    u = r.usage
    incomplete = {"reason": answer.stop} if answer.stop else None
    usage = {
        "input_tokens": u.input,
        "input_tokens_details": {"cached_tokens": u.cached, "cache_write_tokens": u.written},
        "output_tokens": u.output,
        "output_tokens_details": {"reasoning_tokens": u.reasoning},
        "total_tokens": u.input + u.output,
    }
    open_ = status == "in_progress"
    return {
        "id": r.id("resp_"),
        "object": "response",
        "created_at": CREATED,
        "status": status or ("incomplete" if incomplete else "completed"),
        "error": None,
        "incomplete_details": None if open_ else incomplete,
        "instructions": None,
        "model": r.model,
        "output": _items(answer, r) if output is None else output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None if open_ else usage,
        "metadata": {},
    }


def _response_events(answer: Answer, r: Rendering) -> Iterator[Event]:
    for n, (kind, data, content) in enumerate(_response_steps(answer, r)):
        yield Event(kind, {"type": kind, "sequence_number": n, **data}, content)


def _response_steps(answer: Answer, r: Rendering) -> Iterator[tuple[str, Json, bool]]:
    started = _response(answer, r, output=[], status="in_progress")
    yield "response.created", {"response": started}, False
    yield "response.in_progress", {"response": started}, False
    for i, item in enumerate(_items(answer, r)):
        at = {"item_id": item["id"], "output_index": i}
        yield "response.output_item.added", {"output_index": i, "item": _opened(item)}, True
        if item["type"] == "message":
            part = item["content"][0]
            where = {**at, "content_index": 0}
            yield "response.content_part.added", {**where, "part": {**part, "text": ""}}, True
            for piece in _pieces(part["text"]):
                yield "response.output_text.delta", {**where, "delta": piece, "logprobs": []}, True
            yield "response.output_text.done", {**where, "text": part["text"], "logprobs": []}, True
            yield "response.content_part.done", {**where, "part": part}, True
        elif item["type"] == "function_call":
            for piece in _pieces(item["arguments"]):
                yield "response.function_call_arguments.delta", {**at, "delta": piece}, True
            done = {**at, "name": item["name"], "arguments": item["arguments"]}
            yield "response.function_call_arguments.done", done, True
        yield "response.output_item.done", {"output_index": i, "item": item}, True
    kind = "response.incomplete" if answer.stop else "response.completed"
    yield kind, {"response": _response(answer, r)}, False


def _opened(item: Json) -> Json:
    empty: Json = {"message": {"content": []}, "function_call": {"arguments": ""}, "reasoning": {"summary": []}}
    status = {} if item["type"] == "reasoning" else {"status": "in_progress"}
    return {**item, **status, **empty[item["type"]]}


# --- messages ---


def _blocks(answer: Answer, r: Rendering) -> list[Json]:
    blocks: list[Json] = []
    if answer.thinking is not None:
        blocks.append({"type": "thinking", "thinking": answer.thinking, "signature": r.signature})
    if answer.text:
        blocks.append({"type": "text", "text": answer.text})
    for i, c in enumerate(answer.tool_calls):
        value = json.loads(c.arguments) if isinstance(c.arguments, str) else c.arguments
        blocks.append({"type": "tool_use", "id": c.id or r.id("toolu_", i), "name": c.name, "input": value})
    return blocks


def _message(answer: Answer, r: Rendering) -> Json:
    return {
        "id": r.id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": r.model,
        "content": _blocks(answer, r),
        "stop_reason": answer.stop or ("tool_use" if answer.tool_calls else "end_turn"),
        "stop_sequence": None,
        "usage": _message_usage(r.usage),
    }


def _message_usage(u: Usage) -> Json:
    return {
        "input_tokens": u.input - u.cached - u.written,
        "cache_creation_input_tokens": u.written,
        "cache_read_input_tokens": u.cached,
        "output_tokens": u.output,
        "service_tier": "standard",
    }


def _message_events(answer: Answer, r: Rendering) -> Iterator[Event]:
    whole = _message(answer, r)
    opened = {"content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}
    yield Event("message_start", {"type": "message_start", "message": {**whole, **opened}})
    empty: Json = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}, "tool_use": {"input": {}}}
    for i, block in enumerate(whole["content"]):
        start = {"type": "content_block_start", "index": i, "content_block": {**block, **empty[block["type"]]}}
        yield Event("content_block_start", start, True)
        for delta in _deltas(block):
            yield Event("content_block_delta", {"type": "content_block_delta", "index": i, "delta": delta}, True)
        yield Event("content_block_stop", {"type": "content_block_stop", "index": i}, True)
    end = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    usage = {k: v for k, v in whole["usage"].items() if k != "service_tier"}
    yield Event("message_delta", {"type": "message_delta", "delta": end, "usage": usage})
    yield Event("message_stop", {"type": "message_stop"})


def _deltas(block: Json) -> Iterator[Json]:
    if block["type"] == "thinking":
        for piece in _pieces(block["thinking"]):
            yield {"type": "thinking_delta", "thinking": piece}
        yield {"type": "signature_delta", "signature": block["signature"]}
    elif block["type"] == "text":
        for piece in _pieces(block["text"]):
            yield {"type": "text_delta", "text": piece}
    else:
        for piece in _pieces(compact_json(block["input"])):
            yield {"type": "input_json_delta", "partial_json": piece}
