"""litellm with ctxproxy inside: the same function, another import.

    OPENAI_API_KEY=... python recipes/litellm_completion.py

OPENAI_BASE_URL, MODEL (a name as litellm knows it) and WINDOW (tokens) choose another provider, model and size.
"""

from __future__ import annotations

import os
from typing import Any

import ctxproxy

MODEL = os.environ.get("MODEL", "openai/gpt-4o-mini")
WINDOW = int(os.environ.get("WINDOW", "4000"))  # small, so that this short run shows a compaction
BASE_URL = os.environ.get("OPENAI_BASE_URL")

# `from ctxproxy import completion` is the same without settings; `ctxproxy.wrap(litellm.Router(...))` is a router.
llm = ctxproxy.LiteLLM(window=WINDOW)


def main() -> None:
    history: list[Any] = [{"role": "user", "content": "Read the log line by line and tell me what is odd."}]
    compactions = 0
    for step in range(12):
        log = f"2026-11-30 12:{step:02} service-{step} took {step * 37} ms\n" * 30
        history.append({"role": "user", "content": log})
        answer = llm.completion(model=MODEL, messages=history, max_tokens=64, api_base=BASE_URL)
        history.append(answer.choices[0].message)  # the whole history, every turn; compactions are remembered
        report = ctxproxy.last_report(answer)
        if report is not None and report.strategies:
            compactions += 1
            print(f"step {step}: {report.tokens_before} -> {report.tokens_after} tokens")
    print(f"{len(history)} messages, {compactions} compactions")


if __name__ == "__main__":
    main()
