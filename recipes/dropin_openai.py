"""How do I keep a loop over OpenAI's client inside the window? Change the import, and nothing else.

    pip install 'ctxproxy[openai]'
    OPENAI_API_KEY=... python recipes/dropin_openai.py

Reads OPENAI_API_KEY, OPENAI_BASE_URL (another server) and OPENAI_MODEL.
"""

from __future__ import annotations

import json
import os

from ctxproxy import OpenAI  # was: from openai import OpenAI
from ctxproxy.runtime import Runtime

# Not needed in your program. The window of 3,000 tokens is so small that a short run shows something: leave it out,
# and the model's own is used. `on_compaction` is called each time that a prompt was made smaller.
compactions = []
runtime = Runtime(window=3_000, on_compaction=compactions.append)

client = OpenAI(runtime=runtime)


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
    answer = client.chat.completions.create(
        model=os.environ.get("OPENAI_MODEL", "gpt-4.1-mini"), messages=messages, tools=TOOLS
    )
    calls += 1
    message = answer.choices[0].message
    messages.append(message)  # your own history stays whole; what is sent is made smaller
    for call in message.tool_calls or []:
        text = read_line(**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
    if not message.tool_calls or calls > 40:
        break

print("answer:", message.content)
print("model calls:", calls)
print("compactions:", len(compactions))
for done in compactions:
    print(f"  {done.reason}: {done.tokens_before:,} -> {done.tokens_after:,} tokens by {'+'.join(done.strategies)}")
