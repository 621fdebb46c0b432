"""Tokenizer families, what is known about each, and the protocol that all counters share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["FAMILIES", "Counter", "Family", "byte_bound", "family"]


class Counter(Protocol):
    """Counts the tokens of text.

    An `exact` counter has a `margin` of 0. For others `margin` is the share by which the true count of a
    whole prompt may be above (in about 1 % of prompts it is further off).
    """

    @property
    def name(self) -> str: ...
    @property
    def exact(self) -> bool: ...
    @property
    def margin(self) -> float: ...
    def count(self, text: str) -> int: ...
    def count_many(self, texts: Sequence[str]) -> list[int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What is known about one tokenizer family.

    encoding: the bundled vocabulary that counts it exactly ("o200k_base", ...), "" if there is none.
    splintr: name of the vocabulary in the optional splintr-rs package, "" if there is none.
    ctok: version of the optional ctok package's Claude model, "" if there is none.
    nfc: the tokenizer normalizes text to Unicode NFC first.
    bound: most tokens per UTF-8 byte of the (normalized) text, None where the tokenizer is not known.
    margin: share by which the estimator of the family may be too low on a whole prompt (99 % of them).
    """

    encoding: str = ""
    splintr: str = ""
    ctok: str = ""
    nfc: bool = False
    bound: float | None = 1.0
    margin: float = 0.15


# Byte-level BPE without normalization never makes more tokens than bytes. Claude's case and word marks
# can: 1.26 tokens a byte was measured on text such as "Q1x9Z"; 1.5 is that with room, an observed bound
# and not a proven one.
FAMILIES: dict[str, Family] = {
    "o200k": Family(encoding="o200k_base"),
    "cl100k": Family(encoding="cl100k_base", margin=0.15),
    "claude": Family(ctok="4.8", nfc=True, bound=1.5, margin=0.15),
    "claude-4.7": Family(ctok="4.7", nfc=True, bound=1.5, margin=0.15),
    "claude-old": Family(ctok="3.0", nfc=True, bound=1.5, margin=0.11),
    "gemini": Family(splintr="gemma3", margin=0.12),
    "llama": Family(splintr="llama3", margin=0.08),
    "deepseek": Family(splintr="deepseek_v3", margin=0.11),
    "qwen": Family(splintr="qwen3", nfc=True, margin=0.08),
    "mistral": Family(splintr="mistral_v3", margin=0.08),
    "glm": Family(splintr="glm4", margin=0.06),
    "kimi": Family(splintr="kimi_k2", margin=0.08),
    "smollm": Family(margin=0.12),
    "minimax": Family(bound=None, margin=0.1),
    "grok": Family(bound=None),
    "unknown": Family(bound=None, margin=0.25),
}


def family(name: str) -> Family:
    """The facts of a family; an unlisted name has those of "unknown"."""
    return FAMILIES.get(name, FAMILIES["unknown"])


# NFC may grow text: U+1D160 has 4 bytes and becomes 12. That is the largest factor in Unicode.
_NFC_GROWTH = 3


def byte_bound(n_bytes: int, *, family: str, non_ascii: int | None = None) -> int | None:
    """Most tokens that a text of `n_bytes` UTF-8 bytes can have; None where no bound is known.

    JSON is never shorter than the text it encodes, so the byte length of a request body bounds its text
    (media and the provider's own additions come on top). `non_ascii` is the number of bytes >= 0x80, if
    the caller knows it: ASCII never grows when normalized, so the bound of a normalizing family is three
    times closer for ASCII text.
    """
    facts = FAMILIES.get(family)
    if facts is None or facts.bound is None:
        return None
    grown = n_bytes
    if facts.nfc:
        grown += (_NFC_GROWTH - 1) * (n_bytes if non_ascii is None else min(non_ascii, n_bytes))
    # + 1: SentencePiece vocabularies put a space before the text.
    return int(grown * facts.bound) + 1
