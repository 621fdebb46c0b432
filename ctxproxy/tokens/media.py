"""What images, documents and audio cost in tokens: by their size, never by the length of their base64."""

from __future__ import annotations

import base64
import binascii
import math
from dataclasses import dataclass

__all__ = ["audio_tokens", "base64_size", "data_url_tokens", "document_tokens", "image_size", "image_tokens"]

HEADER_BYTES = 64 * 1024
"""At most this much of an image is decoded to find its size: a JPEG may carry EXIF data before it."""


def image_size(head: bytes) -> tuple[int, int] | None:
    """Width and height in pixels from the first bytes of a PNG, JPEG, WebP or GIF; None if not found."""
    width = height = 0
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR" and len(head) >= 24:
        width, height = int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    elif head.startswith((b"GIF87a", b"GIF89a")) and len(head) >= 10:
        width, height = int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    elif head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        width, height = _webp_size(head)
    elif head.startswith(b"\xff\xd8"):
        width, height = _jpeg_size(head)
    return (width, height) if width > 0 and height > 0 else None


def _webp_size(head: bytes) -> tuple[int, int]:
    chunk = head[12:16]
    if chunk == b"VP8X" and len(head) >= 30:
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    if chunk == b"VP8L" and len(head) >= 25 and head[20] == 0x2F:
        bits = int.from_bytes(head[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if chunk == b"VP8 " and len(head) >= 30 and head[23:26] == b"\x9d\x01\x2a":
        return int.from_bytes(head[26:28], "little") & 0x3FFF, int.from_bytes(head[28:30], "little") & 0x3FFF
    return 0, 0


def _jpeg_size(head: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 <= len(head):
        if head[at] != 0xFF:
            return 0, 0
        marker = head[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:  # markers without a length
            at += 2
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # a start-of-frame segment
            return int.from_bytes(head[at + 7 : at + 9], "big"), int.from_bytes(head[at + 5 : at + 7], "big")
        else:
            at += 2 + max(2, int.from_bytes(head[at + 2 : at + 4], "big"))
    return 0, 0


@dataclass(frozen=True, slots=True)
class _Tiles:
    """OpenAI's older rule: fit 2048 x 2048, short side to 768, then 512-pixel tiles."""

    base: int
    tile: int


@dataclass(frozen=True, slots=True)
class _Patches:
    """Square patches of `side` pixels after shrinking to `edge` pixels and `most` patches, times `factor`."""

    side: int
    most: int
    edge: int
    factor: float = 1.0


# OpenAI: developers.openai.com/api/docs/guides/images-vision. First match of the model's name wins. The
# gpt-4o rule is checked against reported usage; budgets and factor from gpt-5.2 on are secondhand.
_OPENAI: tuple[tuple[str, _Tiles | _Patches], ...] = (
    ("gpt-4o-mini", _Tiles(2833, 5667)),
    ("gpt-4.1-mini", _Patches(32, 1536, 0, 1.62)),
    ("gpt-4.1-nano", _Patches(32, 1536, 0, 2.46)),
    ("gpt-5-mini", _Patches(32, 1536, 0, 1.62)),
    ("gpt-5.4-mini", _Patches(32, 1536, 0, 1.62)),
    ("gpt-5-nano", _Patches(32, 1536, 0, 2.46)),
    ("gpt-5.4-nano", _Patches(32, 1536, 0, 2.46)),
    ("o4-mini", _Patches(32, 1536, 0, 1.72)),
    ("computer-use", _Tiles(65, 129)),
    ("gpt-4o", _Tiles(85, 170)),
    ("gpt-4.1", _Tiles(85, 170)),
    ("gpt-4.5", _Tiles(85, 170)),
    ("gpt-4-turbo", _Tiles(85, 170)),
    ("gpt-4-", _Tiles(85, 170)),
    ("o1", _Tiles(75, 150)),
    ("o3", _Tiles(75, 150)),
    ("gpt-5.1", _Tiles(70, 140)),
    ("gpt-5.2", _Patches(32, 1536, 0, 1.2)),
    ("gpt-5.3", _Patches(32, 1536, 0, 1.2)),
    ("gpt-5.", _Patches(32, 2500, 2048, 1.2)),
    ("gpt-5", _Tiles(70, 140)),
    ("gpt-6", _Patches(32, 2500, 2048, 1.2)),
)
_OPENAI_ORIGINAL = _Patches(32, 10_000, 6000, 1.2)
_OPENAI_LOW_PATCHES = 256
_OPENAI_DEFAULT = _Tiles(85, 170)
# Claude: platform.claude.com/docs/en/build-with-claude/vision. One token a 28-pixel patch.
_CLAUDE = _Patches(28, 4784, 2576)
_CLAUDE_OLD = _Patches(28, 1568, 1568)
# Gemini 3: tokens by media_resolution; the default is high. ai.google.dev/gemini-api/docs/media-resolution.
_GEMINI3 = {"low": 280, "medium": 560, "high": 1120, "ultra_high": 2240}
_GEMINI_TILE = 258
# Others differ by server and model. 28-pixel patches (Qwen-VL, GLM-V, Kimi-VL) are the common case.
_OTHER = _Patches(28, 4096, 0)

_UNKNOWN_SIZE = (1280, 1024)
"""Assumed for an image whose size cannot be read (an http URL, a file id): a usual screenshot."""


def image_tokens(width: int, height: int, *, family: str, model: str = "", detail: str = "auto") -> int:
    """Input tokens of an image of `width` x `height` pixels for a tokenizer family and, if known, a model."""
    width, height = max(1, width), max(1, height)
    if family in ("o200k", "cl100k"):
        return _openai_tokens(width, height, _bare(model), detail)
    if family.startswith("claude"):
        return _patch_tokens(width, height, _CLAUDE_OLD if family == "claude-old" else _CLAUDE)
    if family == "gemini":
        return _gemini_tokens(width, height, _bare(model), detail)
    return _patch_tokens(width, height, _OTHER)


def _bare(model: str) -> str:
    return model.rsplit("/", 1)[-1].lower()


def _openai_tokens(width: int, height: int, model: str, detail: str) -> int:
    rule = next((rule for start, rule in _OPENAI if model.startswith(start)), _OPENAI_DEFAULT)
    if isinstance(rule, _Patches):
        if detail == "original":
            rule = _OPENAI_ORIGINAL
        elif detail == "low":
            rule = _Patches(rule.side, _OPENAI_LOW_PATCHES, 0, rule.factor)
        return _patch_tokens(width, height, rule)
    if detail == "low":
        return rule.base
    scale = min(1.0, 2048 / max(width, height))
    scale *= min(1.0, 768 / (min(width, height) * scale))
    across, down = (math.ceil(round(side * scale, 3) / 512) for side in (width, height))
    return rule.base + rule.tile * max(1, across) * max(1, down)


def _patch_tokens(width: float, height: float, rule: _Patches) -> int:
    if rule.edge and max(width, height) > rule.edge:
        scale = rule.edge / max(width, height)
        width, height = max(1.0, width * scale), max(1.0, height * scale)
    across, down = math.ceil(width / rule.side), math.ceil(height / rule.side)
    if across * down > rule.most:
        scale = math.sqrt(rule.most * rule.side**2 / (width * height))
        # A whole number of patches in the direction that would otherwise waste most of one.
        across, down = width * scale / rule.side, height * scale / rule.side
        if across >= 1 and down >= 1:
            scale *= min(math.floor(across) / across, math.floor(down) / down)
        across, down = math.ceil(round(width * scale / rule.side, 6)), math.ceil(round(height * scale / rule.side, 6))
    return math.ceil(min(max(1, across) * max(1, down), rule.most) * rule.factor)


def _gemini_tokens(width: int, height: int, model: str, detail: str) -> int:
    if model.startswith(("gemini-1", "gemini-2")):
        if width <= 384 and height <= 384:
            return _GEMINI_TILE
        return _GEMINI_TILE * math.ceil(width / 768) * math.ceil(height / 768)
    return _GEMINI3.get(detail.removeprefix("media_resolution_"), _GEMINI3["high"])


def data_url_tokens(url: str, *, family: str, model: str = "", detail: str = "auto") -> int:
    """Tokens of an image given by URL; a data URL's size is read from its first 64 kB, decoded.

    Other URLs, unknown formats and broken base64 cost what an image of a usual screenshot's size does.
    """
    size = _data_url_size(url) or _UNKNOWN_SIZE
    return image_tokens(*size, family=family, model=model, detail=detail)


def _data_url_size(url: str) -> tuple[int, int] | None:
    if not url.startswith("data:"):
        return None
    comma = url.find(",", 0, 1024)
    return base64_size(url, comma + 1) if comma > 0 else None


def base64_size(text: str, start: int = 0) -> tuple[int, int] | None:
    """Width and height of a base64-encoded image that begins at text[start]; None if they are not found."""
    step = HEADER_BYTES // 3 * 4
    # A first look at 60 bytes is enough for all but JPEG and saves decoding the rest.
    for length in (80, step):
        part = text[start : start + length].strip()
        try:
            size = image_size(base64.b64decode(part[: len(part) // 4 * 4], validate=False))
        except (binascii.Error, ValueError):
            return None
        if size:
            return size
    return None


# A page is its text and, for Claude and OpenAI, also its picture. platform.claude.com (pdf-support) names
# 1,500-3,000 text tokens a page; Gemini charges 258 (2.x) or 560 (3) a page and reads the text within that.
_PAGE_TEXT = 2000
_PAGE_SIZE = (1240, 1754)
"""A4 at 150 dots per inch."""
_GEMINI_PAGE = {"gemini-1": 258, "gemini-2": 258}
_PAGE_BYTES = 60_000
"""Bytes of a PDF per page where the pages are not stated: between scanned pages and plain text."""


def document_tokens(*, family: str, model: str = "", pages: int | None = None, n_bytes: int | None = None) -> int:
    """Tokens of a PDF or similar file: by its pages, else by a guess from its decoded size in bytes."""
    if pages is None:
        pages = 1 if n_bytes is None else max(1, round(n_bytes / _PAGE_BYTES))
    if family == "gemini":
        return pages * _GEMINI_PAGE.get(_bare(model)[:8], 560)
    return pages * (_PAGE_TEXT + image_tokens(*_PAGE_SIZE, family=family, model=model))


def audio_tokens(*, family: str, seconds: float | None = None, n_bytes: int | None = None, format: str = "wav") -> int:
    """Tokens of audio: 32 a second for Gemini, 10 for OpenAI's audio models (100 ms a token).

    Where the length is unknown it follows from the decoded size in bytes at the format's usual rate, else 60 s.
    """
    if seconds is None:
        seconds = 60.0 if n_bytes is None else n_bytes / (48_000 if format in ("wav", "pcm16", "pcm") else 8_000)
    return math.ceil(seconds * (32 if family == "gemini" else 10))
