"""Histories of all three APIs for hypothesis, and the questions that every test of an edited request asks."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from provider import validate

from ctxproxy.effects import Prepared, drive
from ctxproxy.policy import Policy
from ctxproxy.runtime import Runtime

__all__ = ["APIS", "bodies", "dump", "new_violations", "prepare", "runtime", "texts"]

APIS = ("chat", "responses", "messages")
Json = dict[str, Any]

_WORDS = (
    "error in /srv/app/main.py line 12",
    "total 4,512.75 EUR",
    "ORD-20413 shipped",
    "見積書を確認してください",
    "配送先は大阪市",
    "🚚 done",
    "decided to use sqlite",
    "x" * 60,
    '{"rows": [1, 2, 3]}',
    "2026-03-14T09:12:00Z",
    "null",
    "naïve café",
)
_NAMES = ("read_file", "run", "search")


def dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def png() -> str:
    """A picture of one black pixel, but 640 pixels wide by its header."""
    head = struct.pack(">IIBBBBB", 640, 480, 8, 0, 0, 0, 0)
    chunk = b"IHDR" + head
    data = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", len(head)) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return base64.b64encode(data).decode()


@st.composite
def texts(draw: st.DrawFn, most: int = 400) -> str:
    """A text of a few words up to thousands of tokens, never blank."""
    words = draw(st.lists(st.sampled_from(_WORDS), min_size=1, max_size=5))
    times = draw(st.one_of(st.integers(1, 3), st.integers(1, most)))
    return draw(st.sampled_from((" ", "\n"))).join(words * times)


_args = st.fixed_dictionaries(
    {"path": st.sampled_from(("a.py", "b/ü.txt")), "n": st.integers(0, 99)}, optional={"text": texts(60)}
)


@st.composite
def steps(draw: st.DrawFn) -> list[Json]:
    """What an assistant does in one turn: calls with their results, and words."""
    found: list[Json] = []
    for _ in range(draw(st.integers(0, 4))):
        calls = [
            {
                # Few ids, so that they repeat over turns, which real logs do.
                "id": f"call{i}{draw(st.sampled_from('ab'))}",
                "name": draw(st.sampled_from(_NAMES)),
                "args": draw(_args),
                "result": draw(st.one_of(texts(), texts(3), st.just(""))),
                "error": draw(st.booleans()),
                "image": draw(st.integers(0, 9)) == 0,
                "parts": draw(st.booleans()),
            }
            for i in range(draw(st.sampled_from((1, 1, 1, 2, 3, 10))))
        ]
        found.append({"calls": calls, "text": draw(st.sampled_from(("", "I look."))), "think": draw(st.booleans())})
    if draw(st.booleans()) or not found:
        found.append({"calls": [], "text": draw(texts(20)), "think": draw(st.booleans())})
    return found


@st.composite
def turns(draw: st.DrawFn) -> list[Json]:
    found = []
    for _ in range(draw(st.integers(1, 5))):
        user = [
            {"text": draw(texts(80)), "image": draw(st.integers(0, 7)) == 0}
            for _ in range(draw(st.sampled_from((1, 1, 1, 2))))
        ]
        found.append(
            {"user": user, "string": draw(st.booleans()), "steps": draw(steps()), "odd": draw(st.integers(0, 9))}
        )
    # The end: an answer is wanted, to results or to a user.
    last = found[-1]["steps"]
    if draw(st.booleans()):
        found.append({"user": [{"text": draw(texts(40)), "image": False}], "string": True, "steps": [], "odd": 9})
    elif not last[-1]["calls"]:
        last.pop()
    return found


@st.composite
def bodies(draw: st.DrawFn, api: str, *, model: str = "gpt-4o", thinking: bool = False) -> Json:
    """A sound request of an API."""
    history = draw(turns())
    render: Callable[[list[Json], bool], list[Json]] = {"chat": _chat, "responses": _responses, "messages": _messages}[
        api
    ]
    entries = render(history, thinking)
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    if api == "messages":
        body: Json = {"model": model, "max_tokens": 1024, "system": "You are an agent.", "messages": entries}
        body["tools"] = [{"name": n, "description": "does it", "input_schema": schema} for n in _NAMES]
    elif api == "responses":
        body = {"model": model, "store": False, "instructions": "You are an agent.", "input": entries}
        body["tools"] = [{"type": "function", "name": n, "parameters": schema} for n in _NAMES]
    else:
        body = {"model": model, "messages": [{"role": "system", "content": "You are an agent."}, *entries]}
        body["tools"] = [{"type": "function", "function": {"name": n, "parameters": schema}} for n in _NAMES]
    body["unknown_field"] = {"kept": [1.50, None]}
    return body


def _chat(history: list[Json], thinking: bool) -> list[Json]:
    found: list[Json] = []
    for turn in history:
        parts: list[Json] = []
        for user in turn["user"]:
            parts.append({"type": "text", "text": user["text"]})
            if user["image"]:
                parts.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png()}"}})
        plain = turn["string"] and len(parts) == 1
        found.append({"role": "user", "content": parts[0]["text"] if plain else parts})
        for step in turn["steps"]:
            message: Json = {"role": "assistant", "content": step["text"] or None}
            if thinking:
                message["reasoning_content"] = "I think." if step["think"] else ""
            if step["calls"]:
                message["tool_calls"] = [_chat_call(call) for call in step["calls"]]
            found.append(message)
            for call in step["calls"]:
                content: Any = call["result"]
                if call["parts"]:
                    content = [{"type": "text", "text": call["result"]}, {"type": "text", "text": "end"}]
                found.append({"role": "tool", "tool_call_id": call["id"], "content": content})
    return found


def _chat_call(call: Json) -> Json:
    return {
        "id": call["id"],
        "type": "function",
        "function": {"name": call["name"], "arguments": json.dumps(call["args"])},
    }


def _responses(history: list[Json], thinking: bool) -> list[Json]:
    found: list[Json] = []
    for t, turn in enumerate(history):
        parts: list[Json] = []
        for user in turn["user"]:
            parts.append({"type": "input_text", "text": user["text"]})
            if user["image"]:
                parts.append({"type": "input_image", "image_url": f"data:image/png;base64,{png()}"})
        plain = turn["string"] and len(parts) == 1
        found.append({"role": "user", "content": parts[0]["text"] if plain else parts})
        if turn["odd"] == 0:
            found.append({"type": "web_search_call", "id": f"ws_{t}", "status": "completed", "action": {"query": "q"}})
        for s, step in enumerate(turn["steps"]):
            if step["think"]:
                sealed = "gAAAA" + "b" * 1200
                found.append({"type": "reasoning", "id": f"rs_{t}_{s}", "summary": [], "encrypted_content": sealed})
            if step["text"]:
                text = [{"type": "output_text", "text": step["text"], "annotations": []}]
                found.append({"type": "message", "id": f"msg_{t}_{s}", "role": "assistant", "content": text})
            for c, call in enumerate(step["calls"]):
                found.append(_responses_call(call, f"fc_{t}_{s}_{c}"))
            for call in step["calls"]:
                output: Any = call["result"]
                if call["parts"]:
                    output = [{"type": "input_text", "text": call["result"]}, {"type": "input_text", "text": "end"}]
                free = call["name"] == "run"
                kind = "custom_tool_call_output" if free else "function_call_output"
                found.append({"type": kind, "call_id": call["id"], "output": output})
    return found


def _responses_call(call: Json, ident: str) -> Json:
    if call["name"] == "run":
        fields = {"type": "custom_tool_call", "input": "*** Begin\n" + str(call["args"].get("text", "x"))}
    else:
        fields = {"type": "function_call", "arguments": json.dumps(call["args"])}
    return {**fields, "id": ident, "call_id": call["id"], "name": call["name"]}


def _messages(history: list[Json], thinking: bool) -> list[Json]:
    found: list[Json] = []
    for t, turn in enumerate(history):
        blocks: list[Json] = []
        for user in turn["user"]:
            blocks.append({"type": "text", "text": user["text"]})
            if user["image"]:
                source = {"type": "base64", "media_type": "image/png", "data": png()}
                blocks.append({"type": "image", "source": source})
        if t == 0 and len(history) > 1:
            blocks[-1] = {**blocks[-1], "cache_control": {"type": "ephemeral", "ttl": "1h"}}
        plain = turn["string"] and len(blocks) == 1 and t
        found.append({"role": "user", "content": blocks[0]["text"] if plain else blocks})
        for s, step in enumerate(turn["steps"]):
            content: list[Json] = []
            if thinking and step["think"]:
                content.append({"type": "thinking", "thinking": f"Thought {t}.{s}", "signature": "c2ln"})
                if s == 1:
                    content.append({"type": "redacted_thinking", "data": "b" * 900})
            if step["text"] or not step["calls"]:
                content.append({"type": "text", "text": step["text"] or "Done."})
            if turn["odd"] == 0 and s == 0:
                use = {"type": "server_tool_use", "id": f"srvtoolu_{t}", "name": "web_search", "input": {"query": "q"}}
                answer = {"type": "web_search_tool_result", "tool_use_id": f"srvtoolu_{t}", "content": []}
                content += [use, answer]
            content += [
                {"type": "tool_use", "id": c["id"], "name": c["name"], "input": c["args"]} for c in step["calls"]
            ]
            found.append({"role": "assistant", "content": content})
            if step["calls"]:
                results: list[Json] = [_messages_result(call) for call in step["calls"]]
                if turn["odd"] == 1:
                    results.append({"type": "text", "text": "<system-reminder>be brief</system-reminder>"})
                found.append({"role": "user", "content": results})
    return found


def _messages_result(call: Json) -> Json:
    content: Any = call["result"] or "(empty)"
    if call["parts"]:
        content = [{"type": "text", "text": content}]
        if call["image"] and not call["error"]:
            content.append({"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}})
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": content}
    return {**result, "is_error": True} if call["error"] else result


def new_violations(before: bytes, after: bytes, api: str, profile: str = "default") -> Counter[str]:
    """The rules of a strict provider that `after` breaks and `before` did not."""
    old = Counter(v.rule for v in validate(json.loads(before), api, profile=profile))
    return Counter(v.rule for v in validate(json.loads(after), api, profile=profile)) - old


def runtime(**settings: Any) -> Runtime:
    """A runtime with a fixed clock and secret."""
    return Runtime(clock=lambda: 1_800_000_000.0, secret=b"test", **settings)


def prepare(made: Runtime, api: str, body: bytes, **settings: Any) -> Prepared:
    """What would be sent. `window` or `target_tokens` say how much room there is."""
    settings = {"window": 10_000_000, "policy": Policy(summaries=False), **settings}
    return drive(made.engine.prepare(made.call(api=api, body=body, **settings)), made.perform)
