"""Whatever becomes of a summary call, the turn that wanted it is answered, with labelled notes in its place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from flipping import Client
from provider import FakeProvider
from serving import serving

from ctxproxy.strategies.summarize import SECTIONS

WINDOW = 6_000
GOOD = "\n".join(f"### {name}\n- about {name.lower()} of src/m1.py and ticket 4711" for name in SECTIONS)
_NOTE = re.compile(r"<context_notes kind=\\\"(\w+)\\\"")


def is_summary(request: Any) -> bool:
    return b"### Decisions Made\\n- (each" in request.body


SAID = {
    "status": "",
    "timeout": "",
    "empty": "",
    "error text": "Error: the model is overloaded, please try again later. " * 6,
    "longer than its input": "\n".join(f"### {name}\n- {'more and more words ' * 4_000}" for name in SECTIONS),
    "no headings": "We talked about hotels in Oslo and about what they cost. " * 8,
    "good": GOOD,
}


def post(url: str, client: Client) -> httpx.Response:
    found = httpx.post(url + "/v1/chat/completions", content=client.body(), timeout=60)
    assert found.status_code == 200, found.text
    return found


@pytest.mark.parametrize("fault", SAID)
def test_a_turn_survives_its_summarizer(fault: str, tmp_path: Path) -> None:
    client = Client("chat", flips=False)
    while len(client.body()) < 25_000:
        client.talk()

    def spoil(request: Any) -> str | None:
        if not is_summary(request):
            return None
        return {"status": "503", "timeout": "hold"}.get(fault)

    with (
        FakeProvider(window=WINDOW, answer=lambda r: SAID[fault] if is_summary(r) else "ok", fault=spoil) as provider,
        serving(provider.base_url, window=WINDOW, policy={"summary_wait": 0.3 if fault == "timeout" else 10}) as proxy,
    ):
        first = post(proxy.url, client)
        assert first.headers["x-ctxproxy-reason"] == "overflow"
        for _ in range(25):  # over two more compactions, no request holds two notes
            client.talk()
            post(proxy.url, client)
        provider.release()
        bodies = [r.body.decode() for r in provider.model_requests if not is_summary(r)]
        asked = len([r for r in provider.model_requests if is_summary(r)])
    kinds = [_NOTE.findall(body) for body in bodies]
    assert all(len(found) == 1 for found in kinds)
    if fault == "good":
        assert {kind for (kind,) in kinds} == {"summary"}
        assert all(body.count("about pending of src/m1.py") == 1 for body in bodies)
    else:
        assert {kind for (kind,) in kinds} == {"notes"}
        assert asked == 2  # two failures in a row, then nothing is asked for a while
    assert not provider.violations
