"""plan: compress an execution plan, a Markdown text with front matter.

Always kept: front matter, objective, must-haves, dependencies, and of each thread its name and verification.
Context is kept where brief; implementation notes, rationale and examples go, the largest first.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ctxproxy.tokens import estimate_tokens

__all__ = ["Section", "compress_plan", "sections"]

_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*\s*$")
_FENCE = re.compile(r"^\s*(```|~~~)")
_ALWAYS = re.compile(r"objective|goal|must[\s_-]*haves?|depend|verif|acceptance|success criteria", re.IGNORECASE)
_THREADS = re.compile(r"thread|task|step|block|phase", re.IGNORECASE)
_CONTEXT = re.compile(r"context|background|overview", re.IGNORECASE)
_REMOVED = re.compile(r"example|rationale|implementation|notes?\b|discussion|alternatives|details?\b", re.IGNORECASE)
_KEPT_LINE = re.compile(
    r"^\s*(?:[-*]\s*)?(?:\*\*)?(?:verif\w*|accept\w*|depends?(?:\s+on)?|name|id)(?:\*\*)?\s*:", re.IGNORECASE
)
_BRIEF = 120  # tokens: a context section up to this size is brief


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with its text up to the next one; `level` 0 is front matter (or the text before any heading)."""

    level: int
    title: str
    text: str


def sections(plan: str) -> tuple[Section, ...]:
    """Split a plan at its headings; fenced code is never read as a heading."""
    lines = plan.splitlines(keepends=True)
    found: list[Section] = []
    level, title, text = 0, "", list[str]()
    start = 0
    if lines and lines[0].strip() == "---":
        end = next((i for i in range(1, len(lines)) if lines[i].strip() == "---"), None)
        if end is not None:
            found.append(Section(0, "frontmatter", "".join(lines[: end + 1])))
            start = end + 1
    fenced = False
    for line in lines[start:]:
        if _FENCE.match(line):
            fenced = not fenced
        heading = None if fenced else _HEADING.match(line.rstrip("\n"))
        if heading is None:
            text.append(line)
            continue
        if level or "".join(text).strip():
            found.append(Section(level, title, "".join(text)))
        level, title, text = len(heading[1]), heading[2], [line]
    if level or "".join(text).strip():
        found.append(Section(level, title, "".join(text)))
    return tuple(found)


def compress_plan(plan: str, target_tokens: int, *, count: Callable[[str], int] = estimate_tokens) -> str:
    """The plan in at most `target_tokens`, where what is always kept allows it.

    A plan that fits is returned as it is. Nothing is invented: what goes leaves one line that says so.
    """
    if count(plan) <= target_tokens:
        return plan
    parts = list(sections(plan))
    kinds = _kinds(parts)
    for step in (_without_code, _without_removed, _short_context, _thread_lines, _always_only):
        parts = [step(part, kind, count) for part, kind in zip(parts, kinds, strict=True)]
        text = "".join(part.text for part in parts if part.text)
        if count(text) <= target_tokens:
            return text
    return "".join(part.text for part in parts if part.text)


def _kinds(parts: list[Section]) -> list[str]:
    """What each section is; a subsection of a thread belongs to it."""
    kinds: list[str] = []
    inside: tuple[int, str] | None = None
    for part in parts:
        if inside is not None and part.level <= inside[0]:
            inside = None
        if part.level == 0:
            kind = "always" if part.title == "frontmatter" else "context"
        elif _ALWAYS.search(part.title):
            kind = "always"
        elif _REMOVED.search(part.title):
            kind = "removed"
        elif _CONTEXT.search(part.title):
            kind = "context"
        elif inside is not None or _THREADS.search(part.title):
            kind = "thread"
            inside = inside or (part.level, kind)
        else:
            kind = "context"
        kinds.append(kind)
    return kinds


def _without_code(part: Section, kind: str, count: Callable[[str], int]) -> Section:
    """Example code goes first."""
    if kind == "always":
        return part
    lines: list[str] = []
    fenced = False
    for line in part.text.splitlines(keepends=True):
        if _FENCE.match(line):
            if not fenced:
                lines.append("[code removed]\n")
            fenced = not fenced
        elif not fenced:
            lines.append(line)
    return Section(part.level, part.title, "".join(lines))


def _without_removed(part: Section, kind: str, count: Callable[[str], int]) -> Section:
    return Section(part.level, part.title, "") if kind == "removed" else part


def _short_context(part: Section, kind: str, count: Callable[[str], int]) -> Section:
    if kind != "context" or count(part.text) <= _BRIEF:
        return part
    head = part.text.splitlines(keepends=True)
    kept: list[str] = []
    for line in head:
        if count("".join(kept) + line) > _BRIEF:
            break
        kept.append(line)
    return Section(part.level, part.title, "".join(kept or head[:1]) + "[shortened]\n")


def _thread_lines(part: Section, kind: str, count: Callable[[str], int]) -> Section:
    """Of a thread: its heading, and the lines on verification, dependencies, name and id."""
    if kind != "thread":
        return part
    lines = part.text.splitlines(keepends=True)
    kept = [line for i, line in enumerate(lines) if i == 0 or _KEPT_LINE.match(line)]
    return Section(part.level, part.title, "".join(kept))


def _always_only(part: Section, kind: str, count: Callable[[str], int]) -> Section:
    return Section(part.level, part.title, "") if kind == "context" else part
