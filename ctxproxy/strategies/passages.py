"""From one passage of a conversation to the facts that it states.

Structured data gives one fact a field; prose gives one a clause, cut around what is worth noting; code, logs
and listings one a line.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from ctxproxy.strategies.shapes import SOLID, clean, cost, tokens

__all__ = ["Fact", "Passage", "extract", "words"]

Kind: TypeAlias = Literal["text", "tool_call", "tool_result", "thinking"]
Form: TypeAlias = Literal["field", "text", "line"]

# Worth of a sentence or line beside its tokens, by what it is.
_USER, _ERROR, _DECIDED, _PLAIN, _DEFINED, _LOUD, _PHRASE = 0.25, 0.12, 0.08, 0.02, 0.08, 0.15, 0.5
_SHORT = 96  # characters: a line up to this length is noted whole
_VALUE = 160  # characters: a longer field is read as text
_COMMAND, _COMMAND_CHARS = 2.5, 120  # an argument that may be used again as it stands
_MOST = 400  # units of one passage that are looked at one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One part of one message, in conversation order. `text` of a tool call is its arguments as JSON text."""

    index: int
    role: str
    kind: Kind
    name: str | None
    text: str
    error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing to note.

    `tokens` is what it tells, with `weights`; `unit` is the row or line it stood in, `full` that line whole;
    `cost` is about what it adds, in tokens.
    """

    text: str
    label: str = ""
    group: str = ""
    unit: int
    form: Form
    tokens: tuple[str, ...]
    weights: tuple[float, ...]
    cost: float
    full: str = ""
    near: tuple[str, ...] = ()


def extract(passage: Passage) -> tuple[Fact, ...]:
    """The facts of one passage, in reading order. Pure: equal passages give equal facts."""
    reader = _Reader(passage)
    text = clean(passage.text)
    if passage.kind in ("tool_call", "tool_result"):
        data = _parse(text)
        if data is not None:
            reader.walk(data, label="", group="")
            return tuple(reader.facts)
    if passage.kind in ("tool_call", "tool_result") or passage.role == "tool":
        reader.lines(text, "")
    else:
        reader.prose(text)
    return tuple(reader.facts)


def _parse(text: str) -> Any:
    body = text.strip()
    if body[:1] not in ("{", "["):
        return None
    try:
        # Numbers stay as they were written: 100.00 is not 100.0 to whoever searches for it.
        return json.loads(body, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None


_WORDS = re.compile(r"[^\W\d]{3,}")
_NUMBERED = re.compile(r"\s*\d+\s*(?:\t|\|\s|→|│)")
_BULLET = re.compile(r"(?:[-*+•·]|\d{1,2}[.)])\s+|#{1,6}\s+|>\s+")
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；।؟])")
_CLAUSE = re.compile(r"(?<=[，、,])|\s+")
_FENCE = "```"
_IS_SOLID = re.compile(f"[{SOLID}]")
_FAULT = re.compile(
    r"error|exception|fail|fatal|denied|cannot|can't|could not|not found|no such|invalid|traceback|panic|refused|timed? ?out"  # noqa: E501
    r"|erreur|échec|fehler|fallo|erro\b|errore|ошибк|не удалось|错误|失败|异常|無効|エラー|失敗|오류|실패|خطأ|فشل|त्रुटि|विफल|ผิดพลาด|ล้มเหลว|hata|lỗi",  # noqa: E501
    re.IGNORECASE,
)
_DECISION = re.compile(
    r"\b(?:decid|instead|because|therefore|must|should|will use|chose|prefer|agreed|confirm|root cause|the (?:issue|problem|bug|fix) is"  # noqa: E501
    r"|fixed|done|completed|need to|won't|do not|don't|never|always|décid|parce que|il faut|entschied|weil|porque|decidi)"  # noqa: E501
    r"|решил|потому что|нужно|决定|改用|因为|必须|需要|確認|決め|なので|결정|때문|قرر|لأن|निर्णय|क्योंकि|ตัดสินใจ|เพราะ",
    re.IGNORECASE,
)
_SIGNATURE = re.compile(
    r"(?:(?:export|public|private|protected|static|async|abstract|final|pub|default|override)\s+)*"
    r"(?:def|class|func|function|fn|interface|struct|enum|trait|impl|type|module|package)\s+\w"
)
_IDENTITY = re.compile(
    r"(?:^|_|\b)(?:id|ids|number|no|code|key|name|email|phone|path|file|url|ref|uuid|sku)$|(?:Id|Key|Name|Path|Url|Number|Code)$"
)


class _Reader:
    """Gathers the facts of one passage; lives for one call of `extract`."""

    def __init__(self, passage: Passage) -> None:
        self.facts: list[Fact] = []
        self.unit = 0
        self.seen: set[str] = set()
        self.recent: tuple[tuple[str, ...], ...] = ()  # words of the two values before
        self.user = passage.role == "user" and passage.kind == "text"
        self.call = passage.kind == "tool_call"
        self.error = passage.error
        factor = 0.6 if passage.kind == "thinking" else 1.0
        self.factor = factor

    def add(
        self,
        text: str,
        found: list[tuple[str, float]],
        *,
        label: str = "",
        group: str = "",
        form: Form,
        full: str = "",
        near: tuple[str, ...] = (),
    ) -> None:
        weights: dict[str, float] = {}
        for token, weight in found:
            weights[token] = max(weight * self.factor, weights.get(token, 0.0))
        self.facts.append(
            Fact(
                text=text,
                label=label,
                group=group,
                unit=self.unit,
                form=form,
                tokens=tuple(weights),
                weights=tuple(weights.values()),
                cost=cost(text) + (cost(label) if label else 0.0) + 0.7,
                full=full,
                near=near,
            )
        )

    # -- structured data

    def walk(self, value: Any, *, label: str, group: str, depth: int = 0) -> None:
        if depth > 12:
            return
        if isinstance(value, dict):
            self.recent = ()
            for name, item in cast("dict[str, Any]", value).items():
                if isinstance(item, (dict, list)):
                    if not item:
                        continue
                    strong = [(t, w) for _, _, t, w in tokens(name, opening=False) if w >= 2.0]
                    if strong and isinstance(item, dict):
                        self.unit += 1
                        self.add(name, strong, group=group, form="field")
                        self.walk(item, label="", group=group, depth=depth + 1)
                    else:
                        self.unit += 1
                        self.walk(item, label=name, group=name, depth=depth + 1)
                else:
                    self.leaf(item, label=name, group=group)
            self.recent = ()
            return
        if isinstance(value, list):
            for item in cast("list[Any]", value):
                if isinstance(item, (dict, list)):
                    self.unit += 1
                    self.walk(item, label="", group=group, depth=depth + 1)
                else:
                    self.leaf(item, label="" if group else label, group=group)
            return
        self.leaf(value, label=label, group=group)

    def leaf(self, value: Any, *, label: str, group: str) -> None:
        if value is None or value == "":
            return
        if isinstance(value, bool):
            self.add("yes" if value else "no", [(f"{label}={value}", 0.25)], label=label, group=group, form="field")
            return
        text = str(value).strip()
        if not text:
            return
        if "\n" in text or len(text) > _VALUE:
            inner = _parse(text)
            if inner is not None:
                self.walk(inner, label=label, group=group or label, depth=6)
            elif "\n" in text:
                self.lines(text, label or group)
            else:
                self.unit += 1
                self.pieces(text, group=label or group, form="text", base=0.0)
            return
        found = [(t, w) for _, _, t, w in tokens(text, opening=False)]
        factor = 1.2 if _IDENTITY.search(label) else 1.0
        if len(text) <= 4 and text.isdigit():
            found = [(f"{label}={text}", 0.4)]
        elif not found or found[0][0] != text:
            found.append((text, self.whole(text)))
        found = [(t, w * factor) for t, w in found]
        self.add(text, found, label=label, group=group, form="field", near=sum(self.recent, ()))
        self.recent = (*self.recent[-1:], tuple(words(text)[-4:]))

    def whole(self, text: str) -> float:
        if self.call and len(text) <= _COMMAND_CHARS:
            return _COMMAND
        if _IS_SOLID.search(text):
            return 1.0 if len(text) <= 24 else 0.6
        return _PHRASE if " " in text else 0.4

    # -- text

    def prose(self, text: str) -> None:
        code: list[str] | None = None
        group = ""
        rows = text.rstrip().split("\n")
        last = rows[-1]
        for raw in rows:
            line = raw.strip()
            if line.startswith(_FENCE):
                if code:
                    self.lines("\n".join(code), group)
                code = [] if code is None else None
                continue
            if code is not None:
                code.append(raw)
                continue
            if not line:
                continue
            bullet = _BULLET.match(line)
            line = (line[bullet.end() :] if bullet else line).replace("**", "").replace("`", "").strip()
            if not line:
                continue
            if raw is not last and (line.endswith((":", "：")) or raw.lstrip().startswith("#")) and len(line) <= 48:
                group = line.rstrip(":：")
                self.unit += 1
                found = [(t, w) for _, _, t, w in tokens(line)]
                if found:
                    self.add(line, found, form="text")
                continue
            for sentence in _SENTENCE.split(line) if len(line) > 60 or _IS_SOLID.search(line) else [line]:
                sentence = sentence.strip()
                if sentence:
                    self.unit += 1
                    self.pieces(sentence, group="", form="text", base=self.base(sentence))
        if code:
            self.lines("\n".join(code), group)

    def base(self, sentence: str) -> float:
        """What a sentence is worth apart from the tokens in it, per estimated token."""
        if self.user:
            return _USER
        if self.error or _FAULT.search(sentence):
            return _ERROR
        return _DECIDED if _DECISION.search(sentence) else _PLAIN

    def lines(self, text: str, group: str) -> None:
        rows = text.split("\n")
        if len(rows) > _MOST * 4:
            # A dump: its ends say most; the middle is sampled.
            step = len(rows) // (_MOST * 2) + 1
            rows = rows[:_MOST] + rows[_MOST:-_MOST:step] + rows[-_MOST:]
        for raw in rows:
            numbered = _NUMBERED.match(raw)
            line = (raw[numbered.end() :] if numbered else raw).strip()
            if len(line) < 2 or line in self.seen or not any(map(str.isalnum, line)):
                continue
            self.seen.add(line)
            self.unit += 1
            base = _PLAIN
            if self.error or _FAULT.search(line):
                base = _LOUD
            elif _SIGNATURE.match(line):
                base = _DEFINED
            if len(line) > 600:
                for sentence in _SENTENCE.split(line):
                    self.unit += 1
                    self.pieces(sentence, group=group, form="line", base=base)
            else:
                self.pieces(line, group=group, form="line", base=base)

    def pieces(self, text: str, *, group: str, form: Form, base: float) -> None:
        """One unit of text as facts: whole if short, else the stretches around what is worth noting."""
        found = tokens(text)
        whole = cost(text)
        if len(text) <= _SHORT:
            self.add(text, [*((t, w) for _, _, t, w in found), (text, base * whole)], group=group, form=form)
            return
        spans: list[list[Any]] = []
        for start, end, token, weight in found:
            if weight < 0.5:
                continue
            low, high = _left(text, start), _right(text, end)
            if spans and low <= spans[-1][1] + 8:
                spans[-1][1] = max(high, spans[-1][1])
                spans[-1][2].append((token, weight))
            else:
                spans.append([low, high, [(token, weight)]])
        full = text if len(text) <= 600 else text[:600] + "…"
        if not spans:
            self.add(full, [(full, base * whole)], group=group, form=form)
            return
        for low, high, inner in spans:
            piece = text[low:high].strip()
            self.add(piece, [*inner, (piece, base * cost(piece))], group=group, form=form, full=full)


def words(text: str) -> list[str]:
    """The words of a text that can say what something is."""
    return _WORDS.findall(text)


def _left(text: str, at: int, reach: int = 30) -> int:
    low = max(0, at - reach)
    if low == 0:
        return 0
    cut = text.find(" ", low, at)
    return cut + 1 if cut >= 0 else at if at - low > 24 and " " in text[max(0, low - 40) : low] else low


def _right(text: str, at: int, reach: int = 18) -> int:
    high = min(len(text), at + reach)
    if high == len(text):
        return high
    cut = text.rfind(" ", at, high)
    return cut if cut >= at else at
