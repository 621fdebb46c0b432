"""The keyword arguments of a call as the body of a request, and an edited body as keyword arguments again.

litellm speaks to many providers, each with bytes of its own; what all its functions have in common are arguments. The
body is only measured and edited, never sent: it has the members that count, and nothing of the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ctxproxy import rawjson
from ctxproxy.conversation import Api
from ctxproxy.errors import WireFormatError
from ctxproxy.messages import _dump, _own  # pyright: ignore[reportPrivateUsage]

__all__ = ["WAYS", "Request", "Way", "request_of"]

# Members that the wires look at: they count, or say that the request is to be left alone.
_MEMBERS: Mapping[Api, tuple[str, ...]] = {
    "chat": (
        "tools", "functions", "max_tokens", "max_completion_tokens", "n", "logprobs", "response_format", "audio",
        "modalities", "prediction", "stream",
    ),
    "responses": (
        "instructions", "tools", "max_output_tokens", "previous_response_id", "conversation", "prompt", "truncation",
        "context_management", "include", "top_logprobs", "text", "background", "stream",
    ),
    "messages": (
        "system", "tools", "max_tokens", "thinking", "thread", "compaction", "context_management",
        "output_format", "output_config", "stream",
    ),
}  # fmt: skip
_OF_TOOLS = ("tool_choice", "parallel_tool_calls", "function_call")
# What a call of our own must not repeat: litellm's own retries and fallbacks would spend the caller's money again.
_ONCE: Mapping[str, Any] = {"num_retries": 0, "max_retries": 0}
_DROPPED = ("stream", "stream_options", "fallbacks", "context_window_fallbacks", "context_window_fallback_dict")


@dataclass(frozen=True, slots=True)
class Way:
    """One function: its API, the argument that holds the conversation, its positional arguments."""

    api: Api
    array: str
    positional: tuple[str, ...]


_CHAT = Way("chat", "messages", ("model", "messages"))
_TEXT = Way("chat", "prompt", ("prompt", "model"))
_RESPONSES = Way("responses", "input", ("input", "model"))
_MESSAGES = Way("messages", "messages", ("max_tokens", "messages", "model"))

WAYS: Mapping[str, Way] = {
    "completion": _CHAT,
    "acompletion": _CHAT,
    "text_completion": _TEXT,
    "atext_completion": Way("chat", "prompt", ()),  # litellm itself takes its first argument for two things
    "responses": _RESPONSES,
    "aresponses": _RESPONSES,
    "anthropic_messages": _MESSAGES,
    "aanthropic_messages": _MESSAGES,
}


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of a call, and the body made of them. `raws` are the entries of `given` as JSON."""

    way: Way
    kwargs: Mapping[str, Any]
    body: bytes
    given: tuple[Any, ...]
    raws: tuple[bytes, ...]

    def edited(self, body: bytes) -> dict[str, Any]:
        """The arguments for an edited body. Entries that stay as they are are the caller's own objects."""
        found = dict(self.kwargs)
        if body is self.body or body == self.body:
            return found
        before, after = rawjson.members(self.body), rawjson.members(body)
        array = _array(self.way)
        for name, value in after.items():
            if name == array:
                if before.get(name) != value:
                    found[self.way.array] = self._entries(value)
            elif name != "model" and before.get(name) != value:
                found[name] = rawjson.load(value)
        for name in before.keys() - after.keys():
            found.pop(name, None)
        return found

    def summary(self, body: bytes, *, seconds: float) -> dict[str, Any]:
        """The arguments of a call for a summary: the caller's model, credentials and address, and this body."""
        found = self.edited(body)
        for name in _DROPPED:
            found.pop(name, None)
        if "tools" not in found and "functions" not in found:
            for name in _OF_TOOLS:
                found.pop(name, None)
        return {**found, **_ONCE, "timeout": seconds}

    def _entries(self, value: bytes) -> Any:
        if not value.startswith(b"["):
            return rawjson.load(value)
        items = rawjson.array(value)
        if self.way.array != "prompt":
            return _own(items, self.raws, self.given)
        # A prompt is one text: what does not come back as one stays as it was.
        message = cast("dict[str, Any]", rawjson.load(items[-1])) if len(items) == 1 else {}
        text = message.get("content")
        return text if isinstance(text, str) else self.kwargs["prompt"]


def request_of(way: Way, kwargs: Mapping[str, Any], *, model: str) -> Request | None:
    """The request that these arguments make, None where there is no conversation in them that can be read.

    Args:
        model: the model whose window counts; with a router not the one that the caller names.
    """
    value = kwargs.get(way.array)
    given: tuple[Any, ...] = ()
    raws: tuple[bytes, ...] = ()
    try:
        if way.array == "prompt":
            if not isinstance(value, str):
                return None
            entries = _dump([{"role": "user", "content": value}], "prompt")
        elif isinstance(value, str) and way.array == "input":
            entries = _dump(value, "input")
        elif isinstance(value, list | tuple):
            given = tuple(cast("list[Any]", value))
            raws = tuple(_dump(_plain(entry), f"{way.array} {i}") for i, entry in enumerate(given))
            entries = b"[%b]" % b",".join(raws)
        else:
            return None
    except WireFormatError:
        return None
    members = [b'"model":' + rawjson.dump(model), rawjson.dump(_array(way)) + b":" + entries]
    held = [name for name in _MEMBERS[way.api] if kwargs.get(name) is not None]
    members += [rawjson.dump(name) + b":" + _member(kwargs[name]) for name in held]
    return Request(way, kwargs, b"{%b}" % b",".join(members), given, raws)


def _array(way: Way) -> str:
    return "messages" if way.array == "prompt" else way.array


def _member(value: Any) -> bytes:
    try:
        return _dump(value, "an argument")
    except WireFormatError:
        return b'{"type":"unknown"}'  # a class as `response_format`: that there is one is all that matters


def _plain(entry: Any) -> Any:
    """An answer of litellm as litellm sends it: its objects set every field, and those without a value are left out."""
    if type(entry).__module__.partition(".")[0] == "litellm" and hasattr(entry, "model_dump"):
        return entry.model_dump(exclude_none=True, mode="json")
    return entry
