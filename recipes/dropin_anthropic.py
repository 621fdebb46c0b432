"""How do I keep a loop over Anthropic's client inside the window? Change the import, and nothing else.

    pip install 'ctxproxy[anthropic]'
    ANTHROPIC_API_KEY=... python recipes/dropin_anthropic.py

Reads ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL (another server) and ANTHROPIC_MODEL.
"""

from __future__ import annotations

import os

from ctxproxy import Anthropic  # was: from anthropic import Anthropic
from ctxproxy.runtime import Runtime

# Not needed in your program. The window of 3,000 tokens is so small that a short run shows something: leave it out,
# and the model's own is used. `on_compaction` is called each time that a prompt was made smaller.
compactions = []
runtime = Runtime(window=3_000, on_compaction=compactions.append)

client = Anthropic(runtime=runtime)


def read_line(n: int) -> str:
    """A tool with a long answer."""
    return f"Line {n} of the log says that step {n} took {n % 7} seconds and ended well. " * 15


TOOLS = [
    {
        "name": "read_line",
        "description": "Read one line of the log. There are 30 lines.",
        "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    }
]

messages = [{"role": "user", "content": "Read the lines 1 to 30 of the log one after another, then say: all read."}]
calls = 0
while True:
    answer = client.messages.create(
        model=os.environ.get("ANTHROPIC_MODEL", "claude-haiku-4-5"), max_tokens=300, messages=messages, tools=TOOLS
    )
    calls += 1
    messages.append({"role": "assistant", "content": answer.content})  # your own history stays whole
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": read_line(**block.input)}
        for block in answer.content
        if block.type == "tool_use"
    ]
    if not results or calls > 40:
        break
    messages.append({"role": "user", "content": results})

print("answer:", "".join(block.text for block in answer.content if block.type == "text"))
print("model calls:", calls)
print("compactions:", len(compactions))
for done in compactions:
    print(f"  {done.reason}: {done.tokens_before:,} -> {done.tokens_after:,} tokens by {'+'.join(done.strategies)}")
