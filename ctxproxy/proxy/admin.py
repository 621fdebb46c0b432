"""What a person may look at over HTTP: status, events, compactions, originals, and the dashboard that shows them.

Everything here needs the start-up token, as the header `x-ctxproxy-token` or as `?token=` (a browser's address bar
sends no headers). Texts are scoped to the credential of the request besides: its own, or none.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cache, partial
from importlib import resources
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote

import msgspec

from ctxproxy.errors import LedgerError
from ctxproxy.ledger import Archive
from ctxproxy.monitor import Event, Monitor
from ctxproxy.monitor.advice import advise
from ctxproxy.monitor.diff import explained
from ctxproxy.monitor.metrics import Metrics
from ctxproxy.monitor.summary import Tally
from ctxproxy.proxy.access import Access
from ctxproxy.proxy.app import Route, respond
from ctxproxy.proxy.asgi import Receive, Scope, Sender
from ctxproxy.runtime import Runtime
from ctxproxy.wire import WIRES

if TYPE_CHECKING:
    from ctxproxy.proxy.relay import Relay
    from ctxproxy.settings import Settings

__all__ = ["Admin"]

_Query = Mapping[str, str]
_Answer = Callable[[Runtime, str, _Query, dict[str, str]], Any]
_MOST_EVENTS = 1_000  # of one answer
_ID = re.compile(r"[0-9A-Za-z_-]{1,128}")


class Admin:
    """The routes under `/ctxproxy/` for whoever shows the token.

    Args:
        relay: gives the running relay, None before it is there.
    """

    def __init__(self, *, settings: Settings, access: Access, relay: Callable[[], Relay | None]) -> None:
        policy = settings.policy_for()
        self._settings = settings
        self._access = access
        self._relay = relay
        self._tally = Tally(thresholds=policy.thresholds, shares=policy.shares)
        self._metrics = Metrics()
        self._run = secrets.token_hex(4)
        self._started = time.time()

    def watch(self, monitor: Monitor) -> None:
        """Count what the monitor tells from now on, and what it has kept."""
        for event in monitor.events():
            self._tally.add(event)
        monitor.listen(self._tally.add)
        monitor.listen(self._metrics.add)

    def routes(self) -> dict[str, Route]:
        """Paths and what answers them."""
        return {
            "/ctxproxy/status": self._json(self._status),
            "/ctxproxy/stats": self._json(self._stats),
            "/ctxproxy/events": self._json(self._events),
            "/ctxproxy/compactions/": self._json(self._compaction),
            "/ctxproxy/archive/": self._admitted(self._archive),
            "/ctxproxy/dashboard": self._admitted(_dashboard),
            "/ctxproxy/metrics": self._exposition,
        }

    # -- admission

    def _admitted(self, answer: Route) -> Route:
        async def route(scope: Scope, receive: Receive, send: Sender) -> None:
            if scope["method"] not in ("GET", "HEAD"):
                await respond(send, 405, {"error": {"message": "GET is wanted", "type": "method_not_allowed"}})
                return
            shown = _query(scope).get("token", "")
            token = self._access.token
            by_query = bool(token) and hmac.compare_digest(shown.encode(), (token or "").encode())
            if not by_query and not self._access.shows_token(scope["ctxproxy.headers"]):
                message = (
                    "the start-up token is missing or wrong: `ctxproxy dashboard` prints an address that has it "
                    "(header: x-ctxproxy-token, setting: server.token)"
                )
                await respond(send, 401, {"error": {"message": message, "type": "unauthorized"}})
                return
            await answer(scope, receive, send)

        return route

    def _json(self, answer: _Answer) -> Route:
        async def route(scope: Scope, receive: Receive, send: Sender) -> None:
            relay = self._relay()
            if relay is None:
                await respond(send, 503, {"error": {"message": "ctxproxy is starting", "type": "server_error"}})
                return
            name = unquote(scope["path"].rpartition("/")[2])
            try:
                found = await asyncio.to_thread(answer, relay.runtime, name, _query(scope), scope["ctxproxy.headers"])
            except LedgerError as error:
                await respond(send, 503, {"error": {"message": str(error), "type": "store_failed"}})
                return
            if found is None:
                await respond(send, 404, {"error": {"message": f"there is no {name!r} here", "type": "not_found"}})
                return
            await _send(send, msgspec.json.encode(found), b"application/json")

        return self._admitted(route)

    def _scopes(self, runtime: Runtime, names: dict[str, str]) -> list[str]:
        account = self._settings.account(names, secret=runtime.secret)
        return [f"{api}:{account}" for api in WIRES]

    # -- answers

    def _status(self, runtime: Runtime, name: str, query: _Query, names: dict[str, str]) -> dict[str, Any]:
        from ctxproxy import __version__

        snapshot = self._tally.snapshot()
        relay = self._relay()
        return {
            "version": __version__,
            "run": self._run,
            "pid": os.getpid(),
            "mode": self._settings.mode,
            "started": self._started,
            "now": time.time(),
            "last": runtime.monitor.since(1 << 62)[0],
            "faults": {
                "proxy": relay.faults if relay else 0,
                "store": runtime.store_faults,
                "edits": runtime.engine.faults,
            },
            **_plain(snapshot),
            "advice": [asdict(advice) for advice in advise(snapshot)],
        }

    def _stats(self, runtime: Runtime, name: str, query: _Query, names: dict[str, str]) -> dict[str, Any]:
        snapshot = self._tally.snapshot()
        return {
            "totals": {**asdict(snapshot.totals), "cache_share": snapshot.totals.cache_share},
            "models": [asdict(model) for model in snapshot.models],
            "tools": [asdict(tool) for tool in snapshot.tools],
            "advice": [asdict(advice) for advice in advise(snapshot)],
            "began": snapshot.began,
            "at": snapshot.at,
        }

    def _events(self, runtime: Runtime, name: str, query: _Query, names: dict[str, str]) -> dict[str, Any]:
        after = query.get("after", "0")
        count, events = runtime.monitor.since(int(after) if after.isascii() and after.isdigit() else 0)
        first = count - len(events)
        events = events[:_MOST_EVENTS]
        return {"run": self._run, "last": first + len(events), "events": [_event(event) for event in events]}

    def _compaction(self, runtime: Runtime, name: str, query: _Query, names: dict[str, str]) -> Any:
        if not _ID.fullmatch(name):
            return None
        for scope in self._scopes(runtime, names):
            entry = runtime.ledger.find(scope, name)
            if entry is not None:
                made = entry.compaction
                restore = partial(_restored, runtime.archive, scope)
                values = {key: value for key, value in asdict(made).items() if key != "edits"}
                return {**values, "available": True, "edits": explained(made, restore)}
        account = self._settings.account(names, secret=runtime.secret)
        for event in reversed(runtime.monitor.events(account=account)):
            if event.type == "compaction" and event.id == name:
                # Its numbers are known, its texts are not: the ledger has a newer one in its place.
                return {
                    **_event(event),
                    "tokens_before": event.before,
                    "tokens_after": event.after,
                    "available": False,
                    "edits": [],
                }
        return None

    async def _archive(self, scope: Scope, receive: Receive, send: Sender) -> None:
        relay = self._relay()
        name = unquote(scope["path"].rpartition("/")[2])
        data: bytes | None = None
        if relay is not None and relay.runtime.archive is not None and _ID.fullmatch(name):
            for place in self._scopes(relay.runtime, scope["ctxproxy.headers"]):
                try:
                    data = await asyncio.to_thread(relay.runtime.archive.restore, place, name)
                except LedgerError as error:
                    await respond(send, 503, {"error": {"message": str(error), "type": "store_failed"}})
                    return
                if data is not None:
                    break
        if data is None:
            await respond(send, 404, {"error": {"message": "there is no such original", "type": "not_found"}})
            return
        await _send(send, data, b"text/plain; charset=utf-8")

    async def _exposition(self, scope: Scope, receive: Receive, send: Sender) -> None:
        # No token on loopback: there are counts and model names in it, nothing else.
        body, kind = self._metrics.exposition()
        await _send(send, body, kind.encode())


def _restored(archive: Archive | None, scope: str, id: str) -> bytes | None:
    return archive.restore(scope, id) if archive is not None else None


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value)


def _event(event: Event) -> dict[str, Any]:
    return {**{name: getattr(event, name) for name in Event.__slots__}, "by_category": dict(event.by_category)}


def _query(scope: Scope) -> dict[str, str]:
    found = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=16)
    return {name: values[-1] for name, values in found.items()}


async def _send(send: Sender, body: bytes, kind: bytes, more: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    headers = [
        (b"content-type", kind),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        *more,
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@cache
def _page() -> tuple[bytes, bytes]:
    """The dashboard, and a policy that lets only its own script and style run."""
    text = resources.files("ctxproxy.proxy").joinpath("dashboard.html").read_text("utf-8")

    def digest(tag: str) -> str:
        inner = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(i.encode()).digest()).decode()}'" for i in inner)

    policy = (
        f"default-src 'none'; script-src {digest('script')}; style-src {digest('style')}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text.encode(), policy.encode()


async def _dashboard(scope: Scope, receive: Receive, send: Sender) -> None:
    body, policy = _page()
    await _send(send, body, b"text/html; charset=utf-8", ((b"content-security-policy", policy),))
