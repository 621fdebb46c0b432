"""prune: old tool outputs become stubs that keep their facts; old media become placeholders.

Walks backward and protects the last turns and the newest tokens of tool output. Nothing happens unless it
frees enough to be worth the rewrite.
"""

from __future__ import annotations

from ctxproxy.conversation import Part, first_typed, last_typed, turns
from ctxproxy.strategies.draft import Draft
from ctxproxy.strategies.facts import Passage, digest

__all__ = ["prune", "stub"]

_STUB_SHARE = 0.12  # of the output's tokens that its facts may cost
_STUB_MOST = 240  # tokens
_LEAST = 16  # tokens that stay of any output
_WORTH = 100  # tokens below which an output is left alone
_MEDIUM = 32  # the same for media


def prune(draft: Draft, *, protect: bool = True) -> Draft:
    """Replace old tool outputs, oldest first, until the target is met.

    The first pass is for the whole way: it does nothing where it can't meet the target. With `protect` False only
    the fresh tail and what must stay is protected: the second, stricter pass.
    """
    messages, policy = draft.messages, draft.policy
    starts = [start for start, _ in turns(messages)]
    recent = (
        starts[-policy.protected_turns] if policy.protected_turns and len(starts) > policy.protected_turns else None
    )
    barrier = min(draft.tail, recent) if protect and recent is not None else draft.tail
    shield = policy.protected_output.of(draft.window) if protect else 0
    names = {p.id: p.name for m in messages for p in m.of("tool_call") if p.id}
    # The newest typed message stays verbatim, the task as long as there is another way.
    spared = {last_typed(messages), first_typed(messages) if protect else None}
    gone = draft.dropped
    candidates: list[tuple[int, Part]] = []
    for i in range(len(messages) - 1, -1, -1):
        message = messages[i]
        if i in gone:
            continue
        for part in message.parts:
            if part.kind == "tool_result":
                if i >= barrier or shield > 0:
                    shield -= part.tokens
                    continue
                name = part.name or names.get(part.id or "")
                if part.tokens >= _WORTH and not message.opaque and name not in policy.protected_tools:
                    candidates.append((i, part))
            elif part.kind == "media" and i < barrier and not message.opaque and part.tokens >= _MEDIUM:
                if part.id is None and i in spared:
                    continue
                candidates.append((i, part))
    most = sum(part.tokens - _LEAST for _, part in candidates)
    if protect and draft.tokens - most > draft.target:
        return draft  # stubs alone don't get there, and what is dropped instead needs none
    gain = sum(part.tokens for _, part in candidates)
    if gain < min(draft.tokens - draft.target, policy.min_saving.of(draft.window)):
        return draft
    for i, part in reversed(candidates):
        if draft.fits:
            break
        name = part.name or names.get(part.id or "")
        text = "[media removed: sent earlier]" if part.kind == "media" else stub(draft, i, part, name)
        draft = draft.rewrite(i, part, text, "old media" if part.kind == "media" else "old tool output")
        draft = draft.done("prune")
    return draft


def stub(draft: Draft, index: int, part: Part, name: str | None) -> str:
    """What stands for a pruned output: its size, its facts, and where the rest is."""
    text = draft.text(index, part)
    passage = Passage(index=index, role="tool", kind="tool_result", name=name, text=text, error=part.error)
    facts = digest(
        [passage], budget=min(_STUB_MOST, int(part.tokens * _STUB_SHARE)), count=draft.count, extract=draft.extract
    )
    head = f"[old output removed: {part.tokens:,} tokens.{draft.locate(text)}]"
    return f"{head}\n{facts}" if facts else head
