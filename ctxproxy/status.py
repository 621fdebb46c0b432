"""The Context Budget Status of the Grid design, as a text block."""

from __future__ import annotations

from collections.abc import Mapping

from ctxproxy.budget import SHARES, Level, Thresholds, TokenBudget, Usage, level_of

__all__ = ["bar", "status_block"]

_CELLS = 20


def bar(fraction: float, cells: int = _CELLS) -> str:
    """A bar of so many cells, a cell filled once it is used whole; over 1 it is full."""
    full = min(cells, max(0, int(fraction * cells + 1e-9)))
    return "█" * full + "░" * (cells - full)


def status_block(usage: Usage, *, thresholds: Thresholds = Thresholds(), shares: Mapping[str, float] = SHARES) -> str:
    """The block: a bar, the level, history, plan and warmth with their allocations, and a note from WARNING on."""
    level = level_of(usage.fraction, thresholds)
    budget = TokenBudget(total=usage.total, shares=shares)
    allocations = budget.allocations
    lines = [
        "Context Budget Status",
        "─────────────────────",
        f"Usage:   [{bar(usage.fraction)}] {usage.fraction * 100:.1f}%",
        f"Level:   {level.name}",
    ]
    for name in ("history", "plan", "warmth"):
        used = usage.by_category.get(name, 0)
        lines.append(f"{name.capitalize() + ':':<8} {used:,} / {allocations.get(name, 0):,} tokens")
    note = _note(level, thresholds)
    return "\n".join([*lines, "", f"Note: {note}"] if note else lines)


def _note(level: Level, thresholds: Thresholds) -> str:
    match level:
        case Level.WARNING:
            return f"Approaching compression threshold ({thresholds.compress * 100:g}%)"
        case Level.COMPRESS:
            return "The next request is compressed"
        case Level.EMERGENCY:
            return "Emergency compression with the next request"
        case Level.OVERFLOW:
            return "No spawn without compression"
        case _:
            return ""
