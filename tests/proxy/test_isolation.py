"""Whose compaction it is: shared by those who share the history, and seen by nobody else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from flipping import Client
from provider import FakeProvider
from serving import Served, serving

from ctxproxy.strategies.summarize import SECTIONS

WINDOW = 6_000
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages"}


def is_summary(request: Any) -> bool:
    return b"### Decisions Made\\n- (each" in request.body


def answer(request: Any) -> str:
    """A summary that names what it was made of: the last mention of a hotel, so that a leak shows."""
    if not is_summary(request):
        return "ok"
    word = request.body.decode().rpartition("secret-")[2][:6]
    return "\n".join(
        f"### {name}\n- about secret-{word} and its {name.lower()}, noted in src/m1.py" for name in SECTIONS
    )


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider(window=WINDOW, answer=answer) as provider:
        yield provider


def serve(provider: FakeProvider, tmp_path: Path, **more: Any) -> Any:
    return serving(provider.base_url, window=WINDOW, **{"ledger": {"url": f"sqlite:{tmp_path / 'l.db'}"}, **more})


def post(url: str, client: Client, key: str = "key-one") -> httpx.Response:
    headers = {"anthropic-version": "2023-06-01", "authorization": f"Bearer {key}", "content-type": "application/json"}
    found = httpx.post(url + PATHS[client.api], content=client.body(), headers=headers, timeout=60)
    assert found.status_code == 200, found.text
    return found


def full(client: Client, word: str) -> Client:
    """Fill the window with words that hold a secret."""
    while len(client.body()) < 25_000:
        client.talk()
        client.entries[-1]["text"] += f" (secret-{word})"
    return client


def originals(served: Served) -> dict[tuple[str, str], bytes]:
    store: Any = served.app.relay.runtime.archive  # type: ignore[union-attr]
    import sqlite3

    with sqlite3.connect(store.path) as db:
        rows = db.execute("SELECT scope, name, data FROM originals JOIN texts USING (id)").fetchall()
    return {(scope, name): bytes(data) for scope, name, data in rows}


@pytest.mark.parametrize("api", sorted(PATHS))
def test_a_nonce_in_the_system_prompt_and_a_token_that_rotates_change_nothing(
    api: str, provider: FakeProvider, tmp_path: Path
) -> None:
    client = Client(api)
    client.nonce = True
    compactions = replays = 0
    with serve(provider, tmp_path, policy={"summaries": False}) as proxy:
        for turn in range(20):
            client.grow()
            found = post(proxy.url, client, "token-a" if turn < 16 else "token-b")
            compactions += "x-ctxproxy-reason" in found.headers
            replays += found.headers.get("x-ctxproxy-replayed") == "1"
            if compactions:  # whatever the nonce, and after the token has rotated
                assert "x-ctxproxy-reason" in found.headers or found.headers.get("x-ctxproxy-replayed") == "1"
    assert compactions >= 1
    assert replays >= 3
    assert not provider.violations


@pytest.mark.parametrize("api", sorted(PATHS))
def test_forks_share_the_compaction_of_their_prefix_and_nothing_after_it(
    api: str, provider: FakeProvider, tmp_path: Path
) -> None:
    parent = Client(api, flips=False)
    with serve(provider, tmp_path, policy={"summaries": False}) as proxy:
        while "x-ctxproxy-reason" not in post(proxy.url, parent).headers:
            parent.grow()
        shared = json.loads(provider.requests[-1].body)["messages"]
        forks: list[Client] = []
        for word in ("alpha1", "beta22"):
            fork = Client(api, flips=False)
            fork.entries, fork.turn = [dict(e) for e in parent.entries], parent.turn
            fork.entries.append({"kind": "assistant", "text": "I split the work."})
            fork.entries.append({"kind": "user", "text": f"You are the helper for secret-{word}."})
            forks.append(fork)
        for fork in forks:
            found = post(proxy.url, fork)
            assert found.headers.get("x-ctxproxy-replayed") == "1"
            assert json.loads(provider.requests[-1].body)["messages"][: len(shared)] == shared
        # Each is compacted on its own way on; what only one of them has said is in no request of the other.
        for _ in range(14):
            for fork, other in zip(forks, ("beta22", "alpha1"), strict=True):
                fork.grow()
                post(proxy.url, fork)
                assert other not in provider.requests[-1].body.decode()


def test_the_same_last_message_is_not_the_same_conversation(provider: FakeProvider, tmp_path: Path) -> None:
    one = full(Client("chat", task="Plan a trip to Oslo.", flips=False), "aaaaaa")
    two = full(Client("chat", task="Plan a trip to Rome.", flips=False), "bbbbbb")
    one.entries[-1]["text"] = two.entries[-1]["text"] = "And now?"
    with serve(provider, tmp_path) as proxy:
        for _ in range(3):
            for client, word, other in ((one, "aaaaaa", "bbbbbb"), (two, "bbbbbb", "aaaaaa")):
                post(proxy.url, client)
                sent = provider.requests[-1].body.decode()
                assert word in sent
                assert other not in sent


def test_the_same_first_message_is_not_the_same_conversation(provider: FakeProvider, tmp_path: Path) -> None:
    """At the same time, too: both ask for a summary while the other's is under way."""
    from concurrent.futures import ThreadPoolExecutor

    one, two = full(Client("chat", flips=False), "aaaaaa"), full(Client("chat", flips=False), "bbbbbb")
    assert one.entries[0] == two.entries[0]
    with serve(provider, tmp_path) as proxy, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: post(proxy.url, one if i % 2 else two), range(8)))
        bodies = [r.body.decode() for r in provider.model_requests]
        assert len([r for r in provider.model_requests if is_summary(r)]) == 2
    assert all(("aaaaaa" in body) != ("bbbbbb" in body) for body in bodies)


def test_two_credentials_with_the_same_conversation_see_nothing_of_each_other(
    provider: FakeProvider, tmp_path: Path
) -> None:
    client = full(Client("chat", flips=False), "aaaaaa")
    scoped = {"url": f"sqlite:{tmp_path / 'l.db'}", "scope": "token"}
    with serve(provider, tmp_path, ledger=scoped) as proxy:
        post(proxy.url, client, "key-one")
        assert len([r for r in provider.model_requests if is_summary(r)]) == 1
        client.talk()
        assert post(proxy.url, client, "key-one").headers.get("x-ctxproxy-replayed") == "1"
        found = post(proxy.url, client, "key-two")
        assert found.headers.get("x-ctxproxy-replayed") is None
        assert len([r for r in provider.model_requests if is_summary(r)]) == 2
        asked = [r.header("authorization") for r in provider.model_requests if is_summary(r)]
        assert asked == ["Bearer key-one", "Bearer key-two"]
        kept = originals(proxy)
        scopes = {scope for scope, _ in kept}
        assert len(scopes) == 2
        archive: Any = proxy.app.relay.runtime.archive  # type: ignore[union-attr]
        for scope, name in kept:
            (other,) = scopes - {scope}
            assert archive.restore(scope, name) is not None
            assert archive.restore(other, name) is None  # ids are keyed by account as well
