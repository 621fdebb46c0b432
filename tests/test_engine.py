"""The engine, driven by hand: canned answers, no network, no mocks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ctxproxy.effects import Answer, Call, Effect, Keep, Outcome, Send, Summarize
from ctxproxy.errors import ContextOverflowError
from ctxproxy.policy import Policy, preset
from ctxproxy.runtime import Runtime
from ctxproxy.strategies.summarize import SECTIONS

WINDOW = 4_000
GOOD = "\n".join(f"### {name}\n- about {name.lower()} of src/m1.py and ticket 4711" for name in SECTIONS)


def history(turns: int, *, words: int = 60, start: str = "Find the leak.") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"role": "system", "content": "You fix bugs."}, {"role": "user", "content": start}]
    for i in range(turns):
        call = {
            "id": f"c{i}",
            "type": "function",
            "function": {"name": "read", "arguments": json.dumps({"path": f"m{i}.py"})},
        }
        found.append({"role": "assistant", "content": None, "tool_calls": [call]})
        found.append(
            {"role": "tool", "tool_call_id": f"c{i}", "content": f"file {i}: " + f"value_{i} = {i * 37} " * words}
        )
    return found


def chat(turns: int, *, words: int = 30) -> list[dict[str, Any]]:
    """A conversation without tools: only dropping and summarizing help."""
    found: list[dict[str, Any]] = [{"role": "user", "content": "Plan a trip to Oslo."}]
    for i in range(turns):
        found.append({"role": "assistant", "content": f"Option {i}: hotel H{i}23, " + f"price {i * 37} euro. " * words})
        found.append({"role": "user", "content": f"What about day {i}? " + "Tell me more of it. " * 4})
    return found


def body(messages: list[dict[str, Any]], **more: Any) -> bytes:
    return json.dumps({"model": "gpt-4o", "messages": messages, **more}).encode()


class Provider:
    """Answers effects: sends by a function of the attempt, summaries by a text or a failure."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        answer: Callable[[int, bytes], Answer] = lambda _n, _b: Answer(status=200),
        summary: str | Answer | None = None,
    ) -> None:
        self.runtime = runtime
        self.answer = answer
        self.summary = summary
        self.sent: list[bytes] = []
        self.asked: list[bytes] = []

    def __call__(self, effect: Effect) -> Any:
        if isinstance(effect, Send):
            self.sent.append(effect.body)
            return self.answer(effect.attempt, effect.body)
        if isinstance(effect, Summarize):
            self.asked.append(effect.body)
            if isinstance(self.summary, str):
                choice = {"message": {"role": "assistant", "content": self.summary}, "finish_reason": "stop"}
                return Answer(status=200, body=json.dumps({"choices": [choice]}).encode())
            return self.summary
        return self.runtime.perform(effect)

    def run(self, call: Call) -> Outcome:
        from ctxproxy.effects import drive

        return drive(self.runtime.engine.run(call), self)


@pytest.fixture
def runtime() -> Runtime:
    return Runtime(policy=replace(Policy(), summaries=False), window=WINDOW, clock=lambda: 1_000.0)


def call(runtime: Runtime, messages: list[dict[str, Any]], **options: Any) -> Call:
    more = options.pop("more", {})
    options = {"api": "chat", "upstream": "http://u", **options}
    return runtime.call(body=body(messages, **more), account="a", **options)


def overflow(limit: int, prompt: int) -> Answer:
    text = (
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in {prompt} tokens. "
        "Please reduce the length of the messages."
    )
    error = {"message": text, "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}
    return Answer(status=400, body=json.dumps({"error": error}).encode())


def test_below_the_first_threshold_the_body_is_the_very_same(runtime: Runtime) -> None:
    provider = Provider(runtime)
    request = call(runtime, history(2))
    outcome = provider.run(request)
    assert provider.sent[0] is request.body
    assert outcome.report is not None
    assert (outcome.report.level, outcome.report.reason, outcome.report.changed) == ("NORMAL", None, False)


def fill(runtime: Runtime, share: float, begin: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """A history that fills the window to at least `share`, by less than one small message more."""
    messages = begin or history(3)
    while True:
        report = runtime.engine.measure(call(runtime, messages))
        if report.tokens_before >= share * WINDOW:
            return messages
        room = share * WINDOW - report.tokens_before
        messages = [
            *messages,
            {"role": "assistant", "content": "ok"},
            {"role": "user", "content": "go on " * int(max(1, min(80, room / 3)))},
        ]


@pytest.mark.parametrize(
    ("share", "level", "reason"),
    [
        (0.5, "NORMAL", None),
        (0.81, "WARNING", None),
        (0.91, "COMPRESS", "proactive"),
        (0.96, "EMERGENCY", "proactive"),
        (1.01, "OVERFLOW", "overflow"),
    ],
)
def test_each_level_has_its_action_and_its_reason(
    share: float, level: str, reason: str | None, runtime: Runtime
) -> None:
    provider = Provider(runtime)
    outcome = provider.run(call(runtime, fill(runtime, share)))
    assert outcome.report is not None
    assert (outcome.report.level, outcome.report.reason) == (level, reason)
    if reason:
        assert outcome.compaction is not None
        assert outcome.compaction.reason == reason
        assert outcome.report.tokens_after <= 0.7 * WINDOW
        assert len(provider.sent[0]) < len(call(runtime, fill(runtime, share)).body)


def test_a_provider_that_refuses_once_gets_exactly_one_more_request(runtime: Runtime) -> None:
    provider = Provider(runtime, answer=lambda n, b: overflow(2_000, 2_600) if n == 1 else Answer(status=200))
    outcome = provider.run(call(runtime, history(11)))
    assert len(provider.sent) == 2
    assert len(provider.sent[1]) < len(provider.sent[0])
    assert outcome.error is None
    assert outcome.report is not None
    assert (outcome.report.reason, outcome.report.retries) == ("retry", 1)
    assert outcome.report.tokens_after <= 2_000


def test_what_was_learned_from_a_refusal_acts_before_the_next_send(runtime: Runtime) -> None:
    provider = Provider(runtime, answer=lambda n, b: overflow(2_000, 2_600) if n == 1 else Answer(status=200))
    provider.run(call(runtime, history(11)))
    calm = Provider(runtime)
    outcome = calm.run(call(runtime, history(13)))
    assert len(calm.sent) == 1
    assert outcome.report is not None
    assert (outcome.report.window, outcome.report.window_source) == (2_000, "learned")
    assert outcome.report.tokens_after <= 2_000


def test_a_retry_is_remembered_and_replayed(runtime: Runtime) -> None:
    provider = Provider(runtime, answer=lambda n, b: overflow(2_000, 2_600) if n == 1 else Answer(status=200))
    provider.run(call(runtime, history(11)))
    calm = Provider(runtime)
    outcome = calm.run(
        call(runtime, [*history(11), {"role": "assistant", "content": "done"}, {"role": "user", "content": "and?"}])
    )
    assert outcome.report is not None
    assert outcome.report.replayed
    first, second = json.loads(provider.sent[1])["messages"], json.loads(calm.sent[0])["messages"]
    assert second[: len(first)] == first


def test_a_provider_that_always_refuses_gets_a_bounded_number_of_requests(runtime: Runtime) -> None:
    provider = Provider(runtime, answer=lambda n, b: overflow(1_500, len(b) // 3))
    outcome = provider.run(call(runtime, history(11)))
    assert len(provider.sent) == 1 + runtime.policy.max_retries
    assert [len(b) for b in provider.sent] == sorted({len(b) for b in provider.sent}, reverse=True)
    assert isinstance(outcome.error, ContextOverflowError)
    assert outcome.error.reason == "retry"
    assert outcome.answer.status == 400
    calls = len(provider.sent)
    for turn in range(12, 32):
        provider.run(call(runtime, history(turn)))
    # The breaker opens after the second turn: every further turn is one request, as without ctxproxy.
    assert len(provider.sent) - calls <= 3 + 19


def test_success_closes_the_breaker(runtime: Runtime) -> None:
    refusing = Provider(runtime, answer=lambda n, b: overflow(1_500, len(b) // 3))
    for turn in (11, 12, 13):
        refusing.run(call(runtime, history(turn)))
    Provider(runtime).run(call(runtime, history(2)))
    once = Provider(runtime, answer=lambda n, b: overflow(1_400, 2_600) if n == 1 else Answer(status=200))
    assert once.run(call(runtime, history(14))).error is None


def test_output_too_long_lowers_the_limit_and_cuts_nothing(runtime: Runtime) -> None:
    text = "This model's maximum context length is 4000 tokens. However, you requested 5200 tokens (1200 in the messages, 4000 in the completion). Please reduce the length of the messages or completion."
    refusal = Answer(
        status=400, body=json.dumps({"error": {"message": text, "code": "context_length_exceeded"}}).encode()
    )
    provider = Provider(runtime, answer=lambda n, b: refusal if n == 1 else Answer(status=200))
    request = call(runtime, history(3), more={"max_tokens": 4000})
    outcome = provider.run(request)
    assert len(provider.sent) == 2
    first, second = json.loads(provider.sent[0]), json.loads(provider.sent[1])
    assert second["messages"] == first["messages"]
    assert 16 <= second["max_tokens"] <= 2_800
    assert outcome.report is not None
    assert outcome.report.strategies == ("max_tokens",)


def test_a_sum_that_was_refused_once_is_kept_from_then_on(runtime: Runtime) -> None:
    text = "This model's maximum context length is 4000 tokens. However, you requested 5200 tokens (1200 in the messages, 4000 in the completion). Please reduce the length of the messages or completion."
    refusal = Answer(
        status=400, body=json.dumps({"error": {"message": text, "code": "context_length_exceeded"}}).encode()
    )

    def answer(n: int, sent: bytes) -> Answer:
        return refusal if json.loads(sent)["max_tokens"] > 3_900 else Answer(status=200)

    provider = Provider(runtime, answer=answer)
    provider.run(call(runtime, history(3), more={"max_tokens": 4000}))
    assert len(provider.sent) == 2
    for turn in range(4, 8):
        request = call(runtime, history(turn), more={"max_tokens": 4000})
        outcome = provider.run(request)
        assert outcome.sends == 1
        last = json.loads(provider.sent[-1])
        assert last["messages"] == json.loads(request.body)["messages"]
        assert 500 <= last["max_tokens"] <= 3_900
    # One that fits beside the prompt, another model, and a budget for thinking are left alone.
    small = call(runtime, history(4), more={"max_tokens": 100})
    provider.run(small)
    assert provider.sent[-1] == small.body
    thinking = {"max_tokens": 3_600, "thinking": {"type": "enabled", "budget_tokens": 3_599}}
    request = call(runtime, history(4), more=thinking, api="messages")
    provider.run(request)
    assert json.loads(provider.sent[-1])["max_tokens"] == 3_600


def test_output_that_has_no_room_left_is_a_prompt_too_long_and_states_the_window(runtime: Runtime) -> None:
    # The thinking budget can't be lowered, so only a smaller prompt makes room for it; one more call is enough.
    text = (
        "input length and `max_tokens` exceed context limit: 3400 + 2000 > 4000, decrease input length or `max_tokens`"
    )
    refusal = Answer(
        status=400,
        body=json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": text}}).encode(),
    )
    provider = Provider(runtime, answer=lambda n, b: refusal if n == 1 else Answer(status=200))
    more = {"max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1999}}
    messages = [{"role": "user", "content": "Read them."}]
    for number in range(12):
        messages += [
            {"role": "assistant", "content": f"Part {number}. " + "word " * 200},
            {"role": "user", "content": "Go on."},
        ]
    request = call(runtime, messages, api="messages", more=more)
    outcome = provider.run(request)
    assert outcome.error is None
    assert len(provider.sent) == 2
    assert outcome.report is not None
    assert outcome.report.reason == "retry"
    assert outcome.report.tokens_after < 2_000
    assert json.loads(provider.sent[1])["max_tokens"] == 2000
    key = (request.upstream, request.scope, json.loads(request.body)["model"])
    assert runtime.engine.limits.get(key, now=request.now) == 4000


def picture(n: int) -> dict[str, Any]:
    url = "data:image/png;base64," + "iVBORw0KGgo" * n
    return {
        "role": "user",
        "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": url}}],
    }


def test_a_payload_too_large_in_bytes_loses_its_old_media_first(runtime: Runtime) -> None:
    refusal = Answer(
        status=413, body=b'{"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}'
    )
    provider = Provider(runtime, answer=lambda n, b: refusal if n == 1 else Answer(status=200))
    messages = [picture(500), {"role": "assistant", "content": "a cat"}, picture(400)]
    outcome = provider.run(call(runtime, messages))
    assert len(provider.sent) == 2
    sent = json.loads(provider.sent[1])["messages"]
    assert "media removed" in json.dumps(sent[0])
    assert sent[1:] == messages[1:]
    assert outcome.error is None


def test_a_payload_too_large_without_media_loses_its_largest_output(runtime: Runtime) -> None:
    refusal = Answer(
        status=413, body=b'{"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}'
    )
    provider = Provider(runtime, answer=lambda n, b: refusal if n == 1 else Answer(status=200))
    messages = history(4)
    messages[5] = {**messages[5], "content": "large " * 900}
    provider.run(call(runtime, messages))
    sent = json.loads(provider.sent[1])["messages"]
    assert len(sent[5]["content"]) < 2_700
    assert [m for i, m in enumerate(sent) if i != 5] == [m for i, m in enumerate(messages) if i != 5]


@pytest.mark.parametrize("wanted", [False, True])
def test_a_ceiling_of_tokens_a_minute_is_only_met_where_that_is_asked_for(wanted: bool) -> None:
    policy = replace(Policy(), summaries=False, tpm_compaction=wanted)
    runtime = Runtime(policy=policy, window=WINDOW, clock=lambda: 1_000.0)
    text = "Request too large for gpt-4o on tokens per min (TPM): Limit 1500, Requested 2600. The input or output tokens must be reduced."
    refusal = Answer(
        status=429,
        body=json.dumps({"error": {"message": text, "type": "tokens", "code": "rate_limit_exceeded"}}).encode(),
    )
    provider = Provider(runtime, answer=lambda n, b: refusal if n == 1 else Answer(status=200))
    outcome = provider.run(call(runtime, history(7)))
    assert len(provider.sent) == (2 if wanted else 1)
    assert outcome.answer.status == (200 if wanted else 429)


@pytest.mark.parametrize("status", [400, 429, 500])
def test_other_errors_pass_with_one_request(status: int, runtime: Runtime) -> None:
    answer = Answer(
        status=status,
        body=b'{"error":{"message":"tool result said: maximum context length is 10 tokens exceeded? no."}}'[:40],
    )
    provider = Provider(runtime, answer=lambda n, b: answer)
    outcome = provider.run(call(runtime, history(3)))
    assert len(provider.sent) == 1
    assert outcome.answer is answer
    assert outcome.error is None


def test_a_body_that_is_no_request_goes_out_untouched(runtime: Runtime) -> None:
    provider = Provider(runtime)
    request = runtime.call(api="chat", body=b"not json", account="a")
    assert provider.run(request).report is None
    assert provider.sent == [b"not json"]


def test_what_is_cut_is_archived_before_it_is_sent(runtime: Runtime) -> None:
    order: list[str] = []
    provider = Provider(runtime)

    def perform(effect: Effect) -> Any:
        order.append(type(effect).__name__)
        if isinstance(effect, Keep):
            assert all(o.data for o in effect.originals)
        return provider(effect)

    from ctxproxy.effects import drive

    outcome = drive(runtime.engine.run(call(runtime, history(14))), perform)
    assert order.index("Keep") < order.index("Send")
    assert outcome.report.archived
    for ident in outcome.report.archived:
        assert runtime.archive is not None
        assert runtime.archive.restore("chat:a", ident)
        assert runtime.archive.restore("chat:b", ident) is None


@pytest.mark.parametrize("mode", ["off", "observe"])
def test_off_means_off_also_on_overflow(mode: str) -> None:
    runtime = Runtime(policy=preset("default", mode=mode, summaries=False), window=WINDOW)
    provider = Provider(runtime, answer=lambda n, b: overflow(2_000, 2_600))
    request = call(runtime, history(20))
    outcome = provider.run(request)
    assert provider.sent == [request.body]
    assert outcome.answer.status == 400
    assert (outcome.report is not None) == (mode == "observe")


def test_a_guessed_window_never_triggers_but_learns() -> None:
    runtime = Runtime(policy=preset("default", summaries=False))
    big = history(400)
    request = runtime.call(api="chat", body=json.dumps({"model": "unheard-of", "messages": big}).encode(), account="a")
    provider = Provider(runtime, answer=lambda n, b: overflow(3_000, 90_000) if n == 1 else Answer(status=200))
    outcome = provider.run(request)
    assert provider.sent[0] is request.body
    assert len(provider.sent) == 2
    assert outcome.report is not None
    assert outcome.report.reason == "retry"


def test_a_prompt_whose_fixed_part_is_too_large_is_a_typed_error(runtime: Runtime) -> None:
    provider = Provider(runtime)
    with pytest.raises(ContextOverflowError) as caught:
        provider.run(call(runtime, [{"role": "system", "content": "rule " * 5_000}, {"role": "user", "content": "hi"}]))
    assert not provider.sent
    assert caught.value.context_window == WINDOW
    assert caught.value.fixed["system"] > WINDOW
    assert caught.value.reason == "overflow"


def test_two_conversations_with_one_beginning_do_not_share(runtime: Runtime) -> None:
    Provider(runtime).run(call(runtime, history(14)))
    other = history(15)
    other[5] = {**other[5], "content": "something else was read here"}
    provider = Provider(runtime)
    outcome = provider.run(call(runtime, other))
    assert outcome.report is not None
    assert not outcome.report.replayed


def test_two_accounts_with_one_conversation_do_not_share(runtime: Runtime) -> None:
    Provider(runtime).run(call(runtime, history(14)))
    mine = runtime.call(api="chat", body=body(history(15)), account="b", upstream="http://u")
    outcome = Provider(runtime).run(mine)
    assert outcome.report is not None
    assert not outcome.report.replayed


def test_an_edited_history_is_a_new_lineage(runtime: Runtime) -> None:
    Provider(runtime).run(call(runtime, history(14)))
    edited = history(6, start="Find the leak.")
    edited[3] = {**edited[3], "content": "the client rewrote this"}
    provider = Provider(runtime)
    provider.run(call(runtime, edited))
    assert json.loads(provider.sent[0])["messages"] == edited


def test_moved_cache_markers_and_block_forms_still_match(runtime: Runtime) -> None:
    Provider(runtime).run(call(runtime, history(14)))
    flipped = history(15)
    flipped[1] = {
        "role": "user",
        "content": [{"type": "text", "text": "Find the leak.", "cache_control": {"type": "ephemeral"}}],
    }
    outcome = Provider(runtime).run(call(runtime, flipped))
    assert outcome.report is not None
    assert outcome.report.replayed or outcome.report.reason


# -- summaries


@pytest.fixture
def talking() -> Runtime:
    return Runtime(window=WINDOW, clock=lambda: 1_000.0)


def test_a_summary_is_asked_for_and_stands_in_the_prompt(talking: Runtime) -> None:
    provider = Provider(talking, summary=GOOD)
    outcome = provider.run(call(talking, chat(20)))
    assert len(provider.asked) == 1
    assert outcome.report is not None
    assert "summarize" in outcome.report.strategies
    sent = provider.sent[0].decode()
    assert sent.count("### Decisions Made") == 1
    assert sent.count("<context_notes") == 1


@pytest.mark.parametrize(
    "summary",
    [
        None,
        "",
        "Sure!",
        "error: overloaded, please retry later, this is not a summary at all, sorry about that, bye",
        Answer(status=500, body=b"{}"),
        Answer(status=200, body=b"garbage"),
        Answer(status=200, body=b'{"choices":[]}'),
        "### Decisions Made\n" + "word " * 9_000,
    ],
)
def test_a_failed_summary_falls_back_to_the_labelled_notes(summary: Any, talking: Runtime) -> None:
    provider = Provider(talking, summary=summary)
    outcome = provider.run(call(talking, chat(20)))
    assert outcome.answer.status == 200
    assert outcome.report is not None
    assert "summarize" not in outcome.report.strategies
    assert 'kind=\\"notes\\"' in provider.sent[0].decode()
    assert talking.engine.summaries.refused == 1


def test_summaries_that_keep_failing_are_not_asked_for_again(talking: Runtime) -> None:
    provider = Provider(talking, summary=None)
    for turn in range(20, 90, 6):
        provider.run(call(talking, chat(turn)))
    assert len(provider.asked) == 2


def test_a_second_compaction_updates_the_summary_and_there_is_only_one(talking: Runtime) -> None:
    provider = Provider(talking, summary=GOOD)
    for turn in range(20, 120, 10):
        provider.run(call(talking, chat(turn)))
        assert provider.sent[-1].decode().count("### Decisions Made") <= 1
    assert len(provider.asked) >= 2
    assert any("merge it" in asked.decode() for asked in provider.asked[1:])


def test_a_summary_prepared_ahead_is_used_without_waiting(talking: Runtime) -> None:
    from ctxproxy.effects import drive

    warning = fill(talking, 0.82, begin=chat(3))
    provider = Provider(talking, summary=GOOD)
    assert drive(talking.engine.summarize_ahead(call(talking, warning)), provider) is True
    assert len(provider.asked) == 1
    more = [*warning, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "more " * 500}]
    outcome = provider.run(call(talking, more))
    assert len(provider.asked) == 1
    assert outcome.report is not None
    assert "summarize" in outcome.report.strategies


def test_a_summary_request_is_bounded_by_the_window(talking: Runtime) -> None:
    provider = Provider(talking, summary=GOOD)
    provider.run(call(talking, chat(60)))
    assert len(provider.asked) == 1
    asked = talking.call(api="chat", body=provider.asked[0], account="a")
    assert talking.engine.measure(asked).tokens_before <= WINDOW


# -- learning from usage


def test_usage_anchors_the_next_measurement(runtime: Runtime) -> None:
    request = call(runtime, history(6))
    outcome = Provider(runtime).run(request)
    counted = outcome.report.tokens_after if outcome.report else 0
    runtime.engine.observe(request, outcome, {"prompt_tokens": counted + 300})
    report = runtime.engine.measure(call(runtime, history(7)))
    assert report.basis == "anchored"
    assert report.tokens_before > counted + 300


def test_silent_truncation_is_learned_and_cured_on_the_next_turn() -> None:
    runtime = Runtime(policy=replace(Policy(), summaries=False), window=20_000, clock=lambda: 1_000.0)
    request = call(runtime, history(6))
    outcome = Provider(runtime).run(request)
    counted = outcome.report.tokens_after if outcome.report else 0
    runtime.engine.observe(request, outcome, {"prompt_tokens": counted})
    request = call(runtime, history(10))
    outcome = Provider(runtime).run(request)
    seen = runtime.engine.observe(request, outcome, {"prompt_tokens": counted + 5})
    assert seen.truncated
    provider = Provider(runtime)
    after = provider.run(call(runtime, history(11))).report
    assert after is not None
    assert after.window_source == "learned"
    assert after.tokens_after <= counted + 5


def test_a_server_that_does_not_count_teaches_nothing() -> None:
    runtime = Runtime(policy=replace(Policy(), summaries=False), window=20_000, clock=lambda: 1_000.0)
    for turn in (6, 7, 8):
        request = call(runtime, history(turn))
        outcome = Provider(runtime).run(request)
        assert not runtime.engine.observe(request, outcome, {"prompt_tokens": 1}).truncated
    report = runtime.engine.measure(call(runtime, history(9)))
    assert (report.window, report.window_source) == (20_000, "config")


@pytest.mark.parametrize(("output", "reached"), [(0, True), (400, False)])
def test_a_stop_for_length_is_the_window_only_where_nothing_was_said(output: int, reached: bool) -> None:
    runtime = Runtime(policy=replace(Policy(), mode="compact", summaries=False), clock=lambda: 1_000.0)
    body_ = json.dumps({"model": "unheard-of", "messages": history(500)}).encode()
    request = runtime.call(api="chat", body=body_, account="a", upstream="http://u")
    outcome = Provider(runtime).run(request)
    usage = {"prompt_tokens": 127_990, "completion_tokens": output}
    assert runtime.engine.observe(request, outcome, usage, stop="length").window_reached is reached


def test_a_stop_at_the_windows_edge_is_learned(runtime: Runtime) -> None:
    request = call(runtime, history(6))
    outcome = Provider(runtime).run(request)
    counted = outcome.report.tokens_after if outcome.report else 0
    usage = {"prompt_tokens": counted, "completion_tokens": 50}
    assert runtime.engine.observe(request, outcome, usage, stop="model_context_window_exceeded").window_reached
    after = Provider(runtime).run(call(runtime, history(8))).report
    assert after is not None
    assert after.window == counted + 50
