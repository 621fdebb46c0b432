"""What holds for every history, API, budget and policy: no strategy breaks a rule of the wire."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wire.histories import APIS, bodies, dump, new_violations, prepare, runtime

from ctxproxy.conversation import Conversation, exchanges, last_typed, texts_of
from ctxproxy.edits import Drop, Rules, apply, check
from ctxproxy.effects import Answer, Prepared, Send, drive
from ctxproxy.errors import ContextOverflowError
from ctxproxy.policy import PRESETS, Policy
from ctxproxy.strategies import Draft, prioritize, prune, shrink, squeeze, start, truncate, window
from ctxproxy.strategies.window import bridge
from ctxproxy.wire import WIRES
from ctxproxy.wire.profiles import STRICTEST, rules_for

SLOW = settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
ANY = st.sampled_from(APIS)
BOUND = replace(rules_for(api="messages", model="claude"), thinking="bound")
# Which of the provider's profiles a request must satisfy under which rules.
READINGS: dict[tuple[str, str], tuple[Rules | None, tuple[str, ...]]] = {
    ("chat", "own"): (None, ("openai",)),
    ("chat", "strict"): (STRICTEST, ("openai", "mistral", "gemini", "bedrock", "strict-template", "strict-args")),
    ("responses", "own"): (None, ("openai",)),
    ("responses", "strict"): (STRICTEST, ("openai",)),
    ("messages", "own"): (None, ("anthropic", "anthropic-old")),
    ("messages", "strict"): (STRICTEST, ("anthropic", "bedrock")),
    ("messages", "bound"): (BOUND, ("anthropic",)),
}
PAIRS = sorted(READINGS)


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, bytes]:
    """An API, a reading of its rules, and a body."""
    api, reading = draw(st.sampled_from(PAIRS))
    thinking = reading == "bound" or (api == "messages" and draw(st.booleans()))
    return api, reading, dump(draw(bodies(api, thinking=thinking)))


def read(api: str, body: bytes) -> Conversation:
    return runtime().engine.reader.read(body, WIRES[api])


def attempt(*args: Any, **settings: Any) -> Prepared | ContextOverflowError:
    """What would be sent, or the error that says that nothing can be."""
    try:
        return prepare(*args, **settings)
    except ContextOverflowError as error:
        return error


def kept_whole(before: Conversation, after: Conversation) -> bool:
    """Whether each exchange is there as a whole or gone as a whole, told by call ids and roles in order."""

    def shapes(conversation: Conversation) -> list[tuple[Any, ...]]:
        return [
            tuple((m.role, tuple(p.id for p in m.of("tool_call")), m.results) for m in messages)
            for group in exchanges(conversation.messages)
            for messages in [conversation.messages[group.start : group.stop]]
        ]

    wanted = iter(shapes(before))
    plain = {(("user", (), ()),), (("assistant", (), ()),)}
    return all(shape in plain or any(shape == other for other in wanted) for shape in shapes(after))


@SLOW
@given(ANY.flatmap(lambda api: st.tuples(st.just(api), bodies(api, thinking=True))))
def test_below_the_first_threshold_the_bytes_out_are_the_bytes_in(case: tuple[str, dict[str, Any]]) -> None:
    api, value = case
    for body in (dump(value), json.dumps(value, indent=1).encode()):
        assert prepare(runtime(), api, body).body == body


@SLOW
@given(requests(), st.sampled_from((0.9, 0.7, 0.5, 0.3, 0.15)), st.sampled_from(sorted(PRESETS)))
def test_a_compaction_keeps_the_rules_and_what_must_stay(
    request: tuple[str, str, bytes], share: float, preset: str
) -> None:
    api, reading, body = request
    rules, profiles = READINGS[api, reading]
    made = runtime(rules=rules)
    before = read(api, body)
    target = int(before.tokens * share)
    prepared = attempt(made, api, body, target_tokens=target, policy=replace(PRESETS[preset], summaries=False))
    if isinstance(prepared, ContextOverflowError):
        assert prepared.fixed
        return
    assert not prepared.report.faults
    after = read(api, prepared.body)
    assert after.tokens <= target
    for profile in profiles:
        assert not new_violations(body, prepared.body, api, profile)
    old, new = last_typed(before.messages), last_typed(after.messages)
    assert old is not None
    assert new is not None
    a, b = before.messages[old], after.messages[new]
    typed = [t for p, t in zip(a.parts, texts_of(a), strict=True) if p.kind == "text"]
    assert all(any(now.startswith(text) for now in texts_of(b)) for text in typed)
    assert kept_whole(before, after)
    outside = {k: v for k, v in json.loads(body).items() if k != WIRES[api].array}
    assert outside == {k: v for k, v in json.loads(prepared.body).items() if k != WIRES[api].array}
    assert prepare(made, api, prepared.body, target_tokens=target).body == prepared.body


@SLOW
@given(requests(), st.sampled_from((2_000, 4_000, 8_000)))
def test_a_window_holds_what_can_fit(request: tuple[str, str, bytes], size: int) -> None:
    api, reading, body = request
    rules, profiles = READINGS[api, reading]
    made = runtime(rules=rules)
    prepared = attempt(made, api, body, window=size)
    if isinstance(prepared, ContextOverflowError):
        assert prepared.requested_tokens is not None
        assert prepared.requested_tokens > size
        return
    assert not prepared.report.faults
    # A prompt is only refused where it is certainly too long: within the margin the provider decides.
    assert read(api, prepared.body).tokens <= size + prepared.report.margin
    for profile in profiles:
        assert not new_violations(body, prepared.body, api, profile)


STRATEGIES: dict[str, Callable[[Draft], Draft]] = {
    "truncate": truncate,
    "prune": prune,
    "prune hard": lambda draft: prune(draft, protect=False),
    "window": window,
    "window literal": lambda draft: window(draft, keep=3),
    "prioritize": prioritize,
    "squeeze": squeeze,
    "all": lambda draft: shrink(draft, steps=("truncate", "prune", "window", "facts", "prioritize")),
    "no drops": lambda draft: shrink(draft, steps=("truncate",)),
}


@pytest.mark.parametrize("name", STRATEGIES)
@SLOW
@given(request=requests(), share=st.sampled_from((0.8, 0.4, 0.1)))
def test_no_strategy_alone_breaks_a_rule(name: str, request: tuple[str, str, bytes], share: float) -> None:
    api, reading, body = request
    conversation = read(api, body)
    rules = READINGS[api, reading][0] or rules_for(api=api, model=conversation.model)
    rules = replace(rules, adjacent=api != "responses", thinking="free")  # bound thinking is the engine's part
    made = runtime().engine
    draft = start(
        conversation,
        window=conversation.tokens,
        target=int(conversation.tokens * share),
        policy=Policy(),
        rules=rules,
        count=made.reader.scale_of(conversation.model)[1].count,
    )
    draft = bridge(STRATEGIES[name](draft))
    items = apply(conversation.messages, draft.edits, WIRES[api])
    raws = [conversation.messages[i].raw if isinstance(i, int) else i for i in items]
    scale, counter = made.reader.scale_of(conversation.model)
    after = made.reader.messages(raws, WIRES[api], scale, counter)
    assert check(conversation.messages, after, rules) == []
    # The sizes that strategies reckon with are those that a new reading finds, but for notes' frames.
    measured = conversation.fixed.tokens + sum(m.tokens for m in after)
    assert abs(measured - draft.tokens) <= 8 * (1 + len(draft.edits))


@SLOW
@given(requests(), st.integers(0, 30))
def test_pins_stay(request: tuple[str, str, bytes], nth: int) -> None:
    api, reading, body = request
    before = read(api, body)
    plain = [m for m in before.messages if m.role == "assistant" and m.of("text")]
    if not plain:
        return
    chosen = plain[nth % len(plain)]
    pinned = next(t for p, t in zip(chosen.parts, texts_of(chosen), strict=True) if p.kind == "text")
    policy = Policy(pins=(pinned[:30],), summaries=False)
    made = runtime(rules=READINGS[api, reading][0])
    prepared = attempt(made, api, body, target_tokens=before.tokens // 2, policy=policy)
    if isinstance(prepared, ContextOverflowError):
        return
    assert pinned in "\n".join(t for m in read(api, prepared.body).messages for t in texts_of(m))


@SLOW
@given(requests())
def test_each_retry_is_strictly_smaller(request: tuple[str, str, bytes]) -> None:
    api, reading, body = request
    made = runtime(rules=READINGS[api, reading][0])
    sent: list[bytes] = []
    refusal = dump(
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "code": "context_length_exceeded",
                "message": "prompt is too long",
            },
        }
    )

    def perform(effect: Any) -> Any:
        if isinstance(effect, Send):
            sent.append(effect.body)
            return Answer(status=400, body=refusal)
        return made.perform(effect)

    call = made.call(api=api, body=body, window=10_000_000, policy=Policy(max_retries=3, summaries=False))
    outcome = drive(made.engine.run(call), perform)
    assert sent[0] == body
    assert outcome.error is not None
    sizes = [read(api, b).tokens for b in sent]
    assert sizes == sorted(set(sizes), reverse=True)
    for profile in READINGS[api, reading][1]:
        for after in sent[1:]:
            assert not new_violations(body, after, api, profile)


def without_markers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_markers(item) for key, item in value.items() if key != "cache_control"}
    return [without_markers(item) for item in value] if isinstance(value, list) else value


@SLOW
@given(requests(), st.sampled_from((0.95, 0.7)))
def test_a_compaction_is_replayed_byte_for_byte(request: tuple[str, str, bytes], fill: float) -> None:
    api, reading, body = request
    made = runtime(rules=READINGS[api, reading][0])
    before = read(api, body)
    size = int(before.tokens / (1 + fill) * 1.5) + 1
    first = attempt(made, api, body, window=size)
    if isinstance(first, ContextOverflowError) or first.body == body:
        return
    value = json.loads(body)
    key = WIRES[api].array
    value[key] = [*value[key], {"role": "assistant", "content": "Good."}, {"role": "user", "content": "Go on."}]
    second = prepare(made, api, dump(value), window=size * 4)
    sent, again = json.loads(first.body)[key], json.loads(second.body)[key]
    # Markers are the client's newest ones: what is remembered holds none.
    assert [without_markers(item) for item in again[: len(sent)]] == [without_markers(item) for item in sent]
    assert len(again) == len(sent) + 2


def test_drops_name_whole_exchanges_only() -> None:
    calls = [{"id": f"c{i}", "type": "function", "function": {"name": "run", "arguments": "{}"}} for i in range(10)]
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Task."}]
    for _ in range(3):
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": c["id"], "content": "word " * 90} for c in calls]
    messages.append({"role": "user", "content": "And now?"})
    conversation = read("chat", dump({"model": "gpt-4o", "messages": messages}))
    made = runtime().engine
    draft = start(
        conversation,
        window=conversation.tokens,
        target=conversation.tokens // 2,
        policy=Policy(),
        rules=rules_for(api="chat", model="gpt-4o"),
        count=made.reader.scale_of("gpt-4o")[1].count,
    )
    edits = [e for e in window(draft).edits if isinstance(e, Drop)]
    assert edits
    assert {e.start for e in edits} | {e.stop for e in edits} <= {1, 12, 23, 34}
