"""The strategies, and the ladder that composes them: cheapest and least lossy first, measured after each.

Each is pure: a draft in, a draft out. None splits an exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ctxproxy.policy import Step
from ctxproxy.strategies.allot import allot
from ctxproxy.strategies.draft import Draft, start
from ctxproxy.strategies.outline import outline, starved
from ctxproxy.strategies.prioritize import prioritize
from ctxproxy.strategies.prune import prune
from ctxproxy.strategies.squeeze import squeeze
from ctxproxy.strategies.truncate import truncate
from ctxproxy.strategies.window import bridge, restart, shorter_note, window

__all__ = ["Draft", "allot", "prioritize", "prune", "shrink", "squeeze", "start", "truncate", "window"]


_FULL = 0.75  # of the target: a compaction that leaves less has cut too much


def shrink(draft: Draft, *, steps: Sequence[Step], keep_messages: int | None = None) -> Draft:
    """Take the draft down to its target by `steps`, and by the last resorts where those do not reach it.

    `keep_messages` asks for a literal sliding window. The result may still be over the target: then nothing
    is left that may be cut.
    """
    if draft.fits and keep_messages is None:
        return draft
    within = allot(draft)
    if within is not draft:
        # Every later boundary is tried from here: the edits are given from now on.
        draft = replace(within, given=within.edits, whole=within.sizes)
    aim, bridged = draft.target, draft
    for _ in range(3):
        found = _ladder(replace(draft, target=aim), steps=steps, keep_messages=keep_messages)
        bridged = replace(bridge(found), target=draft.target)
        if bridged.fits or not found.fits:
            return bridged
        aim -= bridged.tokens - draft.target  # bridges take room too
    return bridged


def _ladder(draft: Draft, *, steps: Sequence[Step], keep_messages: int | None) -> Draft:
    """The steps, one by one, as long as the target is not met."""
    if "truncate" in steps:
        draft = truncate(draft)
    if not draft.fits and "prune" in steps:
        pruned = prune(draft)
        # Stubs in messages that are then dropped would only hide facts from the notes.
        draft = pruned if pruned.fits else draft
    facts = "facts" in steps or "summarize" in steps
    if keep_messages is not None and "window" in steps:
        draft = window(draft, keep=keep_messages, facts=facts)
    if not draft.fits and "window" in steps and not draft.dropped:
        draft = window(draft, facts=facts)
        if facts and draft.fits and starved(draft):
            last = draft.groups[-1].start
            told = outline(replace(restart(draft), tail=last))
            if told.fits and told.notes_tokens > draft.notes_tokens and told.tokens >= _FULL * told.target:
                draft = replace(told, steps=(*(s for s in draft.steps if s not in told.steps), *told.steps))
    if not draft.fits:
        draft = _harder(draft, facts=facts, steps=steps)
    return draft


def _harder(draft: Draft, *, facts: bool, steps: Sequence[Step]) -> Draft:
    """The tail gives way to the budget, then what must stay is cut inside. Nothing is dropped that `steps` spare."""
    last = draft.groups[-1].start if draft.groups else 0
    done = draft.steps
    tight = truncate(replace(restart(draft), tail=last))
    bare = tight
    if facts and "window" in steps:
        tight = outline(bare)
    if tight is bare or tight.tokens < _FULL * tight.target:
        # Notes that say all there was to say leave room for messages.
        other = prioritize(bare, facts=facts) if "prioritize" in steps else bare
        if other is bare and "window" in steps:
            other = window(bare, facts=facts)
        tight = other if tight is bare or (other.fits and other.tokens > tight.tokens) else tight
    if not tight.fits:
        # A note that has no room for facts has none to lose.
        tight = shorter_note(tight)
    if not tight.fits:
        tight = allot(tight, newest=True)
    if not tight.fits:
        tight = squeeze(prune(tight, protect=False))
    if not tight.fits:
        tight = shorter_note(tight, keep_line=False)
    return replace(tight, steps=(*(s for s in done if s not in tight.steps), *tight.steps))
