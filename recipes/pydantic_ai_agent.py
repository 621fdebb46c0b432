"""How do I keep an agent of pydantic-ai inside the window?

    pip install 'ctxproxy[frameworks]'
    OPENAI_API_KEY=... python recipes/pydantic_ai_agent.py

Reads OPENAI_API_KEY, OPENAI_BASE_URL (another server) and OPENAI_MODEL. For Anthropic take `AnthropicModel` and
`AnthropicProvider(http_client=...)`; the rest stays.
"""

from __future__ import annotations

import os

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import ctxproxy
from ctxproxy.runtime import Runtime

# Not needed in your program. The window of 3,000 tokens is so small that a short run shows something: leave it out,
# and the model's own is used. `on_compaction` is called each time that a prompt was made smaller.
compactions = []
runtime = Runtime(window=3_000, on_compaction=compactions.append)

# All of it. pydantic-ai is asynchronous inside, `run_sync` too: it wants an asynchronous client.
provider = OpenAIProvider(http_client=ctxproxy.http_client(asynchronous=True, runtime=runtime))
model = OpenAIChatModel(os.environ.get("OPENAI_MODEL", "gpt-4.1-mini"), provider=provider)


def read_line(n: int) -> str:
    """Read one line of the log. There are 30 lines."""
    return f"Line {n} of the log says that step {n} took {n % 7} seconds and ended well. " * 15


TASK = "Read the lines 1 to 30 of the log one after another, then say: all read."

agent = Agent(model, tools=[read_line])
result = agent.run_sync(TASK)

print("answer:", result.output)
print("messages:", len(result.all_messages()))  # the agent's own history is whole
print("compactions:", len(compactions))
for done in compactions:
    print(f"  {done.reason}: {done.tokens_before:,} -> {done.tokens_after:,} tokens by {'+'.join(done.strategies)}")
