"""The relay: what is not edited goes through byte for byte, both ways, and nothing else is taken."""

from __future__ import annotations

import gzip
import hashlib
import json
import socket
import tracemalloc
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import zstandard
from provider import Answer, FakeProvider
from serving import Served, raw_http, serving

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def provider() -> Iterator[FakeProvider]:
    with FakeProvider(window=8_000, wording="openai") as provider:
        yield provider


@pytest.fixture(scope="module")
def proxy(provider: FakeProvider) -> Iterator[Served]:
    with serving(provider.base_url, window=8_000, policy={"summaries": False}) as served:
        yield served


@pytest.fixture(autouse=True)
def _clean(provider: FakeProvider) -> None:
    provider.reset()


@pytest.fixture
def client(proxy: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=proxy.url, timeout=30) as client:
        yield client


def growing(messages: int, words: int = 120) -> dict[str, Any]:
    """A chat request of an agent that has read many files."""
    found: list[dict[str, Any]] = [
        {"role": "system", "content": "You fix bugs."},
        {"role": "user", "content": "Find the leak in the cache."},
    ]
    for i in range(messages):
        call = {
            "id": f"c{i}",
            "type": "function",
            "function": {"name": "read", "arguments": f'{{"path":"src/m{i}.py"}}'},
        }
        found.append({"role": "assistant", "content": None, "tool_calls": [call]})
        found.append(
            {"role": "tool", "tool_call_id": f"c{i}", "content": f"module m{i}: " + f"value_{i} = {i * 37} " * words}
        )
    return {"model": "gpt-4o", "messages": found}


BODIES = {
    "float": b'{"model":"gpt-4o","temperature":1.0,"messages":[{"role":"user","content":"a"}]}',
    "overflowing number": b'{"model":"gpt-4o","x":1e400,"messages":[{"role":"user","content":"a"}]}',
    "large integer": b'{"model":"gpt-4o","x":1180591620717411303424,"messages":[{"role":"user","content":"a"}]}',
    "escapes": b'{"model":"gpt-4o","messages":[{"role":"user","content":"\\u00e9\\/\\ud83d\\ude00 \\u0007"}]}',
    "lone surrogate": b'{"model":"gpt-4o","messages":[{"role":"user","content":"\\ud800"}]}',
    "key order": b'{"messages":[{"content":"a","role":"user"}],"zz":1,"aa":2,"model":"gpt-4o"}',
    "whitespace": b' {\n "model" : "gpt-4o",\t"messages" : [ {"role":"user" , "content":"a"} ] }\n\n',
    "duplicate key": b'{"model":"gpt-4o","model":"gpt-4o","messages":[{"role":"user","content":"a"}]}',
    "unknown fields": b'{"model":"gpt-4o","messages":[{"role":"user","content":"a","x_y":{"z":[null]}}],"extra_body":{"k":1}}',
    "NaN": b'{"model":"gpt-4o","x":NaN,"messages":[{"role":"user","content":"a"}]}',
    "byte order mark": b'\xef\xbb\xbf{"model":"gpt-4o","messages":[{"role":"user","content":"a"}]}',
    "not JSON": b"hello, this is no JSON",
    "not UTF-8": b'{"model":"gpt-4o","messages":[{"role":"user","content":"\xff\xfe"}]}',
    "wrong shape": b'{"messages":"none"}',
    "an array": b"[1,2,3]",
    "empty": b"",
}


@pytest.mark.parametrize("name", BODIES)
def test_unedited_request_reaches_upstream_byte_for_byte(
    name: str, client: httpx.Client, provider: FakeProvider
) -> None:
    client.post(CHAT, content=BODIES[name], headers={"content-type": "application/json"})
    assert provider.requests[-1].body == BODIES[name]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
@pytest.mark.parametrize(
    "path", ["/", "/v1/models", "/v1/unknown%2Fpath/%E2%82%AC?a=1&b=%20&a=2&c", "/api/x//y;z", "/v1/files"]
)
def test_any_path_and_method_passes_through(
    method: str, path: str, client: httpx.Client, provider: FakeProvider
) -> None:
    body = b"\x00\x01payload" if method in ("POST", "PUT", "PATCH") else b""
    client.request(method, path, content=body, headers={"x-any": "thing", "content-type": "application/octet-stream"})
    got = provider.requests[-1]
    assert (got.method, got.path, got.query) == (method, path.partition("?")[0], path.partition("?")[2])
    assert got.body == body
    assert got.header("x-any") == "thing"


def test_request_headers_pass_and_own_ones_do_not(client: httpx.Client, provider: FakeProvider) -> None:
    headers = [
        ("authorization", "Bearer k1"),
        ("x-dup", "1"),
        ("x-dup", "2"),
        ("openai-organization", "o"),
        ("x-ctxproxy-session", "s"),
        ("connection", "keep-alive, x-hop"),
        ("x-hop", "gone"),
        ("user-agent", "me/1"),
    ]
    client.post(CHAT, json=growing(1), headers=headers)
    names = [(k.lower(), v) for k, v in provider.requests[-1].headers]
    assert ("x-dup", "1") in names
    assert ("x-dup", "2") in names
    assert ("user-agent", "me/1") in names
    assert ("authorization", "Bearer k1") in names
    assert not [k for k, _ in names if k.startswith("x-ctxproxy") or k == "x-hop"]


def test_the_only_paths_taken_are_its_own(client: httpx.Client, provider: FakeProvider) -> None:
    assert client.get("/readyz").json() == {"status": "ok"}
    assert client.get("/livez").status_code == 200
    assert client.get("/ctxproxy/nothing").status_code == 404
    assert client.get("/healthz").status_code != 404 or provider.requests
    assert [r.path for r in provider.requests] == ["/healthz"]


@pytest.mark.parametrize("options", [{}, {"crlf": True}, {"chunk_bytes": 7}, {"comments": True, "pings": True}])
def test_stream_comes_back_byte_for_byte(options: dict[str, Any], client: httpx.Client, provider: FakeProvider) -> None:
    before = {name: getattr(provider, name) for name in options}
    for name, value in options.items():
        setattr(provider, name, value)
    try:
        provider.answer = "grüße 你好 " * 20
        body = {**growing(1), "stream": True, "stream_options": {"include_usage": True}}
        ours = client.post(CHAT, json=body)
        direct = httpx.post(provider.base_url + CHAT, json=body, timeout=30)
    finally:
        for name, value in before.items():
            setattr(provider, name, value)
    assert ours.headers["content-type"] == direct.headers["content-type"]
    assert _without_ids(ours.content) == _without_ids(direct.content)
    assert ours.headers["x-ctxproxy-level"] == "NORMAL"


def _without_ids(data: bytes) -> bytes:
    """The fake numbers its answers: ids and times differ between two calls."""
    import re

    return re.sub(rb'"(id|created|system_fingerprint)":\s*("[^"]*"|\d+)', rb'"\1":0', data)


@pytest.mark.parametrize("status", [202, 301, 400, 404, 418, 500])
def test_status_and_headers_come_back(status: int, client: httpx.Client, provider: FakeProvider) -> None:
    ours = client.get(f"/anything?status={status}")
    direct = httpx.get(provider.base_url + f"/anything?status={status}")
    assert ours.status_code == direct.status_code == status
    skip = ("date", "server", "connection", "keep-alive", "transfer-encoding", "content-length")  # it echoes headers
    assert [h for h in ours.headers.items() if h[0] not in skip] == [
        h for h in direct.headers.items() if h[0] not in skip
    ]


def test_error_body_of_the_provider_is_unchanged(client: httpx.Client, provider: FakeProvider) -> None:
    provider.fail_plan = ["429;retry_after=7"]
    ours = client.post(CHAT, json=growing(1))
    assert ours.status_code == 429
    assert ours.headers["retry-after"] == "7"
    assert "error" in ours.json()
    assert provider.calls == 1


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_compressed_request_is_measured_and_passed_as_it_came(
    encoding: str, client: httpx.Client, provider: FakeProvider
) -> None:
    plain = json.dumps(growing(2)).encode()
    packed = gzip.compress(plain) if encoding == "gzip" else zstandard.compress(plain)
    headers = {"content-encoding": encoding, "content-type": "application/json"}
    answer = client.post(CHAT, content=packed, headers=headers)
    assert answer.status_code == 200
    assert int(answer.headers["x-ctxproxy-tokens-before"]) > 500
    assert provider.requests[-1].body == packed


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_compressed_request_is_compacted(encoding: str, provider: FakeProvider) -> None:
    plain = json.dumps(growing(12)).encode()
    packed = gzip.compress(plain) if encoding == "gzip" else zstandard.compress(plain)
    headers = {"content-encoding": encoding, "content-type": "application/json"}
    with serving(provider.base_url, window=8_000, policy={"summaries": False}) as proxy:
        answer = httpx.post(proxy.url + CHAT, content=packed, headers=headers, timeout=30)
    assert answer.status_code == 200
    assert answer.headers["x-ctxproxy-reason"] == "overflow"
    got = provider.requests[-1]
    assert got.header("content-encoding") == ""
    assert len(got.body) < len(plain) * 0.7


def test_a_bomb_is_refused(proxy: Served, provider: FakeProvider) -> None:
    with serving(provider.base_url, server={"max_body_bytes": 100_000}) as small:
        packed = gzip.compress(b" " * 50_000_000)
        answer = httpx.post(small.url + CHAT, content=packed, headers={"content-encoding": "gzip"}, timeout=30)
        assert answer.status_code == 413
        assert "server.max_body_bytes" in answer.json()["error"]["message"]
        assert httpx.post(small.url + CHAT, content=b"x" * 100_001, timeout=30).status_code == 413
    assert not provider.requests


def test_websocket_upgrade_gets_426_at_once(proxy: Served, provider: FakeProvider) -> None:
    answer = raw_http(
        proxy.port,
        b"GET /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: Upgrade, close\r\nupgrade: websocket\r\n"
        b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n",
    )
    assert answer.startswith(b"HTTP/1.1 426")
    assert not provider.requests


@pytest.mark.parametrize("when", ["hold", "hold-first", "hold-content"])
@pytest.mark.parametrize("stream", [False, True])
def test_client_that_goes_away_cancels_the_upstream_call(
    when: str, stream: bool, proxy: Served, provider: FakeProvider
) -> None:
    if not stream and when != "hold":
        pytest.skip("only a stream has a first event")
    provider.fail_plan = [when]
    body = json.dumps({**growing(1), "stream": stream}).encode()
    with socket.create_connection(("127.0.0.1", proxy.port)) as sock:
        sock.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n" % len(body) + body
        )
        provider.wait_held()
        request = provider.requests[-1]
        assert not request.disconnected.is_set()
    assert request.disconnected.wait(10)


def test_upload_of_200_mb_streams_in_flat_memory(proxy: Served, provider: FakeProvider) -> None:
    block = bytes(range(256)) * 4_096  # 1 MiB

    def blocks() -> Iterator[bytes]:
        for _ in range(200):
            yield block

    digest = hashlib.sha256()
    for _ in range(200):
        digest.update(block)
    tracemalloc.start()
    try:
        answer = httpx.post(proxy.url + "/v1/files", content=blocks(), timeout=120)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answer.status_code == 200
    assert provider.requests[-1].sha256 == digest.hexdigest()
    assert provider.requests[-1].size == 200 << 20
    assert peak < 40 << 20  # bytes, of client, proxy and provider together: they share this process


def test_upstream_that_breaks_off_breaks_the_client_off(client: httpx.Client, provider: FakeProvider) -> None:
    provider.fail_plan = ["drop-body;after=20"]
    with pytest.raises(httpx.RemoteProtocolError):
        client.post(CHAT, json=growing(1))


def test_unreachable_upstream_is_a_502_in_the_callers_format() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with serving(f"http://127.0.0.1:{port}") as proxy:
        answer = httpx.post(proxy.url + CHAT, json=growing(1), timeout=30)
        assert answer.status_code == 502
        assert answer.json()["error"]["type"] == "server_error"
        assert "upstreams.test.base_url" in answer.json()["error"]["message"]
        messages = httpx.post(proxy.url + "/v1/messages", json=growing(1), timeout=30)
        assert messages.status_code == 502
        assert messages.json()["type"] == "error"
        assert httpx.get(proxy.url + "/v1/models", timeout=30).status_code == 502


def test_growing_conversation_never_fails_and_compactions_stick(provider: FakeProvider) -> None:
    quiet = {"summaries": False}  # summary calls are tested where they belong
    with (
        serving(provider.base_url, window=8_000, policy=quiet) as proxy,
        httpx.Client(base_url=proxy.url, timeout=30) as client,
    ):
        _grow(client, provider)


def _grow(client: httpx.Client, provider: FakeProvider) -> None:
    sent: list[list[Any]] = []
    compactions = 0
    for turn in range(1, 41):
        answer = client.post(CHAT, json=growing(turn))
        assert answer.status_code == 200, answer.text
        compacted = "x-ctxproxy-reason" in answer.headers
        compactions += compacted
        messages = provider.requests[-1].json()["messages"]
        if sent and not compacted:
            assert messages[: len(sent[-1])] == sent[-1]
        sent.append(messages)
    assert not provider.violations
    assert provider.calls == 40
    assert 3 <= compactions <= 12


def test_overflow_of_the_provider_is_cured_with_one_more_call(provider: FakeProvider) -> None:
    with serving(provider.base_url, window=40_000, policy={"summaries": False}) as proxy:
        first = httpx.post(proxy.url + CHAT, json=growing(16), timeout=30)
        assert first.status_code == 200
        assert first.headers["x-ctxproxy-reason"] == "retry"
        assert provider.calls == 2
        second = httpx.post(proxy.url + CHAT, json=growing(17), timeout=30)
        assert second.status_code == 200
        assert second.headers.get("x-ctxproxy-reason") != "retry"
        assert second.headers["x-ctxproxy-window"] == "8000"
        assert provider.calls == 3


def test_a_prompt_that_can_not_fit_is_a_typed_error_without_a_call(
    client: httpx.Client, provider: FakeProvider
) -> None:
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "word " * 9_000}]}
    answer = client.post(CHAT, json=body)
    assert answer.status_code == 400
    error = answer.json()
    assert error["error"]["code"] == "context_length_exceeded"
    assert error["ctxproxy"]["context_window"] == 8_000
    assert error["ctxproxy"]["fixed"]
    assert not provider.requests


def test_bypass_header_leaves_a_request_alone(client: httpx.Client, provider: FakeProvider) -> None:
    answer = client.post(CHAT, json=growing(16), headers={"x-ctxproxy-bypass": "1"})
    assert answer.status_code == 400
    assert provider.requests[-1].header("x-ctxproxy-bypass") == ""


@pytest.mark.parametrize("mode", ["off", "observe"])
def test_off_and_observe_change_nothing(mode: str, provider: FakeProvider) -> None:
    body = json.dumps(growing(16)).encode()
    with serving(provider.base_url, window=8_000, mode=mode) as proxy:
        answer = httpx.post(proxy.url + CHAT, content=body, timeout=30)
    assert answer.status_code == 400
    assert provider.requests[-1].body == body
    assert provider.calls == 1
    assert (answer.headers.get("x-ctxproxy-level") == "OVERFLOW") == (mode == "observe")


def test_answers_of_a_script_reach_the_client(client: httpx.Client, provider: FakeProvider) -> None:
    provider.answer = Answer("exactly this")
    assert client.post(CHAT, json=growing(1)).json()["choices"][0]["message"]["content"] == "exactly this"


def test_a_finished_answer_is_learned_from_and_leaves_no_fault(
    proxy: Served, client: httpx.Client, provider: FakeProvider, caplog: pytest.LogCaptureFixture
) -> None:
    # The end of a stream that was held back at its start came twice, and its usage was lost.
    provider.answer = Answer("Fine. " * 40)
    for stream in (True, False):
        options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        body = {"model": "fake-model", "messages": [{"role": "user", "content": "Hi"}], **options}
        assert client.post("/v1/chat/completions", json=body).status_code == 200
        assert proxy.app.relay is not None
        assert proxy.app.relay.runtime.monitor.events()[-1].input == provider.requests[-1].tokens
    assert "fault" not in caplog.text


def test_an_error_without_a_body_comes_to_its_end(client: httpx.Client, provider: FakeProvider) -> None:
    provider.fail_plan = ["empty"]
    body = {"model": "fake-model", "messages": [{"role": "user", "content": "Hi"}]}
    answer = client.post("/v1/chat/completions", json=body)
    assert (answer.status_code, answer.content) == (400, b"")
