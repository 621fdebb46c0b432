"""The parameters of a guarded function: where its messages are, and the same call with others."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ctxproxy.errors import ConfigError

__all__ = ["Bound", "Shape"]


@dataclass(frozen=True, slots=True)
class Shape:
    """Where a function takes its messages. `signature` is None where it has none: then only keywords are known."""

    signature: inspect.Signature | None
    parameter: str
    rest: str | None

    @classmethod
    def of(cls, function: Any, parameter: str | None, *, api: str) -> Shape:
        """Raises ConfigError: the function has no such parameter."""
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            return cls(None, parameter or "messages", None)
        kinds = {name: p.kind for name, p in signature.parameters.items()}
        rest = next((name for name, kind in kinds.items() if kind is inspect.Parameter.VAR_KEYWORD), None)
        wanted = [parameter] if parameter else ["input", "messages"] if api == "responses" else ["messages"]
        found = next((name for name in wanted if name in kinds and name != rest), None)
        if found is None and rest is None:
            raise ConfigError(
                f"{getattr(function, '__name__', function)} has no parameter {wanted[0]!r} "
                "(option of guard: messages='NAME')",
                key="messages",
            )
        return cls(signature, found or wanted[0], rest)

    def bind(self, args: Any, options: Any) -> Bound | None:
        """The call's arguments by name; None where it has no messages, or none that can be looked at."""
        if self.signature is None:
            arguments: dict[str, Any] = {"options": dict(options)}
            bound = Bound(None, self.parameter, "options", args, arguments, [])
        else:
            try:
                arguments = dict(self.signature.bind(*args, **options).arguments)
            except TypeError:
                return None  # the function says it better
            bound = Bound(self.signature, self.parameter, self.rest, (), arguments, [])
        value = bound.get(self.parameter)
        if value is None or isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            return None
        bound.messages.extend(cast("Iterable[Any]", value))
        if not isinstance(value, list | tuple):  # an iterator is empty now
            bound.put(self.parameter, list(bound.messages))
        return bound


@dataclass(frozen=True, slots=True)
class Bound:
    """The arguments of one call."""

    signature: inspect.Signature | None
    parameter: str
    rest: str | None
    args: tuple[Any, ...]
    values: dict[str, Any]
    messages: list[Any]

    def get(self, name: str) -> Any:
        if name in self.values and name != self.rest:
            return self.values[name]
        rest: Any = self.values.get(self.rest or "")
        return rest.get(name) if isinstance(rest, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

    def put(self, name: str, value: Any) -> None:
        if self.rest is not None and (name not in self.values or name == self.rest):
            self.values[self.rest] = {**self.values.get(self.rest, {}), name: value}
        else:
            self.values[name] = value

    def arguments(
        self, messages: list[Any] | None, limits: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments to call with: other messages, None for the caller's own, and other output limits."""
        made = Bound(self.signature, self.parameter, self.rest, self.args, dict(self.values), self.messages)
        if messages is not None:
            made.put(self.parameter, tuple(messages) if isinstance(self.get(self.parameter), tuple) else messages)
        for name, value in limits.items():
            if self.get(name) is not None:
                made.put(name, value)
        if self.signature is None:
            return self.args, made.values["options"]
        bound = inspect.BoundArguments(self.signature, cast("Any", made.values))
        return bound.args, bound.kwargs
