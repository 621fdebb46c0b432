"""`guard`: any function that takes messages and calls a model, kept inside the model's window.

    @ctxproxy.guard(model="gpt-4o")
    def ask(messages):
        return client.chat.completions.create(model="gpt-4o", messages=messages)

Before the call the messages are compacted where that is due. If the function raises an error that says "too long",
they are compacted under the limit that it states, and it is called again.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar, cast, overload

from ctxproxy.effects import Send
from ctxproxy.errors import ConfigError
from ctxproxy.flight import Flight
from ctxproxy.parameters import Shape
from ctxproxy.policy import Policy
from ctxproxy.runtime import Runtime
from ctxproxy.session import Session

__all__ = ["guard"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


@overload
def guard(function: _Function) -> _Function: ...
@overload
def guard(
    function: None = None,
    *,
    messages: str | None = None,
    model: str | None = None,
    api: str = "chat",
    window: int | None = None,
    policy: Policy | str | None = None,
    max_retries: int | None = None,
    agent: str = "",
    session: Session | None = None,
    runtime: Runtime | None = None,
) -> Callable[[_Function], _Function]: ...
def guard(
    function: Any = None,
    *,
    messages: str | None = None,
    model: str | None = None,
    api: str = "chat",
    window: int | None = None,
    policy: Policy | str | None = None,
    max_retries: int | None = None,
    agent: str = "",
    session: Session | None = None,
    runtime: Runtime | None = None,
) -> Any:
    """Decorate a function that sends messages to a model: sync or async, a generator, a method, of any SDK.

    It is called with messages that fit, the caller's list is never changed. What was compacted once is replaced by the
    same messages on every later call. When the function raises an error that says that the prompt is too long (of
    openai, anthropic, litellm, an HTTP client, or any whose text says so), it is called again with fewer messages, at
    most `policy.max_retries` (2) times: it should do nothing before its request that must not be done twice. All other
    errors pass, and so do results, streams and generators. `usage` in what it returns makes later measures exact.

    The decorated function has the attribute `session`: `ask.session.status()`, `.events`, `.usage`.

    Args:
        messages: the name of the parameter with the messages; `messages`, or for the Responses API `input`.
            Parameters `model`, `system` (or `instructions`), `tools` and `max_tokens` are used where there are any.
        model: the model's name, where the function has no parameter `model`.
        api: what the messages are of: chat, responses or messages.
        window: tokens of the model's window, None to look it up.
        policy: the rules, or the name of a preset.
        max_retries: in place of the policy's.
        agent: a name for the event log.
        session: one to share; window, policy, api, agent and runtime are its own then.
        runtime: memory and settings to share.

    Raises:
        ConfigError: the function has no such parameter, or an option is wrong.
        ContextOverflowError: by the decorated function: the prompt certainly does not fit, or the last error that says
            so; then it is of the class that the function raised as well.
    """
    if function is None:
        return functools.partial(
            _decorated, parameter=messages, model=model, api=api, window=window, policy=policy,
            max_retries=max_retries, agent=agent, session=session, runtime=runtime,
        )  # fmt: skip
    return _decorated(
        function, parameter=messages, model=model, api=api, window=window, policy=policy,
        max_retries=max_retries, agent=agent, session=session, runtime=runtime,
    )  # fmt: skip


def _decorated(
    function: Any,
    *,
    parameter: str | None,
    model: str | None,
    api: str,
    window: int | None,
    policy: Policy | str | None,
    max_retries: int | None,
    agent: str,
    session: Session | None,
    runtime: Runtime | None,
) -> Any:
    if isinstance(function, classmethod | staticmethod):
        inner: Any = cast("Any", function).__func__
        return type(cast("Any", function))(
            _decorated(
                inner, parameter=parameter, model=model, api=api, window=window, policy=policy,
                max_retries=max_retries, agent=agent, session=session, runtime=runtime,
            )
        )  # fmt: skip
    if not callable(function):
        raise ConfigError(f"guard() takes a function, not a {type(function).__name__}")
    if session is None:
        session = Session(model=model or "", window=window, policy=policy, api=api, agent=agent, runtime=runtime)
    shape = Shape.of(function, parameter, api=session.api)
    retries = session.policy.max_retries if max_retries is None else max_retries
    if retries < 0:
        raise ConfigError(f"max_retries: {max_retries} is not allowed; it can't be negative", key="policy.max_retries")

    def flight(args: Any, options: Any) -> Flight | None:
        return Flight.begin(session, shape, args, options, model=model, retries=retries)

    return _wrapper(function, flight, session)


def _wrapper(function: Any, flight: Callable[[Any, Any], Flight | None], session: Session) -> Any:
    call: Any = getattr(function, "__call__", function)  # noqa: B004 - an object's own method may be a coroutine function
    if inspect.isasyncgenfunction(function) or inspect.isasyncgenfunction(call):

        async def agenerator(*args: Any, **options: Any) -> AsyncGenerator[Any, Any]:
            way = flight(args, options)
            if way is None:
                begun = await _abegin(function, args, options)
            else:
                while isinstance(way.step, Send):
                    try:
                        found = await _abegin(function, *way.arguments())
                    except Exception as error:
                        way.failed(error)
                    else:
                        way.answered(found)
                begun = cast("_Begun", way.result())
            if begun.ended:
                return
            try:
                yield begun.value
                async for item in begun.generator:
                    yield item
            finally:
                await begun.generator.aclose()

        wrapper: Any = agenerator
    elif inspect.isgeneratorfunction(function) or inspect.isgeneratorfunction(call):

        def generator(*args: Any, **options: Any) -> Generator[Any, Any, Any]:
            way = flight(args, options)
            if way is None:
                return (yield from cast("Generator[Any, Any, Any]", function(*args, **options)))
            while isinstance(way.step, Send):
                try:
                    found = _begin(function, *way.arguments())
                except Exception as error:
                    way.failed(error)
                else:
                    way.answered(found)
            begun = cast("_Begun", way.result())
            if begun.ended:
                return begun.value
            return (yield from _rest(begun))

        wrapper = generator
    elif inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call):

        async def coroutine(*args: Any, **options: Any) -> Any:
            way = flight(args, options)
            if way is None:
                return await function(*args, **options)
            return await _finish(function, way, None)

        wrapper = coroutine
    else:

        def plain(*args: Any, **options: Any) -> Any:
            way = flight(args, options)
            if way is None:
                return function(*args, **options)
            while isinstance(way.step, Send):
                call_args, call_options = way.arguments()
                try:
                    result = function(*call_args, **call_options)
                except Exception as error:
                    way.failed(error)
                    continue
                if inspect.isawaitable(result):  # a plain function that returns a coroutine, as lambdas do
                    return _finish(function, way, result)
                way.answered(result)
            return way.result()

        wrapper = plain
    try:
        functools.update_wrapper(wrapper, function)
    except (AttributeError, TypeError):  # an object without a name
        wrapper.__wrapped__ = function
    wrapper.session = session
    return wrapper


async def _finish(function: Any, way: Flight, started: Any) -> Any:
    """The way of an awaited call; `started` is its first attempt where there is one already."""
    while isinstance(way.step, Send):
        try:
            if started is None:
                args, options = way.arguments()
                started = function(*args, **options)
            waiting, started = started, None
            result = await waiting
        except Exception as error:
            way.failed(error)
        else:
            way.answered(result)
    return way.result()


@dataclass(frozen=True, slots=True)
class _Begun:
    """A generator with its first item, or with what it returned where it `ended` without one."""

    generator: Any
    value: Any
    ended: bool = False


def _begin(function: Any, args: Any, options: Any) -> _Begun:
    made = function(*args, **options)
    try:
        return _Begun(made, next(made))
    except StopIteration as stop:
        return _Begun(made, stop.value, ended=True)


async def _abegin(function: Any, args: Any, options: Any) -> _Begun:
    made = function(*args, **options)
    try:
        return _Begun(made, await anext(made))
    except StopAsyncIteration:
        return _Begun(made, None, ended=True)


def _rest(begun: _Begun) -> Generator[Any, Any, Any]:
    """A generator from its first item on, with whatever is sent or thrown in."""
    generator, item = begun.generator, begun.value
    while True:
        try:
            sent = yield item
        except GeneratorExit:
            generator.close()
            raise
        except BaseException as error:
            step = functools.partial(generator.throw, error)
        else:
            step = functools.partial(generator.send, sent)
        try:
            item = step()
        except StopIteration as stop:
            return stop.value
