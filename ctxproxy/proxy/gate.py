"""`POST /ctxproxy/gate`: may this agent be spawned? The gates of `ctxproxy.gate`, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from ctxproxy import rawjson
from ctxproxy.bodies import BodyTooLarge
from ctxproxy.errors import ConfigError, WireFormatError
from ctxproxy.gate import GateResult
from ctxproxy.gating import Limit, Spawn, as_json, check_spawn
from ctxproxy.messages import ask
from ctxproxy.proxy.access import Access
from ctxproxy.proxy.app import Route, respond
from ctxproxy.proxy.asgi import Receive, Scope, Sender, whole_body
from ctxproxy.wire import WIRES

if TYPE_CHECKING:
    from ctxproxy.runtime import Runtime
    from ctxproxy.settings import Settings

__all__ = ["gate_route"]

_KINDS: Mapping[str, tuple[type, ...]] = {
    "session": (str,),
    "agent": (str,),
    "model": (str,),
    "api": (str,),
    "policy": (str,),
    "messages": (list,),
    "tools": (list,),
    "system": (str, list),
    "estimated_tokens": (int,),
    "output_tokens": (int,),
    "estimated_cost": (int, float),
    "cost_limit": (int, float),
    "warmth": (dict,),
    "plan": (str,),
}


def gate_route(runtime: Callable[[], Runtime | None], settings: Settings, access: Access) -> Route:
    """The route.

    The body is a JSON object: `session`, `agent`, `model`; `messages` (with `api`, `system`, `tools`) or
    `estimated_tokens`; `warmth` and `plan` to hand over; `output_tokens`, `estimated_cost` (USD), `cost_limit` (USD of
    the session, over the setting), `policy` (a preset). The answer has the fields of a GateResult. A prompt that is
    compacted here is remembered: the session's next request gets the same messages.
    """

    async def route(scope: Scope, receive: Receive, send: Sender) -> None:
        names: dict[str, str] = scope["ctxproxy.headers"]
        if scope["method"] != "POST":
            await _refuse(send, 405, "POST is wanted")
            return
        if not access.shows_token(names):
            await _refuse(send, 401, "the token is missing or wrong (header: x-ctxproxy-token, setting: server.token)")
            return
        running = runtime()
        if running is None:
            await _refuse(send, 503, "ctxproxy is starting")
            return
        try:
            body = await whole_body(receive, names, limit=settings.server.max_body_bytes)
            asked = _read(body)
            result = await asyncio.to_thread(_check, running, settings, asked, names)
        except BodyTooLarge as error:
            await _refuse(send, 413, str(error))
        except (ConfigError, WireFormatError) as error:
            await _refuse(send, 400, str(error))
        else:
            await respond(send, 200, as_json(result))

    return route


async def _refuse(send: Sender, status: int, message: str) -> None:
    await respond(send, status, {"error": {"message": message, "type": "gate_error"}})


def _read(body: bytes) -> dict[str, Any]:
    data = rawjson.load(body)
    if not isinstance(data, dict):
        raise WireFormatError("a JSON object is wanted")
    asked = {str(name): value for name, value in cast("dict[Any, Any]", data).items() if value is not None}
    for name, value in asked.items():
        if name not in _KINDS:
            raise WireFormatError(f"{name}: there is no such field; there are {', '.join(_KINDS)}")
        if not isinstance(value, _KINDS[name]) or isinstance(value, bool):
            raise WireFormatError(f"{name}: must be a {' or '.join(kind.__name__ for kind in _KINDS[name])}")
        if isinstance(value, int | float) and not 0 <= value < 1e15:
            raise WireFormatError(f"{name}: {value} is not allowed; it can't be negative")
    if "messages" not in asked and "estimated_tokens" not in asked:
        raise WireFormatError("messages or estimated_tokens is missing")
    return asked


def _check(runtime: Runtime, settings: Settings, asked: dict[str, Any], headers: Mapping[str, str]) -> GateResult:
    model, session, api = asked.get("model", ""), asked.get("session", ""), asked.get("api", "chat")
    policy = settings.policy_for(model, asked.get("policy"))
    call = None
    if "messages" in asked:
        request = ask(asked["messages"], model=model, system=asked.get("system"), tools=asked.get("tools"), api=api)
        account = settings.account(headers, secret=runtime.secret)
        call = runtime.call(api=WIRES[api].api, body=request.body, account=account, policy=policy)
    limit = asked.get("cost_limit", settings.gate.cost_limit)
    return check_spawn(
        runtime,
        Spawn(
            session=session,
            agent=asked.get("agent", ""),
            policy=policy,
            info=runtime.model(model, headers, None, None),
            call=call,
            tokens=asked.get("estimated_tokens", 0),
            warmth=asked.get("warmth"),
            plan=asked.get("plan"),
            output=asked.get("output_tokens"),
            cost=asked.get("estimated_cost"),
            limits=(Limit(spent=runtime.monitor.spent(session), limit=limit),),
        ),
    )
