"""Several workers on one port and one store, as processes."""

from __future__ import annotations

import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from flipping import Client
from provider import FakeProvider
from running import Running, running

from ctxproxy.settings import Settings
from ctxproxy.strategies.summarize import SECTIONS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")

WINDOW = 6_000
SUMMARY = "\n".join(f"### {name}\n- about {name.lower()} of src/m1.py and ticket 4711" for name in SECTIONS)


def is_summary(request: Any) -> bool:
    return b"### Decisions Made\\n- (each" in request.body


def answer(request: Any) -> str:
    return SUMMARY if is_summary(request) else "ok"


def post(url: str, body: bytes) -> httpx.Response:
    found = httpx.post(url + "/v1/chat/completions", content=body, timeout=60)
    assert found.status_code == 200, found.text
    return found


def until_worker(proxy: Running, ready: Any) -> None:
    """Wait for something that the supervisor does on its own."""
    pause = threading.Event()
    for _ in range(600):
        if ready():
            return
        pause.wait(0.05)
    raise AssertionError(f"it did not happen: {proxy.lines}")


def test_settings_reach_a_worker_as_they_are() -> None:
    given = Settings.model_validate(
        {
            "policy": {"preset": "gentle", "target": 0.5, "tail": {"high": 9_000}},
            "upstreams": {"a": {"base_url": "http://127.0.0.1:1", "key": "secret", "policy": "grid"}},
            "models": {"x*": {"window": 9_000}},
        }
    )
    made = Settings.model_validate(given.given())
    assert made == given
    assert made.policy_for("x1", upstream="a") == given.policy_for("x1", upstream="a")
    assert made.upstreams["a"].key == "secret"


def test_a_worker_that_dies_is_replaced_and_all_end_together(tmp_path: Path) -> None:
    client = Client("chat", words=5)
    with (
        FakeProvider(window=WINDOW) as provider,
        running(provider.base_url, tmp_path, window=WINDOW, workers=2) as proxy,
    ):
        before = proxy.workers
        assert len(before) == 2
        post(proxy.url, client.body())
        os.kill(before[0], signal.SIGKILL)
        until_worker(proxy, lambda: len(set(proxy.workers) - {before[0]}) == 2)
        for _ in range(4):
            client.grow()
            post(proxy.url, client.body())
        now = proxy.workers
        assert proxy.stop() == 0
        assert not [pid for pid in now if Path(f"/proc/{pid}").exists()]
    assert any("another one takes its place" in line for line in proxy.lines)


def test_workers_do_not_outlive_their_supervisor(tmp_path: Path) -> None:
    with (
        FakeProvider(window=WINDOW) as provider,
        running(provider.base_url, tmp_path, window=WINDOW, workers=2) as proxy,
    ):
        workers = proxy.workers
        proxy.kill()
        until_worker(proxy, lambda: not any(Path(f"/proc/{pid}/cmdline").exists() and alive(pid) for pid in workers))


def alive(pid: int) -> bool:
    try:
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.parametrize("workers", [1, 2])
def test_ten_requests_at_the_threshold_cause_one_summary_call_and_the_same_bytes(workers: int, tmp_path: Path) -> None:
    client = Client("chat", flips=False)
    while len(client.body()) < 25_000:  # over the window
        client.talk()
    with (
        FakeProvider(window=WINDOW, answer=answer) as provider,
        running(provider.base_url, tmp_path, window=WINDOW, workers=workers) as proxy,
        ThreadPoolExecutor(10) as pool,
    ):
        answers = list(pool.map(lambda _: post(proxy.url, client.body()), range(10)))
        assert {a.headers["x-ctxproxy-reason"] for a in answers if "x-ctxproxy-reason" in a.headers} == {"overflow"}
        asked = [r for r in provider.model_requests if is_summary(r)]
        sent = {r.body for r in provider.model_requests if not is_summary(r)}
        assert len(asked) == 1
        assert len(sent) == 1
        assert b"about pending of src/m1.py" in sent.pop()
        # The next turn is replayed by whichever worker gets it.
        client.talk()
        for _ in range(4):
            assert post(proxy.url, client.body()).headers.get("x-ctxproxy-replayed") == "1"
