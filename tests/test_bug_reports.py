"""What went wrong in other agent loops and proxies, as tests of what is sent here.

Each docstring names a section and number of the collection of reports that the tests follow, and the public report:
A tool pairing, B loops without progress, E room for the answer, G shapes of content, H roles and order, K thinking.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from provider import validate
from wire.histories import dump, prepare, runtime

from ctxproxy.edits import Rules
from ctxproxy.effects import Answer, Outcome, Prepared, Send, drive
from ctxproxy.errors import ContextOverflowError
from ctxproxy.policy import Policy
from ctxproxy.runtime import Runtime
from ctxproxy.wire import WIRES
from ctxproxy.wire.profiles import profile

Json = dict[str, Any]
QUIET = Policy(summaries=False)
TARGETS = (2_000, 1_200, 700, 400, 250)
LONG = "a line of the output\n" * 60


def user(text: Any) -> Json:
    return {"role": "user", "content": text}


def says(text: str | None, *ids: str, arguments: str = "{}") -> Json:
    calls = [{"id": i, "type": "function", "function": {"name": "run", "arguments": arguments}} for i in ids]
    return {"role": "assistant", "content": text, **({"tool_calls": calls} if ids else {})}


def tool(id: str, text: Any = LONG) -> Json:
    return {"role": "tool", "tool_call_id": id, "content": text}


def chat(messages: list[Json], **fields: Any) -> bytes:
    return dump({"model": "gpt-4o", "messages": messages, **fields})


def claude(messages: list[Json], **fields: Any) -> bytes:
    return dump({"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": messages, **fields})


def use(id: str) -> Json:
    return {"type": "tool_use", "id": id, "name": "run", "input": {}}


def result(id: str, content: Any = LONG) -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": content}


def thought(text: str) -> Json:
    return {"type": "thinking", "thinking": text, "signature": f"sig-{text}"}


def turns(count: int) -> list[Json]:
    """Plain turns of some 130 tokens."""
    return [m for n in range(count) for m in (user(f"question {n}"), says(f"answer {n} " * 40))]


def attempt(api: str, body: bytes, **settings: Any) -> list[Json] | None:
    """The messages that would be sent, None where nothing fits. They break no rule of a strict provider."""
    try:
        prepared = prepare(runtime(), api, body, **settings)
    except ContextOverflowError:
        return None
    assert not prepared.report.faults
    assert validate(json.loads(prepared.body), api) == []
    return json.loads(prepared.body)[WIRES[api].array]


def each_size(api: str, body: bytes, look: Callable[[list[Json]], None], **settings: Any) -> None:
    """Look at what is sent for every target that can be met; at least one of them is."""
    found = [attempt(api, body, target_tokens=target, **settings) for target in TARGETS]
    assert any(found)
    for messages in found:
        if messages is not None:
            look(messages)


def refuse(message: str, **fields: Any) -> Answer:
    return Answer(status=400, body=dump({"error": {"message": message, "type": "invalid_request_error", **fields}}))


def run(
    made: Runtime, api: str, body: bytes, answers: Callable[[bytes], Answer], **settings: Any
) -> tuple[Outcome, list[bytes]]:
    """The whole way of a request, with answers in place of a provider; and the bodies that were sent."""
    sent: list[bytes] = []

    def perform(effect: Any) -> Any:
        if isinstance(effect, Send):
            sent.append(effect.body)
            return answers(effect.body)
        return made.perform(effect)

    call = made.call(api=api, body=body, **{"window": 1_000_000, "policy": QUIET, **settings})
    return drive(made.engine.run(call), perform), sent


def tokens(api: str, body: bytes) -> int:
    return runtime().engine.reader.read(body, WIRES[api]).tokens


# -- A: tool pairing


def test_a_result_goes_with_its_call() -> None:
    """A1, openclaw/openclaw#8525: a cut after the call left its result alone."""
    messages = [user("go"), says(None, "c1"), tool("c1"), *turns(12), user("end")]

    def look(sent: list[Json]) -> None:
        kinds = [m["role"] for m in sent[:3]]
        assert ("tool" in kinds) == any(m.get("tool_calls") for m in sent)

    each_size("chat", chat(messages), look)


def test_nothing_starts_with_a_result() -> None:
    """A2, langchain-ai/langchain#33245: the newest two messages of a budget began with a tool message."""
    messages = [user("go"), says(None, "c1"), tool("c1"), says("done")]
    size = tokens("chat", chat(messages))
    for share in (0.9, 0.7, 0.5, 0.4):
        sent = attempt("chat", chat(messages), target_tokens=int(size * share))
        assert sent is None or sent[0] == user("go")


def test_ten_parallel_calls_stay_or_go_together() -> None:
    """A3, langchain-ai/langchain#34282: the newest six of a call and its ten results."""
    ids = [f"c{n}" for n in range(10)]
    messages = [user("go"), says(None, *ids), *(tool(i, f"{i} " * 30) for i in ids), says("done"), user("end")]

    def look(sent: list[Json]) -> None:
        assert sum(m["role"] == "tool" for m in sent) in (0, 10)

    each_size("chat", chat(messages), look)
    literal = Policy(summaries=False, literal_window=True, keep_messages=6, emergency_keep_messages=6)
    sent = attempt("chat", chat(messages), window=int(tokens("chat", chat(messages)) / 0.97), policy=literal)
    assert sent is not None
    look(sent)


def test_a_call_goes_with_its_result() -> None:
    """A4, BerriAI/litellm#4931: the call was trimmed and its result kept."""
    messages = [user("go"), says(LONG, "c1"), tool("c1", "short"), user("end")]
    each_size("chat", chat(messages), lambda sent: None)


def test_below_the_limit_nothing_is_lost() -> None:
    """A5, BerriAI/litellm#6505 and #8261: far below the limit the trailing tool message was gone."""
    body = chat([{"role": "system", "content": "s"}, user("go"), says(None, "c1"), tool("c1")])
    assert prepare(runtime(), "chat", body).body == body


def test_a_removal_reaches_the_end_of_its_unit() -> None:
    """A9, CodebuffAI/freebuff PR#1292: a run of removals ended between a large call and its result."""
    large = json.dumps({"text": "x y " * 1_000})
    messages = [user("go"), *turns(2), says(None, "c1", arguments=large), tool("c1"), *turns(6), user("end")]
    each_size("chat", chat(messages), lambda sent: None)


def test_a_call_without_its_result_yet_is_not_compacted() -> None:
    """A11, RooCodeInc/Roo-Code PR#10379; A12, openai/openai-agents-python#2317: a cut between call and output."""
    messages = [user("go"), *turns(10), user("now"), says(None, "c1", "c2"), tool("c1", "one")]
    for target in TARGETS:
        prepared = prepare(runtime(), "chat", chat(messages), target_tokens=target)
        assert json.loads(prepared.body)["messages"][-3:] == messages[-3:]
    items = [{"type": "message", **user("go")}, *({"type": "message", **m} for m in turns(10))]
    items.append({"type": "function_call", "call_id": "c1", "name": "run", "arguments": "{}"})
    prepared = prepare(runtime(), "responses", dump({"model": "gpt-4o", "input": items}), target_tokens=700)
    assert json.loads(prepared.body)["input"][-1] == items[-1]


def test_the_current_turn_is_protected_in_the_middle_of_a_run() -> None:
    """A14, pydantic/pydantic-ai#2050: a history processor kept the last message only, a result."""
    messages = [*turns(10), user("now"), says(None, "c1"), tool("c1", "small")]
    each_size("chat", chat(messages), lambda sent: _ends_with(sent, messages[-3:]))


def _ends_with(sent: list[Json], wanted: list[Json]) -> None:
    assert sent[-len(wanted) :] == wanted


def test_results_in_two_messages_are_not_made_worse() -> None:
    """A17, sipeed/picoclaw PR#1793: results of one call in two user messages, and twice. They are cut as one."""
    step = [
        {"role": "assistant", "content": [use("c1"), use("c2")]},
        user([result("c1")]),
        user([result("c2")]),
        user([result("c2")]),
    ]
    messages = [user("go"), *step, {"role": "assistant", "content": "done " * 300}, user("end")]
    before = {v.rule for v in validate(json.loads(claude(messages)), "messages")}
    for target in TARGETS:
        prepared = prepare(runtime(), "messages", claude(messages), target_tokens=target)
        sent = json.loads(prepared.body)["messages"]
        assert {v.rule for v in validate(json.loads(prepared.body), "messages")} <= before
        assert sum(isinstance(m["content"], list) and m["content"][0]["type"] != "text" for m in sent) in (0, 4)


def test_calls_beside_a_note_stay_whole() -> None:
    """A20, RooCodeInc/Roo-Code#9700 and #10471: parallel calls were partly kept beside a summary; ids stay as is."""
    long_id = "call_" + "x" * 90
    messages = [user("go"), *turns(8), says(None, long_id, "c2"), tool(long_id), tool("c2"), user("end")]

    def look(sent: list[Json]) -> None:
        assert [m.get("tool_call_id") for m in sent if m["role"] == "tool"] in ([], [long_id, "c2"])

    each_size("chat", chat(messages), look)


# -- B: loops, and no progress


def test_a_fixed_part_that_is_too_large_is_said_at_once() -> None:
    """B21, anomalyco/opencode#27924: system and tools alone exceeded the budget; 35 compactions in an hour."""
    body = chat([{"role": "system", "content": LONG * 12}, user("hi")])
    with pytest.raises(ContextOverflowError) as caught:
        prepare(runtime(), "chat", body, window=2_000)
    assert caught.value.fixed["system"] > 2_000
    assert caught.value.attempts == 0


def test_the_same_overflow_for_ever_ends() -> None:
    """B22, docker/docker-agent PR#2235: overflow, compaction, the same overflow, without an end."""
    made, body = runtime(), chat([*turns(40), user("end")])
    sent: list[int] = []
    for _ in range(6):
        outcome, bodies = run(made, "chat", body, lambda _: refuse("too long", code="context_length_exceeded"))
        assert outcome.error is not None
        sent.append(len(bodies))
    assert max(sent) <= 1 + QUIET.max_retries
    assert sent[-1] == 1  # a conversation that keeps failing is not tried again and again


def test_a_compaction_is_not_followed_by_another_at_once() -> None:
    """B26, hydro-project/infinity#64 and badlogic/pi-mono#1860: the figure of before the compaction triggered again.

    B32, openclaw/openclaw#12170: a second compaction at 1,489 tokens summarized the summary.
    """
    made, messages = runtime(), [*turns(40), user("end")]
    window = int(tokens("chat", chat(messages)) / 0.92)
    first = prepare(made, "chat", chat(messages), window=window)
    assert first.report.reason == "proactive"
    messages += [says("fine"), user("and more?")]
    second = prepare(made, "chat", chat(messages), window=window)
    assert second.report.reason is None
    assert second.report.replayed
    sent = json.loads(first.body)["messages"]
    assert json.loads(second.body)["messages"] == [*sent, *messages[-2:]]


def test_a_gain_that_is_not_worth_it_is_not_taken() -> None:
    """B27, CommandCodeAI/command-code#756: 14 runs that each won 100 to 1,400 tokens."""
    body = chat([*turns(2), user("now " + LONG * 20)])
    window = int(tokens("chat", body) / 0.93)
    prepared = prepare(runtime(), "chat", body, window=window)
    assert prepared.body == body


def test_a_task_over_the_threshold_is_cut_or_said() -> None:
    """B28, cline/cline PR#5668: the first user message alone was over the threshold, and pinned."""
    body = chat([user("Do this: " + LONG * 40), *turns(3), user("end")])
    prepared = prepare(runtime(), "chat", body, window=4_000)
    assert prepared.report.tokens_after <= 4_000
    assert json.loads(prepared.body)["messages"][0]["content"].startswith("Do this: a line")


def test_the_tail_is_measured_in_tokens() -> None:
    """B30, open-webui/open-webui#30035: a share of the message count kept large recent messages."""
    messages = [m for n in range(12) for m in (user(f"q{n}"), says(f"large answer {n} " * 150))]
    prepared = prepare(runtime(), "chat", chat([*messages, user("end")]), window=6_000)
    assert prepared.report.tokens_after <= 4_200
    assert len(json.loads(prepared.body)["messages"]) < 12


def test_the_size_of_what_is_sent_is_measured_again() -> None:
    """B31, openai/codex#40213: 48 compactions, and the request stayed as large as before."""
    body = chat([*turns(60), user("end")])
    for target in TARGETS:
        prepared = prepare(runtime(), "chat", body, target_tokens=target)
        assert tokens("chat", prepared.body) == prepared.report.tokens_after <= target


def test_any_result_that_fits_is_taken() -> None:
    """B34, bastani-inc/atomic#1575: 36.6 % less was rejected because 40 % was asked for."""
    body = chat([user(LONG * 4), *turns(3), user("now " + LONG * 4)])
    window = int(tokens("chat", body) / 1.04)
    prepared = prepare(runtime(), "chat", body, window=window)
    assert prepared.report.tokens_after <= window


def test_a_result_that_is_not_smaller_is_dropped() -> None:
    """B36, anthropics/claude-code#85483: the compaction made the request larger."""
    body = chat([user("a"), says("b"), user("c " + LONG)])
    window = int(tokens("chat", body) / 0.97)
    assert prepare(runtime(), "chat", body, window=window).body == body


# -- E: room for the answer


def test_max_tokens_gives_way_before_anything_is_cut() -> None:
    """E61, docker/docker-agent#569: 178,959 and 64,000 of output were more than 200,000."""
    text = "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input length"
    body = claude([user("a"), {"role": "assistant", "content": "b"}, user("c")], max_tokens=64_000)

    def provider(sent: bytes) -> Answer:
        return Answer(status=200) if json.loads(sent)["max_tokens"] <= 21_041 else refuse(text)

    outcome, sent = run(runtime(), "messages", body, provider)
    assert outcome.error is None
    assert len(sent) == 2
    before, after = json.loads(body), json.loads(sent[1])
    assert 1_000 < after.pop("max_tokens") <= 21_041
    before.pop("max_tokens")
    assert after == before


def test_one_token_over_is_over() -> None:
    """E63, proxysoul/Empryo#52: 202,753 against 202,752."""
    body = chat([*turns(20), user("end")])
    size = tokens("chat", body)
    for window in (size, size - 1):
        prepared = prepare(runtime(), "chat", body, window=window)
        assert prepared.report.level == "OVERFLOW"
        assert prepared.report.tokens_after < window


def test_max_tokens_stays_over_the_thinking_budget() -> None:
    """E64, badlogic/pi-mono#797: max_tokens must be larger than the thinking budget."""
    text = "input length and `max_tokens` exceed context limit: 196000 + 20000 > 200000, decrease input length"
    thinking = {"type": "enabled", "budget_tokens": 8_000}
    body = claude([*({**m} for m in turns(10)), user("c")], max_tokens=20_000, thinking=thinking)
    _, sent = run(runtime(), "messages", body, lambda _: refuse(text))
    assert all(json.loads(b)["max_tokens"] > 8_000 for b in sent)


def test_the_larger_form_is_never_the_way_out() -> None:
    """E65, unslothai/unsloth PR#9442: the compacted prompt lacked the preferred room, so the original was sent."""
    body = chat([*turns(20), user("now " + LONG * 3)])
    window = tokens("chat", chat([turns(1)[0], user("now " + LONG * 3)])) + 60
    prepared = prepare(runtime(), "chat", body, window=window)
    assert prepared.report.tokens_after <= window


# -- G: shapes of content


@pytest.mark.parametrize(
    "shape",
    [
        lambda t: t,
        lambda t: [{"type": "text", "text": t}],
        lambda t: [{"type": "text", "text": p} for p in t.split("|")],
    ],
)
def test_content_in_parts_counts_and_is_cut_like_a_string(shape: Callable[[str], Any]) -> None:
    """G79, BerriAI/litellm#16567: list content came back untrimmed. G82, langchain-ai/langchainjs#8336: it failed."""
    messages = [{**m, "content": shape(m["content"] + "|and a second part")} for m in turns(20)]
    body = chat([*messages, user(shape("end|of it"))])
    assert tokens("chat", body) > 2_500
    each_size("chat", body, lambda sent: None)


def test_system_content_in_parts_stays_in_parts() -> None:
    """G80, BerriAI/litellm PR#34482: the parts of the system message were joined."""
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two", "cache_control": {"type": "ephemeral"}}]
    body = chat([{"role": "system", "content": parts}, *turns(20), user("end")])
    each_size("chat", body, lambda sent: _starts_with(sent, {"role": "system", "content": parts}))
    whole = claude([*turns(20), user("end")], system=parts)
    assert json.loads(prepare(runtime(), "messages", whole, target_tokens=600).body)["system"] == parts


def _starts_with(sent: list[Json], wanted: Json) -> None:
    assert sent[0] == wanted


def test_no_role_is_left_without_content() -> None:
    """G84, lossless-claw PR#606: an empty list after pruning. G85, hermes-agent PR#41985: nor a blank one."""
    image = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    messages = [user("go")]
    for n in range(8):
        messages += [
            {"role": "assistant", "content": [use(f"c{n}")]},
            user([result(f"c{n}", [image])]),
            {"role": "assistant", "content": "seen"},
            user([image]),
        ]
    body = claude([*messages, {"role": "assistant", "content": "ok"}, user("end")])
    size = tokens("messages", body)
    for share in (0.9, 0.6, 0.3):
        sent = attempt("messages", body, target_tokens=int(size * share))
        assert sent is not None
        assert all(m["content"] for m in sent)
        assert all(
            b["content"]
            for m in sent
            if isinstance(m["content"], list)
            for b in m["content"]
            if b["type"] == "tool_result"
        )


def test_a_message_of_thinking_only_does_not_become_empty() -> None:
    """G86, myriade-ai/agentlys PR#196: an answer of thinking only was empty once that was stripped."""
    messages = [user("go"), {"role": "assistant", "content": [thought("t")]}, user("on"), *turns(12), user("end")]
    body = dump({**json.loads(claude(messages)), "model": "claude-opus-5-5"})
    for target in TARGETS:
        prepared = prepare(runtime(), "messages", body, target_tokens=target)
        assert all(m["content"] for m in json.loads(prepared.body)["messages"])
        assert {v.rule for v in validate(json.loads(prepared.body), "messages")} <= {"thinking-last"}


def test_what_the_server_compacted_is_sent_back_as_it_was() -> None:
    """G87, vercel/ai PR#13382: a compaction block is the server's; an empty one is not ours to fill or drop."""
    block = {"role": "assistant", "content": [{"type": "compaction", "content": None}]}
    body = claude([block, *turns(12), user("end")])
    sent = json.loads(prepare(runtime(), "messages", body, target_tokens=700).body)["messages"]
    assert sent[0] == block
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA"}
    items = [item, *({"type": "message", **m} for m in [*turns(12), user("end")])]
    prepared = prepare(runtime(), "responses", dump({"model": "gpt-4o", "input": items}), target_tokens=700)
    assert json.loads(prepared.body)["input"][0] == item


def test_an_empty_part_does_not_hinder_a_compaction() -> None:
    """G88, MoonshotAI/kimi-cli PR#2395: an empty text part, here in what is cut and in what stays."""
    messages = [user([{"type": "text", "text": "go"}, {"type": "text", "text": ""}]), says(""), *turns(20), user("end")]
    prepared = prepare(runtime(), "chat", chat(messages), target_tokens=700)
    assert not prepared.report.faults
    assert prepared.report.tokens_after <= 700


# -- H: roles and order


def test_system_and_developer_messages_stay() -> None:
    """H89, browser-use/agent-sdk#3: one summary replaced the history, the system prompt included."""
    fixed = [{"role": "system", "content": "rule one"}, {"role": "developer", "content": "rule two"}]
    late = {"role": "system", "content": "late rule"}

    def look(sent: list[Json]) -> None:
        assert [m for m in sent if m["role"] in ("system", "developer")] == [*fixed, late]

    each_size("chat", chat([*fixed, *turns(9), late, *turns(9), user("end")]), look)


def test_a_user_message_is_left() -> None:
    """H90, coder/coder PR#22819: the summary became the system prompt and the messages were empty."""
    messages = [
        user("go"),
        *(
            {"role": "assistant", "content": [use(f"c{n}")]} if k else user([result(f"c{n}")])
            for n in range(9)
            for k in (1, 0)
        ),
    ]

    def look(sent: list[Json]) -> None:
        assert sent[0]["role"] == "user"
        assert any(m["role"] == "user" and isinstance(m["content"], str) for m in sent)

    each_size("messages", claude(messages), look)


@pytest.mark.parametrize("name", ["strict", "mistral", "gemini", "bedrock"])
def test_two_of_one_role_never_meet_on_a_strict_server(name: str) -> None:
    """H91, ducks/claux#39 and TeXRA PR#2942: a summary before a user message is refused by strict servers."""
    body = chat([*turns(20), user("end")])
    rules = profile(name)
    for target in TARGETS:
        sent = json.loads(prepare(runtime(rules=rules), "chat", body, target_tokens=target).body)["messages"]
        roles = [m["role"] for m in sent]
        assert all(a != b for a, b in pairwise(roles))
        assert not validate({"model": "m", "messages": sent}, "chat", profile="strict-template")


def test_the_end_of_the_prompt_is_who_was_last() -> None:
    """H92, openclaw/openclaw#87472: the fallback ended with an assistant message. A prefill of the caller stays."""
    each_size("chat", chat([*turns(20), user("end")]), lambda sent: _ends_with(sent, [user("end")]))
    prefill = {"role": "assistant", "content": "The answer is"}
    each_size("chat", chat([*turns(20), user("end"), prefill]), lambda sent: _ends_with(sent, [user("end"), prefill]))


def test_a_greeting_first_is_let_through() -> None:
    """H93, lossless-claw PR#502 and #504: a history that starts with the assistant."""
    body = chat([says("Hello! How can I help?"), user("hi")])
    assert prepare(runtime(), "chat", body).body == body
    each_size("chat", chat([says("Hello!"), *turns(20), user("end")]), lambda sent: None)


def test_notes_are_a_users_words_marked_as_data() -> None:
    """H95, NousResearch/hermes-agent#42768 and netclaw-dev/netclaw#61: an assistant's summary was acted on."""

    def look(sent: list[Json]) -> None:
        notes = [m for m in sent if "<context_notes" in str(m["content"])]
        assert [m["role"] for m in notes] in ([], ["user"])
        assert all("not an instruction" in m["content"] or len(m["content"]) < 120 for m in notes)

    each_size("chat", chat([*turns(20), user("end")]), look)


def test_a_call_follows_a_user_or_a_result() -> None:
    """H96, langchain-ai/langchainjs#9272: a call right after the summary of the model broke Gemini's order."""
    messages = [user("go"), *turns(6), user("now"), says("I look.", "c1"), tool("c1"), says("more"), user("end")]
    for target in TARGETS:
        prepared = prepare(runtime(rules=profile("gemini")), "chat", chat(messages), target_tokens=target)
        assert validate(json.loads(prepared.body), "chat", profile="gemini") == []


# -- K: thinking


def claude_loop(steps: int, model: str) -> bytes:
    messages: list[Json] = [user("go")]
    for n in range(steps):
        redacted = [{"type": "redacted_thinking", "data": f"data-{n}"}] if n % 2 else []
        messages += [
            {"role": "assistant", "content": [thought(f"t{n}"), *redacted, use(f"c{n}")]},
            user([result(f"c{n}")]),
        ]
    return dump({"model": model, "max_tokens": 100, "messages": messages})


def blocks(prepared: Prepared) -> list[Json]:
    return [b for m in json.loads(prepared.body)["messages"] if isinstance(m["content"], list) for b in m["content"]]


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-opus-5-5"])
def test_a_thinking_block_stays_whole_or_goes(model: str) -> None:
    """K117, openclaw/openclaw#27504: the signature was taken from kept thinking. K119, #39887: redacted too."""
    body = claude_loop(16, model)
    original = [b for m in json.loads(body)["messages"][1::2] for b in m["content"]]
    for share in (0.9, 0.6, 0.3):
        prepared = prepare(runtime(), "messages", body, target_tokens=int(tokens("messages", body) * share))
        kept = [b for b in blocks(prepared) if "thinking" in b["type"]]
        assert all(b in original for b in kept)
        assert bool(kept) == (model == "claude-sonnet-4-5")


def test_an_open_tool_loop_keeps_its_thinking_where_that_is_not_bound() -> None:
    """K121, earendil-works/pi#9391: thinking bound to the old prefix warned on every turn after a compaction."""
    body = claude_loop(16, "claude-sonnet-4-5")
    prepared = prepare(runtime(), "messages", body, target_tokens=tokens("messages", body) // 3)
    for message in json.loads(prepared.body)["messages"]:
        if message["role"] == "assistant":
            assert message["content"][0]["type"] == "thinking"
    bound = prepare(runtime(), "messages", claude_loop(16, "claude-opus-5-5"), target_tokens=1_000)
    assert not any("thinking" in b["type"] for b in blocks(bound))
    assert validate(json.loads(bound.body), "messages") == []


def test_rules_can_be_given() -> None:
    """H91 again: whatever the model's name says, the configured reading counts."""
    body = chat([*turns(20), user("end")])
    lenient = json.loads(prepare(runtime(), "chat", body, target_tokens=900).body)["messages"]
    strict = json.loads(prepare(runtime(rules=Rules()), "chat", body, target_tokens=900).body)["messages"]
    assert [m["role"] for m in lenient[:2]] == ["user", "user"]
    assert [m["role"] for m in strict[:2]] == ["user", "assistant"]
