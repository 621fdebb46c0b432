"""Thinking that is bound to what stands before it: what an edit of the history has to take out.

Current Claude models check that each thinking block still follows the very system prompt, tools and messages that it
was written after; a block between others that is missing counts as a change too. So an edit takes out all thinking
written before it, and the result is sent with the same bytes from then on. Source: Anthropic's guide to preserved
thinking, and Amazon Bedrock's page on thinking block binding.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ctxproxy.conversation import Message
from ctxproxy.edits import Drop, Edit, Note, Replace, Strip

__all__ = ["PLACEHOLDER", "binds", "preserved", "refused", "strips"]

PLACEHOLDER = "[no text in this answer]"
_CAUSE = "thinking is bound to the messages before it"
_NAME = re.compile(r"(fable|mythos|opus|sonnet|haiku)-(\d{1,2})(?:[.-](\d{1,2}))?(?!\d)")
_SINCE = {"fable": (5, 1), "mythos": (5, 1), "opus": (5, 5), "sonnet": (5, 5), "haiku": (5, 5)}
_REFUSED = re.compile(r"bound to a different conversation|thinking block[^\"]{0,80}\bbound\b", re.IGNORECASE)


def preserved(model: str) -> bool:
    """Whether a model binds its thinking; one that is newer than those known to do so counts as one of them."""
    found = _NAME.search(model.lower())
    if not found:
        return False
    version = (int(found[2]), int(found[3] or 0))
    return version >= _SINCE[found[1]]


def strips(messages: Sequence[Message]) -> tuple[Edit, ...]:
    """The edits that take out all thinking of these messages. A message of nothing else gets a visible text instead.

    Thinking that stands beside the content, where no text could take its place, stays if it is all there is.
    """
    found: list[Edit] = []
    for i, message in enumerate(messages):
        paths = [p.path for p in message.of("thinking") if p.path]
        if not paths:
            continue
        if all(p.kind == "thinking" or (p.kind == "text" and p.blank) for p in message.parts):
            if not isinstance(paths[0][-1], int):
                continue
            found.append(Replace(i, paths[0], PLACEHOLDER, _CAUSE, as_block=True))
            paths = paths[1:]
        if paths:
            found.append(Strip(i, tuple(paths), _CAUSE))
    return tuple(found)


def binds(messages: Sequence[Message], edits: Sequence[Edit]) -> bool:
    """Whether thinking stands at or behind the first of the edits: only that one is lost."""
    first = min((_at(edit) for edit in edits), default=len(messages))
    return any(p.path for m in messages[first:] for p in m.of("thinking"))


def _at(edit: Edit) -> int:
    match edit:
        case Drop():
            return edit.start
        case Note():
            return edit.at
        case Replace() | Strip():
            return edit.index
        case _:
            return 1 << 62


def refused(error: bytes) -> bool:
    """Whether an error says that a thinking block belongs to another conversation."""
    return bool(_REFUSED.search(error.decode("utf-8", "replace")))
