"""Asking a model on our own account: how a summary request of each API looks, and what its answer says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ctxproxy import rawjson
from ctxproxy.conversation import Api
from ctxproxy.errors import WireFormatError
from ctxproxy.wire.pieces import as_list, as_object

__all__ = ["DIALECTS", "Dialect", "ask", "quiet", "reply", "shapes_answer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One API. `output` names the output limit (the first is used where none is set), `shaping` the members that
    force a form on the answer, `once` what keeps a call of ours from being stored; `reply` reads an answer."""

    array: str
    output: tuple[str, ...]
    shaping: tuple[str, ...]
    once: Mapping[str, Any]
    reply: Callable[[Mapping[str, Any]], tuple[str, bool]]


def _chat(value: Mapping[str, Any]) -> tuple[str, bool]:
    choice = as_object(as_list(value.get("choices"))[0])
    content = as_object(choice.get("message")).get("content")
    if isinstance(content, list):
        content = "".join(str(as_object(part).get("text", "")) for part in as_list(content))
    return content or "", choice.get("finish_reason") == "stop"


def _responses(value: Mapping[str, Any]) -> tuple[str, bool]:
    parts = [
        as_object(part)
        for item in as_list(value.get("output"))
        if as_object(item).get("type") == "message"
        for part in as_list(as_object(item).get("content"))
    ]
    return "".join(str(part.get("text", "")) for part in parts), value.get("status") == "completed"


def _messages(value: Mapping[str, Any]) -> tuple[str, bool]:
    blocks = [as_object(block) for block in as_list(value.get("content"))]
    text = "".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")
    return text, value.get("stop_reason") in ("end_turn", "stop_sequence")


DIALECTS: Mapping[Api, Dialect] = MappingProxyType(
    {
        "chat": Dialect(
            array="messages",
            output=("max_tokens", "max_completion_tokens"),
            shaping=("response_format", "audio", "modalities", "prediction"),
            once={},
            reply=_chat,
        ),
        "responses": Dialect(
            array="input",
            output=("max_output_tokens",),
            shaping=("text", "background", "prompt"),
            once={"store": False},
            reply=_responses,
        ),
        "messages": Dialect(
            array="messages",
            output=("max_tokens",),
            shaping=("output_format", "output_config"),
            once={},
            reply=_messages,
        ),
    }
)


def shapes_answer(api: Api, body: bytes) -> bool:
    """Whether a request forces a form on its answer, so that its own prefix can't ask for a summary."""
    members = rawjson.members(body)
    return any(name in members for name in DIALECTS[api].shaping)


def quiet(api: Api, body: bytes, *, output: int) -> bytes:
    """The same request, not streamed, for an answer of at most `output` tokens. All else stays: it is cached."""
    dialect = DIALECTS[api]
    members = rawjson.members(body)
    if "stream" in members:
        body = rawjson.put(body, "stream", b"false")
    if "stream_options" in members:
        body = rawjson.delete(body, [("stream_options",)])
    key = next((name for name in reversed(dialect.output) if name in members), dialect.output[0])
    for name, value in dialect.once.items():
        body = rawjson.put(body, name, rawjson.dump(value))
    return rawjson.put(body, key, rawjson.dump(output))


def ask(api: Api, model: str, text: str, *, output: int) -> bytes:
    """A request of our own: one user message, no tools."""
    dialect = DIALECTS[api]
    body = {"model": model, dialect.array: [{"role": "user", "content": text}], dialect.output[0]: output}
    return rawjson.dump({**body, **dialect.once})


def reply(api: Api, data: bytes) -> tuple[str, bool]:
    """The text of an answer, and whether it came to its own end.

    Raises:
        WireFormatError: it is no answer of that API.
    """
    value = rawjson.load(data)
    try:
        return DIALECTS[api].reply(as_object(value))
    except (IndexError, TypeError, AttributeError) as error:
        raise WireFormatError(f"no answer of the API {api}: {error}") from None
