"""The loop that every framework runs: a tool that is called 30 times, on a window that holds about 8 of its results."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from provider import Answer, FakeProvider, ToolCall

from ctxproxy.compaction import Compaction
from ctxproxy.policy import Policy, preset
from ctxproxy.runtime import Runtime

__all__ = ["DONE", "RULES", "STEPS", "TASK", "WINDOW", "Watched", "finished", "read_line", "step"]

STEPS = 30
WINDOW = 2_500  # tokens; a step has about 300
TASK = "Read all lines."
DONE = "all read"
RULES = preset("default", summaries=False)  # so that every call of the provider is one of the framework's

_OUTPUT = "line {0} of the file says that value {0} is fine, as far as can be told. " * 12


def read_line(n: int) -> str:
    """Read a line of the file.

    Args:
        n: its number
    """
    return _OUTPUT.format(n)


def step(request: Any, *, tool: str = "read_line", steps: int = STEPS) -> Answer:
    """Ask for the next line, as long as the newest result is not that of the last one."""
    body = request.json()
    texts = json.dumps(body.get("messages") or body.get("input"))
    last = max((n for n in range(steps + 1) if f"value {n} is fine" in texts), default=0)
    return Answer(DONE) if last >= steps else Answer("", (ToolCall(tool, {"n": last + 1}),))


@dataclass
class Watched:
    """A runtime with a small window, and the compactions that it made."""

    policy: Policy = RULES
    compactions: list[Compaction] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.runtime = Runtime(policy=self.policy, window=WINDOW, on_compaction=self.compactions.append)


def finished(provider: FakeProvider, watched: Watched, *, refused: int = 0) -> None:
    """The whole loop ran: every step once, each prompt within the window, some of them compacted."""
    assert provider.calls == STEPS + 1 + refused
    assert watched.compactions
    sizes = [request.tokens for request in provider.model_requests if request.tokens]
    assert max(sizes) <= WINDOW
    assert len(provider.model_requests[-1].body) < (STEPS // 2) * len(read_line(1))
