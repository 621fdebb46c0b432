"""Learning from the provider's own figures: anchors on exact prompt sizes, and a correction per model.

Everything here is a pure value. The caller keeps one `Calibration` per (upstream, model) and one `Anchor`
per conversation, and asks `judge` before it keeps an anchor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

__all__ = ["Anchor", "Basis", "Calibration", "Measurement", "Verdict", "input_tokens_of", "judge", "predict"]

Basis = Literal["counted", "anchored", "estimated"]
Verdict = Literal["used", "small", "truncated", "invalid"]

FACTOR_RANGE = (0.5, 2.5)
SMALL = 500
"""Prompts under this many tokens teach nothing: fixed parts outweigh the text in them."""

_MEMORY = 12_000.0
"""Tokens of growth that the factor remembers: content changes, so the newest counts most."""
_PRIOR = 1_500.0
_PRIOR_EXACT = 30_000.0
"""Weight in tokens of the belief that the factor is 1; far stronger where the counter is exact."""
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

    counted: what we counted for that request (its whole input, uncorrected). model: who said it.
    """

    prefix: bytes
    messages: int
    tokens: int
    counted: int
    model: str = ""

    def matches(self, digests: Sequence[bytes], *, model: str = "") -> bool:
        """Whether a request continues the anchored one; digests[i] covers the messages up to and including i."""
        return 0 < self.messages <= len(digests) and digests[self.messages - 1] == self.prefix and self.model == model


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What one (upstream, model) taught: reported = factor * counted + additive.

    factor: tokens there per token here, learned from growth between two anchored requests, where whatever
    is fixed cancels out. additive: the fixed rest: hidden prompts, templates that drop tool schemas.
    spread: usual relative error of predictions. samples: observations used. weight: tokens behind the factor.
    """

    factor: float = 1.0
    additive: float = 0.0
    spread: float = 0.0
    samples: int = 0
    weight: float = 0.0

    def observe(
        self,
        *,
        counted: int,
        reported: int,
        anchor: Anchor | None = None,
        exact: bool = False,
        tools: int = 0,
        media: int = 0,
    ) -> Calibration:
        """The calibration after a response that stated its input size.

        counted: our count of the whole input, uncorrected. reported: the provider's. anchor: the last one on a
        prefix of this request. exact: the counter knows the vocabulary. tools, media: tokens of tool
        definitions within `counted`, and of media within what is new since the anchor.
        """
        verdict = judge(self, counted=counted, reported=reported, anchor=anchor, tools=tools)
        if verdict == "truncated":
            # What looked like dropped tools before may have been a window that is too small.
            return replace(self, additive=max(self.additive, 0.0))
        if verdict != "used":
            return self
        factor, weight = self._factor_after(counted, reported, anchor, exact, tools, media)
        rest = reported - factor * counted
        share = max(1 / (self.samples + 1), 0.25)
        expected = predict(counted, calibration=self, anchor=anchor, tools=tools).value
        error = abs(expected - reported) / reported
        return Calibration(
            factor=factor,
            additive=self.additive + share * (rest - self.additive),
            spread=self.spread + share * (error - self.spread) if self.samples else error,
            samples=self.samples + 1,
            weight=weight,
        )

    def _factor_after(
        self, counted: int, reported: int, anchor: Anchor | None, exact: bool, tools: int, media: int
    ) -> tuple[float, float]:
        prior = _PRIOR_EXACT if exact else _PRIOR
        weight = self.weight or prior
        if anchor is not None:
            new, grown = counted - anchor.counted, reported - anchor.tokens
            if new < _SLACK or media > new // 10:
                return self.factor, weight
        elif self.samples:
            return self.factor, weight
        else:
            # The first sample cannot tell the factor from what is fixed: the fixed part may explain as
            # much as schemas and hidden prompts usually differ by, the factor has the rest.
            new, gap = counted - tools, reported - counted
            fixed = min(max(gap, -tools - _SLACK), 400 + tools // 2)
            grown = new + gap - fixed
            if new < SMALL:
                return self.factor, weight
        ratio = min(max(grown / new, FACTOR_RANGE[0]), FACTOR_RANGE[1])
        factor = (self.factor * weight + ratio * new) / (weight + new)
        return min(max(factor, FACTOR_RANGE[0]), FACTOR_RANGE[1]), min(weight + new, max(_MEMORY, prior))


def judge(
    calibration: Calibration, *, counted: int, reported: int, anchor: Anchor | None = None, tools: int = 0
) -> Verdict:
    """Whether a reported input size may be learned from and anchored on.

    "truncated": far below what was sent, or it did not grow although the conversation did: the server cut
    the prompt without a word. A shortfall of the size of the tool definitions is no such thing: some chat
    templates leave them out. "small": right, but too small to learn from; good as an anchor.
    """
    if reported <= 0 or counted <= 0:
        return "invalid"
    if anchor is not None:
        new, grown = counted - anchor.counted, reported - anchor.tokens
        if new > max(_SLACK * 4, counted // 50) and grown < new * calibration.factor * 0.2:
            return "truncated"
    else:
        least = calibration.factor * max(counted - tools, 0) + min(calibration.additive, 0.0)
        if calibration.samples == 0:
            least = max(counted - tools, 0)
        if reported < least * FACTOR_RANGE[0] - _SLACK:
            return "truncated"
    return "small" if reported < SMALL else "used"


def predict(
    counted: int,
    *,
    calibration: Calibration | None = None,
    anchor: Anchor | None = None,
    margin: float = 0.0,
    exact: bool = False,
    tools: int = 0,
    media: int = 0,
) -> Measurement:
    """The input size of a request that we counted as `counted` tokens (its whole input, uncorrected).

    margin: the counter's, as a share. exact: the counter knows the vocabulary. tools, media: tokens of tool
    definitions and of media within `counted`; both are formulas, so they widen the margin.
    """
    known = calibration or Calibration()
    share = margin
    if known.samples >= 3:
        share = min(max(3 * known.spread, 0.005 if exact else 0.02), max(margin, 0.02))
    if anchor is not None:
        new = counted - anchor.counted
        value = anchor.tokens + known.factor * new
        room = abs(new) * max(margin, 0.02) + min(media, abs(new)) * 0.5 + 8
        return Measurement(value=max(1, round(value)), margin=round(room), basis="anchored")
    value = known.factor * counted + max(known.additive, -float(tools + _SLACK))
    room = counted * share + media * 0.5 + (tools * 0.3 if known.samples == 0 else 0.0) + 16
    return Measurement(value=max(1, round(value)), margin=round(room), basis="counted" if exact else "estimated")


def input_tokens_of(usage: object, *, wire: str) -> int | None:
    """The whole input that a usage object states: fresh, read from cache and written to cache; None if it does not.

    wire: "chat", "responses" or "messages". Whatever is no positive number counts as missing.
    """
    if not isinstance(usage, Mapping):
        return None
    fields = cast("Mapping[str, object]", usage)
    if wire != "messages":
        # Both names include cached tokens; some servers use the other API's name.
        first, second = ("input_tokens", "prompt_tokens") if wire == "responses" else ("prompt_tokens", "input_tokens")
        return _number(fields.get(first)) or _number(fields.get(second)) or None
    written = _number(fields.get("cache_creation_input_tokens"))
    if not written and isinstance(lifetimes := fields.get("cache_creation"), Mapping):
        written = sum(map(_number, cast("Mapping[str, object]", lifetimes).values()))
    total = _number(fields.get("input_tokens")) + _number(fields.get("cache_read_input_tokens")) + written
    return total or _number(fields.get("prompt_tokens")) or None


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 < value < 1e12 else 0
