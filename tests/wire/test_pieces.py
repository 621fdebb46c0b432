"""ctxproxy/wire/pieces.py: what unknown, sealed and binary content costs."""

from __future__ import annotations

import json

from wire.histories import png

from ctxproxy.wire.base import Scale
from ctxproxy.wire.pieces import integer, listed, other, sealed_tokens, source_tokens

SCALE = Scale("o200k", "gpt-4o")


def test_sealed_content_costs_what_is_inside() -> None:
    assert sealed_tokens(0) == sealed_tokens(800) == 0
    assert sealed_tokens(40_000) == (30_000 - 650) // 4


def test_an_unknown_value_costs_its_json_but_for_what_nobody_reads() -> None:
    value = {"type": "x", "words": "hello", "signature": "S" * 4000, "list": [{"encrypted_content": "E" * 4000}]}
    piece = other(value, ("content", 0), SCALE)
    assert json.loads(piece.text) == {
        "type": "x",
        "words": "hello",
        "signature": "",
        "list": [{"encrypted_content": ""}],
    }
    assert piece.tokens == 2 * sealed_tokens(4000)
    picture = other({"url": f"data:image/png;base64,{png()}"}, (), SCALE)
    assert json.loads(picture.text) == {"url": ""}
    assert picture.tokens > 50


def test_base64_costs_what_it_shows() -> None:
    image = {"type": "base64", "media_type": "image/png", "data": png()}
    assert source_tokens(image, SCALE) == other({"source": image}, (), SCALE).tokens
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "J" * 400_000}
    assert source_tokens(pdf, SCALE) > source_tokens(image, SCALE)


def test_readers_of_raw_values() -> None:
    assert [integer(d) for d in (b"5", b"true", b'"5"', None)] == [5, None, None, None]
    assert [listed(d) for d in (b"[1]", b"{}", None)] == [[1], [], []]
