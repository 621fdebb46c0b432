"""A LangChain middleware for chat models that take no HTTP client, as langchain-anthropic's ChatAnthropic.

    agent = create_agent(ChatAnthropic(model="claude-sonnet-4-5"), tools, middleware=[ContextMiddleware()])

It gives the model call a copy of the chat model whose SDK clients are wrapped, so that all that holds for a wrapped
client holds here: the agent's own history stays whole, compactions stick, refusals are retried, streams pass.
"""

from __future__ import annotations

import copy
import threading
from typing import TYPE_CHECKING, Any

from ctxproxy.clients import wrap
from ctxproxy.clients.errors import typed
from ctxproxy.errors import ContextOverflowError
from ctxproxy.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ctxproxy.policy import Mode, Policy

    class AgentMiddleware:  # LangChain's, which is no dependency
        """The part of LangChain's class that is used here."""

else:
    try:
        from langchain.agents.middleware import AgentMiddleware
    except ImportError as error:
        raise ImportError("ContextMiddleware needs LangChain: pip install langchain") from error

__all__ = ["ContextMiddleware", "wrap_chat_model"]

# Where chat models keep their SDK clients: langchain-anthropic makes them when they are first used, langchain-openai
# when the model is made, and calls them through the resources below.
_LAZY = ("_client", "_async_client")
_ROOTS = (("root_client", "client"), ("root_async_client", "async_client"))
_KEPT_MODELS = 32


class ContextMiddleware(AgentMiddleware):
    """Keeps the prompts of an agent inside its model's window.

    Make one for each agent; it may be shared by threads and by sync and async runs. The chat model is one of
    langchain-anthropic or langchain-openai; for the latter `http_client=ctxproxy.http_client()` does the same.

    Args:
        policy, window, runtime, mode: as in `ctxproxy.wrap`.

    Raises:
        ConfigError: there is no such preset.
        TypeError: at the first call: the chat model has no client of openai or anthropic.

    A prompt that does not fit raises LangChain's `ContextOverflowError`, which is ctxproxy's as well.
    """

    def __init__(
        self,
        *,
        policy: str | Policy | None = None,
        window: int | None = None,
        runtime: Runtime | None = None,
        mode: Mode | None = None,
    ) -> None:
        super().__init__()
        self.runtime = runtime or Runtime()
        self._options: dict[str, Any] = {"policy": policy, "window": window, "runtime": self.runtime, "mode": mode}
        self._wrapped: dict[int, tuple[Any, Any]] = {}
        self._lock = threading.Lock()

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Call the model through wrapped clients."""
        try:
            return handler(request.override(model=self._model(request.model)))
        except Exception as error:
            raise _both(error) from error.__cause__

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Call the model through wrapped clients."""
        try:
            return await handler(request.override(model=self._model(request.model)))
        except Exception as error:
            raise _both(error) from error.__cause__

    def _model(self, model: Any) -> Any:
        with self._lock:
            known = self._wrapped.get(id(model))
            if known is None:
                if len(self._wrapped) >= _KEPT_MODELS:
                    self._wrapped.clear()
                # The model is kept beside its copy, so that nothing else gets its id.
                known = self._wrapped[id(model)] = (model, wrap_chat_model(model, **self._options))
            return known[1]


def _both(error: Exception) -> Exception:
    """LangChain's error for an overflow, made an instance of ours too: LangChain puts its own in place of the SDK's."""
    cause = error.__cause__
    if isinstance(error, ContextOverflowError) or not isinstance(cause, ContextOverflowError):
        return error
    return typed(error, cause, sent=False)


def wrap_chat_model(model: Any, **options: Any) -> Any:
    """A copy of a chat model of langchain-anthropic or langchain-openai, with wrapped SDK clients.

    For code that calls the model itself; an agent takes it in place of the model as well.

    Args:
        model: a ChatAnthropic, a ChatOpenAI, or a subclass. It stays as it is.
        options: those of `ctxproxy.wrap`.

    Raises:
        TypeError: it has no client of openai or anthropic.
    """
    options = {**options, "runtime": options.get("runtime") or Runtime()}  # one memory for sync and async
    made = copy.copy(model)
    state: dict[str, Any] = made.__dict__
    found = False
    for name in _LAZY:
        client = getattr(model, name, None)
        if client is not None:
            state[name] = wrap(client, **options)
            found = True
    for root, resource in _ROOTS:
        client = getattr(model, root, None)
        if client is not None:
            state[root] = wrap(client, **options)
            state[resource] = state[root].chat.completions
            found = True
    if not found:
        raise TypeError(f"{type(model).__module__}.{type(model).__qualname__} has no client of openai or anthropic")
    return made
