"""handed: a plan or warmth as it stands in a prompt, a text made shorter by its compressor.

Warmth keeps its own spelling: whole items go, the others stay as they were written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from ctxproxy.strategies.plan import compress_plan, sections
from ctxproxy.strategies.warmth import compress_warmth

__all__ = ["shorter_plan", "shorter_warmth"]

_LEAD = re.compile(r"\A(?:[ \t]*\r?\n)*")
_FENCE = re.compile(r"(```[^\n]*\n)(.*?)(\n[ \t]*```[ \t]*)", re.DOTALL)
_NOTICE = re.compile(r"^(?:# )?\[shortened from [\d,]+ tokens\.[^\n]*\](?:\n|\Z)", re.MULTILINE)
_KEY = re.compile(r"""("[^"\n]*"|'[^'\n]*'|[^\s:#\[\]{}&*!|>%@`"'-][^:\n]*?)\s*:(?:\s|\Z)""")
_ANCHOR = re.compile(r"(?:^|[:-])[ \t]+[&*]\w", re.MULTILINE)
_TRIES = 6


def shorter_plan(text: str, target: int, *, keep: int, place: str, count: Callable[[str], int]) -> str | None:
    """A plan in Markdown within `target` tokens, as far as `compress_plan` gets there.

    Its first `keep` code points stay; `place` are words on where the whole can be got. None where it has neither
    headings nor front matter.
    """
    lead, body, tail = _framed(text)
    if not any(part.level or part.title for part in sections(body)):
        return None
    notice = _notice(text, place, count)
    body = _NOTICE.sub("", body)
    room = target - count(notice)
    short = compress_plan(body, room, count=count)
    if not (lead + short)[:keep].startswith(text[:keep]):
        # To the end of a line, and of the front matter, which is none without its end.
        front = next((len(part.text) for part in sections(body)[:1] if part.title == "frontmatter"), 0)
        at = max(body.find("\n", max(0, keep - len(lead))) + 1, front) or len(body)
        short = body[:at] + compress_plan(body[at:], room - count(body[:at]), count=count)
    return lead + _noticed(short, notice, target, count) + tail


def shorter_warmth(text: str, target: int, *, keep: int, place: str, count: Callable[[str], int]) -> str | None:
    """Warmth in JSON or YAML within `target` tokens, as far as `compress_warmth` gets there.

    None where it can't be read, or where the first `keep` code points would not stay.
    """
    lead, body, tail = _framed(text)
    fence = _FENCE.fullmatch(body)
    if fence:
        lead, body, tail = lead + fence[1], fence[2], fence[3] + tail
    short = _json(body, target, count) if body.startswith(("{", "[")) else _yaml(body, target, place, count)
    if short is None:
        return None
    short = lead + short + tail
    return short if short.startswith(text[:keep]) else None


def _framed(text: str) -> tuple[str, str, str]:
    """Blank lines before a text, the text, and white space behind it."""
    lead = _LEAD.match(text)
    at = lead.end() if lead else 0
    stop = max(at, len(text.rstrip()))
    return text[:at], text[at:stop], text[stop:]


def _notice(text: str, place: str, count: Callable[[str], int]) -> str:
    return f"[shortened from {count(text):,} tokens.{place.replace(chr(10), ' ')}]"


def _noticed(short: str, notice: str, target: int, count: Callable[[str], int]) -> str:
    """A text with its notice, unless only that takes it over the target."""
    short = short.rstrip()
    if not short:
        return notice
    noticed = f"{short}\n{notice}"
    return short if count(short) <= target < count(noticed) else noticed


def _json(text: str, target: int, count: Callable[[str], int]) -> str | None:
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    warmth, aim, short = cast("dict[str, Any]", value), target, text
    indent = 2 if "\n" in text else None
    for n in range(_TRIES):
        try:
            short = json.dumps(
                compress_warmth(warmth, aim, count=count), ensure_ascii=False, allow_nan=False, indent=indent
            )
        except (ValueError, RecursionError):  # a number out of range, which Python reads and JSON has not
            return None
        over = count(short) - target
        if over <= 0 or aim <= 0:
            break
        aim = aim - over if n < _TRIES - 2 else 0
    return short


@dataclass(frozen=True, slots=True)
class _Block:
    """A member of the top level: its first line with comments before it, and its items; `value` where it has none."""

    name: str
    head: str
    items: tuple[str, ...]
    value: str = ""


def _yaml(text: str, target: int, place: str, count: Callable[[str], int]) -> str | None:
    blocks = _blocks(_NOTICE.sub("", text))
    if blocks is None:
        return None
    notice = "# " + _notice(text, place, count)
    room = target - count(notice)
    warmth: dict[str, Any] = {
        block.name: [_bare(item) for item in block.items] if block.items else block.value for block in blocks
    }
    aim, short = room, text
    for n in range(_TRIES):
        found = compress_warmth(warmth, aim, count=count)
        short = "".join(_written(block, found[block.name]) for block in blocks if block.name in found)
        over = count(short) - room
        if over <= 0 or aim <= 0:
            break
        aim = aim - over if n < _TRIES - 2 else 0
    return _noticed(short, notice, target, count)


def _written(block: _Block, found: Any) -> str:
    return block.head + ("".join(block.items[: len(found)]) if block.items else block.value)


def _bare(item: str) -> str:
    """An item without its dash: as `compress_warmth` counts it."""
    return item.strip().removeprefix("-").strip()


def _blocks(text: str) -> list[_Block] | None:
    """The members of a YAML mapping in block style, without reading their values; None where it is none.

    Not a YAML reader, which a strategy can't have: it finds where items begin, and that is all that a cut needs.
    """
    if "\t" in text or _ANCHOR.search(text):
        return None
    lines = (text + "\n").split("\n")[:-1]
    lines = [line + "\n" for line in lines]
    base = min((_indent(line) for line in lines if line.strip()), default=0)
    before, found, rest = "", list[_Block](), list[str]()
    name = head = ""

    def close() -> None:
        items = _items(rest) if head.split("#")[0].rstrip().endswith(":") else None
        found.append(_Block(name, head, tuple(items or ()), "" if items else "".join(rest)))

    for line in lines:
        flush = _indent(line) == base and line.strip()
        if flush and (line[base:].startswith("#") or line.strip() == "---"):
            before += line
            continue
        if not flush or (name and re.match(r"-(\s|$)", line[base:])):
            if not name and line.strip():
                return None
            if name:
                rest.append(before + line)
            before = "" if name else before + line
            continue
        key = _KEY.match(line[base:])
        if key is None:
            return None
        if name:
            close()
        name, head, before = key[1], before + line, ""
        rest = []
    if not name:
        return None
    close()
    return found if len({block.name for block in found}) == len(found) else None


def _items(lines: list[str]) -> list[str] | None:
    """The items of a list or a mapping; None where its lines are something else."""
    full = [line for line in lines if line.strip()]
    if not full:
        return None
    base = min(map(_indent, full))
    dashed = bool(re.match(r"-(\s|$)", full[0][base:]))
    found: list[str] = []
    for line in lines:
        begins = line.strip() and _indent(line) == base and not line[base:].startswith("#")
        if begins and bool(re.match(r"-(\s|$)", line[base:])) is not dashed:
            return None
        if begins and not dashed and not _KEY.match(line[base:]):
            return None
        if begins:
            found.append(line)
        elif found:
            found[-1] += line
        elif line.strip():
            return None
        else:
            found.append(line)
    return found


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
