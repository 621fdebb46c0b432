"""ctxproxy/conversation.py: exchanges, turns, pairs by position, prefixes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxproxy.conversation import (
    Message,
    Part,
    exchanges,
    first_typed,
    last_typed,
    pair_faults,
    turns,
)


def part(kind: str, id: str | None = None, *, continues: bool = False) -> Part:
    return Part(kind, ("content", 0), 5, 20, id=id, continues=continues)  # type: ignore[arg-type]


def message(role: str, *parts: Part, **flags: bool) -> Message:
    return Message(role, parts, raw=b"{}", digest=f"{role}{parts}".encode(), tokens=9, **flags)  # type: ignore[arg-type]


def u(text: bool = True) -> Message:
    return message("user", *([part("text")] if text else []))


def a(*ids: str) -> Message:
    return message("assistant", *(part("tool_call", i) for i in ids)) if ids else message("assistant", part("text"))


def t(id: str) -> Message:
    return message("tool", part("tool_result", id))


def results(*ids: str, text: bool = False) -> Message:
    return message("user", *(part("tool_result", i) for i in ids), *([part("text")] if text else []))


def ranges(messages: Sequence[Message]) -> list[tuple[int, int]]:
    return [(e.start, e.stop) for e in exchanges(messages)]


def test_a_call_and_all_its_results_are_one_exchange() -> None:
    assert ranges([u(), a("1", "2"), t("1"), t("2"), a(), u()]) == [(0, 1), (1, 4), (4, 5), (5, 6)]


def test_ids_that_repeat_pair_with_the_latest_open_call() -> None:
    messages = [a("1"), t("1"), a("1"), t("1"), a("1", "1"), t("1"), t("1")]
    assert ranges(messages) == [(0, 2), (2, 4), (4, 7)]
    assert pair_faults(messages, adjacent=True) == []


def test_a_late_result_keeps_what_lies_between() -> None:
    assert ranges([a("1"), t("1"), a("2"), u(), t("2"), a()]) == [(0, 2), (2, 5), (5, 6)]


def test_a_result_without_a_call_stays_with_what_stands_before_it() -> None:
    assert ranges([u(), a(), t("9"), u()]) == [(0, 1), (1, 3), (3, 4)]
    assert ranges([t("9"), u()]) == [(0, 1), (1, 2)]


def test_calls_that_wait_at_the_end_are_open_and_aborted_ones_are_not() -> None:
    open_end = exchanges([u(), a("1", "2"), t("1")])
    assert open_end[-1].open
    waiting = exchanges([u(), a("1"), u()])
    assert [e.open for e in waiting] == [False, True, True]
    aborted = exchanges([u(), a("1"), u(), a(), u()])
    assert [e.open for e in aborted] == [False, False, False, False, True]


def test_what_binds_its_neighbour_is_not_parted_from_it() -> None:
    reasoning = message("assistant", part("thinking"), binds_next=True)
    assert ranges([u(), reasoning, a("1"), a("2"), t("1"), t("2"), a()]) == [(0, 1), (1, 6), (6, 7)]
    # Each item that the reasoning led to may need it: a text and the call after it.
    assert ranges([reasoning, a(), a("1"), t("1"), a()]) == [(0, 4), (4, 5)]
    assert ranges([reasoning, a(), reasoning, a()]) == [(0, 2), (2, 4)]
    system = message("system", part("text"), binds_next=True, binds_previous=True)
    assert ranges([u(), a(), u(), system, a("1"), results("1"), a()]) == [(0, 1), (1, 2), (2, 6), (6, 7)]


def test_a_result_in_several_pieces_is_one_result() -> None:
    pieces = message("user", part("tool_result", "1"), part("tool_result", "1", continues=True))
    assert pieces.results == ("1",)
    assert pair_faults([a("1"), pieces], adjacent=True) == []
    assert ranges([a("1"), a("1"), pieces]) == [(0, 1), (1, 3)]


def test_a_message_of_results_only_is_not_typed() -> None:
    picture = message("user", part("tool_result", "1"), part("media", "1"))
    assert [m.typed for m in (u(), results("1"), results("1", text=True), picture, a())] == [
        True,
        False,
        True,
        False,
        False,
    ]
    assert not message("user", part("text"), note=True).typed
    messages = [a(), u(), a("1"), results("1"), a(), u(), a()]
    assert (first_typed(messages), last_typed(messages)) == (1, 5)
    assert turns(messages) == ((1, 5), (5, 7))
    assert turns([a()]) == ()


@pytest.mark.parametrize(
    ("messages", "adjacent", "kinds"),
    [
        ([u(), t("1")], True, ["tool_result"]),
        ([u(), a("1"), u()], True, ["tool_call"]),
        ([u(), a("1")], True, ["tool_call"]),
        ([a("1", "2"), t("1"), u(), t("2")], True, ["tool_call", "tool_result"]),
        ([a("1", "2"), t("1"), u(), t("2")], False, []),
        ([a("1"), t("1"), t("1")], True, ["tool_result"]),
        ([a("1", "2"), results("1"), results("2")], True, ["tool_call", "tool_result"]),
    ],
)
def test_faults_of_pairs_by_position(messages: list[Message], adjacent: bool, kinds: list[str]) -> None:
    assert [f.kind for f in pair_faults(messages, adjacent=adjacent)] == kinds


@given(
    st.lists(st.sampled_from((u(), u(False), a(), a("1"), a("1", "2"), t("1"), t("2"), results("1", "2"))), max_size=12)
)
def test_exchanges_cover_every_message_once(messages: list[Message]) -> None:
    assert [i for e in exchanges(messages) for i in e] == list(range(len(messages)))
    sound = not pair_faults(messages, adjacent=True)
    for group in exchanges(messages):
        rest = [m for i, m in enumerate(messages) if i not in group]
        assert not (sound and pair_faults(rest, adjacent=True))
