"""A client that resends its whole history and writes it differently on each turn, as real ones do."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["Client", "array", "common", "plain"]

Json = dict[str, Any]


class Client:
    """An agent's conversation: a task, then tool calls with results and words.

    On every turn it flips texts between a string and a list of one block, and moves its cache markers to the two
    newest messages (Messages API). `nonce` changes the system prompt on each turn.
    """

    def __init__(self, api: str, *, task: str = "Find the leak in the cache.", words: int = 60, flips: bool = True):
        self.api = api
        self.words = words
        self.flips = flips
        self.nonce = False
        self.salt = ""
        self.entries: list[Json] = [{"kind": "user", "text": task}]
        self.turn = 0

    def grow(self, text: str | None = None) -> None:
        """One more turn: a call with its result, or every fifth time an answer and a new question."""
        self.turn += 1
        i = self.turn
        if i % 5 == 0:
            self.entries.append({"kind": "assistant", "text": f"Module m{i} is fine; I go on."})
            self.entries.append({"kind": "user", "text": text or f"Also look at ticket T-{i}."})
            return
        self.entries.append({"kind": "call", "id": f"call_{i}", "path": f"src/m{i}.py"})
        lines = " ".join(f"value_{i}_{k}={i * k}{self.salt}" for k in range(self.words))
        self.entries.append({"kind": "result", "id": f"call_{i}", "text": text or f"module m{i}: {lines}"})

    def talk(self) -> None:
        """One more turn without tools: an answer and a question. Only a summary or notes can stand for those."""
        self.turn += 1
        i = self.turn
        text = f"Option {i}: hotel H{i}23, " + f"price {i * 37} euro. " * self.words
        self.entries.append({"kind": "assistant", "text": text})
        self.entries.append({"kind": "user", "text": f"What about day {i}?"})

    def body(self) -> bytes:
        blocks = self.flips and self.turn % 2 == 1
        system = "You fix bugs." + (f" nonce={self.turn * 7919}" if self.nonce else "")
        newest = len(self.entries) - 2
        items = [self._item(e, blocks, self.flips and i >= newest) for i, e in enumerate(self.entries)]
        if self.api == "messages":
            value = {
                "model": "claude-sonnet-4-5",
                "max_tokens": 256,
                "system": _text(system, blocks),
                "messages": items,
            }
        elif self.api == "chat":
            value = {"model": "gpt-4o", "messages": [{"role": "system", "content": _text(system, blocks)}, *items]}
        else:
            value = {"model": "gpt-4o", "instructions": system, "input": items, "store": False}
        return json.dumps(value).encode()

    def _item(self, entry: Json, blocks: bool, marked: bool) -> Json:
        kind, text = entry["kind"], entry.get("text", "")
        if self.api == "messages":
            mark = {"cache_control": {"type": "ephemeral"}} if marked else {}
            if kind == "call":
                call = {"type": "tool_use", "id": entry["id"], "name": "read", "input": {"path": entry["path"]}}
                return {"role": "assistant", "content": [{**call, **mark}]}
            if kind == "result":
                result = {"type": "tool_result", "tool_use_id": entry["id"], "content": _text(text, blocks)}
                return {"role": "user", "content": [{**result, **mark}]}
            return {
                "role": kind,
                "content": [{"type": "text", "text": text, **mark}] if marked else _text(text, blocks),
            }
        if self.api == "chat":
            if kind == "call":
                function = {"name": "read", "arguments": json.dumps({"path": entry["path"]})}
                call = {"id": entry["id"], "type": "function", "function": function}
                return {"role": "assistant", "content": None, "tool_calls": [call]}
            if kind == "result":
                return {"role": "tool", "tool_call_id": entry["id"], "content": _text(text, blocks)}
            return {"role": kind, "content": _text(text, blocks)}
        if kind == "call":
            arguments = json.dumps({"path": entry["path"]})
            return {"type": "function_call", "call_id": entry["id"], "name": "read", "arguments": arguments}
        if kind == "result":
            return {"type": "function_call_output", "call_id": entry["id"], "output": _text(text, blocks, "input_text")}
        form = "output_text" if kind == "assistant" else "input_text"
        return {"type": "message", "role": kind, "content": _text(text, blocks, form)}


def _text(text: str, blocks: bool, form: str = "text") -> Any:
    return [{"type": form, "text": text}] if blocks else text


def plain(value: Any) -> Any:
    """A value without cache markers: they may move without touching what a provider has cached."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k != "cache_control"}
    return [plain(v) for v in value] if isinstance(value, list) else value


def array(body: bytes) -> list[bytes]:
    """What the provider caches of a body, in order: system prompt, then each message, without cache markers."""
    value = json.loads(body)
    items = [value.get("system"), *(value.get("messages") or value["input"])]
    return [json.dumps(plain(item)).encode() for item in items]


def common(one: list[bytes], other: list[bytes]) -> int:
    """How many items two arrays have in common at their beginning."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
