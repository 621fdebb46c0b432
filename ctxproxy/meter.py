"""The meter: one figure for the size of a prompt, from what was counted and what the provider reported before.

A response states the exact size of its prompt. The next request of the same conversation is that figure plus an
estimate of what is new; and what counts differently there than here is learned per (upstream, model).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ctxproxy.conversation import Conversation, Message, prefix_digest
from ctxproxy.tokens import Counter
from ctxproxy.tokens.calibration import Anchor, Calibration, Measurement, Verdict, judge, predict

__all__ = ["Meter", "Sight"]

_MOST = 4_096  # conversations and models that are remembered
_ANCHORS = 4  # of one conversation: forks share a prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What one measurement rests on: the parts of a prompt, in our own tokens."""

    counted: int
    tools: int
    calls: int
    media: int


class Meter:
    """Remembers calibrations by (upstream, model) and anchors by conversation."""

    def __init__(self) -> None:
        self._calibrations: OrderedDict[Hashable, Calibration] = OrderedDict()
        self._anchors: OrderedDict[Hashable, tuple[Anchor, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def calibration(self, model: Hashable) -> Calibration | None:
        """What was learned about a model, None before its first answer."""
        return self._calibrations.get(model)

    def keep(self, model: Hashable, calibration: Calibration) -> None:
        """Remember what was learned about a model."""
        self._calibrations[model] = calibration
        self._calibrations.move_to_end(model)
        while len(self._calibrations) > _MOST:
            self._calibrations.popitem(last=False)

    def measure(
        self,
        conversation: Conversation,
        messages: Sequence[Message],
        *,
        model: Hashable,
        talk: Hashable,
        counter: Counter,
    ) -> Measurement:
        """The size of a prompt of these messages. `model` is (upstream, model), `talk` the conversation's key."""
        sight = _sight(conversation, messages)
        return predict(
            sight.counted,
            calibration=self.calibration(model),
            anchor=self._anchor(talk, messages, str(model)),
            margin=0.0 if counter.exact else counter.margin,
            exact=counter.exact,
            tools=sight.tools,
            calls=sight.calls,
            media=sight.media,
        )

    def observe(
        self,
        conversation: Conversation,
        messages: Sequence[Message],
        reported: int,
        *,
        model: Hashable,
        talk: Hashable,
        counter: Counter,
    ) -> Verdict:
        """Learn from a response that stated `reported` input tokens for these messages."""
        with self._lock:
            return self._observe(conversation, messages, reported, model=model, talk=talk, counter=counter)

    def _observe(
        self,
        conversation: Conversation,
        messages: Sequence[Message],
        reported: int,
        *,
        model: Hashable,
        talk: Hashable,
        counter: Counter,
    ) -> Verdict:
        sight = _sight(conversation, messages)
        calibration = self.calibration(model) or Calibration()
        anchor = self._anchor(talk, messages, str(model))
        verdict = judge(
            calibration,
            counted=sight.counted,
            reported=reported,
            anchor=anchor,
            tools=sight.tools,
            calls=sight.calls,
        )
        learned = calibration.observe(
            counted=sight.counted,
            reported=reported,
            anchor=anchor,
            margin=0.0 if counter.exact else counter.margin,
            tools=sight.tools,
            calls=sight.calls,
            media=sight.media,
        )
        self.keep(model, learned)
        if verdict in ("used", "small") and messages:
            made = Anchor(
                prefix=prefix_digest(messages),
                messages=len(messages),
                tokens=reported,
                counted=sight.counted,
                calls=sight.calls,
                media=sight.media,
                model=str(model),
            )
            kept = [a for a in self._anchors.get(talk, ()) if a.prefix != made.prefix]
            self._anchors[talk] = (*kept[-(_ANCHORS - 1) :], made)
            self._anchors.move_to_end(talk)
        while len(self._anchors) > _MOST:
            self._anchors.popitem(last=False)
        return verdict

    def _anchor(self, talk: Hashable, messages: Sequence[Message], model: str) -> Anchor | None:
        """The anchor on the longest prefix of these messages."""
        for anchor in sorted(self._anchors.get(talk, ()), key=lambda a: -a.messages):
            if (
                anchor.model == model
                and anchor.messages <= len(messages)
                and prefix_digest(messages[: anchor.messages]) == anchor.prefix
            ):
                return anchor
        return None


def _sight(conversation: Conversation, messages: Sequence[Message]) -> Sight:
    return Sight(
        counted=conversation.fixed.tokens + sum([m.tokens for m in messages]),
        tools=conversation.fixed.tools,
        calls=sum([m.calls for m in messages]),
        media=sum([m.media for m in messages]),
    )
