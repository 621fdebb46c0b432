"""A caller's messages as a request of an API, and the edited request as the caller's messages again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from types import MappingProxyType
from typing import Any, cast

from ctxproxy import rawjson
from ctxproxy.errors import ConfigError, WireFormatError
from ctxproxy.wire import WIRES

__all__ = ["Asked", "ask", "plain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The request that some messages make. `ahead` of its entries are none of the caller's."""

    api: str
    body: bytes = field(repr=False)
    given: tuple[Any, ...] = field(repr=False)
    raws: tuple[bytes, ...] = field(repr=False)
    ahead: int = 0

    def own(self, body: bytes) -> list[Any]:
        """The messages of an edited body: the caller's own object for each that is as it was, else a dict."""
        if body == self.body:
            return list(self.given)
        items = rawjson.array(rawjson.members(body)[WIRES[self.api].array])
        return _own(items[self.ahead :], self.raws, self.given)


def ask(
    messages: Iterable[Any],
    *,
    model: str = "",
    system: Any = None,
    tools: Iterable[Any] | None = None,
    api: str = "chat",
    more: Mapping[str, Any] = MappingProxyType({}),
) -> Asked:
    """The request that these messages make.

    Args:
        messages: dicts or SDK objects, as they go into the request: `messages`, or `input` of the Responses API.
        system: the system prompt where it stands outside `messages`.
        more: further members of the request that matter, `max_tokens` for one.

    Raises:
        ConfigError: there is no such API.
        WireFormatError: a message has no form in JSON.
    """
    if api not in WIRES:
        raise ConfigError(f"api: there is no {api!r}; there is {', '.join(WIRES)}", key="api")
    given = tuple(messages)
    raws = tuple(_dump(message, f"message {i}") for i, message in enumerate(given))
    entries, outside = raws, b""
    if system is not None and api == "chat":
        entries = (_dump({"role": "system", "content": system}, "system"), *raws)
    elif system is not None:
        outside = b',"' + (b"instructions" if api == "responses" else b"system") + b'":' + _dump(system, "system")
    if tools is not None:
        outside += b',"tools":' + _dump(list(tools), "tools")
    for name, value in more.items():
        outside += b"," + rawjson.dump(name) + b":" + rawjson.dump(value)
    body = b'{"model":%b%b,"%b":[%b]}' % (
        rawjson.dump(model),
        outside,
        WIRES[api].array.encode(),
        b",".join(entries),
    )
    return Asked(api=api, body=body, given=given, raws=raws, ahead=len(entries) - len(raws))


def _dump(value: Any, what: str) -> bytes:
    """The JSON that an SDK would send for a value."""
    try:
        text = json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"), default=plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise WireFormatError(f"{what} has no form in JSON: {error}") from None
    try:
        return text.encode()
    except UnicodeEncodeError:  # a lone surrogate stays an escape
        return json.dumps(plain(value), separators=(",", ":"), default=plain).encode()


def plain(value: Any) -> Any:
    """An SDK object as plain data, without the fields that nobody set: those are not sent either.

    Raises:
        TypeError: it is neither plain data nor an SDK object.
    """
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


def _own(items: list[bytes], raws: tuple[bytes, ...], given: tuple[Any, ...]) -> list[Any]:
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
    return [*found, *given[len(given) - same :]]
