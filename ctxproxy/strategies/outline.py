"""outline: everything that may be dropped goes, and what must stay leaves the notes their room.

For the tight case. A newest exchange whose outputs fill the target would leave no word of all that came before:
so the fresh tail's budget holds for its outputs too, and what is cut out of them is noted like what is dropped.
"""

from __future__ import annotations

from dataclasses import replace

from ctxproxy.strategies.draft import Draft
from ctxproxy.strategies.squeeze import spare, squeeze_outputs
from ctxproxy.strategies.window import FRAME, candidates, noted

__all__ = ["outline", "starved"]

_NOTES_SHARE = 0.6  # of what is dropped: more than that and it need not be dropped
_NOTES_MOST = 0.75  # of what the smallest form of all that must stay leaves of the target
_ENOUGH = 0.25  # of what was dropped: notes of that size tell most of it
_FAIR = 0.5  # of the whole prompt beside its fixed part
_LEAST = 64  # tokens: notes under this say too little to cut an output for them


def starved(draft: Draft) -> bool:
    """Whether the notes on what was dropped have too little room to say what matters in it."""
    gone = sum(draft.whole[i] for i in draft.dropped)
    return draft.notes_tokens < FRAME + min(_ENOUGH * gone, _FAIR * (draft.tokens - draft.conversation.fixed.tokens))


def outline(draft: Draft) -> Draft:
    """The draft without any candidate, its newest outputs cut as far as the notes need it, and the notes."""
    groups = candidates(draft)
    if not groups:
        return draft
    gone = sum(draft.sizes[i] for group in groups for i in group)
    bare = draft.drop_all(groups, "oldest, to meet the target")
    free = bare.target - (bare.tokens - spare(bare)) - FRAME
    wanted = int(min(_NOTES_SHARE * gone, _NOTES_MOST * free)) + FRAME
    if wanted >= FRAME + _LEAST and bare.tokens + wanted > bare.target:
        bare = replace(squeeze_outputs(replace(bare, target=bare.target - wanted)), target=bare.target)
    return noted(bare).done("window")
