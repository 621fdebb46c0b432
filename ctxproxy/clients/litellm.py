"""litellm's functions with ctxproxy inside, for every provider that litellm speaks to.

    from ctxproxy import completion                        # in place of litellm.completion
    llm = ctxproxy.LiteLLM(window=32_000, policy="gentle") # the same functions, with settings
    router = ctxproxy.wrap(litellm.Router(...))

The seam is the function: its messages are measured and edited, and litellm makes of them what its provider wants.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from concurrent.futures import wait
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from ctxproxy import rawjson
from ctxproxy.clients.arguments import WAYS, Request, request_of
from ctxproxy.clients.litellm_errors import both, is_overflow, refused, refused_by, unsent
from ctxproxy.clients.litellm_streams import Held, usage_of
from ctxproxy.clients.routes import Route, route_of
from ctxproxy.clients.seam import Seam, Step, Turn
from ctxproxy.effects import Answer, Count, Outcome, Send, Summarize
from ctxproxy.errors import ContextOverflowError
from ctxproxy.runtime import account_of

if TYPE_CHECKING:
    from ctxproxy.policy import Mode, Policy
    from ctxproxy.runtime import Runtime

__all__ = [
    "LiteLLM",
    "acompletion",
    "anthropic_messages",
    "aresponses",
    "atext_completion",
    "completion",
    "responses",
    "text_completion",
    "wrap_router",
]

# litellm otherwise asks GitHub for its price list while it is imported, and waits for it where there is no network.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
library: Any = import_module("litellm")

_log = logging.getLogger("ctxproxy.clients")


class LiteLLM:
    """litellm's functions, with one memory and one set of rules.

    All arguments are those of litellm, and all but the conversation and a lowered output limit reach it untouched. A
    prompt that does not fit raises an error that is both litellm.ContextWindowExceededError and ContextOverflowError.
    Where the call names a fallback for a window that is too small (`context_window_fallback_dict`), the larger window
    counts, and litellm falls back before anything is cut.

    Args:
        policy: the rules, or the name of a preset.
        window: tokens of the model's window; None to look it up by the model's name.
        runtime: memory, archive and settings to share with other clients; a new one by default.
        mode: `off`, `observe` (measure and report only) or `compact`.

    Raises:
        ConfigError: there is no such preset.
    """

    def __init__(
        self,
        *,
        policy: str | Policy | None = None,
        window: int | None = None,
        runtime: Runtime | None = None,
        mode: Mode | None = None,
    ) -> None:
        self._ctxproxy_seam = Seam(policy=policy, window=window, runtime=runtime, mode=mode)

    def completion(self, *args: Any, **kwargs: Any) -> Any:
        """litellm.completion."""
        return call(self._ctxproxy_seam, "completion", args, kwargs)

    async def acompletion(self, *args: Any, **kwargs: Any) -> Any:
        """litellm.acompletion."""
        return await acall(self._ctxproxy_seam, "acompletion", args, kwargs)

    def text_completion(self, *args: Any, **kwargs: Any) -> Any:
        """litellm.text_completion. One text can't be compacted as a conversation can; it is measured."""
        return call(self._ctxproxy_seam, "text_completion", args, kwargs)

    async def atext_completion(self, *args: Any, **kwargs: Any) -> Any:
        """litellm.atext_completion."""
        return await acall(self._ctxproxy_seam, "atext_completion", args, kwargs)

    def responses(self, *args: Any, **kwargs: Any) -> Any:
        """litellm.responses."""
        return call(self._ctxproxy_seam, "responses", args, kwargs)

    async def aresponses(self, *args: Any, **kwargs: Any) -> Any:
        """litellm.aresponses."""
        return await acall(self._ctxproxy_seam, "aresponses", args, kwargs)

    async def anthropic_messages(self, *args: Any, **kwargs: Any) -> Any:
        """litellm.anthropic_messages, which is a coroutine."""
        return await acall(self._ctxproxy_seam, "anthropic_messages", args, kwargs)


@cache
def _default() -> LiteLLM:
    return LiteLLM()


def completion(*args: Any, **kwargs: Any) -> Any:
    """litellm.completion with ctxproxy inside; `LiteLLM` takes settings."""
    return _default().completion(*args, **kwargs)


async def acompletion(*args: Any, **kwargs: Any) -> Any:
    """litellm.acompletion with ctxproxy inside; `LiteLLM` takes settings."""
    return await _default().acompletion(*args, **kwargs)


def text_completion(*args: Any, **kwargs: Any) -> Any:
    """litellm.text_completion with ctxproxy inside; `LiteLLM` takes settings."""
    return _default().text_completion(*args, **kwargs)


async def atext_completion(*args: Any, **kwargs: Any) -> Any:
    """litellm.atext_completion with ctxproxy inside; `LiteLLM` takes settings."""
    return await _default().atext_completion(*args, **kwargs)


def responses(*args: Any, **kwargs: Any) -> Any:
    """litellm.responses with ctxproxy inside; `LiteLLM` takes settings."""
    return _default().responses(*args, **kwargs)


async def aresponses(*args: Any, **kwargs: Any) -> Any:
    """litellm.aresponses with ctxproxy inside; `LiteLLM` takes settings."""
    return await _default().aresponses(*args, **kwargs)


async def anthropic_messages(*args: Any, **kwargs: Any) -> Any:
    """litellm.anthropic_messages with ctxproxy inside; `LiteLLM` takes settings."""
    return await _default().anthropic_messages(*args, **kwargs)


# -- a router


class _Router:
    """A router with ctxproxy around its calls; all else is the router's own, its class too."""

    __slots__ = ("__weakref__", "_ctxproxy_inner", "_ctxproxy_seam")
    _ctxproxy_inner: Any
    _ctxproxy_seam: Seam

    def __init__(self, inner: Any, seam: Seam) -> None:
        object.__setattr__(self, "_ctxproxy_inner", inner)
        object.__setattr__(self, "_ctxproxy_seam", seam)

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return cast("Any", type(self._ctxproxy_inner))  # for isinstance()

    def __getattr__(self, name: str) -> Any:
        inner, seam = self._ctxproxy_inner, self._ctxproxy_seam
        value = getattr(inner, name)
        if name not in WAYS:
            return value

        def run(*args: Any, **kwargs: Any) -> Any:
            return call(seam, name, args, kwargs, router=inner)

        async def arun(*args: Any, **kwargs: Any) -> Any:
            return await acall(seam, name, args, kwargs, router=inner)

        return arun if name.startswith("a") else run

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._ctxproxy_inner, name, value)


def wrap_router(router: Any, seam: Seam) -> Any:
    """A router with ctxproxy around its calls. The given one stays as it is, and shares all but them."""
    return _Router(getattr(router, "_ctxproxy_inner", router), seam)


# -- one call


def call(seam: Seam, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], *, router: Any = None) -> Any:
    """Call a function of litellm, or a method of a router, through the engine.

    Raises:
        ContextOverflowError: the prompt does not fit; it is litellm.ContextWindowExceededError as well.
    """
    function: Any = getattr(router or library, name)
    turn = _turn(seam, name, args, kwargs, router)
    if turn is None:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if is_overflow(error):
                raise _unmeasured(error, kwargs) from error
            raise
    step = turn.begin()
    while isinstance(step, Send | Summarize | Count):
        if isinstance(step, Count):
            step = turn.summarized(None)
        elif isinstance(step, Summarize):
            step = turn.summarized(_summary(function, turn, step))
        else:
            step = turn.go_on(_sent(function, turn, turn.given.edited(step.body)))
    if turn.falls_back(step):
        step = Outcome(answer=_sent(function, turn, dict(turn.given.kwargs)), report=None)
    return turn.answered(step)


async def acall(seam: Seam, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], *, router: Any = None) -> Any:
    """`call` for a coroutine."""
    function: Any = getattr(router or library, name)
    turn = _turn(seam, name, args, kwargs, router)
    if turn is None:
        try:
            return await function(*args, **kwargs)
        except Exception as error:
            if is_overflow(error):
                raise _unmeasured(error, kwargs) from error
            raise
    step = await aside(turn.begin) if turn.heavy else turn.begin()
    while isinstance(step, Send | Summarize | Count):
        if isinstance(step, Count):
            step = turn.summarized(None)
            continue
        if isinstance(step, Summarize):
            summary = await _asummary(function, turn, step)
            step = await aside(turn.summarized, summary) if turn.heavy else turn.summarized(summary)
            continue
        answer = await _asent(function, turn, turn.given.edited(step.body))
        refusal = answer.status >= 400
        step = await aside(turn.go_on, answer) if refusal and turn.heavy else turn.go_on(answer)
    if turn.falls_back(step):
        step = Outcome(answer=await _asent(function, turn, dict(turn.given.kwargs)), report=None)
    return turn.answered(step)


class LiteTurn(Turn):
    """One call: what its arguments were, and how litellm's answers and exceptions end it."""

    __slots__ = ("given", "route")

    def __init__(self, seam: Seam, given: Request, route: Route) -> None:
        kwargs = given.kwargs
        account = account_of({"x-api-key": str(kwargs.get("api_key") or "")}, secret=seam.runtime.secret)
        made = seam.runtime.call(
            api=given.way.api,
            body=given.body,
            upstream=route.upstream,
            account=account,
            headers={str(k).lower(): str(v) for k, v in _mapping(kwargs.get("extra_headers")).items()},
            policy=seam.policy,
            window=seam.window or route.window,
        )
        super().__init__(seam, cast("Any", None), made, sdk=None)
        self.given = given
        self.route = route

    def falls_back(self, step: Step) -> bool:
        """Whether litellm is to try its fallbacks, although the window that ctxproxy was told of is too small."""
        return isinstance(step, ContextOverflowError) and self.route.falls_back

    def answered(self, step: Step) -> Any:
        """The answer for the caller.

        Raises:
            ContextOverflowError: the prompt does not fit; it is litellm.ContextWindowExceededError as well.
        """
        if isinstance(step, ContextOverflowError):
            self._finish(400, None, error=step)
            raise unsent(library, step)
        assert isinstance(step, Outcome)
        answer: Any = step.answer.handle
        if isinstance(answer, BaseException):
            self._finish(step.answer.status, step if step.report else None)
            raise self._error(answer, step)
        if step.error is not None:  # a stream that litellm hands on as it is began with the refusal
            self._finish(400, step)
            refusal = refused_by(library, step.answer.body, step.error)
            raise both(library, refusal, step.error)
        hidden = getattr(answer, "_hidden_params", None)
        if isinstance(hidden, dict):
            hidden["ctxproxy"] = step.report
        done = partial(self._finish, 200, step if step.report else None)
        if type(answer) is Held:
            answer.listen(done)
        else:
            done(*usage_of(answer))
        return answer

    def _error(self, error: BaseException, outcome: Outcome) -> BaseException:
        if isinstance(error, Exception) and outcome.error is not None:
            return both(library, error, outcome.error)
        return _unmeasured(error, self.given.kwargs)


def _turn(seam: Seam, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], router: Any) -> LiteTurn | None:
    """The way of a call; None where its arguments hold no conversation that can be read."""
    way = WAYS[name]
    places = way.positional if router is None else ("model", way.array)  # a router has its own order
    if len(args) > len(places):
        return None
    named = dict(zip(places, args, strict=False))
    if named.keys() & kwargs.keys():
        return None  # litellm says what is wrong with it
    named |= kwargs
    try:
        route = route_of(seam.runtime, named, router, window=seam.window)
        given = request_of(way, named, model=route.model)
        return LiteTurn(seam, given, route) if given is not None else None
    except Exception:
        _log.exception("a fault in ctxproxy; the call goes on as if it were not there")
        return None


def _sent(function: Any, turn: LiteTurn, kwargs: dict[str, Any]) -> Answer:
    """Call litellm. A stream is an answer once its first event is there."""
    try:
        value = function(**kwargs)
        if hasattr(value, "__next__"):
            value = Held(value, turn.api).peek()
    except Exception as error:
        return refused(error, turn.call.wire)
    return _answer(value)


async def _asent(function: Any, turn: LiteTurn, kwargs: dict[str, Any]) -> Answer:
    try:
        value = await function(**kwargs)
        if hasattr(value, "__anext__"):
            value = await Held(value, turn.api).apeek()
    except Exception as error:
        return refused(error, turn.call.wire)
    return _answer(value)


def _answer(value: Any) -> Answer:
    failure = value.failure if type(value) is Held else None
    event, data = failure or (None, b"")
    return Answer(status=200, event=event, body=data, handle=value)


def _unmeasured(error: BaseException, kwargs: Mapping[str, Any]) -> BaseException:
    """The error of a call that the engine did not follow: of both classes too, where litellm says that it is one."""
    if not isinstance(error, Exception) or not is_overflow(error):
        return error
    return both(library, error, ContextOverflowError(model=str(kwargs.get("model") or ""), reason="retry", attempts=1))


def _mapping(value: Any) -> Mapping[Any, Any]:
    return cast("Mapping[Any, Any]", value) if isinstance(value, Mapping) else {}


async def aside(step: Any, *values: Any) -> Any:
    """Run a long step in a thread; anyio comes with litellm's HTTP library."""
    from anyio import to_thread

    return await to_thread.run_sync(step, *values)


# -- summaries


def _summary(function: Any, turn: LiteTurn, step: Summarize) -> Answer | None:
    """Ask the caller's model for a summary; None where there is none. It never fails a call."""
    made, own = turn.seam.claim(step)
    if not own:
        return made.result() if wait((made,), step.seconds).done else None
    answer: Answer | None = None
    try:
        answer = _read(function(**turn.given.summary(step.body, seconds=step.seconds)))
    except Exception as error:
        _log.warning("a summary failed: %s: %s", type(error).__name__, error)
    finally:
        turn.seam.settle(step, answer)
    return answer


async def _asummary(function: Any, turn: LiteTurn, step: Summarize) -> Answer | None:
    from anyio import move_on_after

    made, own = turn.seam.claim(step)
    if not own:
        return made.result() if (await aside(partial(wait, (made,), step.seconds))).done else None
    answer: Answer | None = None
    try:
        with move_on_after(step.seconds):
            answer = _read(await function(**turn.given.summary(step.body, seconds=step.seconds)))
    except Exception as error:
        _log.warning("a summary failed: %s: %s", type(error).__name__, error)
    finally:
        turn.seam.settle(step, answer)
    return answer


def _read(value: Any) -> Answer:
    body = value.model_dump_json().encode() if hasattr(value, "model_dump_json") else rawjson.dump(value)
    return Answer(status=200, body=body)
