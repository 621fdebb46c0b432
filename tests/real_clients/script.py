"""What the fake model says to a coding agent: it reads one large file after the other, then it is done."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from provider import Answer, Request, ToolCall

__all__ = ["Script", "write_files"]

_SUMMARY = """### Decisions Made
- Read the parts one after the other, because the user asked for it.
### Files Modified
- none
### Critical Context
- The parts are in the working folder; each begins with its code word.
### Errors
- none
### Pending
- Read the next part.
### User Preferences
- One part at a time."""


def write_files(folder: Path, *, count: int, size: int) -> None:
    """`count` files of about `size` bytes each, all different: log lines, as tools print them."""
    for number in range(1, count + 1):
        rng = random.Random(number)
        lines = [f"code word of part {number}: amber-{number:03d}"]
        while sum(map(len, lines)) + len(lines) < size:
            lines.append(
                f"2026-11-{rng.randrange(1, 30):02d}T{rng.randrange(24):02d}:{rng.randrange(60):02d} "
                f"worker-{rng.randrange(64)} {rng.choice(('read', 'wrote', 'moved', 'lost', 'found'))} "
                f"{rng.randrange(10_000)} rows of table_{rng.randrange(400)} in {rng.randrange(900)} ms"
            )
        (folder / f"part-{number}.txt").write_text("\n".join(lines) + "\n")


@dataclass
class Script:
    """The provider's answer function: `calls` times a call of `tool`, then the end.

    A request without that tool (a title, a summary by the client) and a summary call of the proxy get a short text.
    Without a `tool` every request gets a text.
    """

    calls: int
    tool: str | None = None
    arguments: Callable[[str], dict[str, Any]] = lambda command: {"command": command}
    end: Callable[[int], Answer] = lambda step: Answer("All parts are read.")
    steps: int = 0
    side: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: Request) -> Answer:
        body = request.json()
        with self.lock:
            if _asks_for_summary(body):
                self.side += 1
                return Answer(_SUMMARY)
            if self.tool is None:
                self.steps += 1
                return Answer(f"Part {self.steps} is read. Its code word is amber-{self.steps:03d}.")
            if self.tool not in {_name(tool) for tool in body.get("tools") or ()}:
                self.side += 1
                return Answer("Reading the parts")
            self.steps += 1
            if self.steps > self.calls:
                return self.end(self.steps)
            call = ToolCall(self.tool, self.arguments(f"cat part-{self.steps}.txt"))
            thinking = "The next part is next." if request.wire == "messages" and _thinks(body) else None
            return Answer(f"Reading part {self.steps}.", (call,), thinking)


def _name(tool: dict[str, Any]) -> str:
    return str(tool.get("name") or (tool.get("function") or {}).get("name"))


def _thinks(body: dict[str, Any]) -> bool:
    return (body.get("thinking") or {}).get("type") in ("enabled", "adaptive")


def _asks_for_summary(body: dict[str, Any]) -> bool:
    entries = body.get("messages") or body.get("input") or []
    return bool(entries) and "Summarize the conversation so far for the one who continues it" in str(entries[-1])
