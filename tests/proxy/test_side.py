"""What the proxy asks its upstream beside the requests: the window that is served, once, and never in the way."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from provider import FakeProvider
from serving import Served, serving

from ctxproxy.demo.server import missing, model_server

CHAT = "/v1/chat/completions"


def body(model: str = "local-model") -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}


def window(proxy: Served, model: str = "local-model", **headers: str) -> str:
    answer = httpx.post(proxy.url + CHAT, json=body(model), headers=headers, timeout=30)
    assert answer.status_code == 200
    return answer.headers["x-ctxproxy-window"]


def until(proxy: Served, wanted: str, model: str = "local-model") -> None:
    """Send requests until one was measured against that window."""
    deadline = time.monotonic() + 20
    while (found := window(proxy, model)) != wanted:
        assert time.monotonic() < deadline, f"the window is still {found}"


def asked(provider: FakeProvider) -> list[str]:
    return [r.path for r in provider.requests if not r.wire]


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider(window=6_000, wording="vllm", models=["local-model"]) as provider:
        yield provider


def test_a_guess_becomes_what_the_server_states_and_it_is_asked_once(provider: FakeProvider) -> None:
    with serving(provider.base_url) as proxy:
        assert window(proxy, authorization="Bearer k1") == "128000"
        until(proxy, "6000")
        window(proxy)
    assert asked(provider) == ["/v1/models"]
    question = next(r for r in provider.requests if not r.wire)
    assert question.header("authorization") == "Bearer k1"


@pytest.mark.parametrize("settings", [{"measuring": {"served": False}}, {"mode": "off"}, {"window": 8_000}])
def test_nobody_is_asked_where_it_is_not_wanted(settings: dict[str, Any], provider: FakeProvider) -> None:
    with serving(provider.base_url, **settings) as proxy:
        for _ in range(3):
            httpx.post(proxy.url + CHAT, json=body(), timeout=30)
    assert asked(provider) == []


def test_a_bypassed_request_asks_nothing(provider: FakeProvider) -> None:
    with serving(provider.base_url) as proxy:
        httpx.post(proxy.url + CHAT, json=body(), headers={"x-ctxproxy-bypass": "1"}, timeout=30)
    assert asked(provider) == []


@pytest.mark.parametrize("fault", ["status", "huge", "slow", "garbage", "redirect"])
def test_a_server_that_says_nothing_useful_costs_nothing(fault: str) -> None:
    with Odd(fault) as odd, serving(odd.url) as proxy:
        for _ in range(3):
            assert window(proxy) == "128000"
        assert odd.wait()
    assert odd.questions == 1


class Odd:
    """A server whose answers to GET are odd, and whose chat works."""

    def __init__(self, fault: str) -> None:
        outer = self
        self.fault, self.questions = fault, 0
        self.came, self.done = threading.Event(), threading.Event()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def reply(self, status: int, data: bytes, **headers: str) -> None:
                self.send_response(status)
                for name, value in {
                    "Content-Type": "application/json",
                    "Content-Length": str(len(data)),
                    **headers,
                }.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                if self.path.startswith("/api/"):
                    return self.reply(404, b"{}")
                return self.reply(200, b'{"choices":[]}')

            def do_GET(self) -> None:
                outer.questions += 1
                outer.came.set()
                try:
                    if outer.fault == "status":
                        self.reply(500, b"{}")
                    elif outer.fault == "huge":
                        self.reply(200, b'{"data":[' + b" " * (10 << 20) + b"]}")
                    elif outer.fault == "garbage":
                        self.reply(200, b"\xff{" * 100)
                    elif outer.fault == "redirect":
                        self.reply(302, b"", Location="http://127.0.0.1:9/")
                    else:
                        outer.done.wait(30)
                except OSError:
                    self.close_connection = True  # who asked has hung up

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def wait(self) -> bool:
        return self.came.wait(10)

    def __enter__(self) -> Odd:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.mark.model
@pytest.mark.skipif(bool(missing()), reason="no model server")
def test_llama_cpp_states_its_window() -> None:
    with model_server(n_ctx=2_048) as model, serving(model.url) as proxy:
        until(proxy, "2048", model.model)


# -- the provider's counter


def long_body(words: int = 1_200) -> dict[str, Any]:
    """About 90 % of 6,000 tokens, estimated: Claude's vocabulary is not at hand."""
    talk = [
        {"role": "user" if i % 2 == 0 else "assistant", "content": "value = 37 + x; " * (words // 9)} for i in range(9)
    ]
    return {"model": "claude-opus-4-8", "max_tokens": 64, "messages": talk}


def counts(provider: FakeProvider) -> int:
    return sum(r.path.endswith("/count_tokens") for r in provider.requests)


def near_window(proxy: Served) -> int:
    """A window in which the prompt's measured size is 89 %, so that its margin reaches over 90 %."""
    answer = httpx.post(proxy.url + "/v1/messages", json=long_body(), timeout=30, headers=VERSION)
    return round(int(answer.headers["x-ctxproxy-tokens-before"]) / 0.89)


VERSION = {"anthropic-version": "2023-06-01", "x-api-key": "k1"}


def test_near_a_threshold_the_provider_counts_with_the_clients_key() -> None:
    with FakeProvider(window=200_000, wording="anthropic") as provider:
        with serving(provider.base_url, window=200_000) as proxy:
            window = near_window(proxy)
        near = {"measuring": {"provider_count": "near"}, "policy": {"summaries": False}}
        with serving(provider.base_url, window=window, **near) as proxy:
            answer = httpx.post(proxy.url + "/v1/messages", json=long_body(), timeout=30, headers=VERSION)
        question = next(r for r in provider.requests if r.path.endswith("/count_tokens"))
        assert question.header("x-api-key") == "k1"
        # The fake counts by o200k, which is less than the estimate for Claude: nothing has to be cut.
        assert int(answer.headers["x-ctxproxy-tokens-before"]) == question.tokens
        assert answer.headers["x-ctxproxy-level"] in ("NORMAL", "WARNING")


@pytest.mark.parametrize(
    "odd", [{"count_fault": "500"}, {"count_fault": "429"}, {"counted": 10**12}, {"counted": -1}, {"counted": "many"}]
)
def test_a_counter_that_fails_is_asked_once_and_our_figure_counts(odd: dict[str, Any]) -> None:
    with FakeProvider(window=200_000, wording="anthropic", **odd) as provider:
        with serving(provider.base_url, window=200_000) as proxy:
            window = near_window(proxy)
        near = {"measuring": {"provider_count": "near"}, "policy": {"summaries": False}}
        with serving(provider.base_url, window=window, **near) as proxy:
            for _ in range(2):
                answer = httpx.post(proxy.url + "/v1/messages", json=long_body(), timeout=30, headers=VERSION)
                assert answer.status_code == 200
        assert counts(provider) == 1


@pytest.mark.model
@pytest.mark.skipif(bool(missing()), reason="no model server")
def test_llama_cpp_counts_as_it_bills() -> None:
    words = "the quick brown fox counts 4711 tokens in café. " * 60
    request = {"model": "m", "max_tokens": 4, "messages": [{"role": "user", "content": words}]}
    near = {"measuring": {"provider_count": "near"}, "policy": {"summaries": False}}
    with model_server(n_ctx=2_048) as model:
        billed = httpx.post(model.url + CHAT, json=request, timeout=60).json()["usage"]["prompt_tokens"]
        # The window is not configured: only then is it asked which server this is.
        with serving(model.url, policy={"thresholds": {"warning": 0.1, "compress": billed / 2_048}, "target": 0.1,
                                        "summaries": False}, measuring=near["measuring"]) as proxy:  # fmt: skip
            until(proxy, "2048", "m")
            answer = httpx.post(proxy.url + CHAT, json=request, timeout=60)
        assert int(answer.headers["x-ctxproxy-tokens-before"]) == billed
