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
LAB = float(os.environ.get("LAB", 1.0))
LAM = float(os.environ.get("LAM", 0.4))
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
    values = _values(passages, facts, known)
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


_ROLE = {"user": 1, "tool_call": 2, "assistant": 4}
DF = float(os.environ.get("DF", 0.5))
REC = float(os.environ.get("REC", 0.6))
FU, FC, FA = (float(x) for x in os.environ.get("ROLES", "1.8,2.2,1.4").split(","))


def _values(passages, facts, known):
    weight: dict[str, float] = {}
    times: dict[str, int] = {}
    last: dict[str, int] = {}
    mask: dict[str, int] = {}
    for at, group in enumerate(facts):
        p = passages[at]
        bit = 2 if p.kind == "tool_call" else 0 if p.kind != "text" else 1 if p.role == "user" else 4
        for fact in group:
            for token, w in zip(fact.tokens, fact.weights):
                if w > weight.get(token, 0.0):
                    weight[token] = w
                if last.get(token) != at:
                    times[token] = times.get(token, 0) + 1
                    last[token] = at
                    mask[token] = mask.get(token, 0) | bit
    n = max(1, len(facts))
    factor = [(FU if m & 1 else 1.0) * (FC if m & 2 else 1.0) * (FA if m & 4 else 1.0) for m in range(8)]
    power = [k**DF for k in range(n + 1)]
    return {
        t: 0.0 if t in known else w * factor[mask[t]] * power[min(10, times[t])] * (REC + (1 - REC) * last[t] / n)
        for t, w in weight.items()
    }


def _rank(facts, values, calls, limit):
    heap = []
    place: dict[str, tuple[int, int]] = {}
    for at, group in enumerate(facts):
        for n, fact in enumerate(group):
            gain = LAB * sum([values.get(t, 0.0) for t in fact.tokens])
            if gain > 0.05 and fact.text:
                heap.append((-gain / fact.cost, at, n, "", 0.0))
            if fact.form == "line":
                for t, w in zip(fact.tokens, fact.weights):
                    if w >= 0.5 and len(t) < 80 and t != fact.text and not t.isdigit():
                        place[t] = (at, n)
    for t, (at, n) in place.items():
        v = values.get(t)
        if v:
            heap.append((-NAME * v / (cost(_snip(facts[at][n].text, t)) + 0.8), at, n, t, 0.0))
    heapq.heapify(heap)
    order = []
    spent = 0.0
    covered = set()
    named = set()
    taken = set()
    opened = set()
    while heap and spent < limit:
        ratio, at, n, name, bonus = heapq.heappop(heap)
        fact = facts[at][n]
        if name:
            if name in covered:
                continue
            covered.add(name)
            named.add(name)
            order.append(Step(at, n, name))
            spent += cost(_snip(fact.text, name)) + 0.8
        else:
            if (at, n) in taken:
                continue
            gain = bonus + sum(
                [
                    LAB * values.get(t, 0.0) if t not in covered else LAM * values.get(t, 0.0) if t in named else 0.0
                    for t in fact.tokens
                ]
            )
            now = -gain / fact.cost
            if gain <= 0.05:
                continue
            if heap and now > heap[0][0] + 1e-9:
                heapq.heappush(heap, (now, at, n, "", bonus))
                continue
            taken.add((at, n))
            new = 0.0
            for t, w in zip(fact.tokens, fact.weights):
                named.discard(t)
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
                    if (
                        0 <= m < len(group)
                        and (at, m) not in taken
                        and group[m].form == "field"
                        and group[m].group == fact.group
                        and abs(group[m].unit - fact.unit) <= (0 if m < n else 1)
                    ):
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


SN = int(os.environ.get("SN", 1))
import re
_B = re.compile(r"(\w{2,20})\W{1,6}$")
_A = re.compile(r"\W{1,6}(\w{2,20})")
def _snip(line, t):
    if not SN: return t
    i = line.find(t)
    if i < 0: return t
    b = _B.search(line[max(0,i-24):i]) if SN & 1 else None
    a = _A.match(line[i+len(t):i+len(t)+24]) if SN & 2 else None
    lo = b.start() + max(0,i-24) if b else i
    hi = a.end() + i + len(t) if a else i + len(t)
    return line[lo:hi]


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
        c = cost(_snip(fact.text, name)) + 0.8 if name else cost(fact.full) if whole and fact.full else fact.cost
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
        if whole and fact.form != "field":
            done[fact.unit] = n
    texts = " ".join([group[n].full or group[n].text if picked[n][1] else group[n].text for n in picked if picked[n][0] or picked[n][1]])

    def flush():
        if names:
            out.append(("\n  " if out or len(picked) > 1 else "") + ", ".join(names))
            names.clear()

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
            names += [_snip(fact.text, t) for t in sorted(extra, key=fact.text.find) if t not in texts]
            continue
        if names:
            flush()
            last = fact if last is None else last
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
    flush()
    return "".join(out)
