"""The policy: when to act, down to which size, by which steps, and what is never cut.

Every absolute number is a cap beside a share, so that a window of 2,000 tokens works like one of 1,000,000.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from ctxproxy.budget import SHARES, Level, Thresholds
from ctxproxy.errors import ConfigError

__all__ = ["PRESETS", "Allocations", "FreshTail", "Limit", "Mode", "Policy", "Step", "Tags", "preset"]

Mode = Literal["off", "observe", "compact"]
Allocations = Literal["compaction", "spawn"]
Step = Literal["truncate", "prune", "window", "summarize", "facts", "prioritize"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A number of tokens that is also bound by a share of the window: the smaller one counts."""

    tokens: int
    share: float

    def of(self, window: int) -> int:
        return min(self.tokens, int(self.share * window))


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshTail:
    """The newest messages that stay verbatim: min(clamp(share of usable, low, high), cap_share of what is left)."""

    share: float = 0.25
    low: int = 2_000
    high: int = 8_000
    cap_share: float = 0.40

    def budget(self, *, usable: int, left: int) -> int:
        """Tokens of the tail. `usable`: tokens of the target; `left`: what the fixed part leaves of it."""
        return max(0, min(max(self.low, min(self.high, int(self.share * usable))), int(self.cap_share * left)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """Names of the tags (`<plan>...</plan>`) around a plan and around warmth in a message's text."""

    plan: tuple[str, ...] = ("plan",)
    warmth: tuple[str, ...] = ("warmth",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All rules of compaction. Shares are of the budget total; `None` switches a limit off.

    `allocations` says when a plan and warmth over their shares are compressed to them: with the next compaction, or
    before every spawn.
    """

    mode: Mode = "compact"
    thresholds: Thresholds = Thresholds()
    shares: Mapping[str, float] = field(default_factory=lambda: SHARES)
    allocations: Allocations = "compaction"
    tags: Tags = Tags()
    target: float = 0.70
    emergency_target: float = 0.60
    overflow_target: float = 0.60
    retry_target: float = 0.70
    relative_reduction: float | None = None
    steps: Mapping[Level, tuple[Step, ...]] = field(
        default_factory=lambda: MappingProxyType(
            {
                Level.WARNING: ("truncate",),
                Level.COMPRESS: ("truncate", "prune", "window", "facts"),
                Level.EMERGENCY: ("truncate", "prune", "summarize", "window", "facts"),
                Level.OVERFLOW: ("truncate", "prune", "summarize", "window", "facts", "prioritize"),
            }
        )
    )
    keep_messages: int = 20
    emergency_keep_messages: int = 10
    literal_window: bool = False
    preserve_checkpoints: bool = True
    preserve_decisions: bool = False
    tail: FreshTail = FreshTail()
    task: Limit = Limit(tokens=1 << 62, share=0.10)
    tool_output: Limit = Limit(tokens=20_000, share=0.20)
    protected_output: Limit = Limit(tokens=40_000, share=0.20)
    protected_turns: int = 2
    protected_tools: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    min_saving: Limit = Limit(tokens=2_000, share=0.05)
    payback_turns: int | None = None
    summary: Limit = Limit(tokens=1_000, share=0.10)
    summaries: bool = True
    summary_wait: float = 15.0
    min_output: int = 1_024
    max_retries: int = 2
    archive: bool = True
    tpm_compaction: bool = False
    provider_count: Literal["off", "near"] = "off"

    def target_tokens(self, level: Level, *, total: int, before: int) -> int:
        """Tokens to compact down to at a level."""
        if self.relative_reduction is not None:
            return min(int(before * (1 - self.relative_reduction)), total)
        share = {
            Level.EMERGENCY: self.emergency_target,
            Level.OVERFLOW: self.overflow_target,
        }.get(level, self.target)
        return int(total * share)


_GRID = Policy(
    relative_reduction=0.20,
    literal_window=True,
    preserve_decisions=True,
    allocations="spawn",
)

PRESETS: Mapping[str, Policy] = MappingProxyType(
    {
        "default": Policy(),
        "gentle": Policy(target=0.80, emergency_target=0.75, overflow_target=0.75),
        "aggressive": Policy(
            thresholds=Thresholds(warning=0.60, compress=0.75, emergency=0.90),
            target=0.45,
            emergency_target=0.40,
            overflow_target=0.40,
            tool_output=Limit(tokens=8_000, share=0.10),
        ),
        "grid": _GRID,
    }
)


def preset(name: str, **changes: object) -> Policy:
    """A named policy, with changes.

    Raises:
        ConfigError: there is no such preset, or no such field.
    """
    if name not in PRESETS:
        raise ConfigError(f"there is no policy {name!r}; there are {', '.join(PRESETS)}", key="policy.preset")
    try:
        return replace(PRESETS[name], **changes)  # pyright: ignore[reportArgumentType]
    except TypeError as error:
        raise ConfigError(f"policy {name!r}: {error}", key="policy") from None
