"""Kill the proxy with SIGKILL at random moments under load, and hold what is left against what was sent."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import yaml
from flipping import Client
from provider import FakeProvider
from running import ROOT

from ctxproxy.stores import SqliteStore

__all__ = ["Result", "kill_often"]

WINDOW = 3_000
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages"}
_MENTION = re.compile(rb"original ([0-9a-f]{24})")
_CLIENTS = 4


@dataclass
class Result:
    """What was seen: kills, requests and answers, ids that requests mentioned, and every problem in words."""

    kills: int = 0
    sent: int = 0
    answered: int = 0
    compactions: int = 0
    replays: int = 0
    mentioned: set[tuple[str, str]] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)


def kill_often(
    folder: Path, *, kills: int, seed: int, longest: float = 1.2, say: Callable[[str], object] = lambda _: None
) -> Result:
    """Run the proxy `kills` times under the load of some clients, kill it each time, and check its store.

    `longest` are the seconds after which it is killed at the latest.
    """
    moments, result, lock = random.Random(seed), Result(), threading.Lock()
    store_path = folder / "state" / "ctxproxy" / "ledger.sqlite"
    clients = [_Talk(i) for i in range(_CLIENTS)]
    with FakeProvider(window=WINDOW) as provider, _proxies(folder, provider.base_url) as start:
        for _ in range(kills):
            stop = threading.Event()
            pid, url = start()
            threads = [
                threading.Thread(target=talk.load, args=(url, stop, result, lock), daemon=True) for talk in clients
            ]
            for thread in threads:
                thread.start()
            time.sleep(moments.uniform(0.0, longest))  # a random moment is what this is about
            os.kill(pid, signal.SIGKILL)
            stop.set()
            for thread in threads:
                thread.join(30)
            result.kills += 1
            _check(store_path, provider, result)
            said = f"{result.kills} kills, {result.sent} requests, {len(result.mentioned)} originals mentioned"
            say(f"{said}, {len(result.problems)} problems")
        result.problems += [f"the provider refused: {v}" for v in provider.violations]
        result.problems += [f"the provider failed: {e!r}" for e in provider.errors]
    return result


@contextmanager
def _proxies(folder: Path, upstream: str) -> Iterator[Callable[[], tuple[int, str]]]:
    """Gives a function that starts a proxy on the one store, and returns its process id and address."""
    config = {
        "window": WINDOW,
        "upstreams": {"test": {"base_url": upstream}},
        "policy": {"summaries": False},
        "archive": {"hint": "original {id}"},
        "server": {"port": 0},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CTXPROXY_")}
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("zygote.py"))],
        cwd=folder,
        env={**clean, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(folder / "state")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def start() -> tuple[int, str]:
        print(folder / "config.yaml", file=process.stdin, flush=True)
        lines = sorted(process.stdout.readline() for _ in range(2))  # either may come first
        return int(lines[1].removeprefix("pid ")), lines[0].split()[-1]

    try:
        yield start
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


def _check(path: Path, provider: FakeProvider, result: Result) -> None:
    """Every original that a request mentioned is there, and the store is sound."""
    bodies = [(r.wire, r.body) for r in provider.model_requests]
    provider.requests.clear()
    found = {(f"{wire}:single", id.decode()) for wire, body in bodies for id in _MENTION.findall(body)}
    result.sent += len(bodies)
    if not path.exists():
        if found:
            result.problems.append("there is no store, but requests mentioned originals")
        return
    store = SqliteStore(path)
    try:
        for scope, id in found:
            if store.restore(scope, id) is None:
                result.problems.append(f"kill {result.kills}: {scope} {id} was mentioned and can't be restored")
        result.problems += [f"kill {result.kills}: {problem}" for problem in store.check()]
        if store.status().damaged:
            result.problems.append(f"kill {result.kills}: the store was damaged")
    finally:
        store.close()
    result.mentioned |= found


class _Talk:
    """One client: a conversation that goes on over the kills, until it is long and another one begins."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.round = 0
        self.client = self._new()

    def _new(self) -> Client:
        self.round += 1
        api = ("chat", "messages")[self.number % 2]
        client = Client(api, task=f"Task {self.number}.{self.round}: find the leak.", words=50)
        client.salt = f".{self.number}.{self.round}"  # so that each conversation has originals of its own
        return client

    def load(self, url: str, stop: threading.Event, result: Result, lock: threading.Lock) -> None:
        headers = {"content-type": "application/json", "anthropic-version": "2023-06-01", "authorization": "Bearer k"}
        with httpx.Client(base_url=url, headers=headers, timeout=30) as http:
            while not stop.is_set():
                try:
                    answer = http.post(PATHS[self.client.api], content=self.client.body())
                except httpx.HTTPError:
                    return  # killed
                with lock:
                    result.answered += 1
                    result.compactions += "x-ctxproxy-reason" in answer.headers
                    result.replays += answer.headers.get("x-ctxproxy-replayed") == "1"
                    if answer.status_code != 200:
                        result.problems.append(f"status {answer.status_code}: {answer.text[:200]}")
                        return
                if self.client.turn >= 40:
                    self.client = self._new()
                self.client.grow()
