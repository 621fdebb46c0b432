"""The model catalogue: an installed package's data file, read without importing it, beside our own table."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from ctxproxy.models import CatalogueEntry, Prices, PriceTier

__all__ = ["CURATED", "data_file", "load", "read_litellm"]

Tier = tuple[int, float, float, float, float]
Row = (
    tuple[int, int | None, int | None, tuple[float, float, float, float], int | None]
    | tuple[int, int | None, int | None, tuple[float, float, float, float], int | None, Tier]
)

_K400 = (400_000, 272_000, 128_000)
_M1_OPENAI = (1_050_000, 922_000, 128_000)
_M1_CLAUDE = (1_000_000, None, 128_000)
_M1_GEMINI = (1_048_576, 1_048_576, 65_536)
_M1_GLM = (1_000_000, None, 131_072)
_K200_CLAUDE = (200_000, None, 64_000)

# name: context, input limit where the provider states it apart, output limit,
#   USD per million tokens (input, output, cache read, cache write), smallest cacheable prompt,
#   and from how many prompt tokens on which other prices hold.
# Compiled in November 2026 from providers' model and pricing pages as collected by litellm 1.110.2 and
# models.dev (2026-08/09). Where the two disagree about a window, the smaller one is listed.
_TABLE: dict[str, Row] = {
    "gpt-6-astra": (*_M1_OPENAI, (10, 50, 1, 12.5), 1024, (272_000, 20, 75, 2, 25)),
    "gpt-6-sol": (*_M1_OPENAI, (2, 10, 0.2, 2.5), 1024, (272_000, 4, 15, 0.4, 5)),
    "gpt-6-luna": (*_M1_OPENAI, (0.1, 0.5, 0.01, 0.125), 1024, (272_000, 0.2, 0.75, 0.02, 0.25)),
    "gpt-6.1-sol": (*_M1_OPENAI, (2, 10, 0.1, 2.5), 1024, (272_000, 4, 15, 0.2, 5)),
    "gpt-6.1-terra": (*_M1_OPENAI, (1, 5, 0.05, 1.25), 1024, (272_000, 2, 7.5, 0.1, 2.5)),
    "gpt-5.6": (*_M1_OPENAI, (4, 20, 0.4, 5), 1024, (272_000, 8, 30, 0.8, 10)),
    "gpt-5.6-sol": (*_M1_OPENAI, (4, 20, 0.4, 5), 1024, (272_000, 8, 30, 0.8, 10)),
    "gpt-5.6-terra": (*_M1_OPENAI, (2, 12, 0.2, 2.5), 1024, (272_000, 4, 18, 0.4, 5)),
    "gpt-5.6-luna": (*_M1_OPENAI, (0.2, 1.2, 0.02, 0.25), 1024, (272_000, 0.4, 1.8, 0.04, 0.5)),
    "gpt-5.5": (*_M1_OPENAI, (5, 30, 0.5, 5), 1024, (272_000, 10, 45, 1, 10)),
    "gpt-5.5-pro": (*_M1_OPENAI, (30, 180, 30, 30), 1024),
    "gpt-5.4": (*_M1_OPENAI, (2.5, 15, 0.25, 2.5), 1024, (272_000, 5, 22.5, 0.5, 5)),
    "gpt-5.4-pro": (*_M1_OPENAI, (30, 180, 30, 30), 1024),
    "gpt-5.4-mini": (*_K400, (0.75, 4.5, 0.075, 0.75), 1024),
    "gpt-5.4-nano": (*_K400, (0.2, 1.25, 0.02, 0.2), 1024),
    "gpt-5.3-codex": (*_K400, (1.75, 14, 0.175, 1.75), 1024),
    "gpt-5.2": (*_K400, (1.75, 14, 0.175, 1.75), 1024),
    "gpt-5.1": (*_K400, (1.25, 10, 0.125, 1.25), 1024),
    "gpt-5": (*_K400, (1.25, 10, 0.125, 1.25), 1024),
    "gpt-5-mini": (*_K400, (0.25, 2, 0.025, 0.25), 1024),
    "gpt-5-nano": (*_K400, (0.05, 0.4, 0.005, 0.05), 1024),
    "gpt-5-pro": (400_000, 272_000, 272_000, (15, 120, 15, 15), 1024),
    "gpt-5-chat": (128_000, None, 16_384, (1.25, 10, 0.125, 1.25), 1024),
    "gpt-4.1": (1_047_576, None, 32_768, (2, 8, 0.5, 2), 1024),
    "gpt-4.1-mini": (1_047_576, None, 32_768, (0.4, 1.6, 0.1, 0.4), 1024),
    "gpt-4.1-nano": (1_047_576, None, 32_768, (0.1, 0.4, 0.025, 0.1), 1024),
    "gpt-4o": (128_000, None, 16_384, (2.5, 10, 1.25, 2.5), 1024),
    "gpt-4o-mini": (128_000, None, 16_384, (0.15, 0.6, 0.075, 0.15), 1024),
    "gpt-4-turbo": (128_000, None, 4_096, (10, 30, 10, 10), None),
    "gpt-4": (8_192, None, 4_096, (30, 60, 30, 30), None),
    "gpt-3.5-turbo": (16_385, None, 4_096, (0.5, 1.5, 0.5, 0.5), None),
    "o4-mini": (200_000, None, 100_000, (1.1, 4.4, 0.275, 1.1), 1024),
    "o3": (200_000, None, 100_000, (2, 8, 0.5, 2), 1024),
    "o3-mini": (200_000, None, 100_000, (1.1, 4.4, 0.55, 1.1), 1024),
    "o1": (200_000, None, 100_000, (15, 60, 7.5, 15), 1024),
    "gpt-oss-120b": (131_072, None, 131_072, (0.15, 0.6, 0.15, 0.15), None),
    "gpt-oss-20b": (131_072, None, 131_072, (0.075, 0.3, 0.075, 0.075), None),
    "claude-fable-5-1": (*_M1_CLAUDE, (10, 50, 0.25, 12.5), 512),
    "claude-fable-5": (*_M1_CLAUDE, (10, 50, 1, 12.5), 512),
    "claude-opus-5-5": (*_M1_CLAUDE, (4, 20, 0.2, 5), 512),
    "claude-opus-5": (*_M1_CLAUDE, (5, 25, 0.5, 6.25), 512),
    "claude-opus-4-8": (*_M1_CLAUDE, (5, 25, 0.5, 6.25), 1024),
    "claude-opus-4-7": (*_M1_CLAUDE, (5, 25, 0.5, 6.25), 2048),
    "claude-opus-4-6": (*_M1_CLAUDE, (5, 25, 0.5, 6.25), 4096),
    "claude-opus-4-5": (*_K200_CLAUDE, (5, 25, 0.5, 6.25), 4096),
    "claude-opus-4-1": (200_000, None, 32_000, (15, 75, 1.5, 18.75), 1024),
    "claude-opus-4": (200_000, None, 32_000, (15, 75, 1.5, 18.75), 1024),
    "claude-sonnet-5-5": (*_M1_CLAUDE, (2, 10, 0.1, 2.5), 512),
    "claude-sonnet-5": (*_M1_CLAUDE, (2, 10, 0.2, 2.5), 1024),
    "claude-sonnet-4-6": (*_M1_CLAUDE, (3, 15, 0.3, 3.75), 1024),
    "claude-sonnet-4-5": (*_K200_CLAUDE, (3, 15, 0.3, 3.75), 1024),
    "claude-sonnet-4": (*_K200_CLAUDE, (3, 15, 0.3, 3.75), 1024),
    "claude-haiku-5-5": (*_M1_CLAUDE, (0.1, 0.5, 0.01, 0.125), 512, (100_000, 0.5, 2.5, 0.05, 0.625)),
    "claude-haiku-4-5": (*_K200_CLAUDE, (1, 5, 0.1, 1.25), 4096),
    "claude-3-7-sonnet": (*_K200_CLAUDE, (3, 15, 0.3, 3.75), 1024),
    "claude-3-5-sonnet": (200_000, None, 8_192, (3, 15, 0.3, 3.75), 1024),
    "claude-3-5-haiku": (200_000, None, 8_192, (0.8, 4, 0.08, 1), 2048),
    "claude-3-opus": (200_000, None, 4_096, (15, 75, 1.5, 18.75), 1024),
    "claude-3-haiku": (200_000, None, 4_096, (0.25, 1.25, 0.03, 0.3), 2048),
    "gemini-4-argon": (*_M1_GEMINI[:2], None, (2, 10, 0.1, 2), 4096),
    "gemini-4-hydrogen": (*_M1_GEMINI[:2], None, (1.5, 7.5, 0.075, 1.5), 4096),
    "gemini-3.8-flash": (*_M1_GEMINI, (0.75, 3.75, 0.075, 0.75), 4096),
    "gemini-3.5-flash": (*_M1_GEMINI, (1.5, 9, 0.15, 1.5), 4096),
    "gemini-3.5-flash-lite": (*_M1_GEMINI, (0.3, 2.5, 0.03, 0.3), 4096),
    "gemini-3.1-pro": (*_M1_GEMINI, (2, 12, 0.2, 2), 4096, (200_000, 4, 18, 0.4, 4)),
    "gemini-3-pro": (*_M1_GEMINI, (2, 12, 0.2, 2), 4096, (200_000, 4, 18, 0.4, 4)),
    "gemini-3-flash": (*_M1_GEMINI, (0.5, 3, 0.05, 0.5), 4096),
    "gemini-2.5-pro": (*_M1_GEMINI, (1.25, 10, 0.125, 1.25), 2048, (200_000, 2.5, 15, 0.25, 2.5)),
    "gemini-2.5-flash": (*_M1_GEMINI, (0.3, 2.5, 0.03, 0.3), 2048),
    "gemini-2.5-flash-lite": (*_M1_GEMINI, (0.1, 0.4, 0.01, 0.1), 2048),
    "gemini-2.0-flash": (1_048_576, 1_048_576, 8_192, (0.1, 0.4, 0.025, 0.1), None),
    "deepseek-v4-pro": (1_000_000, None, 384_000, (1.32, 3.96, 0.044, 1.32), None),
    "deepseek-v4-flash": (1_000_000, None, 384_000, (0.3, 1.2, 0.006, 0.3), None),
    "deepseek-chat": (131_072, None, 8_192, (0.28, 0.42, 0.028, 0.28), None),
    "deepseek-reasoner": (131_072, None, 65_536, (0.28, 0.42, 0.028, 0.28), None),
    "deepseek-v3.2": (163_840, None, 65_536, (0.28, 0.4, 0.028, 0.28), None),
    "grok-4.7": (500_000, None, None, (2, 6, 0.5, 2), None, (200_000, 4, 12, 1, 4)),
    "grok-4.5": (500_000, None, None, (2, 6, 0.3, 2), None, (200_000, 4, 12, 0.6, 4)),
    "grok-4.3": (1_000_000, None, 30_000, (1.25, 2.5, 0.2, 1.25), None),
    "grok-4": (256_000, None, None, (3, 15, 0.75, 3), None),
    "grok-3": (131_072, None, None, (3, 15, 0.75, 3), None),
    "kimi-k3.1-pro": (1_048_576, None, 131_072, (2, 10, 0.2, 2), None),
    "kimi-k3": (1_048_576, None, 131_072, (3, 15, 0.3, 3), None),
    "kimi-k2.7-code": (262_144, None, 262_144, (0.95, 4, 0.19, 0.95), None),
    "kimi-k2.6": (262_144, None, 262_144, (0.95, 4, 0.16, 0.95), None),
    "kimi-k2.5": (262_144, None, 262_144, (0.6, 3, 0.1, 0.6), None),
    "kimi-k2": (131_072, None, 16_384, (0.6, 2.5, 0.15, 0.6), None),
    "glm-5.3": (*_M1_GLM, (1.4, 4.4, 0.26, 1.4), None),
    "glm-5.2": (*_M1_GLM, (1.4, 4.4, 0.26, 1.4), None),
    "glm-5.1": (200_000, None, 131_072, (1.4, 4.4, 0.26, 1.4), None),
    "glm-5": (200_000, None, 131_072, (1, 3.2, 0.2, 1), None),
    "glm-4.7": (200_000, None, 131_072, (0.6, 2.2, 0.11, 0.6), None),
    "glm-4.6": (200_000, None, 131_072, (0.6, 2.2, 0.11, 0.6), None),
    "glm-4.5": (128_000, None, 98_304, (0.6, 2.2, 0.11, 0.6), None),
    "minimax-m3": (1_000_000, None, 128_000, (0.3, 1.2, 0.06, 0.3), None),
    "minimax-m2.7": (204_800, None, 131_072, (0.3, 1.2, 0.06, 0.3), None),
    "minimax-m2.5": (204_800, None, 131_072, (0.3, 1.2, 0.03, 0.3), None),
    "minimax-m2.1": (204_800, None, 131_072, (0.3, 1.2, 0.03, 0.3), None),
    "minimax-m2": (196_608, None, 128_000, (0.3, 1.2, 0.03, 0.3), None),
    "qwen3.8-max": (1_000_000, 991_808, 131_072, (2, 6, 0.25, 2), None),
    "qwen3.7-max": (1_000_000, 991_808, 65_536, (2.5, 7.5, 0.5, 3.125), None),
    "qwen3-max": (262_144, 258_048, 65_536, (1.2, 6, 1.2, 1.2), None, (32_000, 2.4, 12, 2.4, 2.4)),
    "qwen3-coder-plus": (1_000_000, 997_952, 65_536, (1, 5, 1, 1), None, (32_000, 1.8, 9, 1.8, 1.8)),
    "mistral-large": (262_144, None, None, (0.5, 1.5, 0.05, 0.5), None),
    "mistral-medium": (262_144, None, None, (1.5, 7.5, 0.15, 1.5), None),
    "mistral-small": (256_000, None, None, (0.15, 0.6, 0.015, 0.15), None),
    "devstral": (256_000, None, None, (0.4, 2, 0.04, 0.4), None),
    "codestral": (128_000, None, None, (0.3, 0.9, 0.03, 0.3), None),
    "llama-3.3-70b": (128_000, None, None, (0.6, 0.75, 0.6, 0.6), None),
    "llama-3.1-8b": (128_000, None, None, (0.05, 0.08, 0.05, 0.05), None),
}


def _priced(price: Sequence[float], tiers: tuple[PriceTier, ...] = ()) -> Prices:
    return Prices(input=price[0], output=price[1], cache_read=price[2], cache_write=price[3], tiers=tiers)


def _tier(above: int, price: Sequence[float]) -> PriceTier:
    return PriceTier(above=above, input=price[0], output=price[1], cache_read=price[2], cache_write=price[3])


def _entry(row: Row) -> CatalogueEntry:
    context, input_limit, output_limit, prices, smallest = row[:5]
    tiers = tuple(_tier(above, step) for above, *step in row[5:])
    return CatalogueEntry(
        context=context,
        input_limit=input_limit,
        output_limit=output_limit,
        shared=input_limit is None,
        prices=_priced(prices, tiers),
        min_cache_tokens=smallest,
        origin="ctxproxy",
    )


CURATED: Mapping[str, CatalogueEntry] = MappingProxyType({name: _entry(row) for name, row in _TABLE.items()})
"""Well-known models, for use when no package with a catalogue is installed, and as a check on its windows."""

_FIRST_PARTY = (
    "openai",
    "anthropic",
    "gemini",
    "xai",
    "deepseek",
    "moonshot",
    "zai",
    "minimax",
    "dashscope",
    "mistral",
)


@cache
def load() -> Mapping[str, CatalogueEntry]:
    """The catalogue by lower-case model name: the installed data file's rows over ours.

    Where both know a model, prices are the file's, the output limit is ours and the window is the smaller
    one: a window that is too large ends in refused requests, and such tables do have wrong rows.
    """
    path = data_file()
    rows = read_litellm(path) if path else {}
    for name, ours in CURATED.items():
        for key in (name, *(f"{provider}/{name}" for provider in _FIRST_PARTY)):
            if theirs := rows.get(key):
                rows[key] = _merged(ours, theirs)
            elif key == name:
                rows[key] = ours
    return MappingProxyType(rows)


def _merged(ours: CatalogueEntry, theirs: CatalogueEntry) -> CatalogueEntry:
    size = theirs if theirs.window and ours.window and theirs.window < ours.window else ours
    return CatalogueEntry(
        context=size.context,
        input_limit=size.input_limit,
        output_limit=ours.output_limit or theirs.output_limit,
        shared=size.shared,
        prices=theirs.prices or ours.prices,
        min_cache_tokens=theirs.min_cache_tokens or ours.min_cache_tokens,
        origin=theirs.origin,
    )


def data_file() -> Path | None:
    """litellm's model table if that package is installed. Importing the package would take seconds."""
    try:
        spec = importlib.util.find_spec("litellm")
    except (ImportError, ValueError):
        return None
    for folder in spec.submodule_search_locations or () if spec else ():
        path = Path(folder) / "model_prices_and_context_window_backup.json"
        if path.is_file():
            return path
    return None


# --- litellm's file ---

_CHAT = ("chat", "responses", "completion", None)
_TIER = re.compile(r"input_cost_per_token_above_(\d+)k_tokens$")
_OPENAI_SPLIT = re.compile(r"gpt-(?:[5-9]|\d\d)(?!.*chat)")
_OPENAI_TOTALS = {400_000: 272_000, 1_050_000: 922_000}
_INPUT_RANGES = ("dashscope", "qwencloud", "qwen_ai_platform")


def read_litellm(path: Path) -> dict[str, CatalogueEntry]:
    """The rows of litellm's JSON file; {} if it cannot be read. Models of one provider are also listed bare."""
    try:
        table: object = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(table, dict):
        return {}
    listed = _litellm_rows(cast("dict[str, object]", table))
    rows = {name.lower(): _corrected(name.lower(), entry) for name, entry in listed}
    bare: dict[str, tuple[bool, CatalogueEntry]] = {}
    for name, entry in rows.items():
        provider, _, last = name.rpartition("/")
        if provider and last not in rows:
            # The maker's own row counts; among resellers the smallest window is the safe one.
            maker, known = provider in _FIRST_PARTY, bare.get(last)
            if known is None or (maker, -(entry.window or 0)) > (known[0], -(known[1].window or 0)):
                bare[last] = maker, entry
    return {name: entry for name, (_, entry) in bare.items()} | rows


# Rows that were seen to be wrong, under whatever reseller: most tokens of the window and of the output. Where litellm
# and models.dev disagree it is the smaller figure, as in our table.
_CORRECTIONS: tuple[tuple[re.Pattern[str], int | None, int | None], ...] = (
    # 1,000,000 is the context-1m beta, which needs its header (`models.resolve` knows it).
    (re.compile(r"claude-sonnet-4(?:[-.]5)?(?![-.]?\d(?!\d{3}))"), 200_000, 64_000),
    # 1,000,000 is M3.
    (re.compile(r"minimax-m2(?:[.p]\d)?(?!\d)"), 204_800, 131_072),
    # litellm repeats the context as Kimi's output; for DeepSeek the figures are 384,000 and 393,216.
    (re.compile(r"kimi-k3(?!\d)"), 1_048_576, 131_072),
    (re.compile(r"deepseek-v4(?!\d)"), 1_000_000, 384_000),
)


def _corrected(name: str, entry: CatalogueEntry) -> CatalogueEntry:
    """The row within what the maker states; an output as large as the whole context says nothing."""
    context, output = entry.context, entry.output_limit
    for words, most, written in _CORRECTIONS:
        if words.search(name):
            context = min(context, most) if context and most else context
            output = min(output, written) if output and written else output
            break
    if context and output and output >= context:
        output = None
    return replace(entry, context=context, output_limit=output)


def _litellm_rows(table: dict[str, object]) -> Iterator[tuple[str, CatalogueEntry]]:
    for name, row in table.items():
        if isinstance(row, dict) and (fields := cast("dict[str, Any]", row)).get("mode") in _CHAT:
            yield name, _litellm_entry(name.lower().rpartition("/")[2], fields)


def _litellm_entry(name: str, fields: dict[str, Any]) -> CatalogueEntry:
    """max_input_tokens means the input limit in some rows and input and output together in others."""
    limit = _whole(fields.get("max_input_tokens")) or _whole(fields.get("max_tokens"))
    output = _whole(fields.get("max_output_tokens"))
    context: int | None = limit
    input_limit: int | None = None
    if limit and _OPENAI_SPLIT.search(name):
        if limit + (output or 0) in _OPENAI_TOTALS:
            context, input_limit = limit + (output or 0), limit
        elif limit in _OPENAI_TOTALS:
            input_limit = _OPENAI_TOTALS[limit]
    elif limit and "gemini-" in name:
        input_limit = limit
    elif limit and fields.get("litellm_provider") in _INPUT_RANGES:
        context, input_limit = None, limit
    return CatalogueEntry(
        context=context,
        input_limit=input_limit,
        output_limit=output,
        shared=input_limit is None,
        prices=_litellm_prices(fields),
        min_cache_tokens=_whole(fields.get("prompt_cache_min_tokens")),
        origin="litellm",
    )


def _litellm_prices(fields: dict[str, Any]) -> Prices | None:
    base = _litellm_price(fields, "")
    if base is None:
        return None
    tiers: list[PriceTier] = []
    for key in fields:
        if found := _TIER.search(key):
            step = _litellm_price(fields, f"_above_{found[1]}k_tokens") or base
            tiers.append(_tier(int(found[1]) * 1000, step))
    return _priced(base, tuple(sorted(tiers, key=lambda tier: tier.above)))


def _litellm_price(fields: dict[str, Any], step: str) -> list[float] | None:
    """Input, output, cache read and cache write in USD per million tokens; None if the row has no price."""
    read = fields.get("cache_read_input_token_cost" + step)
    write = fields.get("cache_creation_input_token_cost" + step)
    price, output = fields.get("input_cost_per_token" + step), fields.get("output_cost_per_token" + step)
    if not isinstance(price, int | float) or not isinstance(output, int | float):
        return None
    cached = [value if isinstance(value, int | float) else price for value in (read, write)]
    return [round(value * 1e6, 6) for value in (price, output, *cached)]


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and value > 0 else None
