"""What the estimators look at: counts of character classes, of pairs of classes, and of script blocks.

Only `bytes.translate` and `bytes.count` touch the text, so the time is linear whatever the text is.
"""

from __future__ import annotations

import re

__all__ = ["BASIC", "FINE", "basic_features", "fine_features"]


def _class_of(char: str) -> str:
    if char in "aeiou":
        return "v"
    if char.islower():
        return "c"
    if char.isupper():
        return "U"
    if char.isdigit():
        return "9"
    if char in " \t":
        return " "
    if char in "\n\r":
        return "n"
    if char in "\"'`":
        return "q"
    return "_" if char in "_-/." else "p"


_CLASSES = bytes(ord(_class_of(chr(code))) if code < 128 else ord("p") for code in range(256))
_MERGED = bytes(ord("l") if chr(code) in "vc" else code for code in range(256))

_SINGLE = ("v", "c", "U", "9", " ", "n", "q", "_", "p")
_VOWELS = ("vv",)
_MERGED_RUNS = ("UUU", "999", " U", "l_", "pp", " p", "pl", " l", "Ul", "nn", "    ")
_MERGED_FINE = ("lp", "n ", "nU", "_9", " q", "U9", "_l", "pppp", "lll", "_p")
_WORDS = (
    ("word", re.compile(r"[A-Za-z]+", re.ASCII)),
    ("long word", re.compile(r"[a-z]{9}", re.ASCII)),
    ("digits", re.compile(r"\d{1,3}", re.ASCII)),
    ("rare letter", re.compile(r"[qxzjkQXZJ]", re.ASCII)),
    ("capitals", re.compile(r"[A-Z]{2,}", re.ASCII)),
    ("consonants", re.compile(r"[bcdfghjklmnpqrstvwxz]{3}", re.ASCII)),
)

# The high byte of a UTF-16 unit names a block of 256 code points, and blocks follow scripts closely enough.
_BLOCKS = (
    ("L", 0x01, 0x02, "Latin extended"),
    ("G", 0x03, 0x03, "Greek"),
    ("C", 0x04, 0x04, "Cyrillic"),
    ("H", 0x05, 0x05, "Hebrew, Armenian"),
    ("A", 0x06, 0x08, "Arabic"),
    ("D", 0x09, 0x09, "Devanagari, Bengali"),
    ("B", 0x0A, 0x0A, "Gurmukhi, Gujarati"),
    ("Y", 0x0B, 0x0B, "Tamil, Oriya"),
    ("I", 0x0C, 0x0D, "Telugu, Kannada, Malayalam, Sinhala"),
    ("T", 0x0E, 0x0E, "Thai, Lao"),
    ("M", 0x0F, 0x10, "Tibetan, Burmese, Georgian"),
    ("K", 0x11, 0x11, "Hangul letters"),
    ("M", 0x12, 0x1D, "Ethiopic, Khmer, Mongolian and others"),
    ("V", 0x1E, 0x1E, "Vietnamese letters"),
    ("G", 0x1F, 0x1F, "Greek extended"),
    ("P", 0x20, 0x2F, "punctuation, symbols, box drawing"),
    ("J", 0x30, 0x33, "kana, CJK punctuation"),
    ("h", 0x34, 0x9F, "Han"),
    ("E", 0xA0, 0xAB, "Yi and others"),
    ("K", 0xAC, 0xD7, "Hangul syllables"),
    ("E", 0xD8, 0xDB, "beyond U+FFFF: emoji"),
    ("e", 0xDC, 0xDF, "second half of the former"),
    ("E", 0xE0, 0xF8, "private use: icons"),
    ("h", 0xF9, 0xFA, "Han, compatibility"),
    ("A", 0xFB, 0xFE, "Arabic forms, variation selectors"),
    ("F", 0xFF, 0xFF, "full width forms"),
)
_SCRIPTS = ("L", "G", "C", "H", "A", "D", "B", "Y", "I", "T", "M", "V", "P", "J", "h", "K", "E", "F")
_PAIRS = ("hh", "KK", "JJ", "0C", "0A", "0D", "0G")


def _block_table() -> bytes:
    table = bytearray(b"0" * 256)
    for mark, first, last, _ in _BLOCKS:
        table[first : last + 1] = mark.encode() * (last + 1 - first)
    return bytes(table)


_BLOCK_TABLE = _block_table()

BASIC = (*_SINGLE, *_VOWELS, *_MERGED_RUNS, *(f"script {mark}" for mark in _SCRIPTS), "Latin-1", *_PAIRS)
"""Names of what `basic_features` counts."""
FINE = (*_MERGED_FINE, *(name for name, _ in _WORDS))
"""Names of what `fine_features` counts."""

_BASIC_CLASSES = tuple(mark.encode() for mark in (*_SINGLE, *_VOWELS))
_BASIC_RUNS = tuple(mark.encode() for mark in _MERGED_RUNS)
_FINE_RUNS = tuple(mark.encode() for mark in _MERGED_FINE)
_SCRIPT_MARKS = tuple(mark.encode() for mark in _SCRIPTS)
_PAIR_MARKS = tuple(mark.encode() for mark in _PAIRS)
_PUNCTUATION = _SINGLE.index("p")
_NO_SCRIPTS = [0] * (len(_SCRIPTS) + 1 + len(_PAIRS))


def basic_features(text: str) -> list[int]:
    """Counts in the order of BASIC."""
    classes = text.encode("ascii", "replace").translate(_CLASSES)
    merged = classes.translate(_MERGED)
    counts = [classes.count(mark) for mark in _BASIC_CLASSES]
    counts += [merged.count(mark) for mark in _BASIC_RUNS]
    if text.isascii():
        return counts + _NO_SCRIPTS
    blocks = text.encode("utf-16-le", "surrogatepass")[1::2].translate(_BLOCK_TABLE)
    scripts = [blocks.count(mark) for mark in _SCRIPT_MARKS]
    foreign = len(text) - len(text.encode("ascii", "ignore"))
    counts[_PUNCTUATION] -= foreign  # encode() put "?" for each of them
    return counts + scripts + [max(0, foreign - sum(scripts))] + [blocks.count(mark) for mark in _PAIR_MARKS]


def fine_features(text: str) -> list[int]:
    """Counts in the order of FINE: what is needed besides where no vocabulary at all is at hand."""
    merged = text.encode("ascii", "replace").translate(_CLASSES).translate(_MERGED)
    return [merged.count(mark) for mark in _FINE_RUNS] + [len(words.findall(text)) for _, words in _WORDS]
