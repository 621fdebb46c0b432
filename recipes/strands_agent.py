"""How do I keep a Strands agent inside the window?

    pip install ctxproxy 'strands-agents[openai]'
    OPENAI_API_KEY=... python recipes/strands_agent.py

Reads OPENAI_API_KEY, OPENAI_BASE_URL (another server) and OPENAI_MODEL. Use `client=`: an `http_client` in
`client_args` does not work, since Strands closes it after the first request.
"""

from __future__ import annotations

import os

from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.models.openai import OpenAIModel

from ctxproxy import AsyncOpenAI
from ctxproxy.runtime import Runtime

# Not needed in your program. The window of 3,000 tokens is so small that a short run shows something: leave it out,
# and the model's own is used. `on_compaction` is called each time that a prompt was made smaller.
compactions = []
runtime = Runtime(window=3_000, on_compaction=compactions.append)

model = OpenAIModel(
    client=AsyncOpenAI(runtime=runtime), model_id=os.environ.get("OPENAI_MODEL", "gpt-4.1-mini")
)  # all of it


@tool
def read_line(n: int) -> str:
    """Read one line of the log. There are 30 lines."""
    return f"Line {n} of the log says that step {n} took {n % 7} seconds and ended well. " * 15


TASK = "Read the lines 1 to 30 of the log one after another, then say: all read."

# Strands drops all but the newest 40 messages unless it is told not to.
agent = Agent(model=model, tools=[read_line], conversation_manager=NullConversationManager(), callback_handler=None)
result = agent(TASK)

print("answer:", str(result).strip())
print("messages:", len(agent.messages))  # the agent's own history is whole
print("compactions:", len(compactions))
for done in compactions:
    print(f"  {done.reason}: {done.tokens_before:,} -> {done.tokens_after:,} tokens by {'+'.join(done.strategies)}")
