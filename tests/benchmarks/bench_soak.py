"""Mixed load on a proxy in a process of its own, for minutes: does its memory stay flat?

    python tests/benchmarks/bench_soak.py [MINUTES]     (10 unless told; Linux)

Four clients take turns of all kinds: chat and messages, plain and streamed, conversations that are compacted, refused
prompts, errors of the upstream, answers that break off, clients that go away, bodies over the limit. The resident
memory of the proxy is printed every 30 seconds; the ratio is that of the end to that after the warm-up (a fifth of
the time, at most two minutes). The exit code is 1 where it is over 1.25, or where a sound request was not answered 200.
"""

from __future__ import annotations

import random
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import httpx
from provider import FakeProvider
from running import running

WINDOW = 4_000
LIMIT = 400_000
FAULTS = ("500", "529;retry_after=1", "429;retry_after=1", "drop-body", "garbage", "error-stream")


def resident(pid: int) -> float:
    """MiB of memory that a process holds."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


class Client(threading.Thread):
    """One conversation after the other, each until it has been compacted a few times."""

    def __init__(self, url: str, seed: int, until: float) -> None:
        super().__init__(daemon=True)
        self.url, self.random, self.until = url, random.Random(seed), until
        self.seen: Counter[str] = Counter()

    def run(self) -> None:
        with httpx.Client(base_url=self.url, timeout=60) as http:
            messages: list[dict[str, Any]] = []
            while time.monotonic() < self.until:
                if len(messages) > 60:
                    messages = []
                if messages:
                    messages.append({"role": "assistant", "content": self.words(60)})
                messages.append({"role": "user", "content": self.words(150)})
                self.turn(http, messages)

    def words(self, count: int) -> str:
        return " ".join(f"w{self.random.randrange(5_000)}" for _ in range(count))

    def turn(self, http: httpx.Client, messages: list[dict[str, Any]]) -> None:
        path = self.random.choice(("/v1/chat/completions", "/v1/messages"))
        stream = self.random.random() < 0.5
        body = {"model": "gpt-4o", "max_tokens": 64, "stream": stream, "messages": messages}
        kind = self.random.random()
        try:
            if kind < 0.03:
                self.seen[f"leaves: {self.leave(path)}"] += 1
            elif kind < 0.04:
                self.seen[f"too large: {http.post(path, content=b'x' * (LIMIT + 1)).status_code}"] += 1
            elif kind < 0.05:
                self.seen[f"can't fit: {self.huge(http, path)}"] += 1
            elif kind < 0.12:
                fault = self.random.choice(FAULTS)
                answer = http.post(path, json=body, headers={"x-fake-fault": fault})
                self.seen[f"{fault.partition(';')[0]}: {answer.status_code}"] += 1
            else:
                answer = http.post(path, json=body)
                self.seen[f"sound: {answer.status_code}"] += 1
                self.seen["compacted"] += "x-ctxproxy-reason" in answer.headers
        except httpx.HTTPError as error:
            self.seen[f"{'sound' if kind >= 0.12 else 'fault'}: {type(error).__name__}"] += 1

    def leave(self, path: str) -> str:
        """Go away in the middle of a request or of its answer."""
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 70\r\n\r\n".encode()
        body = b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a"}]'
        with socket.create_connection(("127.0.0.1", int(self.url.rpartition(":")[2]))) as sock:
            sock.sendall((head + body)[: self.random.randrange(1, len(head + body) + 1)])
        return "gone"

    def huge(self, http: httpx.Client, path: str) -> int:
        body = {"model": "m", "max_tokens": 64, "messages": [{"role": "user", "content": self.words(20_000)}]}
        return http.post(path, json=body).status_code


def main(minutes: float) -> int:
    began = time.monotonic()
    warm = began + min(120.0, 12 * minutes)
    until = began + 60 * minutes
    with (
        tempfile.TemporaryDirectory() as folder,
        FakeProvider(window=WINDOW, wording="openai", rules=False) as provider,
        running(
            provider.base_url, Path(folder), window=WINDOW, policy={"summaries": False},
            server={"max_body_bytes": LIMIT},
        ) as proxy,
    ):  # fmt: skip
        clients = [Client(proxy.url, seed, until) for seed in range(4)]
        for client in clients:
            client.start()
        first, now = 0.0, began
        while now < until:
            time.sleep(min(30.0, max(0.1, until - now), warm - now if warm > now else 30.0))
            now = time.monotonic()
            last = resident(proxy.process.pid)
            if not first and now >= warm:
                first = last
            provider.requests.clear()  # it keeps them all, and it is not what is measured
            print(
                f"{now - began:6.0f} s  {last:7.1f} MiB  {sum(sum(c.seen.values()) for c in clients)} turns", flush=True
            )
        for client in clients:
            client.join(60)
        last = resident(proxy.process.pid)
        lines = len(proxy.lines)
        tracebacks = sum("Traceback" in line for line in proxy.lines)
    seen = sum((client.seen for client in clients), Counter[str]())
    for name, count in sorted(seen.items()):
        print(f"  {name:30} {count:8,}")
    print(f"lines logged {lines}, of them tracebacks {tracebacks}")
    print(f"after warm-up {first:.1f} MiB, end {last:.1f} MiB, ratio {last / first:.3f}")
    bad = any(name.startswith("sound:") and name != "sound: 200" for name in seen)
    return 1 if bad or last / first > 1.25 else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0))
