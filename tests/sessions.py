"""A long session with the real model through the proxy, and what has to hold on each of its turns."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from typing import Any

import httpx
from faulty import Faulty, Seen
from serving import serving

from ctxproxy.demo.server import ModelServer

__all__ = ["Session", "talk"]

_NOTE = re.compile(r"<context_notes kind=\\?\"(\w+)\\?\"")
_PLACES = ("north quay", "pump house", "ferry stairs", "grain wharf", "old lock", "fish market")
_AT_ONCE = 0.25  # seconds; what a turn without a summary call takes here at most
_SYSTEM = "You help the harbour office to keep its tide records. Answer in one short sentence."


@dataclass
class Session:
    """What was seen. `kinds` are those of the notes in each compacted request, `waits` the seconds that turns waited
    for a summary, `needless` the turns that asked for one although one was ready."""

    turns: int = 0
    compactions: int = 0
    summary_calls: int = 0
    in_background: int = 0
    kinds: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    slowest: float = 0.0
    needless: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        kinds = {kind: self.kinds.count(kind) for kind in sorted(set(self.kinds))}
        waits = ", ".join(f"{wait:.1f}" for wait in self.waits) or "none"
        return (
            f"{self.turns} turns in {self.seconds:.0f} s, {self.compactions} compactions, {self.summary_calls} summary "
            f"calls ({self.in_background} in the background), notes {kinds}, turns that waited for a summary: {waits} s; "
            f"problems: {self.problems or 'none'}"
        )


def talk(model: ModelServer, server: Faulty, *, turns: int, wait: float = 15.0) -> Session:
    """Hold a conversation of `turns` questions. `wait` is `policy.summary_wait`, seconds."""
    found, began = Session(), time.monotonic()
    messages: list[dict[str, Any]] = [{"role": "system", "content": _SYSTEM}]
    policy = {"summary_wait": wait, "min_output": 64}
    with serving(server.url, window=model.window, policy=policy) as proxy, httpx.Client(timeout=300) as http:
        for turn in range(turns):
            place = _PLACES[turn % len(_PLACES)]
            readings = "; ".join(f"{h:02d}:30 {(turn * 37 + h * 11) % 400} cm" for h in range(9))
            text = f"Entry {turn}: at the {place} the readings were {readings}. Ticket HB-{turn * 17 + 100}. Noted?"
            messages.append({"role": "user", "content": text})
            mark, start = len(server.seen), time.monotonic()
            earlier = [s for s in server.seen if s.summary and s.ended]
            body = {"model": model.model, "messages": messages, "max_tokens": 12, "temperature": 0}
            answer = http.post(proxy.url + "/v1/chat/completions", json=body)
            if answer.status_code != 200:
                found.problems.append(f"turn {turn}: status {answer.status_code} {answer.text[:120]}")
                return found
            said = answer.json()["choices"][0]["message"].get("content") or ""
            messages.append({"role": "assistant", "content": said.strip() or "Noted."})
            found.turns += 1
            _look(
                found, turn, server.seen[mark:], earlier, compacted="x-ctxproxy-reason" in answer.headers, start=start
            )
        # Let what runs in the background end before the proxy does.
        deadline = time.monotonic() + wait + 5
        while any(not s.ended for s in server.seen) and time.monotonic() < deadline:
            time.sleep(0.05)
        found.summary_calls = sum(s.summary for s in server.seen)
    found.in_background = found.summary_calls - len(found.waits)
    found.seconds = time.monotonic() - began
    return found


def _look(found: Session, turn: int, came: list[Seen], earlier: list[Seen], *, compacted: bool, start: float) -> None:
    """Hold one turn against what has to be so: one summary at most, labelled, and no call where one was ready."""
    own = next((s for s in came if not s.summary), None)
    if own is None:
        found.problems.append(f"turn {turn}: nothing was sent")
        return
    kinds = _NOTE.findall(json.dumps(own.body, ensure_ascii=False))
    if len(kinds) > 1:
        found.problems.append(f"turn {turn}: {len(kinds)} notes in one request")
    found.slowest = max(found.slowest, own.began - start)
    found.compactions += compacted
    if compacted:
        found.kinds.extend(kinds or ["none"])
    asked = [s for s in came if s.summary and start <= s.began < own.began]
    if asked and own.began - start > _AT_ONCE:
        found.waits.append(own.began - start)
        # A summary that ended before this turn and stands for more than half of what is there was good enough.
        half = len(own.body["messages"]) / 2
        if any(s.text and len(s.body["messages"]) - 1 >= half and s.ended < start for s in earlier[-1:]):
            found.needless.append(turn)
