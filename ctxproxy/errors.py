"""Every error that ctxproxy raises.

CtxProxyError
├── ConfigError            a setting is wrong; the message names the key
├── WireFormatError        a request is not of the API that it claims to be
├── SummaryError           a summary could not be made or is not usable
├── LedgerError            a store of compactions or originals failed
├── GateError              a gate does not allow a spawn
└── ContextOverflowError   the prompt does not fit the model's window
"""

from __future__ import annotations

from typing import Literal

__all__ = [
    "ConfigError",
    "ContextOverflowError",
    "CtxProxyError",
    "GateError",
    "LedgerError",
    "OverflowReason",
    "SummaryError",
    "WireFormatError",
]

OverflowReason = Literal["proactive", "overflow", "retry"]


class CtxProxyError(Exception):
    """Base of all errors of ctxproxy."""


class ConfigError(CtxProxyError):
    """A setting is wrong. `key` is its dotted name in the config file, where there is one."""

    def __init__(self, message: str, *, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), str(self), {"key": self.key})


class WireFormatError(CtxProxyError):
    """The bytes are not a request of the API that was named, or can't be edited safely."""


class SummaryError(CtxProxyError):
    """A summary call failed, or its text is not usable. Nothing was changed."""


class LedgerError(CtxProxyError):
    """A store of compactions or originals failed. No request fails because of it."""


class GateError(CtxProxyError):
    """A gate does not allow a spawn. `result` is its GateResult."""

    def __init__(self, message: str, *, result: object = None) -> None:
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), str(self), {"result": self.result})


class ContextOverflowError(CtxProxyError):
    """The prompt does not fit the context window of the model.

    Attributes:
        model: the model that was asked for.
        context_window: tokens that the window holds, None where nobody said.
        requested_tokens: tokens of the prompt, measured or as the provider stated them.
        reason: `overflow` when ctxproxy measured it before sending, `retry` when the provider refused it.
        attempts: requests that were sent upstream before giving up.
        limit_is_input: whether `context_window` limits the prompt alone, not prompt and answer together.
        max_tokens: output tokens that the request asked for, where stated.
        provider: whose wording was recognised, where it was.
        fixed: tokens of the parts that can't be cut, by name.
        setting: the config key that changes the behaviour.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        model: str | None = None,
        context_window: int | None = None,
        requested_tokens: int | None = None,
        reason: OverflowReason = "overflow",
        attempts: int = 0,
        limit_is_input: bool = False,
        max_tokens: int | None = None,
        provider: str | None = None,
        fixed: dict[str, int] | None = None,
        setting: str | None = None,
    ) -> None:
        self.model = model
        self.context_window = context_window
        self.requested_tokens = requested_tokens
        self.reason: OverflowReason = reason
        self.attempts = attempts
        self.limit_is_input = limit_is_input
        self.max_tokens = max_tokens
        self.provider = provider
        self.fixed = dict(fixed or {})
        self.setting = setting
        super().__init__(message or self._describe())

    def _describe(self) -> str:
        size = f"{self.requested_tokens:,} tokens" if self.requested_tokens else "the prompt"
        limit = f"{self.context_window:,} tokens" if self.context_window else "the context window"
        kind = "input limit" if self.limit_is_input else "window"
        text = f"{size} do not fit the {kind} of {limit} of {self.model or 'the model'}"
        if self.fixed:
            parts = ", ".join(f"{name} {tokens:,}" for name, tokens in self.fixed.items())
            text += f"; parts that can't be cut: {parts}"
        if self.attempts:
            text += f"; {self.attempts} requests were sent"
        if self.setting:
            text += f" (setting: {self.setting})"
        return text

    def fields(self) -> dict[str, object]:
        """The numbers as a plain mapping, for logs and JSON answers."""
        return {
            "model": self.model,
            "context_window": self.context_window,
            "requested_tokens": self.requested_tokens,
            "reason": self.reason,
            "attempts": self.attempts,
            "limit_is_input": self.limit_is_input,
            "max_tokens": self.max_tokens,
            "provider": self.provider,
            "fixed": dict(self.fixed),
            "setting": self.setting,
        }

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), str(self), self.fields())


def _rebuild(cls: type[CtxProxyError], message: str, fields: dict[str, object]) -> CtxProxyError:
    """Unpickle: keyword-only arguments need a helper."""
    return cls(message, **fields)
