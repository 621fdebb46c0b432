"""A compaction: one decision to shrink, its reason, its numbers. Recorded, and replayed from the ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ctxproxy.edits import Drop, Edit, Note, Param, Replace, Strip

__all__ = ["CompactReason", "Compaction", "Hook", "Original", "describe"]

CompactReason = Literal["proactive", "overflow", "retry"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """What was done, and why.

    `reason`: `proactive` before sending, a threshold was crossed and the prompt still fitted (also an
    explicit target); `overflow` before sending, the prompt measured 100 % or more; `retry` after the provider
    refused the prompt as too long. Tokens are ctxproxy's own measure.

    `cost_saved`: USD that its own request costs less (negative: more, since a cached part is written anew), and
    `payback` the later requests until it has paid; estimates, None where prices are not known.
    """

    id: str
    reason: CompactReason
    level: str
    model: str
    window: int
    target: int
    tokens_before: int
    tokens_after: int
    strategies: tuple[str, ...]
    exchanges_cut: int
    messages_cut: int
    archived: tuple[str, ...] = ()
    edits: tuple[dict[str, Any], ...] = field(default=(), repr=False)
    at: float = 0.0
    cost_saved: float | None = None
    payback: float | None = None

    @property
    def tokens_saved(self) -> int:
        return self.tokens_before - self.tokens_after


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """What was cut, for the archive: `id` is a keyed hash of its content, `data` its bytes."""

    id: str
    data: bytes
    kind: Literal["output", "messages"]


Hook = Callable[[Compaction], None]


def describe(edits: Sequence[Edit]) -> tuple[dict[str, Any], ...]:
    """The edits as plain values, with their cause in words."""
    found: list[dict[str, Any]] = []
    for edit in edits:
        match edit:
            case Replace():
                found.append({"edit": "replace", "message": edit.index, "path": list(edit.path), "cause": edit.cause})
            case Drop():
                found.append({"edit": "drop", "messages": [edit.start, edit.stop], "cause": edit.cause})
            case Note():
                found.append({"edit": "note", "message": edit.at, "cause": edit.cause, "text": edit.text})
            case Strip():
                found.append({"edit": "strip", "message": edit.index, "parts": len(edit.paths), "cause": edit.cause})
            case Param():
                found.append({"edit": "param", "key": edit.key, "value": edit.value, "cause": edit.cause})
    return tuple(found)
