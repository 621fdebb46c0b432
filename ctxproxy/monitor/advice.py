"""Recommendations, computed from what was seen. Each names the figures that it rests on and the setting to turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ctxproxy.monitor.summary import ModelSeen, Snapshot

__all__ = ["Advice", "advise"]

Weight = Literal["problem", "hint", "fine"]

_ORDER: tuple[Weight, ...] = ("problem", "hint", "fine")
_CACHE_LOW, _CACHE_REQUESTS, _CACHE_TOKENS = 0.30, 5, 20_000
_OFTEN = 0.34  # compactions a request
_SHORT = 0.9  # of the assumed window: a refusal below it says that the window is smaller


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One recommendation. `about` is the model, tool or compaction id that it is about, `setting` a key or ""."""

    key: str
    weight: Weight
    text: str
    about: str = ""
    setting: str = ""


def advise(seen: Snapshot) -> tuple[Advice, ...]:
    """What would help, the most important first; one line that all is well where nothing would."""
    found = [*_windows(seen), *_compactions(seen), *_cache(seen), *_outputs(seen), *_warmth(seen)]
    if seen.totals.requests and not any(advice.weight != "fine" for advice in found):
        found.append(Advice(key="nothing", weight="fine", text="Nothing to change: no problem was seen so far."))
    return tuple(sorted(found, key=lambda advice: _ORDER.index(advice.weight)))


def _windows(seen: Snapshot) -> Iterator[Advice]:
    for model in seen.models:
        if model.truncated:
            yield Advice(
                key="silent_truncation",
                weight="problem",
                about=model.model,
                setting="models.<name>.window",
                text=f"The server of {model.model!r} cut {_times(model.truncated, 'prompt')} without a word. "
                "Its window is smaller than assumed: state it, or raise it at the server.",
            )
        yield from _window(model)


def _window(model: ModelSeen) -> Iterator[Advice]:
    if model.refused and model.least_refused < _SHORT * model.window and model.window_source != "learned":
        yield Advice(
            key="window_too_large",
            weight="problem",
            about=model.model,
            setting="models.<name>.window",
            text=f"{model.model!r} refused a prompt of {model.least_refused:,} tokens, though its window is taken "
            f"to be {model.window:,} ({_said(model.window_source)}). Set it to what the provider grants.",
        )
    elif model.window_source == "default":
        yield Advice(
            key="window_guess",
            weight="hint",
            about=model.model,
            setting="models.<name>.window",
            text=f"The window of {model.model!r} is not known; {model.window:,} tokens are a guess. Until it is set, "
            "nothing is compacted before the provider refuses.",
        )
    if model.window and model.accepted > 1.02 * model.window and model.window_source != "default":
        yield Advice(
            key="window_too_small",
            weight="hint",
            about=model.model,
            setting="models.<name>.window",
            text=f"{model.model!r} accepted {model.accepted:,} tokens, more than its window of {model.window:,} "
            f"({_said(model.window_source)}). A larger window would compact later.",
        )


def _compactions(seen: Snapshot) -> Iterator[Advice]:
    lost = [cut for cut in seen.compactions if cut.turns > 1 and cut.net_usd is not None and cut.net_usd < 0]
    if lost:
        worst = min(lost, key=lambda cut: cut.net_usd or 0.0)
        yield Advice(
            key="compaction_lost_money",
            weight="hint",
            about=worst.id,
            setting="policy.target",
            text=f"{_times(len(lost), 'compaction')} cost more than saved so far; the worst one lost "
            f"${-(worst.net_usd or 0.0):.4f} over {worst.turns} turns, since the provider's cache had to be written "
            "anew. A lower target compacts less often.",
        )
    totals = seen.totals
    if totals.compactions >= 3 and totals.compactions > _OFTEN * totals.requests:
        yield Advice(
            key="compacts_often",
            weight="hint",
            setting="policy.target",
            text=f"{totals.compactions:,} compactions in {totals.requests:,} requests: what stays is close to the "
            "threshold. Lower the target, or shorten system prompt and tools.",
        )


def _cache(seen: Snapshot) -> Iterator[Advice]:
    totals = seen.totals
    if totals.requests < _CACHE_REQUESTS or totals.input < _CACHE_TOKENS or not (totals.cached or totals.written):
        return  # a provider that never speaks of a cache may have none
    if totals.cache_share < _CACHE_LOW:
        yield Advice(
            key="cache_low",
            weight="hint",
            text=f"Only {totals.cache_share:.0%} of the input came from the provider's cache. What changes at the "
            "beginning of a prompt on every turn (a date, a list of files) spoils it: move it to the end.",
        )


def _outputs(seen: Snapshot) -> Iterator[Advice]:
    for tool in seen.tools[:3]:
        yield Advice(
            key="large_outputs",
            weight="hint",
            about=tool.tool,
            setting="policy.tool_output",
            text=f"{tool.tool!r} gave {_times(tool.large, 'large output')}, the largest {tool.largest:,} tokens, "
            f"{tool.share:.0%} of the window. Consider breaking large blocks into smaller ones: ask for a range, or "
            "lower the limit.",
        )


def _warmth(seen: Snapshot) -> Iterator[Advice]:
    with_warmth = [talk for talk in seen.conversations if talk.by_category.get("warmth")]
    over = [talk for talk in with_warmth if talk.by_category["warmth"] > talk.allocations.get("warmth", 0)]
    if over:
        talk = max(over, key=lambda talk: talk.by_category["warmth"] / max(1, talk.allocations.get("warmth", 1)))
        yield Advice(
            key="warmth_large",
            weight="hint",
            about=talk.session,
            setting="policy.shares.warmth",
            text=f"Warmth has {talk.by_category['warmth']:,} tokens, over its {talk.allocations.get('warmth', 0):,}. "
            "Compress it before it is handed on.",
        )
    elif with_warmth:
        yield Advice(key="warmth_fine", weight="fine", text="Current warmth size is optimal.")


def _times(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _said(source: str) -> str:
    return {
        "config": "from the settings",
        "learned": "learned from an error",
        "served": "told by the server",
        "catalogue": "from the catalogue",
        "default": "a guess",
    }.get(source, source or "unknown")
