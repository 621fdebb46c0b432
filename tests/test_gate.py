from __future__ import annotations

import pytest

from ctxproxy.gate import (
    CompressResult,
    GateResult,
    TriggerResult,
    budget_gate,
    check_context_triggers,
    combined_gate_check,
    context_gate,
    handle_checkpoint_context,
    prepare_warmth_for_transfer,
)
from ctxproxy.strategies.warmth import dump
from ctxproxy.tokens import estimate_tokens


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (0, ("NORMAL", "continue", None, False, None)),
        (159_999, ("NORMAL", "continue", None, False, None)),
        (160_000, ("WARNING", "log_and_continue", "Context at 80.0% - approaching limit", False, None)),
        (179_999, ("WARNING", "log_and_continue", "Context at 90.0% - approaching limit", False, None)),
        (180_000, ("COMPRESS", "auto_compress", "Context at 90.0% - auto-compressing history", True, "standard")),
        (
            190_000,
            ("EMERGENCY", "auto_compress", "Context at 95.0% - emergency compression active", True, "aggressive"),
        ),
        (
            200_000,
            ("OVERFLOW", "block_spawn", "Context at 100.0% - cannot spawn without compression", True, "aggressive"),
        ),
        (
            300_000,
            ("OVERFLOW", "block_spawn", "Context at 150.0% - cannot spawn without compression", True, "aggressive"),
        ),
    ],
)
def test_triggers(usage: int, expected: tuple[object, ...]) -> None:
    result = check_context_triggers(usage)
    assert (
        result.level,
        result.action,
        result.message,
        result.requires_compression,
        result.compression_mode,
    ) == expected


@pytest.mark.parametrize(("usage", "budget"), [(-1, 100), (1, 0), (1, -5)])
def test_impossible_numbers_are_refused(usage: int, budget: int) -> None:
    with pytest.raises(ValueError, match="tokens"):
        check_context_triggers(usage, budget)


def test_results_are_frozen() -> None:
    with pytest.raises(AttributeError):
        check_context_triggers(1).level = "OVERFLOW"  # type: ignore[misc]
    assert isinstance(check_context_triggers(1), TriggerResult)


@pytest.mark.parametrize("usage", [10_000, 165_000])
def test_normal_and_warning_pass_without_compression(usage: int) -> None:
    asked: list[str] = []
    result = context_gate(usage, compress=lambda mode, share: asked.append(mode) or CompressResult())
    assert (result.allowed, result.compression_applied, result.context_usage) == (True, False, usage)
    assert not asked


@pytest.mark.parametrize(("usage", "mode"), [(185_000, "standard"), (195_000, "aggressive")])
def test_compress_and_emergency_compress_by_a_fifth_and_pass(usage: int, mode: str) -> None:
    asked: list[tuple[str, float]] = []

    def compress(name: str, share: float) -> CompressResult:
        asked.append((name, share))
        return CompressResult(tokens_saved=int(usage * share))

    result = context_gate(usage, compress=compress)
    assert asked == [(mode, 0.20)]
    assert result.allowed
    assert result.compression_applied
    assert result.context_usage == usage - int(usage * 0.2)
    assert result.message is not None
    assert f"Compressed {int(usage * 0.2)} tokens" in result.message


def test_overflow_blocks_and_says_what_is_required() -> None:
    result = context_gate(200_000, compress=lambda *_: CompressResult(tokens_saved=1))
    assert (result.allowed, result.required_action, result.trigger_level) == (
        False,
        "compress_before_spawn",
        "OVERFLOW",
    )


def test_cost_gate() -> None:
    assert budget_gate(1.0).allowed
    assert budget_gate(1.0, spent=1.0, limit=10.0) == GateResult(allowed=True, estimated_cost=1.0, cost_estimate=1.0)
    near = budget_gate(1.0, spent=8.0, limit=10.0)
    assert near.allowed
    assert near.message == "Cost budget: 90.0% used"
    over = budget_gate(2.0, spent=9.0, limit=10.0)
    assert not over.allowed
    assert over.required_action == "raise_cost_budget"


def test_cost_comes_first_and_context_is_then_not_asked() -> None:
    def never() -> GateResult:
        raise AssertionError("asked")

    assert not combined_gate_check(budget_gate(2.0, spent=9.0, limit=10.0), never).allowed


def test_combined_result_carries_both() -> None:
    result = combined_gate_check(budget_gate(1.0, spent=8.0, limit=10.0), lambda: context_gate(165_000))
    assert result.allowed
    assert result.cost_estimate == 1.0
    assert result.context_usage == 165_000
    assert len(result.warnings) == 2
    assert not combined_gate_check(budget_gate(1.0), lambda: context_gate(250_000)).allowed


def test_warmth_for_a_fresh_agent_is_within_its_budget() -> None:
    warmth = {"gotchas": [f"item {i} " * 30 for i in range(600)]}
    assert estimate_tokens(dump(prepare_warmth_for_transfer(warmth))) <= 10_000
    assert prepare_warmth_for_transfer({"gotchas": ["one"]}) == {"gotchas": ["one"]}


def test_checkpoint_archives_first_and_leaves_room_for_the_user() -> None:
    order: list[str] = []
    checkpoint = {"label": "wave 1", "warmth": {"gotchas": [f"item {i} " * 30 for i in range(600)]}}
    done = handle_checkpoint_context(checkpoint, archive=lambda: order.append("archived"))
    assert order == ["archived"]
    assert done["label"] == "wave 1"
    assert estimate_tokens(dump(done["compressed_warmth"])) <= 8_000
    assert "compressed_warmth" not in checkpoint
