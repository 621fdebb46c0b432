"""What the estimators look at: counts of character classes, of neighbouring classes, and of script blocks.

The classes of a text become bits of one large integer, so that a count is a shift, an AND and a popcount: some
60 MB/s in plain Python, whatever the text is. Counting with `bytes.count` is several times slower, since each
hit is a branch that the processor cannot foresee.
"""

from __future__ import annotations

__all__ = ["BASIC", "FINE", "features"]

# One bit of a byte for each class: lower case, upper case, digit, space, line end, quote, joiner, other ASCII.
_CLASSES = "lU9 nq_p"


def _class_of(char: str) -> str:
    if char.islower():
        return "l"
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


_BITS = bytes(1 << _CLASSES.index(_class_of(chr(code) if code < 128 else "?")) for code in range(256))
_CHUNK = 8192
"""Bytes per integer: small enough for the processor's caches. Neighbours across its end are not seen."""
_ONES = int.from_bytes(b"\x01" * _CHUNK, "little")

# Two different classes: one after the other. One class repeated: a run of at least that length, at each place.
_BASIC_PATTERNS = (" l", "_l", "pl", "llllllll", "99", "9999", "pp", "pn", "pq", "p ", "pppp", "_n")
_FINE_PATTERNS = ("    ", "UUU", "p_", "ln", "U ", "n9", "qU", "qq", " U", "nl", "pU", "q9", "lllll", "9_", "_9")

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
# Two in a row, and how often a word of the script begins.
_PAIRS = ("hh", "KK", "JJ", "0C", "0A", "0D", "0G")


def _block_table() -> bytes:
    table = bytearray(b"0" * 256)
    for mark, first, last, _ in _BLOCKS:
        table[first : last + 1] = mark.encode() * (last + 1 - first)
    return bytes(table)


_BLOCK_TABLE = _block_table()
_SCRIPT_MARKS = tuple(mark.encode() for mark in _SCRIPTS)
_PAIR_MARKS = tuple(mark.encode() for mark in _PAIRS)
_NO_SCRIPTS = [0] * (len(_SCRIPTS) + 1 + len(_PAIRS))

BASIC = (*_CLASSES, *_BASIC_PATTERNS, *(f"script {mark}" for mark in _SCRIPTS), "Latin-1", *_PAIRS)
"""Names of what is always counted."""
FINE = _FINE_PATTERNS
"""Names of what is counted besides where no vocabulary at all is at hand."""


def features(text: str, *, fine: bool = False) -> list[int]:
    """Counts in the order of BASIC, with `fine` followed by FINE."""
    ascii_bytes = text.encode("ascii", "replace")
    patterns = _BASIC_PATTERNS + _FINE_PATTERNS if fine else _BASIC_PATTERNS
    counts = [0] * (len(_CLASSES) + len(patterns))
    for start in range(0, len(ascii_bytes), _CHUNK):
        number = int.from_bytes(ascii_bytes[start : start + _CHUNK].translate(_BITS), "little")
        places = {mark: number >> bit & _ONES for bit, mark in enumerate(_CLASSES)}
        for at, mark in enumerate(_CLASSES):
            counts[at] += places[mark].bit_count()
        for at, pattern in enumerate(patterns, len(_CLASSES)):
            counts[at] += _matches(places, pattern).bit_count()
    scripts = _NO_SCRIPTS
    if not text.isascii():
        foreign = len(text) - len(text.encode("ascii", "ignore"))
        counts[_CLASSES.index("p")] -= foreign  # encode() put "?" for each of them
        scripts = _script_counts(text, foreign)
    split = len(_CLASSES) + len(_BASIC_PATTERNS)
    return counts[:split] + scripts + counts[split:]


def _matches(places: dict[str, int], pattern: str) -> int:
    """The places where a pattern begins, as bits."""
    first = places[pattern[0]]
    if pattern[0] != pattern[1]:
        return first & places[pattern[1]] >> 8
    found, length = first, 1
    while length < len(pattern):
        step = min(length, len(pattern) - length)
        found &= found >> 8 * step
        length += step
    return found


def _script_counts(text: str, foreign: int) -> list[int]:
    blocks = text.encode("utf-16-le", "surrogatepass")[1::2].translate(_BLOCK_TABLE)
    others = blocks.translate(None, b"0")
    scripts = {mark: others.count(mark) for mark in _SCRIPT_MARKS}
    pairs = [blocks.count(mark) if scripts[mark[1:]] else 0 for mark in _PAIR_MARKS]
    return [*scripts.values(), max(0, foreign - sum(scripts.values())), *pairs]
