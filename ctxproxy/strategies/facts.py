"""The deterministic digest: notes that stand in for the parts of a conversation that were cut. No model is used."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ctxproxy.strategies.passages import Fact, Passage, extract
from ctxproxy.strategies.shapes import cost, tokens

__all__ = ["Fact", "Passage", "digest", "extract"]

import os
NAME = float(os.environ.get("NAME", 0.45))
MATE = float(os.environ.get("MATE", 1.0))
HEAD = float(os.environ.get("HEAD", 1.5))


class Step(NamedTuple):
    at: int
    fact: int
    name: str = ""
    whole: bool = False


def digest(
    passages: Sequence[Passage],
    *,
    budget: int,
    count: Callable[[str], int],
    stays: str = "",
    extract: Callable[[Passage], tuple[Fact, ...]] = extract,
) -> str:
    """Notes on `passages` of at most `budget` tokens by `count`, in conversation order; "" when there is nothing to say."""
    if budget <= 0 or not passages:
        return ""
    facts = [extract(p) for p in passages]
    known = {t for _, _, t, _ in tokens(stays, opening=False)} if stays else set()
    values = _values(facts, known)
    calls = _calls(passages)
    order = _rank(facts, values, calls, budget * 1.5)
    if not order:
        return ""
    order += _rest(facts)
    return _fit(passages, facts, calls, order, budget, count)


def _calls(passages):
    """For each tool result the place of its call: results come in the order of their calls."""
    out: dict[int, int] = {}
    open_calls: list[int] = []
    for at, p in enumerate(passages):
        if p.kind == "tool_call":
            open_calls.append(at)
        elif p.kind == "tool_result":
            for c in open_calls:
                if p.name is None or passages[c].name == p.name:
                    out[at] = c
                    open_calls.remove(c)
                    break
    return out


def _values(facts, known):
    weight: dict[str, float] = {}
    times: dict[str, int] = {}
    last: dict[str, int] = {}
    for at, group in enumerate(facts):
        for fact in group:
            for token, w in zip(fact.tokens, fact.weights):
                if w > weight.get(token, 0.0):
                    weight[token] = w
                if last.get(token) != at:
                    times[token] = times.get(token, 0) + 1
                    last[token] = at
    n = max(1, len(facts))
    return {
        t: 0.0 if t in known else w * (1 + 0.3 * math.log2(times[t])) * (0.8 + 0.4 * last[t] / n) for t, w in weight.items()
    }


def _rank(facts, values, calls, limit):
    heap = []
    place: dict[str, tuple[int, int]] = {}
    for at, group in enumerate(facts):
        for n, fact in enumerate(group):
            gain = sum([values.get(t, 0.0) for t in fact.tokens])
            if gain > 0.05 and fact.text:
                heap.append((-gain / fact.cost, at, n, "", 0.0))
            if fact.form == "line":
                for t, w in zip(fact.tokens, fact.weights):
                    if w >= 0.8 and len(t) < 80 and t != fact.text and not t.isdigit():
                        place[t] = (at, n)
    for t, (at, n) in place.items():
        v = values.get(t)
        if v:
            heap.append((-NAME * v / (cost(t) + 0.8), at, n, t, 0.0))
    heapq.heapify(heap)
    order = []
    spent = 0.0
    covered = set()
    taken = set()
    opened = set()
    while heap and spent < limit:
        ratio, at, n, name, bonus = heapq.heappop(heap)
        fact = facts[at][n]
        if name:
            if name in covered:
                continue
            covered.add(name)
            order.append(Step(at, n, name))
            spent += cost(name) + 0.8
        else:
            if (at, n) in taken:
                continue
            gain = bonus + sum([values.get(t, 0.0) for t in fact.tokens if t not in covered])
            now = -gain / fact.cost
            if gain <= 0.05:
                continue
            if heap and now > heap[0][0] + 1e-9:
                heapq.heappush(heap, (now, at, n, "", bonus))
                continue
            taken.add((at, n))
            new = 0.0
            for t, w in zip(fact.tokens, fact.weights):
                if t not in covered:
                    covered.add(t)
                    if w > new:
                        new = w
                    if "/" in t:
                        for k in range(len(t)):
                            if t[k] == "/":
                                covered.add(t[k + 1 :])
            order.append(Step(at, n))
            spent += fact.cost
            if fact.form == "field" and new >= 1.8 and MATE:
                group = facts[at]
                for m in (n + 1, n - 1):
                    if 0 <= m < len(group) and (at, m) not in taken and group[m].form == "field" and group[m].group == fact.group and abs(group[m].unit-fact.unit) <= (0 if m<n else 1):
                        mate = group[m]
                        g = MATE + sum([values.get(t, 0.0) for t in mate.tokens if t not in covered])
                        heapq.heappush(heap, (-g / mate.cost, at, m, "", MATE))
                        break
        if at not in opened:
            opened.add(at)
            spent += 3
            c = calls.get(at)
            if c is not None and HEAD:
                for m, mate in enumerate(facts[c][:3]):
                    if (c, m) not in taken and mate.text:
                        heapq.heappush(heap, (-HEAD / mate.cost, c, m, "", HEAD))
    return order


def _rest(facts):
    """Whole lines, newest passage first, for the room that the facts leave."""
    out = []
    for at in range(len(facts) - 1, -1, -1):
        seen = set()
        for n, fact in enumerate(facts[at]):
            if fact.form == "field":
                out.append(Step(at, n))
            elif fact.unit not in seen and (fact.full or fact.text):
                seen.add(fact.unit)
                out.append(Step(at, n, "", True))
    return out


def _fit(passages, facts, calls, order, budget, count):
    steps = []
    total = 0.0
    opened = set()
    for at, n, name, whole in order:
        fact = facts[at][n]
        c = cost(name) + 0.8 if name else cost(fact.full) if whole and fact.full else fact.cost
        if at not in opened:
            opened.add(at)
            c += 3
        total += c
        steps.append(total)
    low, high = 0, len(order)
    best = ""
    k = bisect_right(steps, budget)
    for _ in range(8):
        k = max(low, min(k, high))
        text = _render(passages, facts, calls, order[:k])
        size = count(text)
        if size <= budget:
            low = k
            best = text
            if k >= high or size >= budget * 0.985:
                break
        else:
            high = k - 1
            if high <= low:
                break
        scale = size / max(1.0, steps[k - 1]) if k else 1.0
        want = bisect_right(steps, budget / scale * 0.997)
        k = want if low < want <= high else (low + high + 1) // 2
    return best


def _render(passages, facts, calls, chosen):
    picked: dict[int, dict[int, list]] = {}
    for at, n, name, whole in chosen:
        slot = picked.setdefault(at, {}).setdefault(n, [False, False, []])
        if name:
            slot[2].append(name)
        elif whole:
            slot[1] = True
        else:
            slot[0] = True
    lines: dict[int, str] = {}
    for at in sorted(picked):
        p = passages[at]
        body = _body(facts[at], picked[at])
        if p.kind == "tool_call":
            lines[at] = f"{p.name or 'tool'}({body})"
        elif p.kind == "tool_result":
            c = calls.get(at)
            if c is None:
                lines[at] = f"{p.name or 'tool'} → {body}"
            else:
                lines[c] = f"{lines.get(c) or p.name or 'tool'} → {body}"
        else:
            lines[at] = f"{p.role}: {body}"
    return "\n".join(lines[at] for at in sorted(lines))


def _body(group, picked):
    out = []
    last = None
    shown = set()
    names = []
    done = {}
    for n in sorted(picked):
        fact = group[n]
        one, whole, extra = picked[n]
        names += extra
        if whole and fact.form != "field":
            done[fact.unit] = n
    for n in sorted(picked):
        fact = group[n]
        one, whole, extra = picked[n]
        if fact.unit in done and fact.form != "field":
            if done[fact.unit] != n:
                continue
            text = fact.full or fact.text
        elif one:
            text = fact.text
        else:
            continue
        if last is None:
            sep = ""
        elif fact.form == "field":
            sep = ", " if fact.unit == last.unit and fact.group == last.group else "; "
        elif fact.unit == last.unit:
            sep = " … "
        else:
            sep = "\n  " if fact.form == "line" else " " if out[-1][-1:] in ".!?。！？" else "; "
        if fact.form == "line" and last is None and len(picked) > 1:
            sep = "\n  "
        head = ""
        if fact.group and (last is None or fact.group != last.group):
            head = fact.group + ": "
            shown = set()
        if fact.label and fact.label != fact.group and not (fact.label in shown and not fact.text.replace(".", "").isdigit()):
            head += fact.label + " "
            shown.add(fact.label)
        out.append(sep + head + text)
        last = fact
    text = "".join(out)
    if names:
        text += ("\n  " if text else "") + "names: " + ", ".join(names)
    return text
