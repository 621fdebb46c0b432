"""The deterministic digest: notes that stand in for the parts of a conversation that were cut. No model is used.

Every passage states facts (`passages.extract`). A fact is worth what its tokens are worth by their shape, by who
said them, how often and how late; it is chosen by worth for its cost, and what was said once is worth nothing the
second time. The room that is left goes to whole lines, the newest first.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence

from ctxproxy.strategies.notes import OPENING, Step, fit, step_cost
from ctxproxy.strategies.passages import Fact, Passage, extract, words
from ctxproxy.strategies.shapes import tokens

__all__ = ["Fact", "Passage", "digest", "extract"]

# Found by measuring how many of the facts that real runs went on to use survive; none is sensitive.
_BY_USER, _BY_CALL, _BY_ASSISTANT = 1.2, 1.5, 1.1  # who said a token raises its worth
_REPEATED = 0.5  # exponent: how much a token gains from being said again
_OLD = 0.6  # share of its worth that a token keeps when it was last said at the very beginning
_NAME = 1.2  # of a token's worth when it is noted alone, without its line
_NAMED = 0.3  # of its worth that a line still adds to a token that was noted alone
_MATE = 1.0  # worth of the field beside one that can't be guessed: it says which thing that is
_CALL = 1.5  # worth of a call's first arguments, once its result is noted
_LEAST = 0.05  # worth below which nothing is noted
_STRONG = 1.8  # weight of a token that can't be guessed
_USER, _TOOL_CALL, _ASSISTANT = 1, 2, 4


def digest(
    passages: Sequence[Passage],
    *,
    budget: int,
    count: Callable[[str], int],
    stays: str = "",
    extract: Callable[[Passage], tuple[Fact, ...]] = extract,
) -> str:
    """Notes on `passages`, in conversation order; "" when there is nothing to say.

    `budget` is in tokens by `count`. What stands in `stays`, the text that the prompt keeps, is not noted again.
    `extract` may be a remembering one.
    """
    if budget <= 0 or not passages:
        return ""
    facts = [extract(passage) for passage in passages]
    known = {token for _, _, token, _ in tokens(stays, opening=False)} if stays else set[str]()
    calls = _calls(passages)
    order = _Ranking(facts, _values(passages, facts, known), calls).run(budget * 1.5)
    if not order:
        return ""
    dull = _dull(passages)
    return fit(passages, facts, calls, [*order, *_rest(facts)], budget=budget, count=count, dull=dull)


def _dull(passages: Sequence[Passage]) -> set[str]:
    """Words that stand in more than a fifth of the messages: they do not tell one fact from another."""
    seen: dict[str, int] = {}
    last: dict[str, int] = {}
    for passage in passages:
        for word in {w.lower() for w in words(passage.text)}:
            if last.get(word) != passage.index:
                last[word] = passage.index
                seen[word] = seen.get(word, 0) + 1
    most = max(3, len({p.index for p in passages}) / 5)
    return {word for word, n in seen.items() if n > most}


def _calls(passages: Sequence[Passage]) -> dict[int, int]:
    """For each tool result the place of its call: results come in the order of their calls."""
    found: dict[int, int] = {}
    waiting: list[int] = []
    for at, passage in enumerate(passages):
        if passage.kind == "tool_call":
            waiting.append(at)
        elif passage.kind == "tool_result":
            call = next((c for c in waiting if passage.name is None or passages[c].name == passage.name), None)
            if call is not None:
                found[at] = call
                waiting.remove(call)
    return found


def _values(passages: Sequence[Passage], facts: Sequence[Sequence[Fact]], known: set[str]) -> dict[str, float]:
    """What each token is worth: its shape's weight, raised by who said it, how often and how late."""
    weight: dict[str, float] = {}
    times: dict[str, int] = {}
    last: dict[str, int] = {}
    said_by: dict[str, int] = {}
    for at, group in enumerate(facts):
        passage = passages[at]
        by = _TOOL_CALL if passage.kind == "tool_call" else 0
        if passage.kind == "text":
            by = _USER if passage.role == "user" else _ASSISTANT
        for fact in group:
            for token, worth in zip(fact.tokens, fact.weights, strict=True):
                if worth > weight.get(token, 0.0):
                    weight[token] = worth
                if last.get(token) != at:
                    times[token] = times.get(token, 0) + 1
                    last[token] = at
                    said_by[token] = said_by.get(token, 0) | by
    raised = [
        (_BY_USER if m & _USER else 1.0)
        * (_BY_CALL if m & _TOOL_CALL else 1.0)
        * (_BY_ASSISTANT if m & _ASSISTANT else 1.0)
        for m in range(8)
    ]
    repeated = [n**_REPEATED for n in range(11)]
    total = max(1, len(facts))
    return {
        token: 0.0
        if token in known
        else worth
        * raised[said_by[token]]
        * repeated[min(10, times[token])]
        * (_OLD + (1 - _OLD) * last[token] / total)
        for token, worth in weight.items()
    }


_Entry = tuple[float, int, int, str, float]  # minus worth for cost, passage, fact, token alone, worth beside its tokens


class _Ranking:
    """Chooses facts by what they still add for their cost; a heap whose entries are renewed when they have sunk."""

    def __init__(self, facts: Sequence[Sequence[Fact]], values: Mapping[str, float], calls: Mapping[int, int]) -> None:
        self.facts = facts
        self.values = values
        self.calls = calls
        self.covered: set[str] = set()
        self.named: set[str] = set()
        self.taken: set[tuple[int, int]] = set()
        self.opened: set[int] = set()
        self.heap: list[_Entry] = []

    def run(self, limit: float) -> list[Step]:
        """The steps, best first, until they cost about `limit` tokens."""
        self._fill()
        order: list[Step] = []
        spent = 0.0
        while self.heap and spent < limit:
            _, at, n, name, bonus = heapq.heappop(self.heap)
            step = self._take_name(at, n, name) if name else self._take_fact(at, n, bonus)
            if step is None:
                continue
            order.append(step)
            spent += step_cost(self.facts[at][n], step)
            if at not in self.opened:
                self.opened.add(at)
                spent += OPENING
                self._open_call(at)
        return order

    def _fill(self) -> None:
        place: dict[str, tuple[int, int]] = {}
        for at, group in enumerate(self.facts):
            for n, fact in enumerate(group):
                worth = sum([self.values.get(token, 0.0) for token in fact.tokens])
                if worth > _LEAST and fact.text:
                    self.heap.append((-worth / fact.cost, at, n, "", 0.0))
                if fact.form == "line":
                    for token, weight in zip(fact.tokens, fact.weights, strict=True):
                        if weight >= 0.5 and len(token) < 80 and token != fact.text and not token.isdigit():
                            place[token] = (at, n)
        for token, (at, n) in place.items():
            worth = self.values.get(token)
            if worth:
                price = step_cost(self.facts[at][n], Step(at, n, token))
                self.heap.append((-_NAME * worth / price, at, n, token, 0.0))
        heapq.heapify(self.heap)

    def _take_name(self, at: int, n: int, name: str) -> Step | None:
        if name in self.covered:
            return None
        self.covered.add(name)
        self.named.add(name)
        return Step(at, n, name)

    def _take_fact(self, at: int, n: int, bonus: float) -> Step | None:
        fact = self.facts[at][n]
        if (at, n) in self.taken:
            return None
        worth = bonus + sum([self._left(token) for token in fact.tokens])
        if worth <= _LEAST:
            return None
        now = -worth / fact.cost
        if self.heap and now > self.heap[0][0] + 1e-9:
            heapq.heappush(self.heap, (now, at, n, "", bonus))
            return None
        self.taken.add((at, n))
        strongest = 0.0
        for token, weight in zip(fact.tokens, fact.weights, strict=True):
            self.named.discard(token)
            if token not in self.covered:
                self.covered.add(token)
                strongest = max(strongest, weight)
                # A path covers its own tails: `src/a/b.py` says `b.py` too.
                self.covered.update(token[k + 1 :] for k, char in enumerate(token) if char == "/")
        if fact.form == "field" and strongest >= _STRONG:
            self._push_mate(at, n, fact)
        return Step(at, n)

    def _left(self, token: str) -> float:
        """What a token is still worth, noted or not."""
        if token not in self.covered:
            return self.values.get(token, 0.0)
        return _NAMED * self.values.get(token, 0.0) if token in self.named else 0.0

    def _push_mate(self, at: int, n: int, fact: Fact) -> None:
        """The field after (or before) one that can't be guessed says what that one belongs to."""
        group = self.facts[at]
        for m in (n + 1, n - 1):
            if not 0 <= m < len(group) or (at, m) in self.taken:
                continue
            mate = group[m]
            if mate.form == "field" and mate.group == fact.group and abs(mate.unit - fact.unit) <= (0 if m < n else 1):
                worth = _MATE + sum([self.values.get(t, 0.0) for t in mate.tokens if t not in self.covered])
                heapq.heappush(self.heap, (-worth / mate.cost, at, m, "", _MATE))
                return

    def _open_call(self, at: int) -> None:
        """A result that is noted wants its call's first arguments beside it."""
        call = self.calls.get(at)
        if call is None:
            return
        for m, fact in enumerate(self.facts[call][:3]):
            if (call, m) not in self.taken and fact.text:
                heapq.heappush(self.heap, (-_CALL / fact.cost, call, m, "", _CALL))


def _rest(facts: Sequence[Sequence[Fact]]) -> list[Step]:
    """Whole lines, newest passage first, for the room that the facts leave; what repeats is said once."""
    found: list[Step] = []
    said: set[str] = set()
    for at in range(len(facts) - 1, -1, -1):
        seen: set[int] = set()
        for n, fact in enumerate(facts[at]):
            text = fact.full or fact.text
            if fact.form == "field":
                found.append(Step(at, n))
            elif fact.unit not in seen and text and text not in said:
                seen.add(fact.unit)
                said.add(text)
                found.append(Step(at, n, whole=True))
    return found
