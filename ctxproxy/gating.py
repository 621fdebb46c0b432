"""The gates on a live session: what the agent's context measures now, what it cost so far, and compaction where due.

`ctxproxy.gate` has the rules. Here they meet a runtime, for `Session.gate` and for the proxy's `/ctxproxy/gate`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from ctxproxy.budget import Level, Thresholds, TokenBudget
from ctxproxy.effects import Call, Prepared, drive
from ctxproxy.errors import ContextOverflowError
from ctxproxy.gate import CompressResult, GateResult, budget_gate, combined_gate_check, context_gate
from ctxproxy.models import ModelInfo, Prices
from ctxproxy.monitor import Event
from ctxproxy.policy import Policy
from ctxproxy.runtime import Runtime
from ctxproxy.strategies.plan import compress_plan
from ctxproxy.strategies.warmth import compress_warmth, dump

__all__ = ["Limit", "Spawn", "as_json", "check_spawn", "forced", "measured"]

_NEVER = Thresholds(warning=9e9, compress=9e9, emergency=9e9, overflow=9e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A cost limit and what was spent of it, in USD."""

    spent: float
    limit: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn:
    """A spawn that is asked for.

    `call` is the request that the agent's messages make, else `tokens` are its estimated context. `warmth` and `plan`
    are handed over besides and count too. `output` is the answer's size in tokens, the reserve by default; `cost` in
    USD replaces the estimate by the catalogue's prices.
    """

    session: str
    agent: str
    policy: Policy
    info: ModelInfo
    call: Call | None = None
    tokens: int = 0
    warmth: Mapping[str, Any] | None = None
    plan: str | None = None
    output: int | None = None
    cost: float | None = None
    limits: Sequence[Limit] = field(default=())


def measured(runtime: Runtime, call: Call) -> Prepared:
    """The request with what the ledger remembers in its place, and nothing else done.

    Raises:
        WireFormatError: it is no request of the call's API.
    """
    quiet = replace(call.policy, mode="compact", thresholds=_NEVER)
    return drive(runtime.engine.prepare(replace(call, policy=quiet, force=False)), runtime.perform)


def forced(runtime: Runtime, call: Call, **changes: Any) -> Prepared:
    """The request, compacted whatever its level, by the call's policy with some `changes`; the ledger remembers it."""
    policy = replace(call.policy, mode="compact", **changes)
    return drive(runtime.engine.prepare(replace(call, policy=policy, force=True)), runtime.perform)


def check_spawn(runtime: Runtime, spawn: Spawn) -> GateResult:
    """Cost first, then context; the result, recorded as events.

    NORMAL and WARNING pass, COMPRESS and EMERGENCY compress by a fifth and pass, OVERFLOW blocks. Warmth and plan over
    their allocations are compressed when the context is, or before every spawn where the policy says so.

    Raises:
        WireFormatError: the messages are not of the call's API.
    """
    count = runtime.counter_for(spawn.info.model)[1].count
    budget = TokenBudget(total=spawn.info.window, shares=spawn.policy.shares)
    handed = _Handed(spawn.warmth, spawn.plan)
    before = handed.tokens(count)
    strategies: list[str] = []
    if spawn.policy.allocations == "spawn":
        handed = handed.within(budget, count)
        if handed.tokens(count) < before:
            strategies.append("allocations")
    talk = spawn.tokens
    if spawn.call is not None:
        talk = measured(runtime, spawn.call).report.tokens_after
    current = talk + handed.tokens(count)

    def compress(mode: str, share: float) -> CompressResult:
        nonlocal handed
        saved = handed.tokens(count)
        handed = handed.within(budget, count)
        saved -= handed.tokens(count)
        if saved:
            strategies.append("allocations")
        left = share - saved / max(1, current)
        if spawn.call is not None and left > 0:
            prepared = _reduced(runtime, spawn.call, mode, left * current / max(1, talk))
            if prepared is not None and prepared.compaction is not None:
                saved += talk - prepared.report.tokens_after
                strategies.extend(prepared.report.strategies)
        return CompressResult(tokens_saved=saved)

    result = combined_gate_check(
        _cost_gate(spawn, current),
        lambda: context_gate(current, budget.total, compress=compress, thresholds=spawn.policy.thresholds),
    )
    result = replace(
        result,
        compression_applied=bool(strategies),
        warmth=handed.warmth,
        plan=handed.plan,
        context_usage=current if result.context_usage is None else result.context_usage,
        current_usage=current if result.current_usage is None else result.current_usage,
    )
    _record(runtime, spawn, result, talk + before, tuple(dict.fromkeys(strategies)))
    return result


def _reduced(runtime: Runtime, call: Call, mode: str, share: float) -> Prepared | None:
    """The request, reduced by a share."""
    changes: dict[str, Any] = {"relative_reduction": min(share, 0.9)}
    if mode == "aggressive":
        harder = call.policy.steps.get(Level.EMERGENCY, ())
        changes["steps"] = MappingProxyType({**call.policy.steps, Level.COMPRESS: harder})
        changes["keep_messages"] = call.policy.emergency_keep_messages
    try:
        return forced(runtime, call, **changes)
    except ContextOverflowError:
        return None


def _cost_gate(spawn: Spawn, tokens: int) -> GateResult:
    """The first limit that does not allow the cost; else the one that has the least left."""
    cost = spawn.cost if spawn.cost is not None else _estimate(spawn, tokens)
    found = [budget_gate(cost, spent=limit.spent, limit=limit.limit) for limit in spawn.limits]
    found = found or [budget_gate(cost)]
    return min(found, key=lambda result: (result.allowed, result.message is None))


def _estimate(spawn: Spawn, tokens: int) -> float:
    """USD of one request of that size without a cached prefix; 0 where the prices are not known."""
    prices: Prices | None = spawn.info.prices
    if prices is None:
        return 0.0
    output = spawn.output
    if output is None:
        reserve = TokenBudget(total=spawn.info.window, shares=spawn.policy.shares).allocation("reserve")
        output = min(reserve, spawn.info.output_limit or reserve)
    at = prices.at(tokens)
    return (tokens * at.input + output * at.output) / 1e6


def _record(runtime: Runtime, spawn: Spawn, result: GateResult, before: int, strategies: tuple[str, ...]) -> None:
    after = result.current_usage if result.current_usage is not None else before
    gate = Event(
        type="gate",
        at=runtime.clock(),
        id=secrets.token_hex(8),
        session=spawn.session,
        agent=spawn.agent,
        model=spawn.info.model,
        window=spawn.info.window,
        level=result.trigger_level or "",
        reason="proactive" if strategies else None,
        before=before,
        after=after,
        strategies=strategies,
        allowed=result.allowed,
        message=result.message or "",
    )
    events = (gate, replace(gate, type="spawn")) if result.allowed else (gate,)
    runtime.monitor.emit(*events)


@dataclass(frozen=True, slots=True)
class _Handed:
    """What the new agent gets from the one that spawns it."""

    warmth: Mapping[str, Any] | None
    plan: str | None

    def tokens(self, count: Any) -> int:
        return (count(dump(self.warmth)) if self.warmth else 0) + (count(self.plan) if self.plan else 0)

    def within(self, budget: TokenBudget, count: Any) -> _Handed:
        """The same, each within its allocation."""
        warmth, plan = self.warmth, self.plan
        if warmth is not None:
            warmth = compress_warmth(warmth, budget.allocation("warmth"), count=count)
        if plan is not None:
            plan = compress_plan(plan, budget.allocation("plan"), count=count)
        return _Handed(warmth, plan)


def as_json(result: GateResult) -> bytes:
    """The fields of a result as JSON."""
    return json.dumps({name: getattr(result, name) for name in result.__slots__}, default=dict).encode()
