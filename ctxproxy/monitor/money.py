"""What a request cost, and what a compaction saved or lost on it, in USD by the catalogue's prices."""

from __future__ import annotations

from ctxproxy.effects import Report
from ctxproxy.models import Prices
from ctxproxy.tokens.spent import Spent

__all__ = ["cost_of", "saved_of"]

_MILLION = 1e6


def cost_of(spent: Spent, prices: Prices | None) -> float | None:
    """USD of one request by the provider's own figures; None where it or the catalogue says nothing."""
    if prices is None or not (spent.input or spent.output):
        return None
    return _input_cost(spent, prices) + spent.output * prices.at(spent.input).output / _MILLION


def saved_of(report: Report, spent: Spent, prices: Prices | None, *, new: int, caches: bool) -> float | None:
    """USD that the input would have cost more as the client wrote it; under 0 where sending less cost more.

    None where nothing was changed or a figure is missing. Without a compaction all but the `new` tokens (what came
    since the last answer) would have been read from the provider's cache, where it `caches`. What a summary cost is
    not in it.
    """
    if prices is None or not report.changed or not spent.input or not report.tokens_after:
        return None
    scale = spent.input / report.tokens_after  # the provider's tokens for one of ours
    whole = report.tokens_before * scale
    fresh = min(whole, new * scale)
    caches = caches or spent.cached > 0 or spent.written > 0
    at = prices.at(int(whole))
    known = (whole - fresh) * (at.cache_read if caches else at.input)
    unknown = fresh * (at.cache_write if spent.written else at.input)
    return (known + unknown) / _MILLION - _input_cost(spent, prices)


def _input_cost(spent: Spent, prices: Prices) -> float:
    at = prices.at(spent.input)
    fresh = max(0, spent.input - spent.cached - spent.written)
    return (fresh * at.input + spent.cached * at.cache_read + spent.written * at.cache_write) / _MILLION
