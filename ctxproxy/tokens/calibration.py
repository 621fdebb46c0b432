"""Learning from the provider's own figures: anchors on exact prompt sizes, and a correction per model.

Everything here is a pure value. The caller keeps one `Calibration` per (upstream, model) and one `Anchor`
per conversation, and asks `judge` before it keeps an anchor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

__all__ = ["Anchor", "Basis", "Calibration", "Measurement", "Verdict", "judge", "predict"]

Basis = Literal["counted", "anchored", "estimated"]
Verdict = Literal["used", "small", "truncated", "invalid"]

FACTOR_RANGE = (0.5, 2.5)
SMALL = 500
"""Prompts under this many tokens teach nothing: fixed parts outweigh the text in them."""

_MEMORY = 300_000.0
_MEMORY_RECENT = 4_000.0
"""Tokens of growth that the two factors remember. A model's vocabulary stays; a conversation's content changes."""
_PRIOR = 400.0
_PRIOR_RECENT = 150.0
_PRIOR_EXACT = 30_000.0
"""Weight of the belief that the factor is 1: in tokens, over the counter's margin; with a most for exact ones."""
_HIDDEN = 1_500
"""Most tokens that a server is believed to add by itself (system prompts for tools, dates, formats)."""
_SLACK = 64
"""Tokens that a prompt may differ by without meaning anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """An input size in tokens: the true one is expected within value ± margin."""

    value: int
    margin: int
    basis: Basis


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """One exact figure: a request whose first `messages` messages have the digest `prefix` had `tokens` tokens.

    counted: what we counted for that request (its whole input, uncorrected); calls, media: for the tool calls
    and the media within. model: who said it.
    """

    prefix: bytes
    messages: int
    tokens: int
    counted: int
    calls: int = 0
    media: int = 0
    model: str = ""

    def matches(self, digests: Sequence[bytes], *, model: str = "") -> bool:
        """Whether a request continues the anchored one; digests[i] covers the messages up to and including i."""
        return 0 < self.messages <= len(digests) and digests[self.messages - 1] == self.prefix and self.model == model


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What one (upstream, model) taught: reported = factor * (counted - dropped * tools) + additive.

    factor: tokens there per token here. It is learned from the growth between two anchored requests, where
    whatever is fixed cancels out. recent: the same of the newest growth only, for what comes next.
    additive: what the server adds to every prompt. dropped, calls_dropped: shares of the tool definitions and
    of the tool calls that its template leaves out. spread: usual relative error of predictions without an
    anchor. starts: how many there were; tooled: how many of them told whether tools are dropped. samples:
    observations used. weight, recent_weight: tokens behind the factors.
    """

    factor: float = 1.0
    recent: float = 1.0
    additive: float = 0.0
    dropped: float = 0.0
    calls_dropped: float = 0.0
    spread: float = 0.0
    starts: int = 0
    tooled: int = 0
    samples: int = 0
    weight: float = 0.0
    recent_weight: float = 0.0

    def observe(
        self,
        *,
        counted: int,
        reported: int,
        anchor: Anchor | None = None,
        margin: float = 0.0,
        tools: int = 0,
        calls: int = 0,
        media: int = 0,
    ) -> Calibration:
        """The calibration after a response that stated its input size.

        counted: our count of the whole input, uncorrected. reported: the provider's. anchor: the last one on a
        prefix of this request. margin: the counter's, as a share, 0 for exact ones. tools, calls, media: tokens
        of tool definitions, of tool calls and of media within `counted`.
        """
        verdict = judge(self, counted=counted, reported=reported, anchor=anchor, tools=tools, calls=calls)
        if verdict == "truncated":
            # What looked like dropped tools before may have been a window that is too small.
            return replace(self, dropped=0.0, calls_dropped=0.0)
        if verdict != "used":
            return self
        learned = replace(self, samples=self.samples + 1)
        new, grown = self._growth(counted, reported, anchor, tools)
        media -= anchor.media if anchor is not None else 0
        if anchor is not None and media == 0:
            learned = learned._called(new, grown, calls - anchor.calls)
            new = round(new - learned.calls_dropped * max(calls - anchor.calls, 0))
        if new >= _SLACK and media <= new // 10:
            learned = learned._grown(min(max(grown / new, FACTOR_RANGE[0]), FACTOR_RANGE[1]), new, margin)
        if anchor is None or not self.starts:
            error = abs(predict(counted, calibration=self, tools=tools).value - reported) / reported
            learned = learned._started(counted, reported, margin, tools, error)
        return learned

    def _started(self, counted: int, reported: int, margin: float, tools: int, error: float) -> Calibration:
        """Learn what is fixed from a conversation's first figure, where it stands out from the content's error."""
        share = max(1 / (self.starts + 1), 0.25)
        tooled = self.tooled
        rest = reported - self.factor * counted
        noise = margin * counted + _SLACK
        dropped, additive = self.dropped, self.additive
        if noise < tools / 2:
            tooled += 1
            missing = min(-rest / tools, 1.0) if rest < -noise else 0.0
            dropped += max(1 / tooled, 0.25) * (missing - dropped)
        if abs(rest) > noise or noise < abs(additive):
            additive += share * (min(max(rest, 0.0), _HIDDEN) - additive)
        # A template that knows no tools knows no calls either, until growth says otherwise.
        calls = dropped if self.tooled == 0 and self.calls_dropped == 0 else self.calls_dropped
        return replace(
            self,
            starts=self.starts + 1,
            tooled=tooled,
            dropped=dropped,
            calls_dropped=calls,
            additive=additive,
            spread=self.spread + share * (error - self.spread),
        )

    def _growth(self, counted: int, reported: int, anchor: Anchor | None, tools: int) -> tuple[int, float]:
        """Tokens counted and reported of what tells the factor; (0, 0) where nothing does."""
        if anchor is not None:
            return counted - anchor.counted, reported - anchor.tokens
        if self.samples or counted - tools < SMALL:
            return 0, 0.0
        # The first sample cannot tell the factor from what is fixed: the fixed part may explain as much as
        # schemas and hidden prompts usually differ by, the factor has the rest.
        gap = reported - counted
        fixed = min(max(gap, -tools - _SLACK), 400 + tools // 2)
        return counted - tools, counted - tools + gap - fixed

    def _called(self, new: int, grown: float, calls: int) -> Calibration:
        """Learn whether tool calls are rendered, from growth that is mostly calls."""
        if calls < _SLACK or calls * 4 < new:
            return self
        missing = 1 - (grown - self.recent * (new - calls)) / (self.recent * calls)
        share = 1.0 if missing > 0.6 else 0.0
        return replace(self, calls_dropped=self.calls_dropped + 0.7 * (share - self.calls_dropped))

    def _grown(self, ratio: float, new: int, margin: float) -> Calibration:
        weight = self.weight or min(_PRIOR / margin if margin else _PRIOR_EXACT, _PRIOR_EXACT)
        near = self.recent_weight or min(_PRIOR_RECENT / margin if margin else _PRIOR_EXACT, _PRIOR_EXACT)
        return replace(
            self,
            factor=(self.factor * weight + ratio * new) / (weight + new),
            recent=(self.recent * near + ratio * new) / (near + new),
            weight=min(weight + new, _MEMORY),
            recent_weight=min(near + new, _MEMORY_RECENT if margin else _PRIOR_EXACT),
        )


def judge(
    calibration: Calibration,
    *,
    counted: int,
    reported: int,
    anchor: Anchor | None = None,
    tools: int = 0,
    calls: int = 0,
) -> Verdict:
    """Whether a reported input size may be learned from and anchored on.

    "truncated": far below what was sent, or it did not grow although the conversation did: the server cut
    the prompt without a word. A shortfall of the size of the tool definitions or calls is no such thing: some
    chat templates leave them out. "small": right, but too small to learn from; good as an anchor.
    """
    if reported <= 0 or counted <= 0:
        return "invalid"
    if anchor is not None:
        new, grown = counted - anchor.counted - max(calls - anchor.calls, 0), reported - anchor.tokens
        if new > max(_SLACK * 4, counted // 50) and grown < new * calibration.recent * 0.2:
            return "truncated"
    else:
        least = max(counted - tools - calls, 0) * (calibration.factor if calibration.samples else 1.0)
        if reported < least * FACTOR_RANGE[0] - _SLACK:
            return "truncated"
    return "small" if max(counted, reported) < SMALL else "used"


def predict(
    counted: int,
    *,
    calibration: Calibration | None = None,
    anchor: Anchor | None = None,
    margin: float = 0.0,
    exact: bool = False,
    tools: int = 0,
    calls: int = 0,
    media: int = 0,
) -> Measurement:
    """The input size of a request that we counted as `counted` tokens (its whole input, uncorrected).

    margin: the counter's, as a share. exact: the counter knows the vocabulary. tools, calls, media: tokens of
    tool definitions, of tool calls and of media within `counted`. Tools and media are formulas, so they widen
    the margin.
    """
    known = calibration or Calibration()
    if anchor is not None:
        new = counted - anchor.counted
        value = anchor.tokens + known.recent * (new - known.calls_dropped * (calls - anchor.calls))
        room = abs(new) * max(1.5 * margin, 0.02) + min(max(media - anchor.media, 0), abs(new)) * 0.5 + 8
        return Measurement(value=max(1, round(value)), margin=round(room), basis="anchored")
    value = known.factor * (counted - known.dropped * tools - known.calls_dropped * calls) + known.additive
    share = margin
    if known.starts >= 3:
        share = min(max(3 * known.spread, 0.02), max(margin, 0.02))
    room = counted * share + media * 0.5 + tools * 0.3 + 16
    return Measurement(value=max(1, round(value)), margin=round(room), basis="counted" if exact else "estimated")
