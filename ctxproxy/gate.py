"""The gates of the Grid design: may this agent be spawned, by context and by cost?

Results are frozen and carry all fields of the design. Counting and compressing are passed in, so that the gate
itself knows neither models nor conversations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from ctxproxy.budget import Level, Thresholds, level_of
from ctxproxy.strategies.warmth import compress_warmth
from ctxproxy.tokens import estimate_tokens

__all__ = [
    "CompressResult",
    "GateResult",
    "TriggerResult",
    "budget_gate",
    "check_context_triggers",
    "combined_gate_check",
    "context_gate",
    "handle_checkpoint_context",
    "prepare_warmth_for_transfer",
]

TriggerLevel = Literal["NORMAL", "WARNING", "COMPRESS", "EMERGENCY", "OVERFLOW"]
CHECKPOINT_WARMTH = 8_000  # tokens: leaves room for the user's response
WARMTH = 10_000  # tokens, of the 200K budget


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerResult:
    """What a usage triggers. `compression_mode` is `standard` or `aggressive`, None where nothing is compressed."""

    level: TriggerLevel
    action: Literal["continue", "log_and_continue", "auto_compress", "block_spawn"]
    message: str | None
    requires_compression: bool
    compression_mode: Literal["standard", "aggressive"] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressResult:
    """What a compression did. Tokens by the seeds' own measure where it is called by their names."""

    kept: tuple[Any, ...] = ()
    archived: tuple[Any, ...] = ()
    discarded: tuple[Any, ...] = ()
    summary: str | None = None
    tokens_saved: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """Whether a spawn is allowed, and what was or has to be done. Tokens; cost in USD.

    `context_usage` and `current_usage` are both the usage after what was done, `cost_estimate` and `estimated_cost`
    both the cost of the spawn: the design has both names. `warmth` and `plan` are what to hand over to the agent,
    where they were given.
    """

    allowed: bool
    message: str | None = None
    required_action: str | None = None
    compression_applied: bool = False
    trigger_level: TriggerLevel | None = None
    context_usage: int | None = None
    current_usage: int | None = None
    tokens_saved: int = 0
    estimated_cost: float | None = None
    cost_estimate: float | None = None
    warnings: tuple[str, ...] = ()
    warmth: Mapping[str, Any] | None = None
    plan: str | None = None


def check_context_triggers(
    current_usage: int, total_budget: int = 200_000, *, thresholds: Thresholds = Thresholds()
) -> TriggerResult:
    """The trigger of `current_usage` tokens of `total_budget`.

    Raises:
        ValueError: the budget is not positive, or the usage is negative.
    """
    if total_budget <= 0 or current_usage < 0:
        raise ValueError(f"usage {current_usage} of budget {total_budget}: tokens can't be negative, a budget not 0")
    fraction = current_usage / total_budget
    level = level_of(fraction, thresholds)
    percent = f"Context at {fraction * 100:.1f}%"
    match level:
        case Level.OVERFLOW:
            return TriggerResult(
                level="OVERFLOW",
                action="block_spawn",
                message=f"{percent} - cannot spawn without compression",
                requires_compression=True,
                compression_mode="aggressive",
            )
        case Level.EMERGENCY:
            return TriggerResult(
                level="EMERGENCY",
                action="auto_compress",
                message=f"{percent} - emergency compression active",
                requires_compression=True,
                compression_mode="aggressive",
            )
        case Level.COMPRESS:
            return TriggerResult(
                level="COMPRESS",
                action="auto_compress",
                message=f"{percent} - auto-compressing history",
                requires_compression=True,
                compression_mode="standard",
            )
        case Level.WARNING:
            return TriggerResult(
                level="WARNING",
                action="log_and_continue",
                message=f"{percent} - approaching limit",
                requires_compression=False,
                compression_mode=None,
            )
        case _:
            return TriggerResult(
                level="NORMAL", action="continue", message=None, requires_compression=False, compression_mode=None
            )


def context_gate(
    current_usage: int,
    total_budget: int = 200_000,
    *,
    compress: Callable[[str, float], CompressResult] | None = None,
    target_reduction: float = 0.20,
    thresholds: Thresholds = Thresholds(),
) -> GateResult:
    """The check before every spawn. `compress` is called with the mode and the share to save, where one is due.

    NORMAL and WARNING pass, COMPRESS and EMERGENCY compress and pass, OVERFLOW blocks.
    """
    trigger = check_context_triggers(current_usage, total_budget, thresholds=thresholds)
    if trigger.level == "OVERFLOW":
        return GateResult(
            allowed=False,
            message=trigger.message,
            required_action="compress_before_spawn",
            trigger_level=trigger.level,
            context_usage=current_usage,
            current_usage=current_usage,
        )
    if trigger.requires_compression and trigger.compression_mode is not None:
        result = compress(trigger.compression_mode, target_reduction) if compress else CompressResult()
        after = current_usage - result.tokens_saved
        return GateResult(
            allowed=True,
            message=f"{trigger.message}. Compressed {result.tokens_saved} tokens.",
            compression_applied=compress is not None,
            trigger_level=trigger.level,
            context_usage=after,
            current_usage=after,
            tokens_saved=result.tokens_saved,
        )
    return GateResult(
        allowed=True,
        message=trigger.message,
        trigger_level=trigger.level,
        context_usage=current_usage,
        current_usage=current_usage,
    )


def budget_gate(estimated_cost: float, *, spent: float = 0.0, limit: float | None = None) -> GateResult:
    """The check of the cost budget: `spent` so far and `estimated_cost` of the spawn, in USD, against `limit`."""
    if limit is not None and spent + estimated_cost > limit:
        return GateResult(
            allowed=False,
            message=f"Cost budget: ${spent:.2f} spent and ${estimated_cost:.2f} estimated exceed ${limit:.2f}",
            required_action="raise_cost_budget",
            estimated_cost=estimated_cost,
            cost_estimate=estimated_cost,
        )
    near = limit is not None and limit > 0 and (spent + estimated_cost) / limit >= 0.80
    message = f"Cost budget: {(spent + estimated_cost) / limit * 100:.1f}% used" if near and limit else None
    return GateResult(allowed=True, message=message, estimated_cost=estimated_cost, cost_estimate=estimated_cost)


def combined_gate_check(cost: GateResult, context: Callable[[], GateResult]) -> GateResult:
    """Cost first, then context: `context` is only asked, and so only compresses, where the cost is allowed."""
    if not cost.allowed:
        return cost
    result = context()
    if not result.allowed:
        return result
    return GateResult(
        allowed=True,
        message=result.message,
        compression_applied=result.compression_applied,
        trigger_level=result.trigger_level,
        context_usage=result.current_usage,
        current_usage=result.current_usage,
        tokens_saved=result.tokens_saved,
        estimated_cost=cost.estimated_cost,
        cost_estimate=cost.estimated_cost,
        warnings=tuple(message for message in (cost.message, result.message) if message),
    )


def prepare_warmth_for_transfer(
    warmth: Mapping[str, Any], *, budget: int = WARMTH, count: Callable[[str], int] = estimate_tokens
) -> dict[str, Any]:
    """The warmth for a fresh agent, compressed where it is over `budget` tokens."""
    return compress_warmth(warmth, budget, count=count)


def handle_checkpoint_context(
    checkpoint: Mapping[str, Any],
    *,
    archive: Callable[[], object] = lambda: None,
    target_tokens: int = CHECKPOINT_WARMTH,
    count: Callable[[str], int] = estimate_tokens,
) -> Mapping[str, Any]:
    """A checkpoint with its compressed warmth; `archive` moves finished work into the summary first."""
    archive()
    warmth: Mapping[str, Any] = checkpoint.get("warmth") or {}
    return MappingProxyType({**checkpoint, "compressed_warmth": compress_warmth(warmth, target_tokens, count=count)})
