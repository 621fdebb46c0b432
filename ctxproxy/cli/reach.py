"""What `ctxproxy doctor` asks the upstreams: do they answer, what do they list, which windows are known."""

from __future__ import annotations

import asyncio
import email.utils
import importlib.util
import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, cast

import aiohttp
from yarl import URL

from ctxproxy.cli.checks import Check, address
from ctxproxy.config import Settings
from ctxproxy.errors import ConfigError
from ctxproxy.ledger import MemoryLedger
from ctxproxy.monitor import Monitor
from ctxproxy.proxy.app import new_session
from ctxproxy.proxy.network import Way, forward_proxy, way
from ctxproxy.proxy.upstreams import ANTHROPIC, OPENAI, Upstream, target
from ctxproxy.runtime import Runtime

__all__ = ["remote_checks"]

_SECONDS = 10.0  # for one answer of an upstream
_BYTES = 4 << 20  # of one answer
_SKEW = 60.0  # seconds of the clock that signatures and tokens of providers still bear
_LISTED = 12  # models that are named each; more become a number


async def remote_checks(settings: Settings) -> AsyncIterator[Check]:
    """Every upstream and what it lists, then the models that only the settings name."""
    runtime = settings.runtime(ledger=MemoryLedger(), archive=None, keep_originals=False, monitor=Monitor())
    told: set[str] = set()
    async with new_session(connect_seconds=min(_SECONDS, settings.server.connect_timeout)) as session:
        for upstream in _upstreams(settings):
            async for check in _upstream(session, upstream, settings, runtime, told):
                yield check
    for name in settings.models:
        if not set(name) & set("*?[") and name not in told:
            yield _model(name, None, settings, runtime, upstream=None)


def _upstreams(settings: Settings) -> list[Upstream]:
    if not settings.upstreams:
        return [OPENAI, ANTHROPIC]
    return [
        Upstream(
            name=name, base_url=u.address, basic=u.basic, wires=tuple(u.wires), models=tuple(u.models), key=u.key,
            window=u.window, ca_file=u.ca_file,
        )
        for name, u in settings.upstreams.items()
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    value: Any


async def _get(session: aiohttp.ClientSession, url: URL, by: Way, headers: Mapping[str, str] | None = None) -> _Answer:
    async with (
        asyncio.timeout(_SECONDS),
        session.get(url, headers=headers, allow_redirects=False, **by.options) as answer,
    ):
        body = b""
        while len(body) < _BYTES and (chunk := await answer.content.readany()):
            body += chunk
        try:
            value: Any = json.loads(body)
        except ValueError:
            value = None
        return _Answer(answer.status, {k.lower(): v for k, v in answer.headers.items()}, value)


async def _upstream(
    session: aiohttp.ClientSession, upstream: Upstream, settings: Settings, runtime: Runtime, told: set[str]
) -> AsyncIterator[Check]:
    name = f"upstream {upstream.name}"
    if upstream.translated:
        there = importlib.util.find_spec("litellm") is not None
        message = f"{upstream.base_url}: through the litellm library" + ("" if there else ", which is not installed")
        yield Check(name=name, status="ok" if there else "fail", message=message)
        return
    try:
        by = way(upstream.base_url, name=upstream.name, ca_file=upstream.ca_file)
    except ConfigError as error:
        yield Check(name=name, status="fail", message=str(error))
        return
    url = target(upstream, b"/v1/models", b"")
    began = time.perf_counter()
    version = {"anthropic-version": "2023-06-01"} if "anthropic" in upstream.base_url else {}
    if upstream.basic is not None:
        version["authorization"] = upstream.basic
    try:
        answer = await _get(session, url, by, version)
        took = time.perf_counter() - began
        keyed = await _get(session, url, by, {**_key(upstream), **version}) if upstream.key else None
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        yield Check(name=name, status="fail", message=_unreachable(upstream, error))
        return
    yield _answered(name, upstream, answer, keyed, took)
    yield _clock(answer, upstream)
    models = _list(keyed or answer)
    served = await _served(session, upstream, by, models)
    if served.note is not None:
        yield served.note
    wanted = {model: window for model, window in served.windows.items() if _takes(upstream, model)}
    for model in list(wanted)[:_LISTED]:
        told.add(model)
        yield _model(model, wanted[model], settings, runtime, upstream=upstream)
    if len(wanted) > _LISTED:
        rest = list(wanted)[_LISTED:]
        told.update(rest)
        guessed = [
            m for m in rest if runtime.model(m, {}, _configured(settings, upstream, m), None).source == "default"
        ]
        message = f"{len(rest)} more models; of {len(guessed)} of them the window is not known"
        yield Check(name="window", status="warn" if guessed else "ok", message=message, facts={"unknown": guessed})


def _key(upstream: Upstream) -> dict[str, str]:
    if upstream.wires == ("messages",):
        return {"x-api-key": upstream.key or ""}
    return {"authorization": f"Bearer {upstream.key}"}


def _unreachable(upstream: Upstream, error: Exception) -> str:
    where = address(upstream.base_url)
    setting = f"upstreams.{upstream.name}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", "") or "not trusted"
        return f"{where}: its certificate is refused: {why} (setting: {setting}.ca_file)"
    if isinstance(error, aiohttp.ClientHttpProxyError | aiohttp.ClientProxyConnectionError):
        proxy = forward_proxy(upstream.base_url)
        return (
            f"{where}: the forward proxy {proxy.host if proxy else ''} does not let it through ({type(error).__name__})"
        )
    if isinstance(error, TimeoutError):
        return f"{where}: no answer within {_SECONDS:g} seconds (setting: {setting}.base_url)"
    os_error = getattr(error, "os_error", error)
    why = getattr(os_error, "strerror", None) or type(error).__name__
    return f"{where} can't be reached: {why} (setting: {setting}.base_url)"


def _answered(name: str, upstream: Upstream, answer: _Answer, keyed: _Answer | None, took: float) -> Check:
    where = f"{address(upstream.base_url)} answers in {took * 1e3:.0f} ms"
    facts = {"url": address(upstream.base_url), "status": answer.status, "seconds": round(took, 3)}
    if keyed is not None and keyed.status in (401, 403):
        message = f"{where}, and refuses the key (setting: upstreams.{upstream.name}.key)"
        return Check(name=name, status="fail", message=message, facts=facts)
    if keyed is not None and keyed.status == 200:
        return Check(name=name, status="ok", message=f"{where}, and takes the key", facts=facts)
    if answer.status == 200:
        return Check(name=name, status="ok", message=f"{where}, without a key", facts=facts)
    if answer.status in (401, 403):
        return Check(name=name, status="ok", message=f"{where}, and wants a key, which callers bring", facts=facts)
    if answer.status in (404, 405):
        return Check(name=name, status="ok", message=f"{where}, but lists no models there", facts=facts)
    return Check(name=name, status="warn", message=f"{where}, with status {answer.status}", facts=facts)


def _clock(answer: _Answer, upstream: Upstream) -> Check:
    stated = email.utils.parsedate_to_datetime(answer.headers["date"]) if _date(answer) else None
    if stated is None:
        return Check(name="clock", status="ok", message=f"{upstream.name} tells no time to compare with")
    skew = time.time() - stated.timestamp()
    message = f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} {upstream.name}"
    return Check(name="clock", status="ok" if abs(skew) <= _SKEW else "warn", message=message, facts={"seconds": skew})


def _date(answer: _Answer) -> bool:
    try:
        email.utils.parsedate_to_datetime(answer.headers.get("date", ""))
    except (ValueError, TypeError):
        return False
    return True


# --- windows


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [_object(item) for item in cast("list[Any]", value)] if isinstance(value, list) else []


def _list(answer: _Answer) -> list[dict[str, Any]]:
    value = _object(answer.value)
    return _objects(value.get("data")) or _objects(value.get("models"))


@dataclass(frozen=True, slots=True)
class _Served:
    """Models, with the window that the server itself states; and what kind of server it is, where that matters."""

    windows: Mapping[str, int | None]
    note: Check | None = None


async def _served(session: aiohttp.ClientSession, upstream: Upstream, by: Way, models: list[dict[str, Any]]) -> _Served:
    """vLLM states max_model_len, OpenRouter context_length, llama.cpp /props, Ollama /api/ps (of loaded models)."""
    windows = {str(m.get("id") or m.get("name")): _stated(m) for m in models}
    root = URL(f"{URL(upstream.base_url).origin()}", encoded=True)
    owners = {str(m.get("owned_by")) for m in models}
    if "library" in owners or root.port == 11434:
        return await _ollama(session, root, by, upstream, windows)
    if "llamacpp" in owners:
        value = await _quietly(session, root / "props", by)
        size = _object(value.get("default_generation_settings")).get("n_ctx")
        if isinstance(size, int):
            windows = dict.fromkeys(windows, size)
    return _Served(windows)


async def _ollama(
    session: aiohttp.ClientSession, root: URL, by: Way, upstream: Upstream, windows: dict[str, int | None]
) -> _Served:
    loaded = _objects((await _quietly(session, root / "api" / "ps", by)).get("models"))
    running = {str(m.get("name")): size for m in loaded if isinstance(size := m.get("context_length"), int)}
    windows = {**windows, **running}
    sizes = ", ".join(f"{name} {size:,}" for name, size in running.items())
    message = (
        f"{upstream.name} is Ollama: it cuts a prompt over num_ctx without a word. Loaded: {sizes or 'nothing'}. "
        "Set num_ctx (OLLAMA_CONTEXT_LENGTH) and the same figure here (setting: models.NAME.window)"
    )
    return _Served(windows, Check(name="silent truncation", status="warn", message=message))


async def _quietly(session: aiohttp.ClientSession, url: URL, by: Way) -> dict[str, Any]:
    try:
        return _object((await _get(session, url, by)).value)
    except (aiohttp.ClientError, TimeoutError, OSError):
        return {}


def _stated(model: Mapping[str, Any]) -> int | None:
    known = [model.get(k) for k in ("max_model_len", "context_length", "context_window", "loaded_context_length")]
    known.append(_object(model.get("meta")).get("n_ctx"))  # llama.cpp
    return next((size for size in known if isinstance(size, int) and size > 0), None)


def _takes(upstream: Upstream, model: str) -> bool:
    return not upstream.models or any(fnmatchcase(model, pattern) for pattern in upstream.models)


def _configured(settings: Settings, upstream: Upstream | None, model: str) -> int | None:
    return settings.window_for(model, upstream=upstream.name if upstream else None)


def _model(model: str, served: int | None, settings: Settings, runtime: Runtime, *, upstream: Upstream | None) -> Check:
    info = runtime.model(model, {}, _configured(settings, upstream, model), None)
    facts = {"model": model, "window": info.window, "source": info.source, "served": served}
    text = f"{model}: {info.window:,} tokens ({info.source})"
    if served is not None and served < info.window:
        message = f"{text}, but the server says {served:,} (setting: models.{model}.window)"
        return Check(name="window", status="warn", message=message, facts=facts)
    if info.source == "default":
        said = f"; the server says {served:,}" if served else ""
        message = f"{model}: not known{said}; nothing is compacted before a refusal (setting: models.{model}.window)"
        return Check(name="window", status="warn", message=message, facts=facts)
    return Check(name="window", status="ok", message=text, facts=facts)
