from __future__ import annotations

import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxproxy.tokens import audio_tokens, data_url_tokens, document_tokens, image_size, image_tokens
from ctxproxy.tokens.media import base64_size


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII5s", 13, b"IHDR", width, height, b"\x08\x06\0\0\0")


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\xf7\0\0"


def jpeg(width: int, height: int, *, before: int = 0) -> bytes:
    """A start of frame behind a fill byte and application segments with `before` bytes."""
    segments = b"\xff\xe0" + struct.pack(">H", 16) + b"JFIF\0" + b"\0" * 9
    while before > 0:
        size = min(before, 60_000)
        segments += b"\xff\xe1" + struct.pack(">H", size + 2) + b"\0" * size
        before -= size
    return b"\xff\xd8" + segments + b"\xff\xff\xc0" + struct.pack(">HBHHB", 17, 8, height, width, 3) + b"\0" * 9


def webp_extended(width: int, height: int) -> bytes:
    sizes = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF\0\0\0\0WEBPVP8X" + struct.pack("<I", 10) + b"\0\0\0\0" + sizes


def webp_lossless(width: int, height: int) -> bytes:
    bits = (width - 1) | (height - 1) << 14
    return b"RIFF\0\0\0\0WEBPVP8L" + struct.pack("<I", 9) + b"\x2f" + struct.pack("<I", bits)


def webp_lossy(width: int, height: int) -> bytes:
    return b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height)


FORMATS = [png, gif, jpeg, webp_extended, webp_lossless, webp_lossy]


@pytest.mark.parametrize("make", FORMATS)
@pytest.mark.parametrize("size", [(1, 1), (640, 480), (1920, 1080), (3, 4000)])
def test_sizes_are_read_from_headers(make, size):
    assert image_size(make(*size)) == size


def test_metadata_before_the_size_of_a_jpeg():
    assert image_size(jpeg(300, 200, before=50_000)) == (300, 200)
    assert base64_size(base64.b64encode(jpeg(300, 200, before=40_000)).decode()) == (300, 200)


@pytest.mark.parametrize("make", FORMATS)
def test_a_header_that_is_cut_off_has_no_size(make):
    whole = make(640, 480)
    for end in range(len(whole)):
        assert image_size(whole[:end]) in (None, (640, 480))
    assert image_size(whole[:9]) is None


@given(
    st.binary(max_size=200), st.sampled_from([b"", b"\xff\xd8", b"RIFF\0\0\0\0WEBP", b"\x89PNG\r\n\x1a\n", b"GIF89a"])
)
def test_any_bytes_are_safe(data: bytes, start: bytes):
    size = image_size(start + data)
    assert size is None or min(size) > 0


@pytest.mark.parametrize(
    ("width", "height", "model", "detail", "tokens"),
    [
        (1024, 1024, "gpt-4o", "high", 765),
        (2048, 4096, "gpt-4o", "high", 1105),
        (597, 566, "gpt-4o", "auto", 765),  # as reported by the API for an image of that size
        (4096, 8192, "gpt-4o", "low", 85),
        (1024, 1024, "openai/gpt-5", "auto", 630),
        (1024, 1024, "gpt-4o-mini", "auto", 25501),
        (1024, 1024, "gpt-4.1-mini", "auto", 1659),
        (1800, 2400, "gpt-4.1-mini", "auto", 2353),
        (100, 100, "some-deployment", "auto", 255),
        (1920, 1080, "gpt-5.4-mini", "auto", 2443),
    ],
)
def test_openai_images(width: int, height: int, model: str, detail: str, tokens: int):
    assert image_tokens(width, height, family="o200k", model=model, detail=detail) == tokens


@pytest.mark.parametrize(
    ("family", "width", "height", "tokens"),
    [
        ("claude", 200, 200, 64),
        ("claude-old", 1092, 1092, 1521),
        ("claude", 1092, 1092, 1521),
        ("gemini", 300, 300, 1120),
    ],
)
def test_images_of_others(family: str, width: int, height: int, tokens: int):
    assert image_tokens(width, height, family=family) == tokens


def test_large_images_are_shrunk_first():
    assert image_tokens(8000, 8000, family="claude-old") <= 1568
    assert 1568 < image_tokens(8000, 8000, family="claude") <= 4784
    assert image_tokens(8000, 8000, family="o200k", model="gpt-4.1-mini") <= 1536 * 1.62 + 1


def test_gemini_by_generation_and_resolution():
    assert image_tokens(300, 300, family="gemini", model="gemini-2.5-pro") == 258
    assert image_tokens(1536, 768, family="gemini", model="gemini-2.5-pro") == 516
    assert image_tokens(300, 300, family="gemini", model="gemini-3-pro", detail="low") == 280
    assert image_tokens(300, 300, family="gemini", detail="media_resolution_medium") == 560


@given(
    st.integers(-5, 100_000),
    st.integers(-5, 100_000),
    st.sampled_from(["o200k", "claude", "claude-old", "gemini", "qwen", "?"]),
    st.sampled_from(["", "gpt-4o", "gpt-5.4", "gpt-6-sol", "o4-mini"]),
    st.sampled_from(["auto", "low", "high", "original", "?"]),
)
def test_an_image_always_costs_something(width: int, height: int, family: str, model: str, detail: str):
    tokens = image_tokens(width, height, family=family, model=model, detail=detail)
    most = 258 * 131 * 131 if family == "gemini" else 65_000
    assert 0 < tokens <= most


def test_a_data_url_costs_by_its_size_and_not_by_its_length():
    url = "data:image/png;base64," + base64.b64encode(png(1920, 1080)).decode()
    longer = url + "A" * 2_000_000
    expected = image_tokens(1920, 1080, family="o200k", model="gpt-4o")
    assert data_url_tokens(url, family="o200k", model="gpt-4o") == expected
    assert data_url_tokens(longer, family="o200k", model="gpt-4o") == expected


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/a.png",
        "data:image/png;base64,",
        "data:image/png;base64,%%%",
        "data:image/svg+xml,<svg/>",
        "",
    ],
)
def test_an_unknown_size_costs_a_screenshot(url: str):
    assert data_url_tokens(url, family="claude") == image_tokens(1280, 1024, family="claude")


def test_documents_cost_by_pages():
    one = document_tokens(family="claude", pages=1)
    assert 2000 < one < 6000
    assert document_tokens(family="claude", pages=10) == 10 * one
    assert document_tokens(family="claude") == one
    assert document_tokens(family="gemini", pages=3) == 1680
    assert document_tokens(family="gemini", model="gemini-2.5-flash", pages=3) == 774


def test_a_document_without_pages_costs_by_its_size_and_less_than_its_bytes():
    assert document_tokens(family="claude", n_bytes=100) == document_tokens(family="claude", pages=1)
    assert document_tokens(family="claude", n_bytes=1_500_000) < 1_500_000 / 4


def test_audio_costs_by_the_second():
    assert audio_tokens(family="gemini", seconds=10) == 320
    assert audio_tokens(family="o200k", seconds=10) == 100
    assert audio_tokens(family="o200k", n_bytes=480_000, format="wav") == 100
    assert audio_tokens(family="o200k") == 600
