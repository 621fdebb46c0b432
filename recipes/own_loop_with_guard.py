"""A loop of your own around any SDK: one decorator keeps each call inside the window.

    OPENAI_API_KEY=... python recipes/own_loop_with_guard.py

OPENAI_BASE_URL, MODEL and WINDOW (tokens) choose another provider, model and size.
"""

from __future__ import annotations

import os
from typing import Any

import openai

import ctxproxy

MODEL = os.environ.get("MODEL", "gpt-4o-mini")
WINDOW = int(os.environ.get("WINDOW", "4000"))  # small, so that this short run shows a compaction

client = openai.OpenAI()


@ctxproxy.guard(window=WINDOW, model=MODEL, agent="counter")
def ask(messages: list[Any]) -> Any:
    return client.chat.completions.create(model=MODEL, messages=messages, max_tokens=64)


def main() -> None:
    history: list[Any] = [{"role": "user", "content": "Read the log line by line and tell me what is odd."}]
    for step in range(12):
        log = f"2026-11-30 12:{step:02} service-{step} took {step * 37} ms\n" * 30
        history.append({"role": "user", "content": log})
        answer = ask(history)  # the whole history, every turn: the guard remembers what it compacted
        history.append({"role": "assistant", "content": answer.choices[0].message.content or ""})
    compactions = [event for event in ask.session.events if event.type == "compaction"]
    print(f"{len(history)} messages, {len(compactions)} compactions")
    print(ask.session.status())


if __name__ == "__main__":
    main()
