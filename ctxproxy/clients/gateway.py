"""A callback for people who run LiteLLM's own proxy: it compacts a request before the proxy routes it."""

from __future__ import annotations

import logging
import sys
from collections import OrderedDict
from collections.abc import Mapping
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any

from ctxproxy.clients import litellm as functions
from ctxproxy.clients.arguments import WAYS, Request, request_of
from ctxproxy.clients.litellm_errors import refused, unsent
from ctxproxy.clients.litellm_streams import usage_of
from ctxproxy.clients.routes import route_of
from ctxproxy.clients.seam import Seam
from ctxproxy.effects import Answer, Call, Outcome, Prepared, drive
from ctxproxy.errors import ContextOverflowError, WireFormatError
from ctxproxy.monitor import Finished
from ctxproxy.reaction import verdict_of

if TYPE_CHECKING:
    from ctxproxy.policy import Mode, Policy
    from ctxproxy.runtime import Runtime

__all__ = ["GatewayCallback"]

_log = logging.getLogger("ctxproxy.clients")
_CustomLogger: Any = import_module("litellm.integrations.custom_logger").CustomLogger
_PENDING = 4_096  # requests on their way, whose answers teach something

# What the proxy calls the functions, where that is not their own name.
_NAMES: Mapping[str, str] = {"completion": "acompletion", "responses": "aresponses"}


class GatewayCallback(_CustomLogger):
    """Compacts each request before LiteLLM's proxy routes it. In a file beside the proxy's configuration:

        from ctxproxy import GatewayCallback
        handler = GatewayCallback(policy="default")

    and in the configuration, where that file is ctxproxy_handler.py:

        litellm_settings:
          callbacks: ctxproxy_handler.handler

    Such a callback only sees a request before it is sent and hears how it ended. So it works by measuring: it
    replays earlier compactions, compacts from the policy's thresholds on, and refuses with HTTP 400 what certainly
    can't fit. It can't send a refused request again: the first prompt that a provider refuses although it measured as
    fitting (a model whose window is not known, above all) reaches the client as an error, or goes to the proxy's
    own `context_window_fallbacks`. What the refusal says of the window is remembered, so that the next turn is
    compacted before it is sent. Nor does it ask a model for summaries. Put `ctxproxy serve` in front of or behind the
    proxy where refusals are to be cured as well.

    Args:
        policy: the rules, or the name of a preset.
        window: tokens of every model's window; None to take what the proxy's model list or the catalogue says.
        runtime: memory, archive and settings; a new one by default.
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
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self._ctxproxy_seam = Seam(policy=policy, window=window, runtime=runtime, mode=mode)
        self._pending: OrderedDict[str, tuple[Call, Prepared]] = OrderedDict()
        self._lock = Lock()

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        """The data of the request, with another conversation where one was due.

        Raises:
            ContextOverflowError: it certainly can't fit; it is litellm.ContextWindowExceededError as well.
        """
        name = _NAMES.get(call_type, call_type)
        if name not in WAYS or self._ctxproxy_seam.policy.mode == "off":
            return data
        try:
            return await functions.aside(self._prepare, user_api_key_dict, data, name)
        except ContextOverflowError as error:
            raise unsent(functions.library, error) from error
        except Exception:
            _log.exception("a fault in ctxproxy; the call goes on as if it were not there")
            return data

    def _prepare(self, key: Any, data: dict[str, Any], name: str) -> dict[str, Any]:
        seam = self._ctxproxy_seam
        # The proxy's router, where this runs in the proxy: its module is loaded there, and only there.
        router: Any = getattr(sys.modules.get("litellm.proxy.proxy_server"), "llm_router", None)
        route = route_of(seam.runtime, data, router, window=seam.window)
        given: Request | None = request_of(WAYS[name], data, model=route.model)
        if given is None:
            return data
        call = seam.runtime.call(
            api=given.way.api,
            body=given.body,
            upstream="litellm-proxy",
            account=str(getattr(key, "token", None) or getattr(key, "api_key", None) or "anonymous"),
            policy=seam.policy,
            window=seam.window or route.window,
        )
        try:
            prepared: Prepared = drive(seam.runtime.engine.prepare(call), seam.runtime.perform)
        except WireFormatError:
            return data
        except ContextOverflowError:
            if route.falls_back:
                return data
            raise
        self._remember(str(data.get("litellm_call_id") or ""), call, prepared)
        return given.edited(prepared.body)

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Learn from what the provider counted."""
        found = self._forget(str(kwargs.get("litellm_call_id") or ""))
        if found is not None:
            self._finish(*found, Answer(status=200), *usage_of(response_obj))

    async def async_post_call_failure_hook(
        self,
        request_data: dict[str, Any],
        original_exception: Exception,
        user_api_key_dict: Any,
        traceback_str: str | None = None,
    ) -> None:
        """Learn the window that a refusal states. The error itself goes on to the client as it is."""
        found = self._forget(str(request_data.get("litellm_call_id") or ""))
        if found is None:
            return
        call, prepared = found
        answer = refused(original_exception, call.wire)
        verdict = verdict_of(answer, call, prepared)
        if verdict is not None and verdict.kind == "token_overflow" and verdict.context_window:
            key = (call.upstream, call.scope, prepared.conversation.model)
            self._ctxproxy_seam.runtime.engine.limits.learn(key, verdict.context_window, now=call.now)
        self._finish(call, prepared, answer)

    def _finish(
        self, call: Call, prepared: Prepared, answer: Answer, usage: Any = None, stop: str | None = None
    ) -> None:
        outcome = Outcome(answer=answer, report=prepared.report, prepared=prepared, compaction=prepared.compaction)
        account = call.scope.partition(":")[2]
        self._ctxproxy_seam.runtime.finished(
            Finished(id="", call=call, outcome=outcome, status=answer.status, account=account, upstream=call.upstream),
            usage,
            stop=stop,
        )

    def _remember(self, id: str, call: Call, prepared: Prepared) -> None:
        with self._lock:
            self._pending[id] = call, prepared
            while len(self._pending) > _PENDING:
                self._pending.popitem(last=False)

    def _forget(self, id: str) -> tuple[Call, Prepared] | None:
        with self._lock:
            return self._pending.pop(id, None)
