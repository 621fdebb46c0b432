"""How do I use the proxy? Start it, and point any OpenAI client at it; nothing of ctxproxy is imported.

    pip install ctxproxy openai
    ctxproxy serve                                     # in another terminal; or behind it, your own server:
    ctxproxy serve --upstream http://localhost:8000/v1 --window 32768
    OPENAI_BASE_URL=http://127.0.0.1:8484/v1 OPENAI_API_KEY=... python recipes/proxy_with_openai_sdk.py

In one line, without a proxy that stays: `ctxproxy run --window 3000 -- python recipes/proxy_with_openai_sdk.py`.
Reads OPENAI_API_KEY, OPENAI_BASE_URL (the proxy) and OPENAI_MODEL. Start the proxy with `--window 3000` to see
compactions in this short run; without it the model's own window is used.
"""

from __future__ import annotations

import json
import os

from openai import OpenAI

client = OpenAI()  # finds the proxy by OPENAI_BASE_URL


def read_line(n: int) -> str:
    """A tool with a long answer."""
    return f"Line {n} of the log says that step {n} took {n % 7} seconds and ended well. " * 15


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_line",
            "description": "Read one line of the log. There are 30 lines.",
            "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        },
    }
]

messages = [{"role": "user", "content": "Read the lines 1 to 30 of the log one after another, then say: all read."}]
calls = 0
while True:
    # `with_raw_response` only to read the headers in which the proxy says what it did.
    raw = client.chat.completions.with_raw_response.create(
        model=os.environ.get("OPENAI_MODEL", "gpt-4.1-mini"), messages=messages, tools=TOOLS
    )
    calls += 1
    told = raw.headers
    if told.get("x-ctxproxy-reason"):
        before, after = int(told["x-ctxproxy-tokens-before"]), int(told["x-ctxproxy-tokens-after"])
        print(f"call {calls}: {told['x-ctxproxy-reason']}: {before:,} -> {after:,} tokens")
    message = raw.parse().choices[0].message
    messages.append(message)  # your own history stays whole; what is sent is made smaller
    for call in message.tool_calls or []:
        text = read_line(**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
    if not message.tool_calls or calls > 40:
        break

print("answer:", message.content)
print("model calls:", calls)
