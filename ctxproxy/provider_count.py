"""The provider's own counter, asked where our figure leaves open on which side of a threshold a prompt lies."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Generator, Hashable, Mapping
from dataclasses import replace
from typing import Any, cast

from ctxproxy import rawjson
from ctxproxy.budget import Thresholds, Usage
from ctxproxy.conversation import Conversation, prefix_digest
from ctxproxy.effects import Answer, Call, Count
from ctxproxy.errors import WireFormatError
from ctxproxy.models import ModelInfo
from ctxproxy.served import Question, Served, root_of

__all__ = ["SECONDS", "Counts", "counted", "straddles"]

SECONDS = 2.0
"""That a request waits for a count at most, per question."""

_MOST = 1_024  # counts and failures that are remembered
_PAUSE = 300.0  # seconds in which a counter that failed is not asked again

# The counting endpoints refuse what says how to answer (max_tokens, stream), so only what is counted is sent.
_COUNTED: Mapping[str, tuple[str, ...]] = {
    "messages": ("model", "messages", "system", "tools", "tool_choice", "thinking"),
    "responses": ("model", "input", "instructions", "tools", "tool_choice", "reasoning", "text", "parallel_tool_calls"),
    "chat": ("model", "messages", "tools", "tool_choice", "chat_template_kwargs"),
}


class Counts:
    """Counts by conversation, so that each is asked for once, and the counters that failed. Times in seconds."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, int] = OrderedDict()
        self._failed: OrderedDict[Hashable, float] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> int | None:
        return self._known.get(key)

    def may_ask(self, counter: Hashable, *, now: float) -> bool:
        until = self._failed.get(counter)
        return until is None or not until - _PAUSE <= now < until

    def keep(self, key: Hashable, tokens: int) -> None:
        with self._lock:
            self._known[key] = tokens
            while len(self._known) > _MOST:
                self._known.popitem(last=False)

    def fail(self, counter: Hashable, *, now: float) -> None:
        with self._lock:
            self._failed[counter] = now + _PAUSE
            while len(self._failed) > _MOST:
                self._failed.popitem(last=False)


def straddles(usage: Usage, thresholds: Thresholds) -> bool:
    """Whether the true size may lie on the other side of a threshold at which a prompt is compacted."""
    low, high = usage.value - usage.margin, usage.value + usage.margin
    marks = (thresholds.compress, thresholds.emergency, thresholds.overflow)
    return any(low < mark * usage.total <= high for mark in marks)


def counted(
    counts: Counts, served: Served | None, call: Call, body: bytes, current: Conversation, info: ModelInfo, usage: Usage
) -> Generator[Count, Answer | None, Usage]:
    """The usage of a request with its provider's count, where the policy wants that and it matters; else as it is.

    `body` is what would be sent, `current` what was read from it. A count that can't be right is none.
    """
    if call.policy.provider_count != "near" or call.policy.mode != "compact" or current.hands_off:
        return usage
    if info.source == "default" or not straddles(usage, call.policy.thresholds):
        return usage
    key = call.scope, call.upstream, current.model, current.fixed_digest, prefix_digest(current.messages)
    tokens = counts.get(key)
    if tokens is None:
        server = served.get((call.upstream, current.model), now=call.now).server if served is not None else ""
        counter = call.upstream, call.wire.api
        if not counts.may_ask(counter, now=call.now):
            return usage
        tokens = yield from _ask(call, body, server, key)
        if tokens is None or not usage.value * 0.4 - 64 <= tokens <= usage.value * 2.5 + 1_500:
            # Without a server's kind there was no question: it may be known next time.
            if server or call.wire.api != "chat":
                counts.fail(counter, now=call.now)
            return usage
        counts.keep(key, tokens)
    # Providers call their own figure an estimate: Anthropic's may include tokens that are not billed.
    return replace(usage, value=tokens, margin=min(usage.margin, max(8, tokens // 200)), basis="provider")


def _ask(
    call: Call, body: bytes, server: str, key: tuple[Hashable, ...]
) -> Generator[Count, Answer | None, int | None]:
    base, own = root_of(call.upstream)
    try:
        parts = rawjson.members(body)
    except WireFormatError:
        return None
    kept = {name: parts[name] for name in _COUNTED[call.wire.api] if name in parts}

    def count(url: str, data: bytes) -> Count:
        return Count((url, *key), Question(url, data), SECONDS)

    if call.wire.api == "messages":
        return _number(_object((yield count(base + "/messages/count_tokens", _joined(kept)))).get("input_tokens"))
    if call.wire.api == "responses":
        return _number(_object((yield count(base + "/responses/input_tokens", _joined(kept)))).get("input_tokens"))
    if server == "vllm":
        asked = {name: kept[name] for name in ("model", "messages", "tools") if name in kept}
        told = _object((yield count(own + "/tokenize", _joined({**asked, "add_generation_prompt": b"true"}))))
        return _number(told.get("count"))
    if server != "llama.cpp":
        return None
    told = _object((yield count(base + "/chat/completions/input_tokens", _joined(kept))))
    if "input_tokens" in told:
        return _number(told["input_tokens"])
    # Older servers have no such path: the template first, then its tokens.
    prompt = _object((yield count(own + "/apply-template", _joined(kept)))).get("prompt")
    if not isinstance(prompt, str):
        return None
    asked = json.dumps({"content": prompt, "add_special": True, "parse_special": True}).encode()
    tokens = _object((yield count(own + "/tokenize", asked))).get("tokens")
    return len(cast("list[object]", tokens)) if isinstance(tokens, list) else None


def _joined(members: Mapping[str, bytes | memoryview]) -> bytes:
    return b"{" + b",".join(b'"%s":%s' % (name.encode(), bytes(value)) for name, value in members.items()) + b"}"


def _object(answer: Answer | None) -> dict[str, Any]:
    if answer is None or answer.status != 200:
        return {}
    try:
        value = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
