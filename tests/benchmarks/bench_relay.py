"""What ctxproxy adds to a request, beside a bare relay on the same stack, in one run.

    python tests/benchmarks/bench_relay.py [--seconds 4]

Three processes: an upstream that answers at once, a bare relay (uvicorn + aiohttp, no engine), ctxproxy. The
client sends the same conversation over one kept connection, in turn to the upstream, the bare relay and
ctxproxy, so that a drift of the machine hits all three. `added` is the median over the direct call;
throughput is of 8 connections. Nothing is compacted: the window is large; every prompt is counted exactly.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"1 kB": 1_000, "130 kB": 130_000, "800 kB": 800_000, "4 MB": 4_000_000}

UPSTREAM = """
import asyncio
BODY = b'{"id":"x","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}]}'
HEAD = b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(BODY)
async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            size = next((int(l.split(b":")[1]) for l in head.split(b"\\r\\n") if l.lower().startswith(b"content-length")), 0)
            while size > 0:
                size -= len(await reader.read(min(size, 1 << 20)))
            writer.write(HEAD + BODY)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 22)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""

BARE = """
import sys, socket
import aiohttp, uvicorn
from yarl import URL
base = sys.argv[1]
state = {}
HOP = {b"host", b"connection", b"content-length", b"transfer-encoding"}
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                state["session"] = aiohttp.ClientSession(auto_decompress=False, connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar())
                await send({"type": "lifespan.startup.complete"})
            else:
                await state["session"].close()
                await send({"type": "lifespan.shutdown.complete"})
                return
    chunks = []
    while True:
        message = await receive()
        chunks.append(message.get("body", b""))
        if not message.get("more_body"):
            break
    headers = [(k.decode(), v.decode()) for k, v in scope["headers"] if k not in HOP]
    async with state["session"].request(scope["method"], URL(base + scope["path"], encoded=True), headers=headers, data=b"".join(chunks)) as response:
        await send({"type": "http.response.start", "status": response.status, "headers": [(k, v) for k, v in response.raw_headers if k.lower() not in HOP or k.lower() == b"content-length"]})
        async for chunk in response.content.iter_any():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
sock = socket.socket(); sock.bind(("127.0.0.1", 0)); sock.listen(128)
print(sock.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none", access_log=False, server_header=False, date_header=False)).run(sockets=[sock])
"""


def conversation(size: int) -> bytes:
    """A chat request of about `size` bytes, in messages of at most 2 kB."""
    messages = [{"role": "system", "content": "You are a careful assistant."}]
    text = "The build of module {0} took {1} ms and wrote src/part_{0}/file_{1}.py; see ticket {2}. "
    i, total = 0, 100
    while total < size:
        line = text.format(i % 97, i * 37 % 1009, i * 7919 % 99991)
        content = line * max(1, min(2_000, size - total - 60) // len(line))
        messages.append({"role": "user" if i % 2 == 0 else "assistant", "content": content})
        total += len(content) + 40
        i += 1
    if messages[-1]["role"] != "user":
        messages.append({"role": "user", "content": "go on"})
    return json.dumps({"model": "gpt-4o", "messages": messages}).encode()


class Client:
    """A blocking HTTP/1.1 client on one kept connection: it costs the same for every server."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def post(self, body: bytes) -> float:
        head = (
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            b"authorization: Bearer none\r\ncontent-length: %d\r\n\r\n" % len(body)
        )
        began = time.perf_counter()
        self.socket.sendall(head + body)
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.socket.recv(1 << 16)
        got, _, rest = data.partition(b"\r\n\r\n")
        if b" 200 " not in got.split(b"\r\n")[0]:
            raise RuntimeError(got.decode())
        lower = got.lower()
        if b"content-length:" in lower:
            size = int(lower.split(b"content-length:")[1].split(b"\r\n")[0])
            while len(rest) < size:
                rest += self.socket.recv(1 << 16)
        else:
            while not rest.endswith(b"0\r\n\r\n"):
                rest += self.socket.recv(1 << 16)
        return time.perf_counter() - began


def start(*command: str) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    line = process.stdout.readline()
    return process, int(line.rsplit(":", 1)[-1])


def throughput(port: int, body: bytes, seconds: float, connections: int = 8) -> float:
    done, stop = [0] * connections, time.perf_counter() + seconds

    def work(i: int) -> None:
        client = Client(port)
        while time.perf_counter() < stop:
            client.post(body)
            done[i] += 1

    threads = [threading.Thread(target=work, args=(i,)) for i in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="seconds per size and measurement")
    args = parser.parse_args()
    processes: list[subprocess.Popen[str]] = []
    try:
        upstream, up = start("-c", UPSTREAM)
        processes.append(upstream)
        bare, bare_port = start("-c", BARE, f"http://127.0.0.1:{up}")
        processes.append(bare)
        ours, our_port = start(
            "-m", "ctxproxy", "serve", "--port", "0", "--upstream", f"http://127.0.0.1:{up}", "--window", "100000000"
        )
        processes.append(ours)
        print(
            f"{'size':>8} {'direct':>9} {'bare +':>9} {'ctxproxy +':>11} {'ratio':>6}   {'bare /s':>8} {'ours /s':>8} {'share':>6}"
        )
        for name, size in SIZES.items():
            body = conversation(size)
            clients = [Client(up), Client(bare_port), Client(our_port)]
            times: list[list[float]] = [[], [], []]
            for client in clients:
                client.post(body)
            stop = time.perf_counter() + args.seconds
            while time.perf_counter() < stop or len(times[0]) < 20:
                for client, found in zip(clients, times, strict=True):
                    found.append(client.post(body))
            direct, via_bare, via_ours = (statistics.median(found) * 1e3 for found in times)
            rate_bare = throughput(bare_port, body, args.seconds)
            rate_ours = throughput(our_port, body, args.seconds)
            added_bare, added_ours = via_bare - direct, via_ours - direct
            print(
                f"{name:>8} {direct:7.2f}ms {added_bare:7.2f}ms {added_ours:9.2f}ms {added_ours / added_bare:6.2f}   "
                f"{rate_bare:8.0f} {rate_ours:8.0f} {rate_ours / rate_bare:6.0%}"
            )
    finally:
        for process in processes:
            process.terminate()


if __name__ == "__main__":
    main()
