"""What the demo measured, turn by turn, and whether it showed what it claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ctxproxy.demo.agent import Reply

__all__ = ["MIN_COVERAGE", "REASONS", "Outcome", "Turn", "coverages", "turn_of"]

REASONS = ("proactive", "overflow", "retry")
MIN_COVERAGE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One request of the agent and its answer. All sizes are tokens.

    raw: the conversation as the agent sent it, and sent: the prompt that the model got, both by the model
    server's count. before, after: ctxproxy's own measure around a compaction. window: what ctxproxy takes for
    the model's window. cached: prompt tokens that the server still held from the turn before. reason: why the
    conversation was compacted on this turn, None if it was not. strategies: what was applied.
    error: what reached the agent instead of an answer.
    """

    number: int
    label: str
    raw: int
    sent: int | None
    cached: int | None
    before: int | None = None
    after: int | None = None
    window: int | None = None
    level: str = ""
    reason: str | None = None
    strategies: tuple[str, ...] = ()
    error: str | None = None
    seconds: float


def turn_of(number: int, label: str, raw: int, reply: Reply) -> Turn:
    """The record of one reply; ctxproxy's figures are in its response headers."""
    headers = reply.headers
    names = headers.get("x-ctxproxy-strategies", "").split(",")
    return Turn(
        number=number,
        label=label,
        raw=raw,
        sent=reply.prompt_tokens,
        cached=reply.cached_tokens,
        before=_number(headers.get("x-ctxproxy-tokens-before")),
        after=_number(headers.get("x-ctxproxy-tokens-after")),
        window=_number(headers.get("x-ctxproxy-window")),
        level=headers.get("x-ctxproxy-level", "").upper(),
        reason=headers.get("x-ctxproxy-reason") or None,
        strategies=tuple(name.strip() for name in names if name.strip()),
        error=reply.error,
        seconds=reply.seconds,
    )


def coverages(turns: Sequence[Turn]) -> list[tuple[int, float]]:
    """Turn number and share of the previous turn's prompt that the server had in its cache.

    Only turns without a compaction count: a compaction changes the prompt on purpose. The turn right after one
    counts, since there the same compacted bytes have to come again.
    """
    series: list[tuple[int, float]] = []
    for last, turn in pairwise(turns):
        if turn.reason is None and last.sent and turn.cached is not None:
            series.append((turn.number, min(turn.cached, last.sent) / last.sent))
    return series


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The whole run. window: the model's, in tokens. refusal: the server's own error without ctxproxy."""

    api: str
    window: int
    without: tuple[Turn, ...]
    turns: tuple[Turn, ...]
    refusal: str | None
    complete: bool
    seconds: float

    @property
    def raw_tokens(self) -> int:
        """Tokens of the conversation as the agent holds it at the end."""
        return self.turns[-1].raw if self.turns else 0

    @property
    def errors_with(self) -> int:
        return sum(turn.error is not None for turn in self.turns)

    @property
    def errors_without(self) -> int:
        return sum(turn.error is not None for turn in self.without)

    @property
    def compactions(self) -> dict[str, int]:
        counts = Counter(turn.reason for turn in self.turns)
        return {reason: counts[reason] for reason in REASONS}

    @property
    def cached(self) -> list[tuple[int, float]]:
        return coverages(self.turns)

    @property
    def lowest_coverage(self) -> float | None:
        return min((share for _, share in self.cached), default=None)

    def problems(self) -> list[str]:
        """What the run should have shown and did not; empty if all is well.

        A run that was cut short on purpose is only asked for what any run must have.
        """
        found: list[str] = []
        if self.errors_with:
            found.append(f"{self.errors_with} errors reached the agent")
        if not self.turns:
            found.append("no turn was made")
        found.extend(
            f"turn {number}: only {share:.1%} of the prompt that the server had seen came from its cache"
            for number, share in self.cached
            if share < MIN_COVERAGE
        )
        if not self.complete:
            return found
        if not self.errors_without:
            found.append("the conversation did not fail without ctxproxy")
        found.extend(f"no compaction with reason {reason}" for reason, n in self.compactions.items() if not n)
        return found

    def as_dict(self) -> dict[str, object]:
        """The numbers, for --json."""
        return {
            "ok": not self.problems(),
            "problems": self.problems(),
            "api": self.api,
            "window": self.window,
            "turns": len(self.turns),
            "raw_tokens": self.raw_tokens,
            "windows": round(self.raw_tokens / self.window, 2),
            "sent_tokens": [turn.sent for turn in self.turns],
            "errors_without": self.errors_without,
            "error_without": self.refusal,
            "errors_with": self.errors_with,
            "error_with": next((turn.error for turn in self.turns if turn.error is not None), None),
            "compactions": self.compactions,
            "cached": [[number, round(share, 4)] for number, share in self.cached],
            "cached_min": self.lowest_coverage and round(self.lowest_coverage, 4),
            "seconds": round(self.seconds, 1),
        }

    def summary(self) -> str:
        """One line."""
        counts = ", ".join(f"{count} {reason}" for reason, count in self.compactions.items())
        lowest = self.lowest_coverage
        cache = "" if lowest is None else f"; prompt cache kept: >= {lowest:.1%} between compactions"
        return (
            f"{len(self.turns)} turns, {self.raw_tokens:,} raw tokens = {self.raw_tokens / self.window:.1f} windows "
            f"of {self.window:,}; errors: {self.errors_without} without ctxproxy, {self.errors_with} with it; "
            f"compactions: {counts}{cache}; {self.seconds:.0f} s"
        )


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None
