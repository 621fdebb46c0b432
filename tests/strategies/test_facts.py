"""The digest: what it keeps of what is cut, within its budget, in any language, and what it never does."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxproxy.strategies.facts import Passage, digest, extract
from ctxproxy.strategies.memo import Extracts
from ctxproxy.tokens import counter

COUNT = counter("o200k").count


def said(text: str, *, role: str = "user", kind: str = "text", name: str | None = None, index: int = 0) -> Passage:
    return Passage(index=index, role=role, kind=kind, name=name, text=text)  # type: ignore[arg-type]


def notes(*passages: Passage, budget: int = 400, stays: str = "") -> str:
    return digest(passages, budget=budget, count=COUNT, stays=stays)


FILLER = "We looked at this for a while and then at that, as one does, before we went on with it. "

FACTS = {
    "identifier": ("The booking is NO6JO3 for now.", "NO6JO3"),
    "path": ("I changed src/cache/store.py again.", "src/cache/store.py"),
    "date": ("It is due on 2031-04-17, they said.", "2031-04-17"),
    "amount": ("That costs $1,289.50 in all.", "1,289.50"),
    "email": ("Write to ann.lee@example.com about it.", "ann.lee@example.com"),
    "url": ("See https://example.org/a/b?c=1 for more.", "https://example.org/a/b"),
    "snake case": ("The flag max_retry_count was wrong.", "max_retry_count"),
    "error": ("It failed with TimeoutError at line 88.", "TimeoutError"),
    "Chinese": ("用户想预订北京王府井希尔顿酒店，价格1299元。", "1299"),
    "Russian": ("Заказ № АБ-4471 отменён.", "4471"),
    "Japanese": ("予約番号はXK-2093です。", "XK-2093"),
}


@pytest.mark.parametrize("name", FACTS)
def test_a_fact_survives_among_filler(name: str) -> None:
    text, fact = FACTS[name]
    assert fact in notes(said(FILLER * 40 + text + " " + FILLER * 40, role="assistant"), budget=120)


def test_a_fact_keeps_its_label() -> None:
    result = {"user_id": "mia_li_3668", "membership": "gold", "payment": {"card_7815989": {"brand": "visa"}}}
    call = said('{"user_id":"mia_li_3668"}', role="assistant", kind="tool_call", name="get_user")
    output = said(json.dumps(result), role="tool", kind="tool_result", name="get_user", index=1)
    text = notes(call, output)
    assert text.startswith("get_user(")
    assert "membership gold" in text
    assert "card_7815989" in text


def test_notes_stand_in_the_order_of_the_conversation() -> None:
    text = notes(said("first REF-1001"), said("then REF-2002", role="assistant"), said("last REF-3003"))
    assert text.index("REF-1001") < text.index("REF-2002") < text.index("REF-3003")


def test_what_stays_in_the_prompt_is_not_noted_first() -> None:
    passages = [said("One key is QX-7781.", index=0), said("One key is QX-9902.", index=1)]
    assert "QX-7781" in notes(*passages, budget=60)
    assert "QX-7781" not in notes(*passages, budget=14, stays="we still know QX-7781 here")
    assert "QX-9902" in notes(*passages, budget=14, stays="we still know QX-7781 here")


def test_equal_passages_are_noted_once() -> None:
    text = notes(*[said("status ZZ-4410 open", role="tool", kind="tool_result", index=i) for i in range(50)], budget=60)
    assert text.count("ZZ-4410") < 5


def test_a_key_is_masked() -> None:
    secret = "sk-" + "a1B2c3D4" * 6
    assert secret not in notes(said(f"use the key {secret} for the API"))


def test_a_blob_costs_nothing() -> None:
    blob = "iVBORw0KGgoAAAANSUhEUg" * 400
    assert blob[:60] not in notes(said(f"the picture: {blob} and the ticket TK-5512"), budget=200)


def test_it_is_deterministic_and_a_memory_changes_nothing() -> None:
    passages = [said(FILLER + text, index=i) for i, (text, _) in enumerate(FACTS.values())]
    memo = Extracts()
    first = digest(passages, budget=150, count=COUNT)
    assert first == digest(passages, budget=150, count=COUNT)
    assert first == digest(passages, budget=150, count=COUNT, extract=memo)
    assert first == digest(passages, budget=150, count=COUNT, extract=memo)


def test_a_memory_is_bound() -> None:
    memo = Extracts(max_bytes=10_000)
    for i in range(200):
        memo(said(f"note {i} " * 50))
    assert memo(said("note 3 " * 50)) == extract(said("note 3 " * 50))


def test_the_bound_of_a_memory_is_about_what_it_takes() -> None:
    memo = Extracts(max_bytes=2 << 20)
    tracemalloc.start()
    try:
        for i in range(600):
            memo(said(" ".join(f"w{i * 7_919 + n}" for n in range(150))))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 3 << 20


@given(
    texts=st.lists(st.text(max_size=600), max_size=8),
    kind=st.sampled_from(["text", "tool_call", "tool_result"]),
    budget=st.integers(0, 300),
)
def test_any_text_gives_notes_within_the_budget(texts: list[str], kind: str, budget: int) -> None:
    passages = [
        said(t, kind=kind, role="tool" if kind == "tool_result" else "assistant", index=i) for i, t in enumerate(texts)
    ]
    assert COUNT(digest(passages, budget=budget, count=COUNT)) <= budget


@pytest.mark.parametrize(
    "text", ["\ud800 lone", "\x00\x01\x02", "a" * 200_000, "{" * 5_000, "[1," * 2_000, "\n" * 50_000]
)
def test_hostile_text_is_read_without_an_error(text: str) -> None:
    notes(said(text, kind="tool_result", role="tool"), budget=50)
