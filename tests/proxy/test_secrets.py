"""Keys are sent by every way a client has, through everything that can go wrong; then none is found anywhere of ours."""

from __future__ import annotations

import logging
import socket
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from provider import FakeProvider
from provider.wordings import Problem
from serving import Served, serving

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
TOKEN = "tok-5f2ad1c0-proxy"
CONFIGURED = "sk-9c1e77b2-config"
PASSWORD = "pw-41d8e0aa-basic"
BASIC = b64encode(f"ann:{PASSWORD}".encode()).decode()
SENT = {
    "authorization": "sk-0b6f3d12-bearer",
    "x-api-key": "sk-aa17c9e4-anthropic",
    "api-key": "sk-c3307be8-azure",
    "query": "sk-71fe02d6-query",
    "proxy-authorization": "sk-8e44d0b1-forward",
    "cookie": "sk-2d95ce63-cookie",
    "cut-authorization": "sk-65ab19f0-unparted",
}
SECRETS = (TOKEN, CONFIGURED, PASSWORD, BASIC, *SENT.values())


class Kept(logging.Handler):
    """All records, as text, tracebacks included, whatever their level."""

    def __init__(self) -> None:
        super().__init__(1)
        self.lines: list[str] = []
        self.setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def kept() -> Iterator[Kept]:
    root, handler = logging.getLogger(), Kept()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    # Other libraries of this process (the client among them) may log what they send; ours and the server's may not.
    own = [logging.getLogger(name) for name in ("ctxproxy", "uvicorn", "uvicorn.error", "aiohttp", "asyncio")]
    levels = [logger.level for logger in own]
    for logger in own:
        logger.setLevel(logging.DEBUG)
    yield handler
    for logger, level in zip(own, levels, strict=True):
        logger.setLevel(level)
    root.setLevel(before)
    root.removeHandler(handler)


def ways() -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Headers and query of a request, one for each way of showing a key."""
    for name, value in SENT.items():
        if name == "query":
            yield {}, {"key": value, "api-version": "1"}
        elif name == "cut-authorization":
            yield {"authorization": value}, {}  # without a scheme
        else:
            yield {name: f"Bearer {value}" if "authorization" in name else value}, {}
    yield {"x-ctxproxy-token": TOKEN}, {}
    yield {"x-ctxproxy-token": TOKEN + "x", "authorization": f"Bearer {SENT['authorization']}"}, {}


def body(turns: int, *, stream: bool = False) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "count to ten " * 8}]
    for n in range(turns):
        messages += [{"role": role, "content": f"{role} {n} " * 40} for role in ("assistant", "user")]
    return {"model": "m", "max_tokens": 32, "messages": messages, "stream": stream}


def huge() -> dict[str, Any]:
    return {"model": "m", "max_tokens": 32, "messages": [{"role": "user", "content": "tide " * 20_000}]}


def shown(request: Any) -> Problem:
    """An upstream that says which key it refuses, as some do."""
    keys = " ".join(request.header(name) for name in ("authorization", "x-api-key", "api-key"))
    return Problem(401, f'{{"error": {{"message": "Incorrect API key: {keys} {request.target}"}}}}'.encode())


@contextmanager
def proxied(upstreams: dict[str, Any], folder: Path) -> Iterator[Served]:
    with serving(
        "",
        upstreams=upstreams,
        window=2_500,
        policy={"summaries": False},
        server={"token": TOKEN, "max_body_bytes": 300_000},
        ledger={"url": f"sqlite:{folder / 'ledger.sqlite'}", "scope": "token"},
        archive={"mode": "disk", "dir": str(folder / "archive")},
        logging={"log_file": str(folder / "events.yaml"), "verbose": True},
    ) as proxy:
        yield proxy


def visit(proxy: Served) -> list[str]:
    """What the proxy itself says of what happened."""
    found: list[str] = []
    with httpx.Client(base_url=proxy.url, timeout=60) as client:
        for headers, query in ways():
            for path in ("metrics", "status", "stats", "events", "dashboard", "nothing"):
                for token in ({"x-ctxproxy-token": TOKEN}, {}):
                    answer = client.get(f"/ctxproxy/{path}", headers={**headers, **token}, params=query)
                    found += [answer.text, str(answer.headers)]
    return found


def exercise(proxy: Served, provider: FakeProvider | None) -> list[str]:
    """Every way of showing a key through every outcome; the bodies and headers that are ours."""
    ours: list[str] = []
    headers: dict[str, str] = {}
    query: dict[str, str] = {}

    def post(path: str, value: Any, *, own: bool, **more: Any) -> httpx.Response:
        answer = client.post(path, headers=headers, params=query, **{"json": value, **more})
        ours.append(str({k: v for k, v in answer.headers.items() if own or k.startswith("x-ctxproxy")}))
        if own:
            ours.append(answer.text)
        return answer

    with httpx.Client(base_url=proxy.url, timeout=60) as client:
        for shown_by, asked in ways():
            headers, query = shown_by, asked
            for path in (CHAT, MESSAGES):
                if provider is None:
                    assert post(path, body(1), own=True).status_code == 502
                    continue
                assert post(path, body(1), own=True).status_code == 200
                cut = post(path, body(12, stream=True), own=True).headers
                assert int(cut["x-ctxproxy-tokens-after"]) < int(cut["x-ctxproxy-tokens-before"])
                assert post(path, huge(), own=True).status_code == 400
                assert post(path, None, own=True, json=None, content=b"x" * 300_001).status_code == 413
                provider.answer = shown
                assert post(path, body(2), own=False).status_code == 401
                provider.answer = None
                provider.fail_plan = ["500"]
                assert post(path, body(3), own=False).status_code == 500
                provider.fail_plan = ["drop-body"]
                with pytest.raises(httpx.RemoteProtocolError):
                    post(path, body(3), own=False)
            if provider is None:
                assert post("/v1/files", {}, own=True).status_code == 502
    return ours


def found_in(folder: Path, texts: list[str]) -> list[tuple[str, str]]:
    """Which secret lies where."""
    heaps = [("text", text.encode("utf-8", "replace")) for text in texts]
    heaps += [(str(path), path.read_bytes() + str(path).encode()) for path in folder.rglob("*") if path.is_file()]
    return [(where, secret) for where, data in heaps for secret in SECRETS if secret.encode() in data]


@pytest.mark.parametrize("keyed", ["client", "config", "address"])
def test_no_key_is_found_anywhere(keyed: str, tmp_path: Path, kept: Kept) -> None:
    with FakeProvider(window=2_500, wording="openai", rules=False) as provider:
        address = provider.base_url.replace("://", f"://ann:{PASSWORD}@") if keyed == "address" else provider.base_url
        upstreams = {"test": {"base_url": address, **({"key": CONFIGURED} if keyed == "config" else {})}}
        with proxied(upstreams, tmp_path) as proxy:
            texts = exercise(proxy, provider)
            texts += visit(proxy)
            assert proxy.app.relay is not None
            # A fault of ours, of the kind that a bug makes: what is on the stack is logged.
            proxy.app.relay.runtime.engine.meter = None  # type: ignore[assignment]
            key = {"authorization": f"Bearer {SENT['authorization']}", "x-api-key": SENT["x-api-key"]}
            answer = httpx.post(proxy.url + CHAT, json=body(12), headers=key, params={"key": SENT["query"]})
            texts += [answer.text]
            assert any("a fault in ctxproxy" in line for line in kept.lines)
        sent = [request.header("authorization") for request in provider.model_requests]
    assert (tmp_path / "ledger.sqlite").stat().st_size
    assert list((tmp_path / "archive").rglob("*"))
    assert (tmp_path / "events.yaml").stat().st_size
    mine = [line for line in kept.lines if not line.startswith(("httpx", "httpcore"))]
    assert mine
    assert found_in(tmp_path, [*texts, *mine]) == []
    if keyed == "address":
        assert set(sent) == {f"Basic {BASIC}"}
    if keyed == "config":
        assert set(sent) == {f"Bearer {CONFIGURED}"}
    if keyed != "client":
        assert not any(TOKEN in value for value in sent)


@pytest.mark.parametrize("keyed", ["client", "address"])
def test_an_upstream_that_is_down_is_named_without_its_password(keyed: str, tmp_path: Path, kept: Kept) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{free.getsockname()[1]}"
        address = f"http://ann:{PASSWORD}@{where}" if keyed == "address" else f"http://{where}"
        with proxied({"test": {"base_url": address, "key": CONFIGURED}}, tmp_path) as proxy:
            texts = exercise(proxy, None) + visit(proxy)
    assert any(where in text for text in texts)
    mine = [line for line in kept.lines if not line.startswith(("httpx", "httpcore"))]
    assert any("can't be reached" in line for line in mine)
    assert found_in(tmp_path, [*texts, *mine]) == []


def test_the_effective_settings_hide_them() -> None:
    from ctxproxy.config import load

    upstream = {"base_url": f"https://ann:{PASSWORD}@models.example/v1", "key": CONFIGURED}
    settings = load(None, env={}, overrides={"upstreams": {"a": upstream}, "server": {"token": TOKEN}})
    told = f"{settings.values()} {settings!r}"
    assert "models.example/v1" in told
    assert not [secret for secret in SECRETS if secret in told]


def test_whoever_is_not_admitted_is_refused(tmp_path: Path) -> None:
    with (
        FakeProvider(window=2_500, wording="openai", rules=False) as provider,
        proxied({"test": {"base_url": provider.base_url}}, tmp_path) as proxy,
    ):
        one = {"authorization": "Bearer sk-one"}
        assert httpx.post(proxy.url + CHAT, json=body(12), headers=one).status_code == 200
        token = {"x-ctxproxy-token": TOKEN}

        def get(path: str, headers: dict[str, str]) -> httpx.Response:
            return httpx.get(f"{proxy.url}/ctxproxy/{path}", headers=headers)

        id = get("status", token).json()["compactions"][0]["id"]
        edits = get(f"compactions/{id}", {**token, **one}).json()["edits"]
        original = next(edit["archive"] for edit in edits if edit.get("archive"))
        assert get(f"archive/{original}", {**token, **one}).status_code == 200
        for other in ({}, {"authorization": "Bearer sk-two"}, {"x-api-key": "sk-one2"}):
            assert get(f"archive/{original}", {**token, **other}).status_code == 404
            assert get(f"compactions/{id}", {**token, **other}).status_code == 404
        for shown in (
            {},
            {"x-ctxproxy-token": ""},
            {"x-ctxproxy-token": TOKEN[:-1]},
            {"x-ctxproxy-token": TOKEN + "0"},
        ):
            for path in ("status", "events", f"archive/{original}", f"compactions/{id}", "dashboard"):
                assert get(path, {**shown, **one}).status_code == 401
        before = provider.calls
        for foreign in ({"host": "evil.example"}, {"origin": "https://evil.example"}, {"origin": "null"}):
            assert get("status", {**token, **foreign}).status_code == 403
            assert httpx.post(proxy.url + CHAT, json=body(1), headers={**one, **foreign}).status_code == 403
        assert provider.calls == before
