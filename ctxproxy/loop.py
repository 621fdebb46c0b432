"""Functions for an agent loop of one's own: measure messages, compact messages.

Both are stateless: they neither remember a compaction nor archive what is cut, and call no model. A loop that goes on
with the list that `compact` returned keeps its compactions; one that builds the whole history anew on every turn
compacts anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

from ctxproxy.effects import Call, Effect, Keep, Recall, Report, drive
from ctxproxy.errors import ConfigError
from ctxproxy.messages import Asked, ask
from ctxproxy.policy import Policy, preset
from ctxproxy.runtime import Runtime

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
    asked = ask(messages, model=model, system=system, tools=tools, api=api)
    call = _call(asked, window, policy)
    call = replace(call, target_tokens=_target(call, model, target, target_tokens))
    return asked.own(drive(_runtime().engine.prepare(call), _perform).body)


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
    asked = ask(messages, model=model, system=system, tools=tools, api=api)
    return _runtime().engine.measure(_call(asked, window, policy))


@cache
def _runtime() -> Runtime:
    """One engine for all calls: it remembers facts of messages (at most 64 MiB), so that a turn counts its new ones."""
    return Runtime(keep_originals=False)


def _perform(effect: Effect) -> Any:
    if isinstance(effect, Recall):
        return ()
    return isinstance(effect, Keep) or None


def _call(asked: Asked, window: int | None, policy: Policy | str | None) -> Call:
    if window is not None and window < 1:
        raise ConfigError(f"window: {window} is not allowed; it is a number of tokens over 0", key="window")
    rules = preset(policy) if isinstance(policy, str) else policy or Policy()
    rules = replace(rules, mode="compact", archive=False, summaries=False)
    return _runtime().call(api=asked.api, body=asked.body, policy=rules, window=window)


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
