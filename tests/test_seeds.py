"""The parts of the two designs, row by row: G1 to G17 of the Grid design, P1 to P7 of PicoClaw's."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

import ctxproxy
from ctxproxy import (
    CompressResult,
    ContextOverflowError,
    GateResult,
    Session,
    TokenBudget,
    budget_gate,
    calculate_fresh_tail_budget,
    calculate_priority_score,
    check_context_triggers,
    combined_gate_check,
    compress_plan,
    compress_warmth,
    context_gate,
    estimate_category_tokens,
    estimate_tokens,
    guard,
    handle_checkpoint_context,
    prepare_warmth_for_transfer,
    prioritized_compress,
    prune_tool_outputs,
    sliding_window_compress,
    summarize_compress,
    truncate_tool_output,
)
from ctxproxy.budget import SHARES, Level, Thresholds, Usage
from ctxproxy.config import load
from ctxproxy.monitor import Event
from ctxproxy.monitor.lines import nested
from ctxproxy.monitor.log import line_of
from ctxproxy.policy import PRESETS, FreshTail, Policy, preset
from ctxproxy.status import status_block
from ctxproxy.strategies.summarize import SECTIONS, instruction
from ctxproxy.strategies.warmth import PRIORITY, dump

ROOT = Path(__file__).parent.parent
GRID = {
    "system_instructions": 25_000, "warmth": 10_000, "plan": 20_000, "current_input": 50_000, "history": 75_000,
    "reserve": 20_000,
}  # fmt: skip


def steps(count: int, text: str = "step {} says value\n") -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Fix the build."}]
    for i in range(count):
        call = {"id": f"c{i}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{i}", "content": text.format(i) * 30})
    return messages


def talk(count: int) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[i % 2], "content": f"message {i} " * 20} for i in range(count)]


def whole(messages: Any) -> bool:
    """Whether each call has its result and each result its call."""
    calls = [c["id"] for m in messages for c in m.get("tool_calls") or ()]
    return calls == [m["tool_call_id"] for m in messages if m["role"] == "tool"]


# --- the Grid design


@pytest.mark.parametrize(("category", "tokens"), GRID.items())
def test_g1_allocations_are_the_design_s_at_200k_and_shares_elsewhere(category: Any, tokens: int):
    assert TokenBudget().total == 200_000
    assert TokenBudget().allocation(category) == TokenBudget().allocations[category] == tokens
    assert TokenBudget(total=1_000_000).allocation(category) == 5 * tokens
    assert TokenBudget(total=2_000, shares=preset("grid").shares).allocation(category) == tokens // 100
    assert sum(SHARES.values()) == 1


def test_g2_estimates_are_available_by_name():
    assert [estimate_tokens("x" * n) for n in (0, 3, 4, 7, 8)] == [0, 0, 1, 1, 2]
    assert estimate_category_tokens({"plan": "x" * 40, "warmth": ""}) == {"plan": 10, "warmth": 0}


@pytest.mark.parametrize(
    ("usage", "level", "action", "message", "requires", "mode"),
    [
        (0, "NORMAL", "continue", None, False, None),
        (159_999, "NORMAL", "continue", None, False, None),
        (160_000, "WARNING", "log_and_continue", "Context at 80.0% - approaching limit", False, None),
        (179_000, "WARNING", "log_and_continue", "Context at 89.5% - approaching limit", False, None),
        (180_000, "COMPRESS", "auto_compress", "Context at 90.0% - auto-compressing history", True, "standard"),
        (189_000, "COMPRESS", "auto_compress", "Context at 94.5% - auto-compressing history", True, "standard"),
        (190_000, "EMERGENCY", "auto_compress", "Context at 95.0% - emergency compression active", True, "aggressive"),
        (199_000, "EMERGENCY", "auto_compress", "Context at 99.5% - emergency compression active", True, "aggressive"),
        (200_000, "OVERFLOW", "block_spawn", "Context at 100.0% - cannot spawn without compression", True,
         "aggressive"),
    ],
)  # fmt: skip
def test_g3_triggers(usage: int, level: str, action: str, message: str | None, requires: bool, mode: str | None):
    found = check_context_triggers(usage)
    assert dataclasses.asdict(found) == {
        "level": level, "action": action, "message": message, "requires_compression": requires,
        "compression_mode": mode,
    }  # fmt: skip
    assert check_context_triggers(usage // 100, 2_000).level == level or usage % 100


def test_g4_sliding_window_keeps_the_newest_and_archives_the_rest():
    grid = preset("grid")
    assert (grid.keep_messages, grid.emergency_keep_messages) == (20, 10)
    assert (grid.preserve_checkpoints, grid.preserve_decisions, grid.literal_window) == (True, True, True)
    few = talk(20)
    assert sliding_window_compress(few) == CompressResult(kept=tuple(few))
    history = talk(50)
    found = sliding_window_compress(history)
    assert found.kept == tuple(history[-20:])
    assert found.archived == tuple(history[:-20])
    assert found.tokens_saved == sum(estimate_tokens(str(m)) for m in history[:-20])
    history[4] = {"role": "assistant", "content": "CHECKPOINT 1 reached"}
    history[6] = {"role": "user", "content": "I prefer tabs"}
    assert sliding_window_compress(history, 10).kept == (history[4], history[6], *history[-10:])
    bare = sliding_window_compress(history, 10, preserve_checkpoints=False, preserve_decisions=False)
    assert bare.kept == tuple(history[-10:])


@pytest.mark.parametrize("keep", range(1, 12))
def test_g4_no_pair_breaks(keep: int):
    history = steps(10)
    found = sliding_window_compress(history, keep)
    assert keep <= len(found.kept) <= keep + 1
    assert whole(found.kept)
    assert whole(found.archived)


def test_g5_summarization():
    assert summarize_compress(talk(29)).summary is None
    assert summarize_compress(talk(40), enabled=False).kept == tuple(talk(40))
    history = talk(65)
    found = summarize_compress(history, summarize=lambda old: f"{len(old)} messages about the build")
    assert found.summary is not None
    assert found.summary.startswith("## History Summary (Messages 1-50)\n\n50 messages about the build")
    assert found.kept[0] == {"role": "user", "content": found.summary}
    assert found.kept[1:] == tuple(history[-15:])
    assert found.tokens_saved == sum(estimate_tokens(str(m)) for m in history[:50]) - estimate_tokens(found.summary)
    plain = summarize_compress(steps(40))
    assert plain.summary is not None
    assert estimate_tokens(plain.summary) <= 1_100
    assert whole(plain.kept)
    for heading in ("Decisions Made", "Files Modified", "Critical Context", "Pending", "User Preferences"):
        assert f"### {heading}" in plain.summary
        assert f"### {heading}" in instruction(limit=1_000)
    assert PRESETS["grid"].summary.tokens == 1_000
    assert PRESETS["grid"].summaries


@pytest.mark.parametrize(
    ("role", "content", "points"),
    [
        ("assistant", "CHECKPOINT: wave 1 done", 100), ("user", "I want JWT", 90), ("user", "We DECIDE later", 90),
        ("user", "choose one", 90), ("user", "prefer tabs", 90), ("assistant", "they want it", 30),
        ("tool", "ERROR at line 3", 80), ("tool", "Build FAILED", 80), ("tool", "FAILURE", 80),
        ("tool", "an exception", 80), ("assistant", "created a.py", 70), ("assistant", "modified a.py", 70),
        ("assistant", "commit abc", 70), ("assistant", "git add .", 70), ("assistant", "wrote a.py", 60),
        ("assistant", "edited a.py", 60), ("assistant", "deleted a.py", 60), ("assistant", "complete", 50),
        ("assistant", "done", 50), ("assistant", "finished", 50), ("assistant", "in progress", 50),
        ("assistant", "hello", 30),
    ],
)  # fmt: skip
def test_g6_scores(role: str, content: str, points: int):
    assert calculate_priority_score({"role": role, "content": content}) == points


def test_g6_the_best_are_kept_in_their_order():
    history = [
        {"role": "assistant", "content": "hello " * 20}, {"role": "user", "content": "I want JWT " * 10},
        {"role": "assistant", "content": "ok " * 30}, {"role": "assistant", "content": "CHECKPOINT one " * 8},
    ]  # fmt: skip
    found = prioritized_compress(history, 90)
    assert found.kept == (history[1], history[3])
    assert found.discarded == (history[0], history[2])
    assert found.tokens_saved == sum(estimate_tokens(str(m)) for m in found.discarded)
    assert whole(prioritized_compress(steps(20), 900).kept)


@pytest.mark.parametrize(
    ("usage", "allowed", "level", "compressed"),
    [(100_000, True, "NORMAL", False), (165_000, True, "WARNING", False), (184_000, True, "COMPRESS", True),
     (195_000, True, "EMERGENCY", True), (200_000, False, "OVERFLOW", False)],
)  # fmt: skip
def test_g7_the_gate_before_every_spawn(usage: int, allowed: bool, level: str, compressed: bool):
    found = context_gate(usage, compress=lambda mode, share: CompressResult(tokens_saved=int(usage * share)))
    fields = {"allowed", "message", "required_action", "compression_applied", "trigger_level", "context_usage"}
    assert fields <= {f.name for f in dataclasses.fields(GateResult)}
    assert (found.allowed, found.trigger_level, found.compression_applied) == (allowed, level, compressed)
    assert found.required_action == (None if allowed else "compress_before_spawn")
    assert found.context_usage == (int(usage * 0.8) if compressed else usage)
    if compressed:
        assert found.message is not None
        assert found.message.endswith(f". Compressed {usage - int(usage * 0.8)} tokens.")


def test_g8_the_status_block():
    split = {"history": 62_400, "plan": 18_200, "warmth": 8_500, "current_input": 75_900}
    usage = Usage(value=165_000, margin=0, basis="counted", by_category=split, total=200_000)
    assert status_block(usage) == (
        "Context Budget Status\n"
        "─────────────────────\n"
        "Usage:   [████████████████░░░░] 82.5%\n"
        "Level:   WARNING\n"
        "History: 62,400 / 75,000 tokens\n"
        "Plan:    18,200 / 20,000 tokens\n"
        "Warmth:  8,500 / 10,000 tokens\n"
        "\n"
        "Note: Approaching compression threshold (90%)"
    )
    assert Session(window=200_000).status().splitlines()[3] == "Level:   NORMAL"
    for value, level in ((190_000, "EMERGENCY"), (240_000, "OVERFLOW")):
        text = status_block(dataclasses.replace(usage, value=value))
        assert f"Level:   {level}" in text
        assert "\nNote: " in text


@pytest.mark.parametrize(
    ("share", "level", "kept"),
    [(0.85, Level.WARNING, 41), (0.92, Level.COMPRESS, 20), (0.97, Level.EMERGENCY, 10), (1.5, Level.OVERFLOW, 10)],
)
def test_g9_the_automatic_flow(share: float, level: Level, kept: int):
    """90-94 %: window of 20; 95-99 %: summary and window of 10; 100 % and more: that, then priorities."""
    history = talk(41)
    history[0]["content"] = "Sort the list."  # the task stays
    size = ctxproxy.measure(history, model="gpt-4o").tokens_before
    session = Session(model="gpt-4o", window=int(size / share), policy="grid")
    sent = session.compact(history)
    same = [m for m in sent if any(m is h for h in history)]
    if level >= Level.COMPRESS:
        assert [m for m in same if m is not history[0]] == history[-kept:][-(len(same) - 1) :]
        assert len(same) - 1 == kept or level == Level.OVERFLOW
        assert session.events[-1].level == level.name
    else:
        assert sent == history
    grid = preset("grid").steps
    assert "summarize" not in grid[Level.COMPRESS]
    assert {"summarize", "window"} <= set(grid[Level.EMERGENCY])
    assert "prioritize" in grid[Level.OVERFLOW]


def test_g9_a_prompt_that_nothing_makes_fit_is_blocked():
    with pytest.raises(ContextOverflowError):
        Session(model="gpt-4o", window=100, policy="grid").compact(
            [{"role": "system", "content": "rule " * 500}, *talk(5)]
        )


PLAN = """---
id: plan-7
depends: [plan-6]
---
# Objective
Ship the login.

# Must-haves
- explicit error messages

# Context
{context}

# Threads
## Thread 1: schema
Implementation notes: {notes}
Verification: prisma validate passes
```ts
const example = 1
```

# Dependencies
- PostgreSQL
"""


def test_g10_plan_keep_compress_remove():
    plan = PLAN.format(context="The history of the project. " * 60, notes="do it this way. " * 60)
    found = compress_plan(plan, 150)
    for kept in ("id: plan-7", "depends: [plan-6]", "Ship the login.", "explicit error messages", "Thread 1: schema",
                 "Verification: prisma validate passes", "- PostgreSQL"):  # fmt: skip
        assert kept in found
    for removed in ("const example", "do it this way", "The history of the project. The history"):
        assert removed not in found
    assert estimate_tokens(found) <= 150
    short = PLAN.format(context="Brief.", notes="short")
    assert compress_plan(short, 10_000) == short


def test_g11_warmth_by_priority_with_partial_inclusion():
    assert PRIORITY == ("gotchas", "codebase_patterns", "user_preferences", "fragile_areas", "almost_did")
    warmth = {name: [f"{name} item {i} is longer than it has to be" for i in range(100)] for name in reversed(PRIORITY)}
    assert compress_warmth(warmth, 100_000) == warmth
    found = compress_warmth(warmth, 2_000)
    assert list(found) == ["gotchas", "codebase_patterns"]
    assert found["gotchas"] == warmth["gotchas"]
    assert found["codebase_patterns"] == warmth["codebase_patterns"][: len(found["codebase_patterns"])]
    assert 0 < len(found["codebase_patterns"]) < 100
    assert estimate_tokens(dump(found)) <= 2_000


def test_g12_the_log_has_the_design_s_names_flat_and_nested():
    event = Event(type="spawn", at=1_769_249_700.0, session="sess-20260124-100000", agent="executor", before=165_000,
                  after=142_000, level="COMPRESS", strategies=("window",), reason="proactive")  # fmt: skip
    (flat,) = yaml.safe_load(line_of(event))
    wanted = {
        "timestamp": "2026-01-24T10:15:00Z", "type": "spawn", "agent": "executor", "context_before": 165_000,
        "context_after": 142_000, "trigger_level": "COMPRESS", "compression_applied": True, "tokens_saved": 23_000,
        "strategy": "sliding_window", "reason": "proactive",
    }  # fmt: skip
    same = {"timestamp": "2026-01-24T10:15:00.000Z", "strategy": "window", "session_id": "sess-20260124-100000"}
    assert flat == {**wanted, **same}
    assert nested([event]) == {"sessions": [{"session_id": "sess-20260124-100000", "events": [wanted]}]}


def test_g13_what_a_dashboard_shows_is_in_the_events():
    """Usage history, compression events: each event has its time, share of the window, level and what was saved."""
    session = Session(model="gpt-4o", window=2_000, session_id="s")
    session.guard(lambda messages: None)(talk(60))
    compaction, request = session.events
    assert (compaction.type, request.type) == ("compaction", "request")
    assert compaction.tokens_saved == compaction.before - compaction.after > 0
    assert request.after / request.window < 0.9 <= request.before / request.window
    assert compaction.strategies
    assert compaction.level == "OVERFLOW"


def test_g14_cost_first_then_context():
    asked: list[int] = []

    def context() -> GateResult:
        asked.append(1)
        return context_gate(165_000)

    over = combined_gate_check(budget_gate(2.0, spent=9.0, limit=10.0), context)
    assert (over.allowed, asked) == (False, [])
    both = combined_gate_check(budget_gate(1.0, spent=8.0, limit=10.0), context)
    assert (both.allowed, both.cost_estimate, both.context_usage) == (True, 1.0, 165_000)
    assert both.warnings == ("Cost budget: 90.0% used", "Context at 82.5% - approaching limit")
    assert not combined_gate_check(budget_gate(1.0), lambda: context_gate(200_000)).allowed
    gated = Session(model="gpt-4o").gate(estimated_tokens=100_000, output_tokens=1_000)  # 2.50 and 10 USD a million
    assert gated.cost_estimate == pytest.approx(0.26)


def test_g15_warmth_for_a_fresh_agent():
    small = {"gotchas": ["one"]}
    assert prepare_warmth_for_transfer(small) == small
    large = {"almost_did": ["x"], "gotchas": [f"item {i} " * 30 for i in range(600)]}
    found = prepare_warmth_for_transfer(large)
    assert list(found) == ["gotchas"]
    assert 9_000 < estimate_tokens(dump(found)) <= 10_000


def test_g16_checkpoints_archive_finished_work_and_compress_warmth():
    order: list[str] = []
    warmth = {"gotchas": [f"item {i} " * 30 for i in range(600)]}
    done = handle_checkpoint_context({"label": "wave 1", "warmth": warmth}, archive=lambda: order.append("archived"))
    assert order == ["archived"]
    assert 7_000 < estimate_tokens(dump(done["compressed_warmth"])) <= 8_000
    assert done["warmth"] == warmth
    session = Session(model="gpt-4o", window=200_000)
    history = talk(2_000)
    checkpoint = session.checkpoint("wave 1", warmth=warmth, messages=history)
    assert checkpoint.messages is not None
    assert len(checkpoint.messages) < len(history)
    assert checkpoint.tokens_after <= 0.35 * 200_000 < checkpoint.tokens_before
    assert checkpoint.compressed_warmth["gotchas"] == warmth["gotchas"][: len(checkpoint.compressed_warmth["gotchas"])]
    assert [event.type for event in session.events] == ["compaction", "checkpoint"]
    assert session.events[-1].label == "wave 1"


def test_g17_the_configuration():
    settings = load(str(ROOT / "config.example.yaml"), env={})
    keys = yaml.safe_load((ROOT / "config.example.yaml").read_text())
    assert keys["policy"]["thresholds"] == {"warning": "80%", "compress": "90%", "emergency": "95%", "overflow": "100%"}
    assert settings.policy_for().thresholds == Thresholds(warning=0.8, compress=0.9, emergency=0.95, overflow=1.0)
    assert (keys["policy"]["keep_messages"], keys["policy"]["emergency_keep_messages"]) == (20, 10)
    assert (settings.logging.enabled, settings.logging.verbose, settings.logging.log_file) == (True, False, None)
    grid = load(None, env={}, overrides={"policy": "grid"}).policy_for()
    assert grid.relative_reduction == 0.20
    for level in Level:
        assert grid.target_tokens(level, total=200_000, before=190_000) == 152_000  # 0.8 of what it was


# --- PicoClaw


def test_p1_characters_per_token_are_a_setting():
    assert estimate_tokens("x" * 100) == 25
    assert estimate_tokens("x" * 100, chars_per_token=2.5) == 40
    assert estimate_category_tokens({"a": "x" * 100}, chars_per_token=5.0) == {"a": 20}


def test_p2_the_structured_error():
    error = ContextOverflowError(model="m", context_window=8_192, requested_tokens=9_000, reason="retry")
    assert (error.model, error.context_window, error.requested_tokens, error.reason) == ("m", 8_192, 9_000, "retry")
    assert "9,000 tokens do not fit the window of 8,192 tokens of m" in str(error)

    @guard(model="m", max_retries=0)
    def ask(messages: Any) -> None:
        raise ValueError("This model's maximum context length is 8192 tokens. Your messages resulted in 9000 tokens.")

    with pytest.raises(ContextOverflowError) as raised:
        ask(talk(3))
    assert isinstance(raised.value, ValueError)
    found = raised.value
    assert (found.model, found.context_window, found.requested_tokens, found.reason) == ("m", 8_192, 9_000, "retry")


@pytest.mark.parametrize(
    ("window", "tokens"),
    [(200_000, 8_000), (32_000, 8_000), (20_000, 5_000), (8_000, 2_000), (6_000, 2_000), (2_000, 800), (0, 0)],
)
def test_p3_the_fresh_tail(window: int, tokens: int):
    """25 % of what is usable, 2,000 to 8,000, and in a tiny window never most of it."""
    assert calculate_fresh_tail_budget(window) == tokens
    assert calculate_fresh_tail_budget(window + 500, reserved=500) == tokens
    assert FreshTail() == Policy().tail == FreshTail(share=0.25, low=2_000, high=8_000, cap_share=0.40)
    assert Policy().protected_turns == 2


def test_p4_the_structured_summary_and_its_switch():
    text = instruction(limit=500)
    assert all(f"### {name}" in text for name in SECTIONS)
    assert "500 tokens" in text
    assert Policy().summaries is True
    assert load(None, env={}, overrides={"policy": {"summaries": False}}).policy_for().summaries is False
    found = summarize_compress(talk(40), summarize=lambda _: "the old form: one paragraph")
    assert found.summary is not None
    assert "the old form: one paragraph" in found.summary


def test_p5_old_tool_outputs_become_stubs_and_no_result_is_orphaned():
    history = [*steps(4), {"role": "user", "content": "go on"}, *steps(2)[1:], {"role": "user", "content": "and on"}]
    found = prune_tool_outputs(history, protected_turns=2)
    assert len(found) == len(history)
    assert whole(found)
    stubs = [i for i, m in enumerate(found) if m["role"] == "tool" and m["content"].startswith("[old output removed")]
    assert stubs == [2, 4, 6, 8]
    assert all(a is b for i, (a, b) in enumerate(zip(found, history, strict=True)) if i not in stubs)
    saved = estimate_tokens(str(history)) - estimate_tokens(str(found))
    assert prune_tool_outputs(history, 2, prune_threshold=saved * 2) == history
    assert prune_tool_outputs(history, 2, protected_tools=["read"]) == history
    assert prune_tool_outputs(history, 9) == history
    assert sum(m["content"].startswith("[old") for m in prune_tool_outputs(history, 0) if m["role"] == "tool") == 6


def test_p6_the_reasons():
    assert set(ctxproxy.CompactReason.__args__) == {"proactive", "retry", "overflow"}
    reasons: dict[float, Any] = {}
    size = ctxproxy.measure(talk(60), model="gpt-4o").tokens_before
    for share in (0.7, 0.92, 1.2):
        session = Session(model="gpt-4o", window=int(size / share))
        session.compact(talk(60))
        reasons[share] = session.events[0].reason if session.events else None
    assert reasons == {0.7: None, 0.92: "proactive", 1.2: "overflow"}


def test_p7_a_long_output_is_a_file_and_a_preview(tmp_path: Path):
    output = "".join(f"line {i} of the output\n" for i in range(5_000))
    found = truncate_tool_output(output, 500, folder=tmp_path / "kept")
    assert found.truncated
    assert found.path is not None
    assert found.path.read_text() == output
    assert found.path.stat().st_mode & 0o777 == 0o600
    assert estimate_tokens(found.content) <= 500
    assert "line 0 of" in found.content
    assert "line 4999 of" in found.content
    assert str(found.path) in found.content
    assert str(found.path) in found.hint
    assert found.tokens_saved == estimate_tokens(output) - estimate_tokens(found.content)
    assert truncate_tool_output(output, 500, folder=tmp_path / "kept") == found
    whole_output = truncate_tool_output("short", folder=tmp_path / "none")
    assert (whole_output.content, whole_output.truncated, whole_output.path) == ("short", False, None)
    assert not (tmp_path / "none").exists()


def test_every_row_has_its_test():
    rows = {f"g{n}" for n in range(1, 18)} | {f"p{n}" for n in range(1, 8)}
    tested = {name.split("_")[1] for name in globals() if name.startswith("test_")}
    assert rows <= tested
