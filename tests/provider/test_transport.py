"""The bytes between client and fake provider: what is recorded, decoded, mirrored, counted and kept."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
import tracemalloc
import zlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import zstandard

from . import FakeProvider

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
MIB = 1 << 20


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider(max_body=4 * MIB) as running:
        yield running


def connect(provider: FakeProvider) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(provider.base_url.removeprefix("http://"), timeout=20)


def test_requests_are_recorded_as_they_came(provider: FakeProvider) -> None:
    connection = connect(provider)
    connection.putrequest("POST", "/a%20b/chat/completions?x=1&x=%20", skip_accept_encoding=True)
    body = b' {"model":"m",  "messages":[{"role":"user","content":"hi"}]}'
    for name, value in (("X-Two", "one"), ("x-TWO", "two"), ("Content-Length", str(len(body)))):
        connection.putheader(name, value)
    connection.endheaders(body)
    assert connection.getresponse().status == 200
    seen = provider.requests[0]
    assert (seen.method, seen.path, seen.query) == ("POST", "/a%20b/chat/completions", "x=1&x=%20")
    assert [pair for pair in seen.headers if pair[0].lower() == "x-two"] == [("X-Two", "one"), ("x-TWO", "two")]
    assert seen.body == body
    assert seen.sha256 == hashlib.sha256(body).hexdigest()
    assert (seen.wire, seen.status, seen.size) == ("chat", 200, len(body))


def test_other_paths_are_mirrored(provider: FakeProvider) -> None:
    response = httpx.put(provider.base_url + "/v1/files/x%2Fy?a=b", content=b"data", headers={"X-Odd": "1"})
    told = response.json()
    assert (told["method"], told["path"], told["query"]) == ("PUT", "/v1/files/x%2Fy", "a=b")
    assert told["body_sha256"] == hashlib.sha256(b"data").hexdigest()
    assert ["X-Odd", "1"] in told["headers"]
    assert response.headers.get_list("x-echo-dup") == ["one", "two"]
    assert httpx.get(provider.base_url + "/x?status=418").status_code == 418
    assert provider.calls == 0


def test_head_has_no_body(provider: FakeProvider) -> None:
    connection = connect(provider)
    for _ in range(2):  # the second one fails if the first left bytes behind
        connection.request("HEAD", "/")
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, b"")


@pytest.mark.parametrize("chunked", ["", "&chunked"])
def test_downloads(provider: FakeProvider, chunked: str) -> None:
    data = httpx.get(f"{provider.base_url}/blob?download=300000{chunked}").content
    assert len(data) == 300_000
    assert data[256:512] == bytes(range(256))


def test_a_streamed_upload_is_counted_in_flat_memory(provider: FakeProvider) -> None:
    piece = b"x" * 65536

    def upload(count: int) -> dict[str, Any]:
        return httpx.post(provider.base_url + "/upload", content=(piece for _ in range(count)), timeout=60).json()

    upload(16)
    provider.reset()
    tracemalloc.start()
    told = upload(512)  # 32 MiB
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert told["body_bytes"] == 512 * 65536
    assert told["body_sha256"] == hashlib.sha256(piece * 512).hexdigest()
    assert len(provider.requests[0].body) == MIB
    assert peak < 8 * MIB


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "identity"])
def test_encoded_bodies_are_decoded(provider: FakeProvider, encoding: str) -> None:
    plain = json.dumps(CHAT).encode()
    codecs = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstandard.ZstdCompressor().compress}
    data = codecs.get(encoding, bytes)(plain)
    headers = {"content-encoding": encoding}
    url = provider.base_url + "/v1/chat/completions"
    assert httpx.post(url, content=data, headers=headers).status_code == 200
    assert provider.requests[0].body == data
    assert provider.requests[0].json() == CHAT
    assert encoding == "identity" or httpx.post(url, content=b"no such", headers=headers).status_code == 400


def test_what_is_refused_before_it_is_read(provider: FakeProvider) -> None:
    url = provider.base_url + "/v1/messages"
    assert httpx.post(url, content=b"{}", headers={"content-encoding": "br"}).status_code == 415
    assert httpx.post(url, content=b"x" * (4 * MIB + 1)).json()["error"]["type"] == "request_too_large"
    assert httpx.post(url, content=b"{").status_code == 400
    assert httpx.post(url, content=b"[]").status_code == 400
    provider.api_key = "right"
    assert httpx.post(url, json=CHAT, headers={"x-api-key": "wrong"}).status_code == 401
    for headers in ({"x-api-key": "right"}, {"authorization": "Bearer right"}, {"api-key": "right"}):
        assert httpx.post(url, json={**CHAT, "max_tokens": 5}, headers=headers).status_code == 200


def test_counting_and_listing_are_no_model_calls(provider: FakeProvider) -> None:
    count = httpx.post(provider.base_url + "/v1/messages/count_tokens", json=CHAT).json()
    assert count == {"input_tokens": 5}
    count = httpx.post(provider.base_url + "/v1/responses/input_tokens", json={"input": "hi"}).json()
    assert count == {"object": "response.input_tokens", "input_tokens": 5}
    assert httpx.get(provider.base_url + "/v1/models").json()["data"][0]["id"] == "fake-model"
    provider.wording = "vllm"
    assert httpx.get(provider.base_url + "/v1/models").json()["data"][0]["max_model_len"] == 8192
    claude = httpx.get(provider.base_url + "/v1/models", headers={"anthropic-version": "2023-06-01"}).json()
    assert claude["data"][0]["type"] == "model"
    assert provider.calls == 0


def test_reset_forgets(provider: FakeProvider) -> None:
    url = provider.base_url + "/v1/chat/completions"
    httpx.post(url, json=CHAT)
    provider.reset("529")
    assert provider.requests == []
    assert [httpx.post(url, json=CHAT).status_code for _ in range(2)] == [529, 200]


async def test_it_serves_a_test_with_its_own_loop() -> None:
    async with FakeProvider() as provider, httpx.AsyncClient(base_url=provider.base_url) as client:
        assert (await client.post("/chat/completions", json=CHAT)).status_code == 200
        assert provider.calls == 1


def test_it_stops_while_a_request_is_held() -> None:
    with FakeProvider(fail_plan=["hold"]) as provider:
        connection = connect(provider)
        connection.request("POST", "/chat/completions", json.dumps(CHAT))
        provider.wait_held()
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        connection.getresponse()
