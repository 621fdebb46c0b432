"""A plan and warmth over their shares come down to them; nothing else changes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wire.histories import APIS, bodies, dump, prepare, runtime, texts

from ctxproxy.conversation import Conversation, last_typed, texts_of
from ctxproxy.edits import Replace, apply, check
from ctxproxy.policy import Policy
from ctxproxy.strategies import Draft, shrink, start
from ctxproxy.strategies.allot import allot, stretches
from ctxproxy.strategies.handed import shorter_plan, shorter_warmth
from ctxproxy.strategies.plan import compress_plan
from ctxproxy.strategies.warmth import PRIORITY
from ctxproxy.tokens import estimate_tokens
from ctxproxy.wire import WIRES
from ctxproxy.wire.profiles import rules_for

SLOW = settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
PLAN = """---
id: plan-7
---
# Objective
Ship the login.

# Rationale
{filler}

# Threads
## Thread 1: token store
verification: pytest tests/store
{filler}
"""


def plan(words: int) -> str:
    return PLAN.format(filler="because of this and that " * words)


def warmth(items: int) -> str:
    return "".join(f"{name}:\n" + f"  - what was learned: about {name}\n" * items for name in PRIORITY)


def request(api: str, *contents: str, last: str = "Go on.") -> bytes:
    """A task, and messages of the user and the assistant in turn."""
    entries: list[dict[str, Any]] = [{"role": "user", "content": "The task is to ship."}]
    for n, content in enumerate(contents):
        entries.append({"role": ("assistant", "user")[n % 2], "content": content})
    if len(contents) % 2 == 0:
        entries.append({"role": "assistant", "content": "Yes."})
    entries.append({"role": "user", "content": last})
    return dump({"model": "gpt-4o", "max_tokens": 100, WIRES[api].array: entries} if api != "responses" else
                {"model": "gpt-4o", "input": entries})  # fmt: skip


def read(api: str, body: bytes) -> Conversation:
    return runtime().engine.reader.read(body, WIRES[api])


def draft_of(conversation: Conversation, *, window: int = 4_000, **more: Any) -> Draft:
    made = runtime().engine
    return start(
        conversation,
        window=window,
        target=more.pop("target", conversation.tokens // 2),
        policy=more.pop("policy", Policy()),
        rules=replace(
            rules_for(api=conversation.api, model=conversation.model),
            adjacent=conversation.api != "responses",
            thinking="free",
        ),
        count=made.reader.scale_of(conversation.model)[1].count,
        **more,
    )


def after(draft: Draft) -> Conversation:
    """What would be sent, read again and checked."""
    conversation, made = draft.conversation, runtime().engine
    wire = WIRES[conversation.api]
    items = apply(conversation.messages, draft.edits, wire)
    raws = [conversation.messages[i].raw if isinstance(i, int) else i for i in items]
    messages = made.reader.messages(raws, wire, *made.reader.scale_of(conversation.model))
    assert check(conversation.messages, messages, draft.rules) == []
    return replace(conversation, messages=messages)


def told(conversation: Conversation) -> list[str]:
    return [text for m in conversation.messages for text in texts_of(m)]


@pytest.mark.parametrize("api", APIS)
def test_a_plan_and_warmth_in_a_message_come_down_to_their_shares(api: str):
    body = request(api, f"Before <plan>\n{plan(300)}</plan> between <warmth>\n{warmth(60)}</warmth> behind", "Fine.", "Ok")
    before = read(api, body)
    draft = allot(draft_of(before))
    text = told(after(draft))[1]
    (planned,), (warm,) = stretches(text, ("plan",)), stretches(text, ("warmth",))
    kept = text[planned.start : planned.stop]
    assert draft.count(kept) <= 400
    assert "Ship the login." in kept
    assert "verification: pytest tests/store" in kept
    assert "[shortened from 3," in kept
    left = text[warm.start : warm.stop]
    assert draft.count(left) <= 200
    assert list(yaml.safe_load(left)) == ["gotchas"]
    outside = text[: planned.start], text[planned.stop : warm.start], text[warm.stop :]
    assert outside == ("Before <plan>", "</plan> between <warmth>", "</warmth> behind")
    assert draft.steps == ("allocations",)
    assert [t for t in told(after(draft)) if t != text] == [t for i, t in enumerate(told(before)) if i != 1]


@pytest.mark.parametrize(
    "content",
    [
        f"<plan>{plan(2)}</plan> and <warmth>{warmth(1)}</warmth>",
        f"<plan>{plan(300)}",
        f"{plan(300)}</plan>",
        f"<planet>{plan(300)}</planet>",
        "<plan>" + "words without a heading " * 300 + "</plan>",
        "<warmth>" + "words without a key " * 300 + "</warmth>",
        "<warmth>" + "gotchas: [a, b" + "\n- \tx" * 400 + "</warmth>",
        "<warmth>" + json.dumps(["item " * 9] * 90) + "</warmth>",
        f"<plan>{plan(300)} CHECKPOINT</plan>".replace("because of this", "CHECKPOINT", 1).replace(" CHECKPOINT<", "<"),
    ],
)
def test_what_fits_or_cannot_be_read_or_must_stay_is_untouched(content: str):
    draft = draft_of(read("chat", request("chat", content, "Fine.", "Ok")))
    assert allot(draft) is draft


def test_the_newest_text_takes_its_share_first():
    body = request("chat", f"<plan>{plan(100)}</plan>", "Now?", f"<plan>{plan(25)}</plan>")
    texts = told(after(allot(draft_of(read("chat", body)))))
    assert texts[3] == f"<plan>{plan(25)}</plan>"
    assert "because of" not in texts[1]
    assert "Ship the login." in texts[1]


@pytest.mark.parametrize("role", ["system", "developer"])
def test_system_messages_are_never_touched(role: str):
    value = json.loads(request("chat", "Fine."))
    value["messages"].insert(0, {"role": role, "content": f"<plan>{plan(300)}</plan>"})
    draft = draft_of(read("chat", dump(value)))
    assert allot(draft, newest=True) is draft


def test_the_newest_message_only_gives_way_where_nothing_else_helps():
    last = f"Do this: <plan>{plan(60)}</plan> <warmth>{warmth(30)}</warmth>"
    conversation = read("chat", request("chat", *["chatter " * 300] * 9, last=last))
    steps = ("truncate", "window", "facts")
    roomy = shrink(draft_of(conversation, target=conversation.tokens // 2), steps=steps)
    assert roomy.fits
    assert told(after(roomy))[-1] == last
    tight = shrink(draft_of(conversation, target=900), steps=steps)
    assert tight.fits
    short = told(after(tight))[-1]
    assert short.startswith(last[:200])
    assert "verification: pytest tests/store" in short
    assert len(short) < len(last)


def test_a_task_that_begins_with_a_plan_keeps_its_beginning():
    body = request("chat", "Fine.")
    value = json.loads(body)
    value["messages"][0]["content"] = f"<plan>\n# Notes\nWhy: {'x y z ' * 800}\n# Objective\nShip.\n</plan>\nGo."
    text = told(after(allot(draft_of(read("chat", dump(value))))))[0]
    assert text.startswith(value["messages"][0]["content"][:200])


def test_an_answer_that_is_to_be_continued_is_left_alone():
    value = json.loads(request("chat", "Fine."))
    value["messages"].append({"role": "assistant", "content": f"<plan>{plan(300)}</plan> And"})
    draft = draft_of(read("chat", dump(value)))
    assert allot(draft) is draft


def test_escaped_tags_and_own_tag_names_are_found():
    body = request("chat", f"<entwurf id='1'>{plan(300)}</entwurf>", "Fine.", "Ok").replace(b"<", b"\\u003c")
    policy = Policy(tags=replace(Policy().tags, plan=("entwurf",)))
    assert allot(draft_of(read("chat", body), policy=policy)).steps == ("allocations",)


def test_pinned_words_stay():
    body = request("chat", f"<plan>{plan(300)}</plan>", "Fine.", "Ok")
    draft = draft_of(read("chat", body), policy=Policy(pins=("of this and that",)))
    assert allot(draft) is draft


@pytest.mark.parametrize("api", APIS)
def test_a_compaction_begins_with_it_and_archives_the_whole(api: str):
    content = f"<plan>\n{plan(700)}</plan>"
    body = request(api, content, "Fine.", "Ok", "And " + "more " * 900)
    made = runtime()
    prepared = prepare(made, api, body, window=6_000)
    assert prepared.report.strategies == ("allocations",)
    assert not prepared.report.faults
    (original,) = prepared.report.archived
    assert made.archive is not None
    assert made.archive.restore(f"{WIRES[api].api}:", original) == content.encode()
    assert prepare(made, api, body, window=6_000).body == prepared.body


@SLOW
@given(
    st.sampled_from(APIS).flatmap(lambda api: st.tuples(st.just(api), bodies(api))),
    st.lists(st.tuples(st.booleans(), st.integers(1, 200), texts(3), texts(3)), min_size=1, max_size=4),
    st.integers(400, 20_000),
)
def test_tagged_texts_come_within_their_shares_and_others_stay(
    case: tuple[str, dict[str, Any]], added: list[tuple[bool, int, str, str]], size: int
) -> None:
    api, value = case
    for planned, n, left, right in added:
        inner = f"<plan>{plan(n)}</plan>" if planned else f"<warmth>{warmth(n)}</warmth>"
        value[WIRES[api].array] += [
            {"role": "assistant", "content": "Yes."}, {"role": "user", "content": f"{left}{inner}{right}"},
        ]  # fmt: skip
    before = read(api, dump(value))
    draft = allot(draft_of(before, window=size))
    now = after(draft)
    newest = last_typed(before.messages)
    changed = {(e.index, e.path) for e in draft.edits if isinstance(e, Replace)}
    left_of = {"plan": round(size * 0.10), "warmth": round(size * 0.05)}
    for i in reversed(range(len(before.messages))):
        old, new = texts_of(before.messages[i]), texts_of(now.messages[i])
        if i == newest:
            assert old == new
        for part, a, b in zip(before.messages[i].parts, old, new, strict=True):
            assert ((i, part.path) in changed) == (a != b)
            for name in ("plan", "warmth"):
                for was, is_ in zip(stretches(a, (name,)), stretches(b, (name,)), strict=True):
                    inner = b[is_.start : is_.stop]
                    cost = draft.count(inner)
                    if part.kind == "text" and i != newest:
                        whole = a[was.start : was.stop]
                        least = (
                            draft.count(compress_plan(whole, 0, count=draft.count)) if name == "plan" else 0
                        ) + draft.count("\n# [shortened from 100,000 tokens.]")
                        assert cost <= max(left_of[name], least)
                        assert a[: was.start] == b[: is_.start]
                        assert a[was.stop :] == b[is_.stop :]
                        if inner != whole and name == "warmth":
                            got = yaml.safe_load(inner) or {}
                            all_of = yaml.safe_load(whole)
                            assert all(got[k] == all_of[k][: len(got[k])] for k in got)
                    left_of[name] = max(0, left_of[name] - cost)


YAML_WARMTH = """# from the planner
gotchas:
  - first, with a colon: yes
  - |
    a block
    # of text
  - third
codebase_patterns:
- flush item
-   key: value
    other: 2
user_preferences:
  style: short

  tone: >
    dry
"almost_did": nothing of interest
"""


@pytest.mark.parametrize("target", range(12, 90, 6))
def test_warmth_in_yaml_keeps_whole_items_in_its_own_spelling(target: int):
    short = shorter_warmth(YAML_WARMTH, target, keep=0, place="", count=estimate_tokens)
    assert short is not None
    assert estimate_tokens(short) <= target
    assert all(line in YAML_WARMTH or "[shortened" in line for line in short.splitlines())
    whole, found = yaml.safe_load(YAML_WARMTH), yaml.safe_load(short) or {}
    for name, items in found.items():
        part = list(whole[name].items()) if isinstance(items, dict) else whole[name]
        kept = list(items.items()) if isinstance(items, dict) else items
        # The notice is a comment, and the end of a block scalar is the only thing that a cut can change.
        assert [str(k).strip() for k in kept] == [str(p).strip() for p in part[: len(kept)]] or isinstance(items, str)


@pytest.mark.parametrize("indent", [None, 2])
def test_warmth_in_json_stays_json(indent: int | None):
    text = json.dumps({name: [f"{name} {i}" for i in range(50)] for name in PRIORITY}, indent=indent)
    short = shorter_warmth(f"\n```json\n{text}\n```\n", 300, keep=0, place="", count=estimate_tokens)
    assert short is not None
    assert estimate_tokens(short) <= 310
    found = json.loads(short.removeprefix("\n```json\n").removesuffix("\n```\n"))
    assert found["gotchas"][0] == "gotchas 0"


def test_a_second_cut_has_one_notice():
    first = shorter_plan(plan(300), 300, keep=0, place=" See /a.", count=estimate_tokens)
    assert first is not None
    second = shorter_plan(first, 20, keep=0, place=" See /b.", count=estimate_tokens)
    assert second is not None
    assert second.count("[shortened from") == 1
    assert "/b." in second
