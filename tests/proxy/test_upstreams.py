"""Which server gets a request, and the way there: forward proxies and certificates of one's own, on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from provider import FakeProvider
from serving import serving

from ctxproxy.config import load
from ctxproxy.errors import ConfigError
from ctxproxy.proxy.network import forward_proxy, way
from ctxproxy.proxy.upstreams import ANTHROPIC, OPENAI, Upstream, Upstreams, target

BODY = {"model": "fake-model", "messages": [{"role": "user", "content": "Hi"}]}
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider(window=8192) as found:
        yield found


class Tunnel:
    """A server that hands every connection on to `port`, whatever name was asked for.

    With `tls` it speaks TLS on its own side. Without, it is a forward proxy: CONNECT and absolute addresses.
    """

    def __init__(self, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        self.seen: list[str] = []
        self.heads: list[bytes] = []
        self._port, self._tls = port, tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _start(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
            if self._tls is None:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                method, address, _ = head.split(b" ", 2)
                self.seen.append(f"{method.decode()} {address.decode()}")
                if method == b"CONNECT":
                    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                else:
                    back.write(head)
            await asyncio.gather(_copy(reader, back), _copy(there, writer))

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(65_536):
            writer.write(chunk)
            await writer.drain()
        writer.close()


@contextlib.contextmanager
def tunnel(url_or_port: str | int, **options: Any) -> Iterator[Tunnel]:
    port = url_or_port if isinstance(url_or_port, int) else int(url_or_port.rsplit(":", 1)[1])
    found = Tunnel(port, **options)
    try:
        yield found
    finally:
        found.stop()


def ask(url: str, key: str = "sk-mine") -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"}
    return httpx.post(f"{url}/v1/chat/completions", json=BODY, headers=headers, timeout=30, trust_env=False)


# --- forward proxies


def test_a_forward_proxy_of_the_environment_is_used(provider: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    with tunnel(provider.base_url) as forward:
        monkeypatch.setenv("HTTP_PROXY", f"http://ann:s%40cret@127.0.0.1:{forward.port}")
        with serving("http://models.example/v1", window=8192) as proxy:
            assert ask(proxy.url).status_code == 200
        assert forward.seen == ["POST http://models.example/v1/chat/completions"]
        # ann:s@cret, for the forward proxy only; the key for the provider only.
        assert b"Proxy-Authorization: Basic YW5uOnNAY3JldA==" in forward.heads[0]
        assert provider.requests[0].header("authorization") == "Bearer sk-mine"


def test_a_netrc_file_does_not_touch_a_request(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text("machine models.example login a password b\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with tunnel(provider.base_url) as forward:
        monkeypatch.setenv("http_proxy", f"127.0.0.1:{forward.port}")
        with serving("http://models.example", window=8192) as proxy:
            assert ask(proxy.url).status_code == 200
    assert provider.requests[0].header("authorization") == "Bearer sk-mine"


@pytest.mark.parametrize("no_proxy", ["models.example", "*", ".example"])
def test_no_proxy_keeps_a_host_away_from_it(no_proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    assert str(forward_proxy("https://models.example/v1")) == "http://127.0.0.1:9"
    assert forward_proxy("http://models.example/v1") is None
    monkeypatch.setenv("NO_PROXY", no_proxy)
    assert forward_proxy("https://models.example/v1") is None


def test_loopback_is_never_asked_of_a_forward_proxy(provider: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with serving(provider.base_url, window=8192) as proxy:
        assert ask(proxy.url).status_code == 200


def test_a_proxy_of_another_kind_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://user:pw@127.0.0.1:9")
    with pytest.raises(ConfigError, match=r"socks5://127\.0\.0\.1, and only HTTP proxies") as error:
        way("https://models.example", name="x")
    assert "pw" not in str(error.value)


# --- certificates


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "models.example").configure_cert(context)
    return context


@pytest.fixture
def bundle(authority: trustme.CA, tmp_path: Path) -> str:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return str(tmp_path / "ca.pem")


@pytest.mark.parametrize("how", ["ca_file", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_an_authority_of_ones_own(
    how: str, provider: FakeProvider, server_context: ssl.SSLContext, bundle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tunnel(provider.base_url, tls=server_context) as secure:
        address = f"https://localhost:{secure.port}/v1"
        upstream: dict[str, Any] = {"base_url": address}
        if how == "ca_file":
            upstream["ca_file"] = bundle
        else:
            monkeypatch.setenv(how, bundle)
        with serving(address, window=8192, upstreams={"test": upstream}) as proxy:
            assert ask(proxy.url).status_code == 200


def test_an_authority_that_is_not_known_is_refused_with_the_setting(
    provider: FakeProvider, server_context: ssl.SSLContext
) -> None:
    with (
        tunnel(provider.base_url, tls=server_context) as secure,
        serving(f"https://localhost:{secure.port}/v1", window=8192) as proxy,
    ):
        answer = ask(proxy.url)
    assert answer.status_code == 502
    assert "certificate" in answer.text
    assert "upstreams.test.ca_file" in answer.text
    assert not provider.requests


def test_tls_through_a_forward_proxy(
    provider: FakeProvider, server_context: ssl.SSLContext, bundle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tunnel(provider.base_url, tls=server_context) as secure, tunnel(secure.port) as forward:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{forward.port}")
        address = "https://models.example/v1"
        with serving(address, window=8192, upstreams={"t": {"base_url": address, "ca_file": bundle}}) as proxy:
            assert ask(proxy.url).status_code == 200
        assert forward.seen == ["CONNECT models.example:443"]
        assert b"sk-mine" not in forward.heads[0]


def test_a_file_of_certificates_that_is_wrong_is_told_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty.pem").write_text("")
    for path, told in ((tmp_path / "none.pem", "No such file"), (tmp_path / "empty.pem", "no certificate in PEM form")):
        with pytest.raises(ConfigError, match=told) as error:
            way("https://a.example", name="mine", ca_file=str(path))
        assert error.value.key == "upstreams.mine.ca_file"
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(path))
        with pytest.raises(ConfigError, match=f"REQUESTS_CA_BUNDLE: .*{told}"):
            way("https://a.example", name="mine")
        monkeypatch.delenv("REQUESTS_CA_BUNDLE")


# --- which server, which address


def test_a_key_of_the_environment_replaces_the_clients(provider: FakeProvider, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(f"upstreams:\n  mine:\n    base_url: {provider.base_url}\n    key: ${{MY_KEY}}\n")
    settings = load(str(config), env={"MY_KEY": "sk-from-env"})
    assert settings.upstreams["mine"].key == "sk-from-env"
    upstream = settings.upstreams["mine"].model_dump(exclude_unset=True)
    with serving(provider.base_url, window=8192, upstreams={"mine": upstream}) as proxy:
        assert ask(proxy.url).status_code == 200
    assert provider.requests[0].header("authorization") == "Bearer sk-from-env"


def test_the_first_that_takes_a_request_gets_it() -> None:
    local = Upstream(name="local", base_url="http://127.0.0.1:1/v1", models=("qwen*",))
    claude = Upstream(name="claude", base_url="https://c.example", wires=("messages",))
    rest = Upstream(name="rest", base_url="https://r.example/v1")
    known = Upstreams((local, claude, rest))

    def pick(path: str, api: Any, model: str) -> str:
        return known.pick(path=path, api=api, model=model, headers={}).name

    assert pick("/v1/chat/completions", "chat", "qwen3-8b") == "local"
    assert pick("/v1/messages", "messages", "claude-x") == "claude"
    assert pick("/v1/messages/count_tokens", None, "") == "claude"
    assert pick("/v1/models", None, "") == "rest"
    assert Upstreams().pick(path="/v1/messages", api="messages", model="m", headers={}) is ANTHROPIC
    assert Upstreams().pick(path="/v1/responses", api="responses", model="m", headers={}) is OPENAI


@pytest.mark.parametrize(
    ("base", "path", "found"),
    [
        ("https://a.example", "/v1/chat/completions", "https://a.example/v1/chat/completions"),
        ("https://a.example/v1", "/v1/chat/completions", "https://a.example/v1/chat/completions"),
        ("https://a.example/api/paas/v4", "/v1/models", "https://a.example/api/paas/v4/models"),
        ("https://a.example/v1beta/openai/", "/v1/responses", "https://a.example/v1beta/openai/responses"),
        ("https://a.example/x", "/openai/deployments/d/chat/completions", "https://a.example/x/openai/deployments/d/chat/completions"),
        ("https://a.example/x", "/v1beta/models/a%2Fb", "https://a.example/x/v1beta/models/a%2Fb"),
    ],
)  # fmt: skip
def test_a_base_path_replaces_the_clients_version(base: str, path: str, found: str) -> None:
    upstream = Upstream(name="u", base_url=base)
    assert str(target(upstream, path.encode(), b"")) == found
    assert str(target(upstream, path.encode(), b"q=a%20b&r")) == f"{found}?q=a%20b&r"
