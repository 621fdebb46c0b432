"""truncate: a tool output over the limit becomes a head-and-tail preview with a notice at its edge.

The cheapest cut and the least lossy one: the reader sees both ends, the sizes, and where the rest is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ctxproxy.strategies.draft import Draft

__all__ = ["preview", "truncate"]

_TIGHT = 160  # tokens: below this every word of the notice costs content, and the beginning says more
_TIGHT_HEAD = 0.85
_TELLING, _BEGINNING = 120, 200  # a preview of so many tokens shows at least so many characters of the beginning
_HEAD = 0.7  # share of a preview that shows the beginning: errors stand at the end, headers at the start


def truncate(draft: Draft, *, only_new: bool = False) -> Draft:
    """Cut every tool output that is larger than the policy's limit; with `only_new` those never sent before."""
    limit = max(64, draft.policy.tool_output.of(draft.window))
    begin = draft.groups[-1].start if only_new and draft.groups else 0
    names = {p.id: p.name for m in draft.messages for p in m.of("tool_call") if p.id}
    for i in range(begin, len(draft.messages)):
        message = draft.messages[i]
        if message.opaque or draft.sizes[i] <= limit:
            continue
        for part in message.of("tool_result"):
            name = part.name or names.get(part.id or "")
            if part.tokens > limit and name not in draft.policy.protected_tools and i not in draft.dropped:
                text = preview(draft.text(i, part), limit=limit, count=draft.count, where=draft.locate)
                draft = replace(draft.rewrite(i, part, text, "output over the limit of tool_output"), steps=draft.steps)
                draft = draft.done("truncate")
    return draft


def preview(
    text: str,
    *,
    limit: int,
    count: Callable[[str], int],
    where: Callable[[str], str] = lambda _: "",
    what: str = "output",
) -> str:
    """The head and the tail of `text` in at most `limit` tokens, the notice included; never empty.

    Cuts fall on line ends where one is near, else between code points, so that very long lines are cut too.
    `where` gives the words that say how to get the full text.
    """
    total = count(text)
    if total <= limit:
        return text
    place = where(text)
    notice = f"[{what} cut: {total:,} tokens, {len(text):,} characters; the beginning and the end follow.{place}]"
    share = _HEAD
    if limit < _TIGHT:
        notice, share = f"[{what} cut: {total:,} tokens.{place}]", _TIGHT_HEAD
    middle = "[... cut ...]"
    room = max(8, limit - count(notice) - count(middle) - 4)
    rate = len(text) / max(1, total)
    chars = int(room * rate)
    while True:
        # Where there is room for it, the beginning is long enough to know the text by.
        first = max(int(chars * share), min(_BEGINNING, chars - 1)) if limit >= _TELLING else int(chars * share)
        head = _edge(text[:first], end=True) if first > _BEGINNING * 1.2 else text[:first]
        tail = _edge(text[len(text) - max(1, chars - first) :], end=False)
        size = count(head) + count(tail)
        if size <= room or chars <= 16:
            return f"{notice}\n{head}\n{middle}\n{tail}"
        chars = min(int(chars * room / size), chars - 1)


def _edge(text: str, *, end: bool) -> str:
    """Move a cut to a line end within the nearest eighth of the text."""
    if end:
        at = text.rfind("\n", len(text) - len(text) // 8)
        return text[:at] if at > 0 else text
    at = text.find("\n", 0, len(text) // 8)
    return text[at + 1 :] if 0 <= at < len(text) - 1 else text
