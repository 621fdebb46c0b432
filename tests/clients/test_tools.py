"""Agent loops of the SDKs themselves, on a window that holds a part of their conversation."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai
import pytest
from provider import Answer, FakeProvider, ToolCall

from ctxproxy.clients import wrap
from ctxproxy.compaction import Compaction
from ctxproxy.runtime import Runtime

from .calls import RULES, client, done, http, library

STEPS = 20
OUTPUT = "line {0} of the file says that value {0} is fine, as far as can be told. " * 12
WINDOW = 2_500  # tokens; the whole loop has about twice as many


def _step(request: Any) -> Answer:
    """Ask for the next reading, as long as the newest result is not that of the last one."""
    body = request.json()
    texts = json.dumps(body.get("messages") or body.get("input"))
    last = max((n for n in range(STEPS + 1) if f"value {n} is fine" in texts), default=0)
    return Answer("all read") if last >= STEPS else Answer("", (ToolCall("read", {"n": last + 1}),))


def _runtime() -> tuple[Runtime, list[Compaction]]:
    seen: list[Compaction] = []
    return Runtime(policy=RULES, window=WINDOW, on_compaction=seen.append), seen


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_the_tool_runner_of_anthropic_ends(provider: FakeProvider, asynchronous: bool) -> None:
    provider.window, provider.answer = WINDOW, _step
    runtime, seen = _runtime()
    kind: Any = anthropic.AsyncAnthropic if asynchronous else anthropic.Anthropic
    used: Any = wrap(client(kind, provider.base_url, http(library(anthropic), kind)), runtime=runtime)

    def read(n: int) -> str:
        """Read a line.

        Args:
            n: its number
        """
        return OUTPUT.format(n)

    async def aread(n: int) -> str:
        """Read a line.

        Args:
            n: its number
        """
        return OUTPUT.format(n)

    aread.__name__ = "read"
    tool = anthropic.beta_async_tool(aread) if asynchronous else anthropic.beta_tool(read)
    runner = used.beta.messages.tool_runner(
        model="m", max_tokens=100, tools=[tool], messages=[{"role": "user", "content": "Read all lines."}]
    )
    last = await done(runner.until_done())
    assert last.content[0].text == "all read"
    assert provider.calls == STEPS + 1
    # anthropic 2 leaves the history with the server and sends what is new; older ones send it all.
    assert seen or b'"thread"' in provider.model_requests[-1].body
    await done(used.close())


@pytest.mark.parametrize("wire", ["chat", "responses"])
def test_a_loop_over_openais_client_ends(provider: FakeProvider, wire: str) -> None:
    provider.window, provider.answer = WINDOW, _step
    runtime, seen = _runtime()
    used: Any = wrap(client(openai.OpenAI, provider.base_url, http(library(openai), openai.OpenAI)), runtime=runtime)
    parameters = {"type": "object", "properties": {"n": {"type": "integer"}}}
    history: list[Any] = [{"role": "user", "content": "Read all lines."}]
    for _ in range(STEPS + 1):
        if wire == "chat":
            tools: list[Any] = [{"type": "function", "function": {"name": "read", "parameters": parameters}}]
            message = used.chat.completions.create(model="m", messages=history, tools=tools).choices[0].message
            calls = message.tool_calls or []
            history.append(message)
            for call in calls:
                text = OUTPUT.format(json.loads(call.function.arguments)["n"])
                history.append({"role": "tool", "tool_call_id": call.id, "content": text})
        else:
            tools = [{"type": "function", "name": "read", "parameters": parameters}]
            response = used.responses.create(model="m", input=history, tools=tools)
            history += response.output
            calls = [item for item in response.output if item.type == "function_call"]
            for call in calls:
                text = OUTPUT.format(json.loads(call.arguments)["n"])
                history.append({"type": "function_call_output", "call_id": call.call_id, "output": text})
    assert not calls
    assert provider.calls == STEPS + 1
    assert seen
    used.close()
