"""What a string looks like: the tokens worth noting in any text, how much each is worth, and what must never be noted.

A token is judged by its shape alone (letters with digits, snake or camel case, a path, a date, an amount ...),
so that the same rules hold for every language and domain.
"""

from __future__ import annotations

import re

__all__ = ["clean", "cost", "parts", "tokens"]

# Weights of shapes: an identifier of code, a path, a file name.
_IDENTIFIER, _PATH, _FILE = 1.2, 2.5, 2.0
_UPPER = "A-Z" + "".join(c for c in map(chr, range(0xC0, 0x590)) if c.isupper())
# Scripts written without spaces: a run of them is a clause, not a word, and digits beside it are a token of their own.
SOLID = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = rf"[^\W{SOLID}]"
_PLAIN = rf"[^\W\d_{_UPPER}{SOLID}]"
# Every repeat that is followed by a condition is bounded, so that the whole scan stays linear.
_LINK = rf"[./\\@:+&?=#%~\-]{{1,3}}(?={_WORD})|,(?=\d{{3}}(?!\d))"
_TOKEN = re.compile(
    rf"(?<!{_WORD})(?:[$€£¥₹₽₩₺₫฿]\s?(?=\d)|[~.]{{0,2}}[/\\](?={_WORD})|[.@#]{{1,2}}(?={_WORD})|--?(?=[a-zA-Z]))?"
    rf"{_PLAIN}*+(?:[{_UPPER}\d_]|(?:{_LINK}))(?:{_WORD}++|(?:{_LINK}))*+%?"
)
_SOLID_NAME = re.compile(r"[「『《“\"'‘【]([^「」『』《》“”\"'‘’【】\s]{2,24})[」』》”\"'’】]|[\u30a0-\u30ff]{3,}")
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}(?:[T ]\d.*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}")
_HEX = re.compile(r"[0-9a-f]{7,64}")
_CAMEL = re.compile(r"[^\W\d_A-Z][A-Z]|[A-Z]{2,}[a-z]")
_FAULT = re.compile(r"(?:Error|Exception|Warning|Failure|Fault)$")

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b\u200e\u200f\u2028\u2029\ufeff\ufffd\ud800-\udfff]+")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BLOB = re.compile(r"(?:data:[\w/+.-]+;base64,)?[A-Za-z0-9+/_-]{80,}={0,2}")
_SECRET = re.compile(
    r"\b(?:sk|pk|rk)[-_](?:[A-Za-z]{2,8}[-_]){0,3}[A-Za-z0-9_-]{16,}|\bgh[opsur]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}"
    r"|\bglpat-[\w-]{16,}|\bxox[abeprs]-[\w-]{10,}|\bA(?:KIA|SIA)[A-Z0-9]{16}\b|\bAIza[\w-]{30,}|\bhf_[A-Za-z0-9]{20,}"
    r"|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*-----|\Z)"
    r"|(?<=://)[^\s/:@]{1,64}:[^\s/@]{1,128}(?=@)|(?<=[Bb]earer )[\w.~+/-]{16,}=*",
)
_SECRET_FIELD = re.compile(
    r"((?:pass(?:word|wd|phrase)|secret(?:_?key)?|api_?key|access_?(?:key|token)|auth_?token|refresh_?token|client_?secret"
    r"|private_?key|authorization)[\"']?\s{0,3}[:=]\s{0,3}[\"']?)([^\s\"',;]{8,})",
    re.IGNORECASE,
)
_SECRET_HINT = re.compile(
    r"(?i)pass(?:w|ph)|secret|api_?key|access_?[kt]|token|private|authoriz|bearer|://[^\s/]{0,200}@|sk[-_]|gh[opsur]_"
)


def clean(text: str) -> str:
    """`text` without control characters, lone surrogates, terminal codes, base64 blobs and keys. Never raises."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    text = _CONTROL.sub(" ", text)
    if "<|" in text:
        text = text.replace("<|", "< ").replace("|>", " >")
    text = _SECRET.sub(lambda m: m[0][:4] + "…[secret]" if not m[0].startswith("-----") else "[secret]", text)
    text = _SECRET_FIELD.sub(_mask_field, text)
    return _BLOB.sub(_mask_blob, text)


def _mask_field(match: re.Match[str]) -> str:
    value = match[2]
    # A name, a call or a placeholder is code that talks about a password, not a password.
    return match[0] if value.isalpha() or any(c in value for c in "()[]{}<>$…") else match[1] + "[secret]"


def _mask_blob(match: re.Match[str]) -> str:
    blob = match[0]
    longest = max(map(len, re.split(r"[/_+=-]", blob)))
    if longest < 64 or len(set(blob)) < 12:
        return blob
    return blob if _HEX.fullmatch(blob) else f"[{len(blob)} characters of data]"


_CLASSES = bytes(
    0x61
    if chr(b).isalpha() and b < 128
    else 0x30
    if 48 <= b <= 57
    else 0x20
    if b in b" \t\n"
    else 0x2E
    if b < 128
    else 0x75
    if b >= 0xC0
    else 0x76
    for b in range(256)
)


def cost(text: str) -> float:
    """About how many tokens `text` takes; only ratios matter, since the caller counts the whole exactly."""
    classes = text.encode("utf-8", "replace").translate(_CLASSES)
    wide = classes.count(b"u")
    return (
        0.2
        + 0.16 * classes.count(b"a")
        + 0.55 * classes.count(b"0")
        + 0.65 * classes.count(b".")
        + 0.3 * classes.count(b" ")
        + 0.9 * wide
    )


def tokens(text: str, *, opening: bool = True) -> list[tuple[int, int, str, float]]:
    """(start, end, token, weight) of what is worth noting in `text`.

    With `opening`, a capital at the start of a sentence is no name.
    """
    found: list[tuple[int, int, str, float]] = []
    for match in _TOKEN.finditer(text):
        run = match[0]
        start = match.start()
        for token, weight in parts(run):
            if weight == 0.25 and opening and (start == 0 or text[start - 2 : start] in _STOPS):
                continue
            found.append((start, match.end(), token, weight))
    if not text.isascii():
        found.extend((m.start(), m.end(), m[1] or m[0], 1.2) for m in _SOLID_NAME.finditer(text))
        found.sort()
    return found


_STOPS = (". ", "! ", "? ", ": ", "\n ", "- ", "* ", "# ")


def parts(run: str) -> list[tuple[str, float]]:
    """The tokens of one run without spaces, each with its weight.

    3 is an identifier nobody can guess, 0.3 a small number.
    """
    run = run.strip("-:=?&+#,") if run[0] != "-" else run
    if not run:
        return []
    if "://" in run:
        return [(run.rstrip("."), 2.5)]
    if "@" in run[1:] and "." in run[run.index("@", 1) :]:
        return [(run, 3.0)]
    if "=" in run:
        return [item for piece in run.split("=") if piece for item in parts(piece)]
    if "/" in run or "\\" in run:
        return _path(run)
    if ":" in run:
        pieces = run.split(":")
        if all(p.isdigit() for p in pieces):
            return [(run, 1.0)]
        if _DATE.fullmatch(run):
            return [(run, 2.0)]
        return [item for piece in pieces if piece for item in parts(piece)]
    if not run[0].isalnum() and run[0] in "$€£¥₹₽₩₺₫฿":
        return [(run, 2.2)]
    return _word(run)


def _path(run: str) -> list[tuple[str, float]]:
    if _DATE.fullmatch(run):
        return [(run, 2.0)]
    head, _, line = run.partition(":")
    names = [p for p in re.split(r"[/\\]+", head) if p]
    rooted = not head[0].isalnum()
    if not rooted and "." not in head and "_" not in head and len(names) < 4:
        if all(p.isalpha() and p.islower() for p in names):
            return [(head, 0.8 if len(names) > 2 else 0.5)]
        if len(names) == 2 or all(p.isdigit() for p in names):
            return [item for p in names for item in _word(p)]
    return [(head, _PATH)] + (parts(line) if line else [])


def _word(run: str) -> list[tuple[str, float]]:
    if run[0] == "-":
        return [(run, 0.5)] if len(run) > 3 else []
    body = run.lstrip(".@#")
    if not body:
        return []
    digits = sum(map(str.isdigit, body)) if not body.isalpha() else 0
    if digits == 0:
        return _name(run, body)
    compact = body.replace(".", "").replace(",", "").replace("-", "").replace("%", "")
    if compact.isdigit():
        if _DATE.fullmatch(body):
            return [(body, 2.0)]
        if len(compact) >= 5:
            return [(body, 2.5 if body.isdigit() or "-" in body else 1.3)]
        return [(body, 0.7 if len(compact) < len(body) else 0.4 if len(body) == 4 else 0.1)]
    if _DATE.fullmatch(body):
        return [(body, 2.0)]
    if "." in body and "_" not in body and digits < 4:
        return _name(run, body)
    letters = len(body) - digits
    if body.isupper() and len(body) >= 4:
        return [(body, 3.0)]
    if digits >= 3 or (len(body) >= 6 and digits >= 2):
        return [(body, 2.8)]
    if "_" in body or _CAMEL.search(body):
        return [(body, _IDENTIFIER)]
    return [(body, 1.0 if letters > 2 else 0.7)]


def _name(run: str, body: str) -> list[tuple[str, float]]:
    if "." in body:
        pieces = [p for p in body.split(".") if p]
        strong = [item for p in pieces for item in _name(p, p) if item[1] >= 1.0]
        last = pieces[-1]
        if strong and not (last.islower() and len(last) <= 4):
            return [*strong, (body, 0.2)]
        return [(body, _IDENTIFIER if len(body) > 4 else 0.3)]
    if "_" in body:
        core = body.strip("_")
        if body.startswith("__") and body.endswith("__"):
            return [(body, 0.3)]
        return [(body, _IDENTIFIER if "_" in core else 0.8)] if core else []
    if _FAULT.search(body):
        return [(body, _FILE)]
    if "-" in body:
        return [(body, 0.25 if body.islower() else 0.4)] if len(body) > 4 else []
    if _CAMEL.search(body):
        return [(body, _IDENTIFIER)]
    if body.isupper():
        return [(body, 0.4)] if len(body) > 1 else []
    if run[0] in ".@#":
        return [(run, 0.8)]
    return [(body, 0.25)] if body[0].isupper() and len(body) > 1 else []
