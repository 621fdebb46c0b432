"""Several agents: a gate before every spawn, warmth handed on within its budget, checkpoints, one event log.

    OPENAI_API_KEY=... python recipes/multi_agent_gate_warmth.py

OPENAI_BASE_URL, MODEL, WINDOW (tokens) and LOG (a file) choose other places and sizes.
"""

from __future__ import annotations

import os
from typing import Any

import openai

import ctxproxy

MODEL = os.environ.get("MODEL", "gpt-4o-mini")
WINDOW = int(os.environ.get("WINDOW", "4000"))
LOG = os.environ.get("LOG")


def run(session: ctxproxy.Session, task: str, steps: int) -> list[Any]:
    """An agent's loop: `wrap` shares the session's memory, rules and names."""
    history: list[Any] = [{"role": "user", "content": task}]
    with session.wrap(openai.OpenAI()) as client:
        for step in range(steps):
            answer = client.chat.completions.create(model=MODEL, messages=history, max_tokens=64)
            history.append({"role": "assistant", "content": answer.choices[0].message.content or ""})
            history.append({"role": "user", "content": f"file {step} says value {step * 37}\n" * 60})
    return history


def main() -> None:
    planner = ctxproxy.Session(model=MODEL, window=WINDOW, policy="grid", agent="planner", cost_limit=5.0, log_file=LOG)
    history = run(planner, "Make a plan for the migration.", 4)
    warmth = {"gotchas": [f"table {n} has no index" for n in range(200)], "user_preferences": ["short answers"]}
    checkpoint = planner.checkpoint("plan is made", warmth=warmth, messages=history)
    try:
        executor = planner.spawn(agent="executor", warmth=checkpoint.compressed_warmth, messages=checkpoint.messages)
    except ctxproxy.GateError as error:  # over the cost limit, or the context is full
        print(f"blocked: {error}")
        return
    run(executor, f"Carry out the plan. Known: {dict(executor.warmth)}", 12)
    for event in planner.events:
        print(f"{event.type:<10} {event.agent:<9} {event.level:<9} {event.before:>6,} -> {event.after:,}")


if __name__ == "__main__":
    main()
