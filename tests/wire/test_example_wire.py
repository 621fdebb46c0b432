"""A fourth wire is one file: Gemini's own API, `contents` of roles user and model, calls that pair by their name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from ctxproxy import rawjson as raw
from ctxproxy.conversation import Role
from ctxproxy.edits import Rules
from ctxproxy.effects import Call, drive
from ctxproxy.policy import Policy
from ctxproxy.runtime import Runtime
from ctxproxy.wire.base import Entry, Piece, Request, Scale
from ctxproxy.wire.pieces import as_json, as_list, as_object, integer, listed, other, source_tokens


class GeminiContents:
    """POST .../models/MODEL:generateContent."""

    api = "contents"
    array = "contents"
    adjacent = True
    fixed_keys = ("systemInstruction", "tools")

    def entry(self, value: Any, scale: Scale) -> Entry:
        item = as_object(value)
        role: Role = "assistant" if item.get("role") == "model" else "user"
        pieces = [p for i, part in enumerate(as_list(item.get("parts"))) for p in self._part(part, ("parts", i), scale)]
        return Entry(role=role, pieces=tuple(pieces), opaque=any(p.kind == "other" and p.id is None for p in pieces))

    def _part(self, value: Any, at: raw.Path, scale: Scale) -> list[Piece]:
        part = as_object(value)
        call, answer = as_object(part.get("functionCall")), as_object(part.get("functionResponse"))
        if isinstance(part.get("text"), str):
            return [Piece("thinking" if part.get("thought") else "text", (*at, "text"), part["text"])]
        if call:
            name = str(call.get("name"))
            return [Piece("tool_call", (*at, "functionCall", "args"), as_json(call.get("args")), id=name, name=name)]
        if answer:
            name, text = str(answer.get("name")), as_object(answer.get("response")).get("output")
            if not isinstance(text, str):  # no string stands there that a shorter one could replace
                return [Piece("tool_result", at, id=name, name=name), other(value, at, scale, id=name)]
            return [Piece("tool_result", (*at, "functionResponse", "response", "output"), text, id=name, name=name)]
        if "inlineData" in part:
            source = {**as_object(part["inlineData"]), "media_type": as_object(part["inlineData"]).get("mimeType")}
            return [Piece("media", at, tokens=source_tokens(source, scale))]
        return [other(value, at, scale)]

    def request(self, fields: Mapping[str, bytes]) -> Request:
        settings = as_object(raw.load(fields.get("generationConfig", b"{}")))
        system = as_object(raw.load(fields.get("systemInstruction", b"{}")))
        texts = tuple(str(as_object(p).get("text")) for p in as_list(system.get("parts")))
        tools = [f for t in listed(fields.get("tools")) for f in as_list(as_object(t).get("functionDeclarations"))]
        return Request(system=texts, tools=tools, max_tokens=integer(raw.dump(settings.get("maxOutputTokens"))))

    def message(self, text: str, role: Role = "user") -> bytes:
        return raw.dump({"role": "model" if role == "assistant" else "user", "parts": [{"text": text}]})

    def block(self, text: str, role: Role = "user") -> bytes:
        return raw.dump({"text": text})


# -- that is all of it; what follows shows that the engine works with it


def test_a_new_wire_is_compacted_by_the_same_engine() -> None:
    contents: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": "Count the rows of every table."}]}]
    for n in range(30):
        call = {"name": "query", "args": {"table": f"table_{n}"}}
        answer = {"name": "query", "response": {"output": f"table_{n}: {n * 1417} rows. " + "padding " * 200}}
        contents.append({"role": "model", "parts": [{"functionCall": call}]})
        contents.append({"role": "user", "parts": [{"functionResponse": answer}]})
    contents += [{"role": "model", "parts": [{"text": "All counted."}]}, {"role": "user", "parts": [{"text": "Sum?"}]}]
    system = {"parts": [{"text": "You are terse."}]}
    body = json.dumps({"systemInstruction": system, "contents": contents, "futureField": 1e2}).encode()
    runtime = Runtime(secret=b"test")
    for rules in (Rules(), Rules(alternate=False, user_after_tool=True)):
        call = Call(wire=GeminiContents(), body=body, policy=Policy(), rules=rules, target_tokens=2_000)
        prepared = drive(runtime.engine.prepare(call), runtime.perform)
        assert not prepared.report.faults
        sent = json.loads(prepared.body)
        assert prepared.report.tokens_after <= 2_000 < prepared.report.tokens_before
        assert sent["contents"][0]["parts"][0] == contents[0]["parts"][0]
        assert sent["contents"][-1] == contents[-1]
        assert "context_notes" in json.dumps(sent["contents"])
        assert prepared.body.endswith(b'"futureField": 100.0}')
        roles = [c["role"] for c in sent["contents"]]
        assert not rules.alternate or all(a != b for a, b in pairwise(roles))
