"""What goes wrong around the proxy, one row each: the upstream, the client, the store, the settings, the sockets.

Rows that other files have: client gone before and in the answer, an unreachable upstream, zip bombs (test_relay);
the summarizer (test_summarizer_faults); each fault of a store by itself (tests/stores); a taken port
(tests/cli/test_serve_errors).
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from provider import FakeProvider
from running import running
from serving import Served, raw_http, serving

from ctxproxy.proxy.protocol import HEAD_BYTES

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"


def body(*, stream: bool = False, turns: int = 1, word: str = "tide") -> dict[str, Any]:
    messages = [{"role": "user", "content": f"{word} {n} " * 60} for n in range(turns)]
    answers = [{"role": "assistant", "content": f"noted {n} " * 60} for n in range(turns - 1)]
    told = [m for pair in zip(messages, [*answers, None], strict=True) for m in pair if m]
    return {"model": "gpt-4o", "max_tokens": 64, "messages": told, "stream": stream}


@pytest.fixture(scope="module")
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as provider:
        yield provider


@pytest.fixture(scope="module")
def proxy(provider: FakeProvider) -> Iterator[Served]:
    with serving(provider.base_url) as served:
        yield served


@pytest.fixture(autouse=True)
def _clean(provider: FakeProvider) -> None:
    provider.reset()


def still_serves(proxy: Served) -> None:
    assert httpx.post(proxy.url + CHAT, json=body(), timeout=30).status_code == 200


# -- the upstream


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
@pytest.mark.parametrize("status", [500, 529, 429, 503])
def test_an_error_passes_with_its_retry_after_and_is_not_tried_again(
    path: str, status: int, proxy: Served, provider: FakeProvider
) -> None:
    provider.fail_plan = [f"{status};retry_after=17"] * 2
    direct = httpx.post(provider.base_url + path, json=body(), timeout=30)
    through = httpx.post(proxy.url + path, json=body(), timeout=30)
    assert (through.status_code, through.content) == (status, direct.content)
    assert through.headers["retry-after"] == "17"
    assert provider.calls == 2


def test_an_answer_that_comes_late_is_waited_for(proxy: Served, provider: FakeProvider) -> None:
    provider.fail_plan = ["hold"]
    found: list[httpx.Response] = []
    asking = threading.Thread(target=lambda: found.append(httpx.post(proxy.url + CHAT, json=body(), timeout=60)))
    asking.start()
    provider.wait_held()
    still_serves(proxy)  # nobody else waits
    assert not found
    provider.release()
    asking.join(30)
    assert found[0].status_code == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
def test_an_answer_that_breaks_off_breaks_off_at_the_client(
    path: str, stream: bool, proxy: Served, provider: FakeProvider
) -> None:
    provider.fail_plan = ["drop-body"]
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.post(proxy.url + path, json=body(stream=stream), timeout=30)
    still_serves(proxy)


def test_a_connection_that_closes_before_an_answer_is_a_502(proxy: Served, provider: FakeProvider) -> None:
    provider.fault = "drop"
    try:
        answer = httpx.post(proxy.url + CHAT, json=body(), timeout=30)
    finally:
        provider.fault = None
    assert answer.status_code == 502
    assert answer.json()["error"]["type"] == "server_error"


def test_a_200_that_is_no_json_passes_as_it_came(proxy: Served, provider: FakeProvider) -> None:
    provider.fail_plan = ["garbage", "garbage"]
    direct = httpx.post(provider.base_url + CHAT, json=body(), timeout=30)
    through = httpx.post(proxy.url + CHAT, json=body(), timeout=30)
    assert (through.status_code, through.content) == (200, direct.content)


@contextmanager
def saying(data: bytes) -> Iterator[str]:
    """A server that answers whatever comes with these bytes and closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    taken, _ = server.accept()
                except OSError:
                    return
                with taken:
                    taken.recv(1 << 16)
                    taken.sendall(data)

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "data", [b"SSH-2.0-OpenSSH_9.6\r\n", b"\x16\x03\x01\x02\x00", b"HTTP/1.1 2x0 OK\r\n\r\n", b"\x00" * 5_000]
)
def test_what_is_no_http_is_a_502(data: bytes) -> None:
    with saying(data) as upstream, serving(upstream) as proxy:
        for path in (CHAT, MESSAGES, "/v1/files"):
            answer = httpx.post(proxy.url + path, json=body(), timeout=30)
            assert answer.status_code == 502
            assert "upstreams.test.base_url" in answer.json()["error"]["message"]


# -- the client


def test_clients_that_go_away_early_cost_no_call(proxy: Served, provider: FakeProvider) -> None:
    for part in (
        b"",
        b"POST /v1/chat",
        HEAD,
        HEAD + b"content-length: 500\r\n\r\n",
        HEAD + b"content-length: 9\r\n\r\n{",
    ):
        with socket.create_connection(("127.0.0.1", proxy.port)) as sock:
            sock.sendall(part)
    still_serves(proxy)
    assert provider.calls == 1


def test_500_idle_connections_keep_nobody_out(proxy: Served) -> None:
    with ExitStack() as stack:
        socks = [stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port))) for _ in range(500)]
        still_serves(proxy)
        request = HEAD + b"content-length: 2\r\nconnection: close\r\n\r\n{}"
        socks[-1].sendall(request)  # and they are served themselves
        assert socks[-1].recv(100).startswith(b"HTTP/1.1 ")


def test_connections_slower_than_the_bound_are_closed(provider: FakeProvider) -> None:
    with serving(provider.base_url, server={"client_timeout": 0.3}) as proxy:
        assert raw_http(proxy.port, b"") == b""
        assert raw_http(proxy.port, HEAD + b"x-slow: 1").startswith(b"HTTP/1.1 408 ")
        for path in (b"chat/completions", b"files"):
            stalled = b"POST /v1/" + path + b" HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 50\r\n\r\n{"
            assert raw_http(proxy.port, stalled).startswith(b"HTTP/1.1 408 ")
        # Neither an answer that takes long nor a connection kept for the next request is a slow client.
        provider.reset("hold")
        with httpx.Client(base_url=proxy.url, timeout=30) as client:
            found: list[httpx.Response] = []
            asking = threading.Thread(target=lambda: found.append(client.post(CHAT, json=body())))
            asking.start()
            provider.wait_held()
            assert raw_http(proxy.port, b"") == b""  # as long as the bound
            provider.release()
            asking.join(30)
            assert found[0].status_code == 200
            assert client.post(CHAT, json=body()).status_code == 200


@pytest.mark.parametrize("bomb", [b"x-a: " + b"a" * (4 * HEAD_BYTES), b"x-a: b\r\n" * HEAD_BYTES])
def test_a_head_without_end_is_refused(bomb: bytes, proxy: Served, provider: FakeProvider) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as sock:
        found = b""
        try:
            sock.sendall(HEAD + bomb)
            found = sock.recv(1 << 16)
        except ConnectionError:
            pass  # closed while more was on its way: the answer may be lost then
        assert not found or found.startswith(b"HTTP/1.1 431 ")
    still_serves(proxy)
    assert provider.calls == 1


def test_a_body_without_end_is_refused(provider: FakeProvider) -> None:
    def blocks() -> Iterator[bytes]:
        for _ in range(400):
            yield b"x" * 10_000

    with serving(provider.base_url, server={"max_body_bytes": 100_000}) as proxy:
        try:
            assert httpx.post(proxy.url + CHAT, content=blocks(), timeout=30).status_code == 413
        except httpx.WriteError:
            pass  # closed while it was still sending
        still_serves(proxy)
    assert provider.calls == 1


# -- the store


@contextmanager
def locked(file: Path) -> Iterator[None]:
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


@contextmanager
def corrupt(file: Path) -> Iterator[None]:
    for path in (file, file.with_name(file.name + "-wal")):
        if path.exists():
            with path.open("r+b") as opened:
                opened.write(os.urandom(path.stat().st_size))
    yield


@contextmanager
def full(file: Path) -> Iterator[None]:
    resource = pytest.importorskip("resource")
    signal = pytest.importorskip("signal")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


@contextmanager
def removed(file: Path) -> Iterator[None]:
    """Read-only for everybody, root included: a folder stands where the file was."""
    for path in file.parent.glob(file.name + "*"):
        path.unlink()
    file.mkdir()
    yield
    file.rmdir()


@pytest.mark.parametrize("fault", [locked, corrupt, full, removed])
def test_a_store_that_fails_costs_no_request(fault: Any, tmp_path: Path) -> None:
    file = tmp_path / "ledger.sqlite"
    settings: dict[str, Any] = {"policy": {"summaries": False}, "ledger": {"url": f"sqlite:{file}"}}
    with FakeProvider(window=3_000, wording="openai") as provider:
        with serving(provider.base_url, window=3_000, **settings) as proxy:
            assert httpx.post(proxy.url + CHAT, json=body(turns=20), timeout=60).status_code == 200
            assert proxy.app.relay is not None
            assert proxy.app.relay.runtime.store_faults == 0
            with fault(file):
                answer = httpx.post(proxy.url + CHAT, json=body(turns=24, word="moon"), timeout=60)
            assert answer.status_code == 200
            assert answer.headers["x-ctxproxy-reason"]
            if fault is not corrupt:  # that one may heal at the first look
                assert proxy.app.relay.runtime.store_faults > 0
            after = httpx.post(proxy.url + CHAT, json=body(turns=28, word="sun"), timeout=60)
            assert after.status_code == 200
        assert not provider.violations


# -- the settings


def test_a_config_file_edited_meanwhile_changes_nothing(tmp_path: Path, provider: FakeProvider) -> None:
    with running(provider.base_url, tmp_path, window=9_000) as proxy:
        first = httpx.post(proxy.url + CHAT, json=body(), timeout=60)
        for text in ("window: [", "window: 5\nmode: off\nupstreams: {x: {base_url: 'http://127.0.0.1:1'}}\n"):
            (tmp_path / "config.yaml").write_text(text)
            assert httpx.post(proxy.url + CHAT, json=body(), timeout=60).status_code == first.status_code == 200
        (tmp_path / "config.yaml").unlink()
        second = httpx.post(proxy.url + CHAT, json=body(), timeout=60)
        assert second.headers["x-ctxproxy-window"] == first.headers["x-ctxproxy-window"]
        assert json.loads(second.content)["choices"]
        proxy.stop()
        assert not proxy.lines
