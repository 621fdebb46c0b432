"""Functions for an agent loop of one's own: measure messages, compact messages.

Both are stateless: they neither remember a compaction nor archive what is cut, and call no model. A loop that goes on
with the list that `compact` returned keeps its compactions; one that builds the whole history anew on every turn
compacts anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass, replace
from functools import cache
from typing import Any, cast

from ctxproxy import rawjson
from ctxproxy.effects import Call, Effect, Keep, Recall, Report, drive
from ctxproxy.errors import ConfigError, WireFormatError
from ctxproxy.policy import Policy, preset
from ctxproxy.runtime import Runtime
from ctxproxy.wire import WIRES

__all__ = ["compact", "measure"]


def compact(
    messages: Iterable[Any],
    *,
    model: str = "",
    system: Any = None,
    tools: Iterable[Any] | None = None,
    api: str = "chat",
    window: int | None = None,
    target: float | None = None,
    target_tokens: int | None = None,
    policy: Policy | str | None = None,
) -> list[Any]:
    """The messages, made smaller where that is due; always a new list, and the given ones are never changed.

    Messages that stay as they are are the same objects; edited and new ones are dicts.

    Args:
        messages: dicts or SDK objects, as they go into the request: `messages`, or `input` of the Responses API.
        model: its name tells the tokenizer, and the window where `window` does not.
        system: the system prompt where it stands outside `messages` (for chat, a text); it counts and stays.
        tools: the tool definitions of the request; they count and stay.
        api: chat, responses or messages.
        window: context window, tokens.
        target: share of the window to compact down to, whatever the level. Without any target the level decides:
            nothing is done below 90 % (or the policy's threshold).
        target_tokens: the same in tokens.
        policy: the rules, or the name of a preset.

    Raises:
        ContextOverflowError: what can't be cut is over the target, or over the window.
        WireFormatError: a message is not of that API.
        ConfigError: an option is wrong.
    """
    given = list(messages)
    raws = [_dump(message, f"message {i}") for i, message in enumerate(given)]
    call, ahead = _call(raws, model, system, tools, api, window, policy)
    call = replace(call, target_tokens=_target(call, model, target, target_tokens))
    prepared = drive(_runtime().engine.prepare(call), _perform)
    if prepared.body == call.body:
        return given
    items = rawjson.array(rawjson.members(prepared.body)[call.wire.array])
    return _own(items[ahead:], raws, given)


def measure(
    messages: Iterable[Any],
    *,
    model: str = "",
    system: Any = None,
    tools: Iterable[Any] | None = None,
    api: str = "chat",
    window: int | None = None,
    policy: Policy | str | None = None,
) -> Report:
    """How large a request with these messages is, the level that it reaches, and the reason that would apply.

    The arguments and errors are those of `compact`.
    """
    raws = [_dump(message, f"message {i}") for i, message in enumerate(messages)]
    call, _ = _call(raws, model, system, tools, api, window, policy)
    return _runtime().engine.measure(call)


@cache
def _runtime() -> Runtime:
    """One engine for all calls: it remembers facts of messages (at most 64 MiB), so that a turn counts its new ones."""
    return Runtime(keep_originals=False)


def _perform(effect: Effect) -> Any:
    if isinstance(effect, Recall):
        return ()
    return isinstance(effect, Keep) or None


def _call(
    raws: list[bytes],
    model: str,
    system: Any,
    tools: Iterable[Any] | None,
    api: str,
    window: int | None,
    policy: Policy | str | None,
) -> tuple[Call, int]:
    """The request that these messages make, and how many entries of ours stand ahead of them in its array."""
    if api not in WIRES:
        raise ConfigError(f"api: there is no {api!r}; there is {', '.join(WIRES)}", key="api")
    if window is not None and window < 1:
        raise ConfigError(f"window: {window} is not allowed; it is a number of tokens over 0", key="window")
    entries, outside = raws, b""
    if system is not None and api == "chat":
        entries = [_dump({"role": "system", "content": system}, "system"), *raws]
    elif system is not None:
        name = b"instructions" if api == "responses" else b"system"
        outside = b',"' + name + b'":' + _dump(system, "system")
    if tools is not None:
        outside += b',"tools":' + _dump(list(tools), "tools")
    body = b'{"model":%b%b,"%b":[%b]}' % (
        rawjson.dump(model),
        outside,
        WIRES[api].array.encode(),
        b",".join(entries),
    )
    rules = preset(policy) if isinstance(policy, str) else policy or Policy()
    call = _runtime().call(
        api=api, body=body, policy=replace(rules, mode="compact", archive=False, summaries=False), window=window
    )
    return call, len(entries) - len(raws)


def _target(call: Call, model: str, share: float | None, tokens: int | None) -> int | None:
    if share is not None and tokens is not None:
        raise ConfigError("target and target_tokens exclude each other", key="target")
    if tokens is not None and tokens < 1:
        raise ConfigError(f"target_tokens: {tokens} is not allowed; it must be over 0", key="target_tokens")
    if share is None:
        return tokens
    if not 0 < share <= 1:
        raise ConfigError(f"target: {share} is not allowed; it is a share of the window, as 0.7", key="target")
    return max(1, int(share * _runtime().engine.info(call, model).window))


def _dump(value: Any, what: str) -> bytes:
    """The JSON that an SDK would send for a value."""
    try:
        text = json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise WireFormatError(f"{what} has no form in JSON: {error}") from None
    try:
        return text.encode()
    except UnicodeEncodeError:  # a lone surrogate stays an escape
        return json.dumps(_plain(value), separators=(",", ":"), default=_plain).encode()


def _plain(value: Any) -> Any:
    """An SDK object as plain data, without the fields that nobody set: those are not sent either."""
    if value is None or isinstance(value, str | int | float | list | tuple | dict):
        return cast("Any", value)
    if hasattr(value, "model_dump"):
        # anthropic marks parsed results, which its API refuses, this way.
        return value.model_dump(exclude_unset=True, mode="json", exclude=getattr(value, "__api_exclude__", None))
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"a {type(value).__name__} is neither a dict nor an SDK object")


def _own(items: list[bytes], raws: list[bytes], given: list[Any]) -> list[Any]:
    """The caller's own object for each entry that is as it was: the common end first, then in order from the start."""
    same = 0
    while same < min(len(items), len(raws)) and items[-1 - same] == raws[-1 - same]:
        same += 1
    places: dict[bytes, list[int]] = {}
    for i in range(len(raws) - same - 1, -1, -1):
        places.setdefault(raws[i], []).append(i)
    found: list[Any] = []
    last = -1
    for item in items[: len(items) - same]:
        indexes = places.get(item, [])
        while indexes and indexes[-1] <= last:
            indexes.pop()
        if indexes:
            last = indexes.pop()
            found.append(given[last])
        else:
            found.append(rawjson.load(item))
    return found + given[len(given) - same :]
