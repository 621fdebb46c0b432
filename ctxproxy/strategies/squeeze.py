"""squeeze: the last resort, when everything that may be dropped is gone and the prompt is still too large.

In this order: the outputs of the newest exchange (oldest first), its call arguments, the task's middle. The
newest typed user message is never touched.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

from ctxproxy.conversation import Part, first_typed, last_typed
from ctxproxy.strategies.draft import Draft
from ctxproxy.strategies.truncate import preview

__all__ = ["shorten_leaves", "spare", "squeeze", "squeeze_outputs"]

_SMALLEST = 48  # tokens: a preview below this says nothing
_NEWEST = 128  # the same for the newest message
_TASK_HEAD = 200  # characters at the beginning of the task that always stay


def squeeze(draft: Draft) -> Draft:
    """Cut inside what must stay until the target is met, or nothing is left to cut."""
    draft = squeeze_outputs(draft)
    if not draft.fits:
        draft = _arguments(draft)
    if not draft.fits:
        draft = squeeze_outputs(draft, newest=_SMALLEST, protect=False)
    if not draft.fits:
        draft = _task(draft)
    return draft


def spare(draft: Draft) -> int:
    """How many tokens the tool outputs that stay could give up."""
    return sum(part.tokens - least for _, part, least in _large(draft, _NEWEST, protect=True))


def _large(draft: Draft, newest: int, *, protect: bool) -> list[tuple[int, Part, int]]:
    """The outputs that can give up something, each with the tokens that it keeps.

    The newest message keeps more than the others: the model is about to answer it.
    """
    names = {p.id: p.name for m in draft.messages for p in m.of("tool_call") if p.id}
    protected = draft.policy.protected_tools if protect else ()
    gone, last = draft.dropped, len(draft.messages) - 1
    return [
        (i, part, newest if i == last else _SMALLEST)
        for i, message in enumerate(draft.messages)
        if i not in gone and not message.opaque
        for part in message.of("tool_result")
        if part.tokens > (newest if i == last else _SMALLEST)
        and (part.name or names.get(part.id or "")) not in protected
    ]


def squeeze_outputs(draft: Draft, *, newest: int = _NEWEST, protect: bool = True) -> Draft:
    """Cut the tool outputs that stay, the largest ones first, until the target is met or each is a short preview.

    The newest message keeps `newest` tokens; with `protect` the outputs of protected tools stay whole.
    """
    large = _large(draft, newest, protect=protect)
    # A fair share for each: the largest ones shrink, small ones stay whole.
    over = draft.tokens - draft.target
    if not large or over <= 0:
        return draft
    now = [draft.count(draft.text(i, part)) for i, part, _ in large]
    level = _water_level(now, max(sum(least for *_, least in large), sum(now) - over))
    for (i, part, least), size in zip(large, now, strict=True):
        if draft.fits:
            break
        limit = max(least, level)
        if size > limit:
            text = preview(draft.text(i, part), limit=limit, count=draft.count, where=draft.locate)
            if draft.count(text) < size:
                draft = draft.rewrite(i, part, text, "the newest exchange leaves no room").done("squeeze")
    return draft


def _water_level(sizes: list[int], room: int) -> int:
    """The size that, as a cap for all, makes their sum at most `room`."""
    left = room
    for n, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - n)
        if size > share:
            return share
        left -= size
    return max(sizes, default=0)


def _arguments(draft: Draft) -> Draft:
    gone = draft.dropped
    for i, message in enumerate(draft.messages):
        if i in gone or message.opaque:
            continue
        for part in message.of("tool_call"):
            over = draft.tokens - draft.target
            if over <= 0:
                return draft
            if part.tokens <= 2 * _SMALLEST:
                continue
            text, limit = draft.text(i, part), max(_SMALLEST, part.tokens - over - 16)
            if part.free:
                shorter = preview(text, limit=limit, count=draft.count, what="input")
            else:
                shorter = _shorter_arguments(text, limit, draft.count)
            if shorter is not None and len(shorter) < len(text):
                draft = _put_arguments(draft, i, part, shorter)
    return draft


def _put_arguments(draft: Draft, index: int, part: Part, text: str) -> Draft:
    return draft.rewrite(index, part, text, "call arguments that alone do not fit").done("squeeze")


def _shorter_arguments(text: str, limit: int, count: Callable[[str], int]) -> str | None:
    """Arguments cut inside their long strings, so that they stay a valid JSON object; None where they are none."""
    try:
        value: Any = json.loads(text)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    size, short = max(16, limit), None
    try:
        while size >= 8:
            short = json.dumps(
                shorten_leaves(cast("dict[str, Any]", value), size, count), ensure_ascii=False, allow_nan=False
            )
            if count(short) <= limit:
                break
            size //= 2
    except (ValueError, RecursionError):  # a number out of range, which Python reads and JSON has not
        return None
    return short


def shorten_leaves(value: Any, limit: int, count: Callable[[str], int]) -> Any:
    """The same JSON with every string cut to `limit` tokens."""
    if isinstance(value, str):
        return preview(value, limit=limit, count=count, what="argument") if count(value) > limit else value
    if isinstance(value, dict):
        return {k: shorten_leaves(v, limit, count) for k, v in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [shorten_leaves(v, limit, count) for v in cast("list[Any]", value)]
    return value


def _task(draft: Draft) -> Draft:
    """The first typed user message, cut head-and-tail above its share of the window."""
    messages = draft.messages
    first, last = first_typed(messages), last_typed(messages)
    if first is None or first == last or messages[first].opaque:
        return draft
    share = max(_SMALLEST * 2, min(draft.policy.task.of(draft.window), int(draft.target * draft.policy.task.share)))
    for part in messages[first].of("text"):
        if draft.fits:
            break
        text = draft.text(first, part)
        size = draft.count(text)
        limit = max(share, size - (draft.tokens - draft.target))
        if size <= limit:
            continue
        short = _head_and_tail(text, limit, draft.count)
        if draft.count(short) < size:
            draft = draft.rewrite(first, part, short, "the task is over its share").done("squeeze")
    return draft


def _head_and_tail(text: str, limit: int, count: Callable[[str], int]) -> str:
    """A cut of a person's words: the beginning stays at the beginning, the notice is in the middle."""
    middle = f"\n[... cut: this message had {count(text):,} tokens ...]\n"
    chars = int(len(text) * max(16, limit - count(middle)) / max(1, count(text)))
    while True:
        head = max(_TASK_HEAD, int(chars * 0.8))
        short = text[:head] + middle + text[len(text) - max(1, chars - head) :]
        if count(short) <= limit or chars <= _TASK_HEAD:
            return short
        chars = int(chars * 0.9)
