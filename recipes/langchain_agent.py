"""How do I keep a LangChain agent inside the window?

    pip install 'ctxproxy[frameworks]'
    OPENAI_API_KEY=... python recipes/langchain_agent.py                # ChatOpenAI: it takes HTTP clients
    ANTHROPIC_API_KEY=... python recipes/langchain_agent.py anthropic   # ChatAnthropic: it takes none; a middleware

Reads OPENAI_API_KEY, OPENAI_BASE_URL, OPENAI_MODEL, or ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL, ANTHROPIC_MODEL.
"""

from __future__ import annotations

import os
import sys

from langchain.agents import create_agent

import ctxproxy
from ctxproxy.runtime import Runtime

# Not needed in your program. The window of 3,000 tokens is so small that a short run shows something: leave it out,
# and the model's own is used. `on_compaction` is called each time that a prompt was made smaller.
compactions = []
runtime = Runtime(window=3_000, on_compaction=compactions.append)


def read_line(n: int) -> str:
    """Read one line of the log. There are 30 lines."""
    return f"Line {n} of the log says that step {n} took {n % 7} seconds and ended well. " * 15


TASK = "Read the lines 1 to 30 of the log one after another, then say: all read."

if "anthropic" in sys.argv[1:]:
    from langchain_anthropic import ChatAnthropic

    from ctxproxy.clients.langchain import ContextMiddleware

    model = ChatAnthropic(model=os.environ.get("ANTHROPIC_MODEL", "claude-haiku-4-5"), max_tokens=300)
    middleware = [ContextMiddleware(runtime=runtime)]  # all of it, for any agent over ChatAnthropic
else:
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(
        model=os.environ.get("OPENAI_MODEL", "gpt-4.1-mini"),
        # All of it. One client for `invoke`, one for `ainvoke`; they share the memory of the runtime.
        http_client=ctxproxy.http_client(runtime=runtime),
        http_async_client=ctxproxy.http_client(asynchronous=True, runtime=runtime),
    )
    middleware = []

agent = create_agent(model, [read_line], middleware=middleware)
# LangChain stops after 25 steps of its graph unless it is told; a tool call takes two.
result = agent.invoke({"messages": [{"role": "user", "content": TASK}]}, {"recursion_limit": 100})

print("answer:", result["messages"][-1].text)
print("messages:", len(result["messages"]))  # the agent's own history is whole
print("compactions:", len(compactions))
for done in compactions:
    print(f"  {done.reason}: {done.tokens_before:,} -> {done.tokens_after:,} tokens by {'+'.join(done.strategies)}")
