"""What a compaction came to is sent again byte for byte, and the prompt only grows at its end until the next one."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import httpx
import pytest
from flipping import Client, array, common
from provider import FakeProvider
from serving import serving

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
WINDOW = 6_000
APIS = sorted(PATHS)


def post(url: str, client: Client, **headers: str) -> httpx.Response:
    given = {"content-type": "application/json", "anthropic-version": "2023-06-01", "x-api-key": "k", **headers}
    answer = httpx.post(url + PATHS[client.api], content=client.body(), headers=given, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer


def settings(tmp_path: Path) -> dict[str, Any]:
    return {"policy": {"summaries": False}, "ledger": {"url": f"sqlite:{tmp_path / 'ledger.db'}"}}


@pytest.mark.parametrize("api", APIS)
def test_between_two_compactions_the_prompt_only_grows_at_its_end(
    api: str, tmp_path: Path, record_property: Any
) -> None:
    client = Client(api)
    compactions, grown, raw = 0, 0, 0
    with FakeProvider(window=WINDOW) as provider:
        for restart in range(4):
            # The proxy is started anew after every ten turns, and goes on with the same bytes.
            with serving(provider.base_url, window=WINDOW, **settings(tmp_path)) as proxy:
                for _ in range(10):
                    client.grow()
                    answer = post(proxy.url, client)
                    new = answer.headers.get("x-ctxproxy-reason") is not None
                    raw = max(raw, int(answer.headers["x-ctxproxy-tokens-before"]))
                    sent = array(provider.requests[-1].body)
                    if new:
                        compactions += 1
                    elif compactions:
                        before = array(provider.requests[-2].body)
                        assert common(before, sent) == len(before), f"turn {client.turn}, restart {restart}"
                        grown += 1
        assert not provider.violations
        assert not provider.errors
    # From 90 % down to 70 %: what grows beyond the first threshold needs a compaction for each fifth of the window.
    needed = math.ceil((raw - 0.9 * WINDOW) / (0.2 * WINDOW))
    record_property("compactions", f"{api}: {compactions}, growth needs {needed}")
    print(f"{api}: {compactions} compactions, growth needs {needed}, {grown} turns only grew")
    assert 1 <= compactions <= needed
    assert grown >= 12


@pytest.mark.parametrize("api", APIS)
def test_before_a_compaction_every_form_of_the_client_passes(api: str, tmp_path: Path) -> None:
    client = Client(api, words=5)
    with (
        FakeProvider(window=WINDOW) as provider,
        serving(provider.base_url, window=WINDOW, **settings(tmp_path)) as proxy,
    ):
        for _ in range(6):
            client.grow()
            post(proxy.url, client)
            assert provider.requests[-1].body == client.body()


def compacted(url: str, client: Client) -> httpx.Response:
    """Grow until a compaction took effect."""
    for _ in range(60):
        client.grow()
        answer = post(url, client)
        if answer.headers.get("x-ctxproxy-reason"):
            return answer
    raise AssertionError("no compaction")


@pytest.mark.parametrize("api", APIS)
def test_nothing_old_comes_back_after_the_client_edits_its_history(api: str, tmp_path: Path) -> None:
    client = Client(api)
    with (
        FakeProvider(window=WINDOW) as provider,
        serving(provider.base_url, window=WINDOW, **settings(tmp_path)) as proxy,
    ):
        compacted(proxy.url, client)
        client.grow()
        assert post(proxy.url, client).headers.get("x-ctxproxy-replayed") == "1"
        secret = client.entries[2]["text"]
        client.entries[2]["text"] = "module m1: withdrawn by the user"
        answer = post(proxy.url, client)
        assert answer.headers.get("x-ctxproxy-replayed") is None
        sent = provider.requests[-1].body.decode()
        assert secret[:30] not in sent
        assert "value_1_" not in sent


@pytest.mark.parametrize("api", APIS)
def test_nothing_old_comes_back_after_the_client_compacts_by_itself(api: str, tmp_path: Path) -> None:
    client = Client(api)
    with (
        FakeProvider(window=WINDOW) as provider,
        serving(provider.base_url, window=WINDOW, **settings(tmp_path)) as proxy,
    ):
        compacted(proxy.url, client)
        client.entries = [{"kind": "user", "text": "Summary of the work so far: m1 to m9 are fine."}]
        client.grow()
        answer = post(proxy.url, client)
        assert answer.headers.get("x-ctxproxy-replayed") is None
        assert provider.requests[-1].body == client.body()


def test_markers_of_a_replayed_part_do_not_pile_up(tmp_path: Path) -> None:
    """A shortened tool output carried a marker when it was the newest; four newer ones are all that may be sent."""
    client = Client("messages", words=2)
    with (
        FakeProvider(window=WINDOW) as provider,
        serving(provider.base_url, window=WINDOW, **settings(tmp_path)) as proxy,
    ):
        for _ in range(16):
            client.grow("row of data " * 900 if client.turn % 5 == 1 else None)
            post(proxy.url, client)
            assert provider.requests[-1].body.count(b'"cache_control"') <= 2
        assert not provider.violations


def test_a_server_that_wants_another_form_by_now_gets_it(tmp_path: Path) -> None:
    """The form that was accepted first is refused by the server that stands there later: the client's own is sent."""
    client = Client("chat", flips=False)
    with (
        FakeProvider(window=WINDOW) as provider,
        serving(provider.base_url, window=WINDOW, **settings(tmp_path)) as proxy,
    ):
        compacted(proxy.url, client)
        client.flips = True
        client.turn += client.turn % 2
        client.grow()

        def strict(request: Any) -> str | None:
            tools = [m["content"] for m in json.loads(request.body)["messages"] if m["role"] == "tool"]
            return "400" if isinstance(tools[-2], str) else None

        provider.fault = strict
        post(proxy.url, client)
        sends = provider.calls
        post(proxy.url, client)
        assert provider.calls == sends + 1  # the new form is known now
        assert provider.model_requests[-1].status == 200
