"""From chosen facts to notes that a model and a person can read: one line for a message or a call with its result."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from ctxproxy.strategies.passages import Fact, Passage, words
from ctxproxy.strategies.shapes import cost

__all__ = ["OPENING", "Step", "fit", "snip", "step_cost"]

OPENING = 3.0  # tokens that a line costs before it says anything
_PURPOSE = 100  # characters
_BEFORE = re.compile(r"(\w{2,20})\W{1,6}$")


class Step(NamedTuple):
    """One choice: fact number `fact` of passage `at`; with `name` that token alone, with `whole` its whole line."""

    at: int
    fact: int
    name: str = ""
    whole: bool = False


@dataclass(slots=True)
class _Choice:
    """What was chosen of one fact."""

    text: bool = False
    whole: bool = False
    names: list[str] = field(default_factory=list[str])


def snip(line: str, token: str, dull: Set[str] = frozenset()) -> str:
    """A token with the word before it, which says what it is; a word that stands everywhere says nothing."""
    at = line.find(token)
    if at < 0:
        return token
    before = _BEFORE.search(line[max(0, at - 24) : at])
    start = before.start() + max(0, at - 24) if before else at
    if before and before[1].lower() not in dull and not before[1].isdigit():
        return line[start : at + len(token)]
    for word in reversed(words(line[max(0, at - 40) : at])):
        if word.lower() not in dull:
            return f"{word} {token}"
    for word in words(line[at + len(token) : at + len(token) + 24]):
        if word.lower() not in dull:
            return f"{token} {word}"
    return line[start : at + len(token)]


def step_cost(fact: Fact, step: Step) -> float:
    """About how many tokens a step adds."""
    if step.name:
        return cost(snip(fact.text, step.name)) + 0.8
    return cost(fact.full) if step.whole and fact.full else fact.cost


def fit(
    passages: Sequence[Passage],
    facts: Sequence[Sequence[Fact]],
    calls: Mapping[int, int],
    order: Sequence[Step],
    *,
    budget: int,
    count: Callable[[str], int],
    dull: Set[str] = frozenset(),
) -> str:
    """The notes of as many steps, in order, as `budget` tokens hold by `count`."""
    totals: list[float] = []
    total, opened = 0.0, set[int]()
    for step in order:
        total += step_cost(facts[step.at][step.fact], step) + (0 if step.at in opened else OPENING)
        opened.add(step.at)
        totals.append(total)
    low, high, best = 0, len(order), ""
    taken = bisect_right(totals, budget)
    for _ in range(8):
        taken = max(low, min(taken, high))
        text = _render(passages, facts, calls, order[:taken], dull)
        size = count(text)
        if size <= budget:
            low, best = taken, text
            if taken >= high or size >= budget * 0.985:
                break
        else:
            high = taken - 1
            if high <= low:
                break
        scale = size / max(1.0, totals[taken - 1]) if taken else 1.0
        wanted = bisect_right(totals, budget / scale * 0.997)
        taken = wanted if low < wanted <= high else (low + high + 1) // 2
    return best


def _render(
    passages: Sequence[Passage],
    facts: Sequence[Sequence[Fact]],
    calls: Mapping[int, int],
    chosen: Sequence[Step],
    dull: Set[str],
) -> str:
    picked: dict[int, dict[int, _Choice]] = {}
    for step in chosen:
        choice = picked.setdefault(step.at, {}).setdefault(step.fact, _Choice())
        if step.name:
            choice.names.append(step.name)
        elif step.whole:
            choice.whole = True
        else:
            choice.text = True
    lines: dict[int, str] = {}
    for at in sorted(picked):
        passage, body = passages[at], _body(facts[at], picked[at], dull)
        call = calls.get(at)
        if passage.kind == "tool_call":
            lines[at] = f"{_purpose(passages, at, lines)}{passage.name or 'tool'}({body})"
        elif passage.kind != "tool_result":
            lines[at] = f"{passage.role}: {body}"
        elif call is None:
            lines[at] = f"{passage.name or 'tool'} → {body}"
        else:
            lines[call] = f"{lines.get(call) or passage.name or 'tool'} → {body}"
    return "\n".join(lines[at] for at in sorted(lines))


def _purpose(passages: Sequence[Passage], at: int, lines: Mapping[int, str]) -> str:
    """The sentence with which the model announced a call: it says what the call was for."""
    before = passages[at - 1] if at else None
    if before is None or before.index != passages[at].index or before.kind != "text":
        return ""
    text = before.text.rstrip()[-_PURPOSE:]
    start = max(text.rfind(mark) for mark in (". ", "! ", "? ", "\n", "。"))
    sentence = text[start + 1 :].strip() if start >= 0 else text if len(before.text.strip()) <= _PURPOSE else ""
    return f"{sentence} " if sentence and sentence not in lines.get(at - 1, "") else ""


def _body(facts: Sequence[Fact], picked: Mapping[int, _Choice], dull: Set[str]) -> str:
    """The chosen facts of one passage as running text."""
    whole = {facts[n].unit: n for n in sorted(picked) if picked[n].whole and facts[n].form != "field"}
    said = " ".join(
        facts[n].full or facts[n].text if choice.whole else facts[n].text
        for n, choice in picked.items()
        if choice.text or choice.whole
    )
    out: list[str] = []
    names: list[str] = []
    shown: set[str] = set()
    last: Fact | None = None
    many = len(picked) > 1
    for n in sorted(picked):
        fact, choice = facts[n], picked[n]
        if fact.unit in whole and fact.form != "field":
            if whole[fact.unit] != n:
                continue
            text = fact.full or fact.text
        elif choice.text or choice.whole:
            text = fact.text
        else:
            names += [snip(fact.text, t, dull) for t in sorted(choice.names, key=fact.text.find) if t not in said]
            continue
        if names:
            out.append(_named(names, first=not out, many=many))
            names = []
            last = last or fact
        if fact.group and (last is None or fact.group != last.group):
            shown = set()
        head = _heading(fact, last, shown)
        if fact.form == "field":
            about = _about(fact, "".join(out[-3:])[-48:] + head, dull)
            group = f"{fact.group}: "
            head = group + about + head[len(group) :] if fact.group and head.startswith(group) else about + head
        out.append(_separator(fact, last, out, many) + head + text)
        last = fact
    if names:
        out.append(_named(names, first=not out, many=many))
    return "".join(out)


def _named(names: Sequence[str], *, first: bool, many: bool) -> str:
    return ("\n  " if not first or many else "") + ", ".join(names)


def _separator(fact: Fact, last: Fact | None, out: Sequence[str], many: bool) -> str:
    if last is None:
        return "\n  " if fact.form == "line" and many else ""
    if fact.form == "field":
        return ", " if fact.unit == last.unit and fact.group == last.group else "; "
    if fact.unit == last.unit:
        return " … "
    if fact.form == "line":
        return "\n  "
    return " " if out and out[-1][-1:] in ".!?。！？" else "; "


def _about(fact: Fact, before: str, dull: Set[str]) -> str:
    """What a value belongs to, where neither its label nor what stands before it says so."""
    telling = [word for word in fact.near if word.lower() not in dull]
    if not telling:
        return ""
    said = {word.lower() for word in words(before)}
    label = [word.lower() for word in words(fact.label)]
    if said.intersection(label).difference(dull) or any(word.lower() in said for word in telling):
        return ""
    return f"{telling[-1]} "


def _heading(fact: Fact, last: Fact | None, shown: set[str]) -> str:
    """The group where it changes, and the label unless it was just said; `shown` collects what was."""
    head = f"{fact.group}: " if fact.group and (last is None or fact.group != last.group) else ""
    number = fact.text.replace(".", "").isdigit()
    if fact.label and fact.label != fact.group and (fact.label not in shown or number):
        head += f"{fact.label} "
        shown.add(fact.label)
    return head
