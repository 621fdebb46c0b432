"""A stream of litellm whose first event was read already, and what streams and answers say of their usage."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Self, cast

from ctxproxy.conversation import Api
from ctxproxy.frames import Frames, Tail, verdict_of

__all__ = ["Held", "is_stream", "usage_of"]

Usage = Mapping[str, Any]
Done = Callable[[Usage | None, str | None], None]

_WAITING = frozenset({"response.created", "response.in_progress", "response.queued"})  # a refusal may still follow
_HELD_EVENTS = 64


def is_stream(value: Any) -> bool:
    """Whether an answer is a stream. Answers can be iterated too, as pydantic's objects all can."""
    return hasattr(value, "__next__") or hasattr(value, "__anext__")


class Held:
    """The stream of the caller, with its first event put back. It has all else of litellm's object, its class too.

    `listen` names a function that is called once with the usage and the stop reason, at the end or when the stream is
    closed. Nothing is asked for: where the provider states no usage, there is none.
    """

    __slots__ = (
        "__weakref__",
        "_api",
        "_done",
        "_early",
        "_frames",
        "_inner",
        "_over",
        "_stop",
        "_tail",
        "_usage",
        "failure",
    )

    def __init__(self, inner: Any, api: Api) -> None:
        self._inner = inner
        self._api: Api = api
        self._early: deque[Any] = deque()
        self._frames = Frames()
        self.failure: tuple[str, bytes] | None = None  # the name and the data of an event that says that it failed
        self._over = False
        self._done: Done | None = None
        self._usage: dict[str, Any] = {}
        self._stop: str | None = None
        self._tail: Tail | None = None

    def peek(self) -> Self:
        """Wait for the first event that says something: until then the call may still fail."""
        try:
            while self._hold(next(self._inner)):
                pass
        except StopIteration:
            self._over = True
        return self

    async def apeek(self) -> Self:
        """`peek` for a stream of a coroutine."""
        try:
            while self._hold(await anext(self._inner)):
                pass
        except StopAsyncIteration:
            self._over = True
        return self

    def _hold(self, event: Any) -> bool:
        """Keep an event for the caller; whether the next one has to be seen too."""
        self._early.append(event)
        if not isinstance(event, bytes | str):
            kind = _get(event, "type")
            return str(getattr(kind, "value", kind)) in _WAITING and len(self._early) < _HELD_EVENTS
        for frame in self._frames.feed(event.encode() if isinstance(event, str) else event):
            verdict = verdict_of(frame, self._api)
            if verdict is not None:
                self.failure = (verdict, frame.data) if verdict else None
                return False
        return len(self._early) < _HELD_EVENTS

    def listen(self, done: Done) -> None:
        self._done = done

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return cast("Any", type(self._inner))  # for isinstance()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __iter__(self) -> Self:
        return self

    def __aiter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if self._early:
            return self._see(self._early.popleft())
        try:
            event = StopIteration if self._over else next(self._inner)
        except BaseException:
            self._end()
            raise
        if event is StopIteration:
            self._end()
            raise StopIteration
        return self._see(event)

    async def __anext__(self) -> Any:
        if self._early:
            return self._see(self._early.popleft())
        try:
            event = StopIteration if self._over else await anext(self._inner)
        except BaseException:
            self._end()
            raise
        if event is StopIteration:
            self._end()
            raise StopAsyncIteration
        return self._see(event)

    def close(self) -> None:
        """Close the connection; what is left is not read."""
        try:
            _call(self._inner, "close")
        finally:
            self._end()

    async def aclose(self) -> None:
        """`close` for a stream of a coroutine."""
        try:
            closing = _call(self._inner, "aclose", "close")
            if hasattr(closing, "__await__"):
                await closing
        finally:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _see(self, event: Any) -> Any:
        if isinstance(event, bytes | str):
            self._tail = self._tail or Tail(self._api, stream=True)
            self._tail.feed(event.encode() if isinstance(event, str) else event)
            return event
        usage, stop = usage_of(event)
        self._usage |= usage or {}
        self._stop = stop or self._stop
        return event

    def _end(self) -> None:
        done, self._done = self._done, None
        if done is None:
            return
        if self._tail is not None:
            done(*self._tail.result())
        else:
            done(self._usage or None, self._stop)


def _call(inner: Any, *names: str) -> Any:
    for holder in (inner, getattr(inner, "completion_stream", None)):
        for name in names:
            method = getattr(holder, name, None)
            if callable(method):
                return method()
    return None


def usage_of(answer: Any) -> tuple[Usage | None, str | None]:
    """The usage and the stop reason that an answer or an event states."""
    usage: Any = None
    for holder in (answer, _get(answer, "response"), _get(answer, "message")):
        usage = usage or _get(holder, "usage")
    if hasattr(usage, "model_dump"):
        usage = usage.model_dump(exclude_none=True)
    stop = _get(answer, "stop_reason") or _get(_get(answer, "delta"), "stop_reason")
    choices = _get(answer, "choices")
    if isinstance(choices, list) and choices:
        stop = stop or _get(cast("list[Any]", choices)[0], "finish_reason")
    return cast("dict[str, Any]", usage) if isinstance(usage, dict) else None, stop if isinstance(stop, str) else None


def _get(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).get(name)
    return getattr(value, name, None)
