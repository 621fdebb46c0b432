"""HTTP clients around the caller's own: same type, same pool, same settings, and the engine around `send`.

A wrapped client shares the very state (`__dict__`) of the one that it wraps: proxies, TLS, timeouts, cookies, event
hooks and closing are the same on both, whichever is used to change them. Only `send` differs, through which every
way of sending goes. Its class is made at run time from the class of the given client, so that subclasses keep what
they override, and neither httpx2 nor httpx is imported here.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future, wait
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ctxproxy.clients.seam import Seam, Turn
from ctxproxy.clients.streams import ahold, failed, hold, watch
from ctxproxy.effects import Answer, Count, Outcome, Send, Summarize
from ctxproxy.errors import ConfigError
from ctxproxy.served import ANSWER_BYTES

if TYPE_CHECKING:
    import httpx2

__all__ = ["LIBRARIES", "is_http_client", "library_of", "new_client", "seam_of", "through"]

LIBRARIES = ("httpx2", "httpx")

_log = logging.getLogger("ctxproxy.clients")


class _Wrapped:
    __slots__ = ("_ctxproxy_inner", "_ctxproxy_seam")
    _ctxproxy_inner: Any
    _ctxproxy_seam: Seam

    def __del__(self) -> None:
        # The SDKs' own clients close themselves here; the state is the inner client's, which does it for both.
        pass


class _Sync(_Wrapped):
    __slots__ = ()

    def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> Any:
        """Send a request through the engine, and what is not a model's call as it is."""
        inner = self._ctxproxy_inner
        turn = self._ctxproxy_seam.turn(request)
        if turn is None:
            return inner.send(request, stream=stream, **options)
        step = turn.begin()
        while isinstance(step, Send | Summarize | Count):
            if isinstance(step, Summarize):
                step = turn.summarized(_summary(inner, turn, step, options))
                continue
            if isinstance(step, Count):
                step = turn.summarized(_count(inner, turn, step, options))
                continue
            response = inner.send(turn.outgoing(step), stream=stream, **options)
            try:
                step = turn.go_on(_look(response, turn))
                if not _is_answer(step):
                    response.close()
            except BaseException:
                response.close()
                raise
        return turn.result(step)


class _Async(_Wrapped):
    __slots__ = ()

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> Any:
        """Send a request through the engine, and what is not a model's call as it is."""
        inner = self._ctxproxy_inner
        turn = self._ctxproxy_seam.turn(request)
        if turn is None:
            return await inner.send(request, stream=stream, **options)
        step = await _aside(turn.begin) if turn.heavy else turn.begin()
        while isinstance(step, Send | Summarize | Count):
            if isinstance(step, Summarize):
                summary = await _asummary(inner, turn, step, options)
                step = await _aside(turn.summarized, summary) if turn.heavy else turn.summarized(summary)
                continue
            if isinstance(step, Count):
                counted = await _acount(inner, turn, step, options)
                step = await _aside(turn.summarized, counted) if turn.heavy else turn.summarized(counted)
                continue
            response = await inner.send(turn.outgoing(step), stream=stream, **options)
            try:
                answer = await _alook(response, turn)
                refused = answer.status >= 400 or answer.event is not None
                step = await _aside(turn.go_on, answer) if refused and turn.heavy else turn.go_on(answer)
                if not _is_answer(step):
                    await response.aclose()
            except BaseException:
                await response.aclose()
                raise
        return turn.result(step)


def _is_answer(step: Any) -> bool:
    """Whether the newest response is what the caller gets to read."""
    return isinstance(step, Outcome) and step.error is None


async def _aside(step: Any, *values: Any) -> Any:
    """Run a long step in a thread; anyio comes with both libraries."""
    from anyio import to_thread

    return await to_thread.run_sync(step, *values)


def _look(response: httpx2.Response, turn: Turn) -> Answer:
    """Read of an answer what the engine has to know: an error's body, or a stream's first events."""
    if response.status_code >= 400:
        response.read()
        return _answer(response, body=response.content)
    seen = None if response.is_closed else watch(response, turn.api)
    if seen is not None:
        hold(response, seen)
        return _answer(response, body=seen.data, event=seen.event)
    if not response.is_closed and _is_json(response) and turn.streamed:
        response.read()
    return _whole(response, turn)


async def _alook(response: httpx2.Response, turn: Turn) -> Answer:
    if response.status_code >= 400:
        await response.aread()
        return _answer(response, body=response.content)
    seen = None if response.is_closed else watch(response, turn.api)
    if seen is not None:
        await ahold(response, seen)
        return _answer(response, body=seen.data, event=seen.event)
    if not response.is_closed and _is_json(response) and turn.streamed:
        await response.aread()
    return _whole(response, turn)


def _whole(response: httpx2.Response, turn: Turn) -> Answer:
    """An answer that is read already, or that nobody looks into. Some providers refuse with an HTTP 200."""
    event = failed(response, turn.api) if response.is_closed else None
    return _answer(response, body=response.content if event else b"", event=event)


def _answer(response: httpx2.Response, *, body: bytes = b"", event: str | None = None) -> Answer:
    return Answer(
        status=response.status_code, headers=dict(response.headers.items()), body=body, event=event, handle=response
    )


def _is_json(response: httpx2.Response) -> bool:
    """A stream was asked for, and something else came: an error of a provider that answers it with HTTP 200."""
    return response.headers.get("content-type", "").startswith("application/json")


# -- summaries


def _summary(inner: Any, turn: Turn, step: Summarize, options: dict[str, Any]) -> Answer | None:
    """Ask the caller's provider for a summary; None where there is none in time. It never fails a request."""
    made, own = turn.seam.claim(step)
    if not own:
        return made.result() if _waited(made, step.seconds) else None
    answer: Answer | None = None
    try:
        response = inner.send(turn.outgoing(step), stream=False, **options)
        answer = _answer(response, body=response.content)
    except Exception as error:
        _log.warning("a summary failed: %s: %s", type(error).__name__, error)
    finally:
        turn.seam.settle(step, answer)
    return answer


async def _asummary(inner: Any, turn: Turn, step: Summarize, options: dict[str, Any]) -> Answer | None:
    from anyio import move_on_after

    made, own = turn.seam.claim(step)
    if not own:
        return made.result() if await _aside(_waited, made, step.seconds) else None
    answer: Answer | None = None
    try:
        with move_on_after(step.seconds):
            response = await inner.send(turn.outgoing(step), stream=False, **options)
            answer = _answer(response, body=response.content)
    except Exception as error:
        _log.warning("a summary failed: %s: %s", type(error).__name__, error)
    finally:
        turn.seam.settle(step, answer)
    return answer


# -- counts


def _count(inner: Any, turn: Turn, step: Count, options: dict[str, Any]) -> Answer | None:
    """Ask the provider's counter; None where it fails, takes too long or says too much."""
    until, found = time.monotonic() + step.seconds, bytearray()
    try:
        response = inner.send(turn.asking(step), stream=True, **{**options, "follow_redirects": False})
        try:
            for chunk in response.iter_bytes():
                found += chunk
                if len(found) > ANSWER_BYTES or time.monotonic() > until:
                    return None
        finally:
            response.close()
    except Exception as error:
        _log.debug("a count failed: %s: %s", type(error).__name__, error)
        return None
    return Answer(status=response.status_code, body=bytes(found))


async def _acount(inner: Any, turn: Turn, step: Count, options: dict[str, Any]) -> Answer | None:
    from anyio import move_on_after

    found = bytearray()
    try:
        with move_on_after(step.seconds) as scope:
            response = await inner.send(turn.asking(step), stream=True, **{**options, "follow_redirects": False})
            try:
                async for chunk in response.aiter_bytes():
                    found += chunk
                    if len(found) > ANSWER_BYTES:
                        return None
            finally:
                await response.aclose()
            return None if scope.cancel_called else Answer(status=response.status_code, body=bytes(found))
    except Exception as error:
        _log.debug("a count failed: %s: %s", type(error).__name__, error)
    return None


def _waited(made: Future[Answer | None], seconds: float) -> bool:
    return bool(wait((made,), seconds).done)


# -- making them


def library_of(client: object) -> str | None:
    """The HTTP library of a client, None where it is no HTTP client of either."""
    for kind in type(client).__mro__:
        library = kind.__module__.partition(".")[0]
        if library in LIBRARIES and kind.__name__ in ("Client", "AsyncClient"):
            return library
    return None


def is_http_client(client: object) -> bool:
    """Whether it is a Client or an AsyncClient of httpx2 or httpx."""
    return library_of(client) is not None


def seam_of(client: object) -> Seam | None:
    """The seam of a wrapped HTTP client, None where it is not wrapped."""
    return client._ctxproxy_seam if isinstance(client, _Wrapped) else None  # pyright: ignore[reportPrivateUsage]


def through(client: Any, seam: Seam) -> Any:
    """The client with the engine around its `send`. One that is wrapped already gets another seam.

    Raises:
        TypeError: it is no HTTP client of httpx2 or httpx.
    """
    if library_of(client) is None:
        raise TypeError(f"an httpx2 or httpx client is wanted, not {type(client).__module__}.{type(client).__name__}")
    inner: Any = getattr(client, "_ctxproxy_inner", client)
    made: Any = object.__new__(_class_around(inner.__class__))
    made.__dict__ = inner.__dict__
    made._ctxproxy_inner = inner
    made._ctxproxy_seam = seam
    return made


@lru_cache(maxsize=64)
def _class_around(kind: Any) -> Any:
    mixin = _Async if any(k.__name__ == "AsyncClient" for k in kind.__mro__) else _Sync
    return type(kind.__name__, (mixin, kind), {"__slots__": (), "__module__": kind.__module__, "__doc__": kind.__doc__})


def new_client(*, asynchronous: bool, library: str | None, options: dict[str, Any]) -> Any:
    """A client with the defaults that the SDKs give theirs, which those of the libraries are too short for.

    Raises:
        ConfigError: there is no such library, or it is not installed.
    """
    name = library or _usual_library()
    if name not in LIBRARIES:
        raise ConfigError(f"there is no HTTP library {name!r}; there are {', '.join(LIBRARIES)}", key="library")
    try:
        httpx: Any = import_module(name)
    except ImportError:
        raise ConfigError(f"{name} is not installed", key="library") from None
    defaults = {
        "timeout": httpx.Timeout(600.0, connect=5.0),
        "limits": httpx.Limits(max_connections=1_000, max_keepalive_connections=100),
        "follow_redirects": True,
    }
    return (httpx.AsyncClient if asynchronous else httpx.Client)(**{**defaults, **options})


def _usual_library() -> str:
    """The library that the installed SDKs want."""
    from importlib.metadata import PackageNotFoundError, requires

    for sdk in ("openai", "anthropic"):
        try:
            wanted = requires(sdk) or ()
        except PackageNotFoundError:
            continue
        return "httpx2" if any(name.startswith("httpx2") and "extra" not in name for name in wanted) else "httpx"
    from importlib.util import find_spec

    return next((name for name in LIBRARIES if find_spec(name)), "httpx2")
