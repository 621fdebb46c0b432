"""What a wrapped client adds to a call, beside the bare client, in one run.

    python tests/benchmarks/bench_clients.py [--seconds 3]

An upstream in a process of its own answers at once. Bare and wrapped clients take turns, so that a drift of the
machine hits both; each call has a new last message, so that something is counted every time. Nothing is compacted:
the window is large. `ratio` is the median of the wrapped client over that of the bare one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it asks for a price list, and waits
SIZES = {"1 kB": 1_000, "130 kB": 130_000}

UPSTREAM = """
import asyncio, json
def head(size, kind):
    return b"HTTP/1.1 200 OK\\r\\ncontent-type: %s\\r\\ncontent-length: %d\\r\\n\\r\\n" % (kind, size)
CHUNK = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "ok "}, "finish_reason": None}]}
STREAM = (b"data: " + json.dumps(CHUNK).encode() + b"\\n\\n") * 50
END = {**CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}  # litellm takes a stream without it for a broken one
STREAM += b"data: " + json.dumps(END).encode() + b"\\n\\ndata: [DONE]\\n\\n"
SSE = head(len(STREAM), b"text/event-stream") + STREAM
def plain(tokens, messages):
    if messages:
        value = {"id": "x", "type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "ok"}], "stop_reason": "end_turn", "stop_sequence": None, "usage": {"input_tokens": tokens, "output_tokens": 1}}
    else:
        choice = {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}
        value = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": {"prompt_tokens": tokens, "completion_tokens": 1, "total_tokens": tokens + 1}}
    body = json.dumps(value).encode()
    return head(len(body), b"application/json") + body
async def serve(reader, writer):
    try:
        while True:
            lines = await reader.readuntil(b"\\r\\n\\r\\n")
            size = next((int(l.split(b":")[1]) for l in lines.split(b"\\r\\n") if l.lower().startswith(b"content-length")), 0)
            body = await reader.readexactly(size)
            tokens = int(len(body) / 4.4)  # about what this text has: an answer that lies would be noticed
            stream = b'"stream":true' in body[-400:]
            writer.write(SSE if stream else plain(tokens, b"/messages" in lines.split(b"\\r\\n")[0]))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 22)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def conversation(size: int) -> list[dict[str, Any]]:
    """A history of about `size` bytes of JSON."""
    found: list[dict[str, Any]] = [{"role": "user", "content": "the task"}]
    text = "The quick brown fox looked at the file and said that line 42 is wrong. " * 14
    while len(json.dumps(found)) < size - 400:
        role = "assistant" if len(found) % 2 else "user"
        found.append({"role": role, "content": text[: max(1, size - 400)]})
    if found[-1]["role"] == "user" and len(found) > 1:
        found.append({"role": "assistant", "content": "done"})
    return found


def alternate(calls: list[Callable[[int], None]], seconds: float) -> list[float]:
    """The median time of each call, in seconds; they take turns."""
    times: list[list[float]] = [[] for _ in calls]
    for i in range(20):
        for call in calls:
            call(-i - 1)
    end, turn = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        turn += 1
        for call, taken in zip(calls, times, strict=True):
            began = time.perf_counter()
            call(turn)
            taken.append(time.perf_counter() - began)
    return [statistics.median(taken) for taken in times]


def line(name: str, bare: float, wrapped: float) -> None:
    print(
        f"{name:34} bare {bare * 1e3:7.2f} ms  wrapped {wrapped * 1e3:7.2f} ms  ratio {wrapped / bare:5.2f}  added {(wrapped - bare) * 1e3:5.2f} ms",
        flush=True,
    )


def measure(url: str, seconds: float) -> None:
    import anthropic
    import openai

    from ctxproxy.clients import wrap

    for size, count in SIZES.items():
        history = conversation(count)

        def new(turn: int, history: list[dict[str, Any]] = history) -> list[dict[str, Any]]:
            return [*history, {"role": "user", "content": f"and now step {turn} of the task, please"}]

        bare = openai.OpenAI(base_url=url, api_key="k")
        pair = [bare, wrap(bare, window=10_000_000)]
        line(
            f"openai create, {size}",
            *alternate([lambda t, c=c: c.chat.completions.create(model="m", messages=new(t)) for c in pair], seconds),
        )
        line(
            f"openai stream of 50 events, {size}",
            *alternate(
                [lambda t, c=c: list(c.chat.completions.create(model="m", messages=new(t), stream=True)) for c in pair],
                seconds,
            ),
        )
        other = anthropic.Anthropic(base_url=url, api_key="k")
        both = [other, wrap(other, window=10_000_000)]
        line(
            f"anthropic create, {size}",
            *alternate(
                [lambda t, c=c: c.messages.create(model="m", messages=new(t), max_tokens=9) for c in both], seconds
            ),
        )
        loop = asyncio.new_event_loop()
        given = openai.AsyncOpenAI(base_url=url, api_key="k")
        pair_async = [given, wrap(given, window=10_000_000)]
        line(
            f"openai async create, {size}",
            *alternate(
                [
                    lambda t, c=c, loop=loop: loop.run_until_complete(
                        c.chat.completions.create(model="m", messages=new(t))
                    )
                    for c in pair_async
                ],
                seconds,
            ),
        )
        loop.run_until_complete(given.close())
        loop.close()
        bare.close()
        other.close()


def functions(url: str, seconds: float) -> None:
    import litellm

    import ctxproxy

    litellm.suppress_debug_info = True
    options = {"model": "openai/m", "api_base": url, "api_key": "k"}
    used = ctxproxy.LiteLLM(window=10_000_000)
    for size, count in SIZES.items():
        history = conversation(count)

        def new(turn: int, history: list[dict[str, Any]] = history) -> list[dict[str, Any]]:
            return [*history, {"role": "user", "content": f"and now step {turn} of the task, please"}]

        pair: list[Any] = [litellm, used]
        line(
            f"litellm.completion, {size}",
            *alternate([lambda t, c=c: c.completion(messages=new(t), **options) for c in pair], seconds),
        )
        line(
            f"litellm stream of 50 events, {size}",
            *alternate(
                [lambda t, c=c: list(c.completion(messages=new(t), stream=True, **options)) for c in pair], seconds
            ),
        )


def making(seconds: float) -> None:
    import openai

    from ctxproxy.clients import wrap
    from ctxproxy.clients.openai import OpenAI

    given = openai.OpenAI(api_key="k")
    line(
        "openai.OpenAI() and ctxproxy.OpenAI()",
        *alternate([lambda _: openai.OpenAI(api_key="k").close(), lambda _: OpenAI(api_key="k").close()], seconds),
    )
    line("client.copy() and wrap(client)", *alternate([lambda _: given.copy(), lambda _: wrap(given)], seconds))


def importing() -> None:
    for name in ("openai", "anthropic", "ctxproxy", "ctxproxy.clients", "litellm", "ctxproxy.clients.litellm"):
        times = []
        for _ in range(2 if "litellm" in name else 5):
            code = f"import time; t = time.perf_counter(); import {name}; print(time.perf_counter() - t)"
            times.append(
                float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
            )
        print(f"import {name:20} {min(times) * 1e3:7.0f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each pair")
    seconds = parser.parse_args().seconds
    importing()
    making(min(1.0, seconds))
    upstream = subprocess.Popen([sys.executable, "-c", UPSTREAM], stdout=subprocess.PIPE, text=True)
    try:
        assert upstream.stdout is not None
        url = f"http://127.0.0.1:{int(upstream.stdout.readline())}/v1"
        measure(url, seconds)
        functions(url, seconds)
    finally:
        upstream.kill()


if __name__ == "__main__":
    main()
