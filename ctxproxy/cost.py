"""What an edit of the history costs and saves in money, estimated before it is sent.

A provider's prompt cache makes a prefix cheap to send again (read, r) and a new one dearer (write, w). An edit in the
middle keeps a prefix of K tokens and has the rest, S, written anew; the later requests of the conversation are smaller
by what it cut. With P tokens before, and the summary call that made it (P read, s tokens of output at o):

    once  = (r*K + w*S) - (r*(P - new) + w*new) + summary      what this request costs more than without the edit
    later = r*(P - K - S)                                      what each later request costs less
    payback = once / later                                     requests until it has paid

Where nothing is in the cache, the whole prompt is written anyway and the edit saves at once. Prices are those of the
prompt's size: a model that charges more over some size makes an edit cheaper that gets under it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

from ctxproxy.models import ModelInfo, Prices
from ctxproxy.tokens.spent import Spent

__all__ = ["Cache", "CacheWatch", "Rewrite", "Weighed", "replay_saving", "weigh"]

Cache = Literal["warm", "cold", "none"]
_MOST = 4_096  # conversations and models that are watched
_TTL = 300.0  # seconds; Anthropic keeps a prefix for five minutes by default, others a little longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """An edit in tokens: the prompt before and after it, how much of its beginning stays, what was never sent before.

    `asked` and `answered` are input and output of the summary call that it takes, 0 without one.
    """

    before: int
    after: int
    kept: int
    new: int = 0
    asked: int = 0
    answered: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """`once`: USD that the edited request costs more than the unedited one, negative where it costs less; `later`:
    USD that each request after it costs less."""

    once: float
    later: float

    @property
    def payback(self) -> float:
        """Later requests until the edit has paid; infinite where it never does."""
        if self.once <= 0:
            return 0.0
        return self.once / self.later if self.later > 0 else float("inf")


def weigh(info: ModelInfo, rewrite: Rewrite, *, cache: Cache) -> Weighed | None:
    """What an edit costs and saves; None where prices are not known."""
    if info.prices is None:
        return None
    old, new = info.prices.at(rewrite.before), info.prices.at(rewrite.after)
    smallest = info.min_cache_tokens or 0
    kept = rewrite.kept if rewrite.kept >= smallest else 0
    sent = min(rewrite.before, rewrite.new)
    if cache == "warm":
        plain = _read(old) * (rewrite.before - sent) + _write(old) * sent
        edited = _read(new) * kept + _write(new) * (rewrite.after - kept)
        later = _read(old) * rewrite.before - _read(new) * rewrite.after
        asked = _read(old) * rewrite.asked
    elif cache == "cold":
        plain, edited = _write(old) * rewrite.before, _write(new) * rewrite.after
        later = _read(old) * rewrite.before - _read(new) * rewrite.after
        asked = _write(old) * rewrite.asked
    else:
        plain, edited = old.input * rewrite.before, new.input * rewrite.after
        later = plain - edited
        asked = old.input * rewrite.asked
    summary = asked + old.output * rewrite.answered
    return Weighed(once=(edited - plain + summary) / 1e6, later=later / 1e6)


def replay_saving(info: ModelInfo, *, before: int, after: int, cache: Cache) -> float | None:
    """USD that a request costs less because an earlier compaction is replayed. Tokens over the window don't count:
    a prompt that large could not have been sent."""
    if info.prices is None:
        return None
    before = max(after, min(before, info.window))
    old, new = info.prices.at(before), info.prices.at(after)
    price = {"warm": _read, "cold": _write, "none": _plain}[cache]
    return (price(old) * before - price(new) * after) / 1e6


def _plain(prices: Prices) -> float:
    return prices.input


def _read(prices: Prices) -> float:
    return prices.cache_read


def _write(prices: Prices) -> float:
    return prices.cache_write


class CacheWatch:
    """Whether the provider holds a conversation's prefix, by the cache figures of its last answer."""

    def __init__(self) -> None:
        self._seen: OrderedDict[Hashable, tuple[float, bool]] = OrderedDict()
        self._caching: OrderedDict[Hashable, bool] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, talk: Hashable, model: Hashable, spent: Spent, *, now: float) -> None:
        """An answer of a conversation, at `now` in seconds since the epoch."""
        hit = spent.cached > 0 or spent.written > 0
        with self._lock:
            self._seen[talk] = (now, hit)
            self._seen.move_to_end(talk)
            self._caching[model] = hit or self._caching.get(model, False)
            self._caching.move_to_end(model)
            for memory in (self._seen, self._caching):
                while len(memory) > _MOST:
                    memory.popitem(last=False)

    def state(self, talk: Hashable, model: Hashable, *, now: float) -> Cache:
        """`warm`: the last answer read or wrote the cache, minutes ago. `none`: no answer of the model ever did."""
        if self._caching.get(model) is False:
            return "none"
        at, hit = self._seen.get(talk, (0.0, False))
        return "warm" if hit and 0 <= now - at < _TTL else "cold"
