"""How do I keep an agent of the OpenAI Agents SDK inside the window?

    pip install 'ctxproxy[frameworks]'
    OPENAI_API_KEY=... python recipes/openai_agents_sdk.py

Reads OPENAI_API_KEY, OPENAI_BASE_URL (another server) and OPENAI_MODEL. The runs use the Responses API, which is the
SDK's default; for a server that has only Chat Completions add `set_default_openai_api("chat_completions")`.
"""

from __future__ import annotations

import os

from agents import Agent, Runner, function_tool, set_default_openai_client, set_tracing_disabled

from ctxproxy import AsyncOpenAI
from ctxproxy.runtime import Runtime

# Not needed in your program. The window of 3,000 tokens is so small that a short run shows something: leave it out,
# and the model's own is used. `on_compaction` is called each time that a prompt was made smaller.
compactions = []
runtime = Runtime(window=3_000, on_compaction=compactions.append)

set_default_openai_client(AsyncOpenAI(runtime=runtime))  # all of it, for every agent of the program
set_tracing_disabled(True)  # traces would be sent to OpenAI, whatever the base URL


@function_tool
def read_line(n: int) -> str:
    """Read one line of the log. There are 30 lines."""
    return f"Line {n} of the log says that step {n} took {n % 7} seconds and ended well. " * 15


TASK = "Read the lines 1 to 30 of the log one after another, then say: all read."

agent = Agent(name="reader", model=os.environ.get("OPENAI_MODEL", "gpt-4.1-mini"), tools=[read_line])
result = Runner.run_sync(agent, TASK, max_turns=40)

print("answer:", result.final_output)
print("compactions:", len(compactions))
for done in compactions:
    print(f"  {done.reason}: {done.tokens_before:,} -> {done.tokens_after:,} tokens by {'+'.join(done.strategies)}")
