"""Streams: what is held back and how long, and that every byte comes out as it came in."""

from __future__ import annotations

import asyncio
import gzip
import importlib
import json
import zlib
from typing import Any

import anthropic
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from provider import FakeProvider

from ctxproxy.clients import wrap
from ctxproxy.clients.streams import HOLD_BYTES, Watch

from .calls import CALLS, KINDS, SSL, client, done, each, history, http, library, opened, sdk_of

LIBRARIES = sorted({"httpx", library(openai).__name__, library(anthropic).__name__})
PATHS = {"chat": "/chat/completions", "responses": "/responses", "messages": "/messages"}
LOOKS: dict[str, dict[str, Any]] = {
    "plain": {},
    "pieces": {"crlf": True, "chunk_bytes": 7, "comments": True, "pings": True},
    "gzip": {"compress": True},
    "gzip-pieces": {"compress": True, "chunk_bytes": 5, "comments": True},
}


def _body(wire: str) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "m", "stream": True, "max_tokens": 500}
    if wire == "responses":
        del body["max_tokens"]
    return {**body, "input" if wire == "responses" else "messages": history(3)}


def _http_client(name: str, *, asynchronous: bool) -> Any:
    pytest.importorskip(name)
    module = importlib.import_module(name)
    return (module.AsyncClient if asynchronous else module.Client)(verify=SSL, timeout=30.0)


async def _streamed(http_client: Any, url: str, wire: str, how: str) -> bytes:
    async with opened(http_client.stream("POST", url + PATHS[wire], json=_body(wire))) as response:
        prefix = "a" if hasattr(http_client, "aclose") else ""
        data = b"".join([chunk async for chunk in each(getattr(response, f"{prefix}iter_{how}")())])
        assert response.is_closed
        assert response.is_stream_consumed
        assert response.elapsed.total_seconds() >= 0
        return data


@pytest.mark.parametrize("wire", PATHS)
@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("name", LIBRARIES)
async def test_a_stream_comes_out_byte_for_byte(name: str, asynchronous: bool, look: str, wire: str) -> None:
    for how in ("raw", "bytes"):
        seen: list[bytes] = []
        for wrapped in (False, True):
            with FakeProvider(**LOOKS[look]) as provider:  # a new one has the same ids
                http_client = _http_client(name, asynchronous=asynchronous)
                used = wrap(http_client, window=100_000) if wrapped else http_client
                seen.append(await _streamed(used, provider.base_url, wire, how))
                await done(used.aclose() if asynchronous else used.close())
        assert seen[0] == seen[1]
        assert b"data:" in (gzip.decompress(seen[1]) if how == "raw" and "gzip" in look else seen[1])


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("form", ["failed", "error"])
@pytest.mark.parametrize("name", KINDS)
async def test_a_refusal_inside_a_stream_is_cured_unseen(
    provider: FakeProvider, name: str, form: str, look: str
) -> None:
    for key, value in LOOKS[look].items():
        setattr(provider, key, value)
    kind: Any = KINDS[name]
    calls = ["messages.stream"] if sdk_of(kind) is anthropic else ["chat.stream", "responses.stream"]
    for call in calls:
        provider.reset(f"overflow-stream;window=800;form={form}")
        used = wrap(client(kind, provider.base_url, http(library(sdk_of(kind)), kind)), window=100_000)
        assert await CALLS[call].run(used, history()) == "Understood."
        assert provider.calls == 2
        await done(used.close())


@pytest.mark.parametrize("name", KINDS)
async def test_a_refusal_inside_each_stream_is_raised_as_both_errors(provider: FakeProvider, name: str) -> None:
    kind: Any = KINDS[name]
    sdk: Any = sdk_of(kind)
    for call in ["messages.stream"] if sdk is anthropic else ["chat.stream", "responses.stream"]:
        provider.reset(*["overflow-stream;window=800"] * 9)
        used = wrap(client(kind, provider.base_url, http(library(sdk), kind)), window=100_000)
        with pytest.raises(sdk.BadRequestError) as caught:
            await CALLS[call].run(used, history())
        assert provider.calls == 3
        assert caught.value.status_code == 400
        assert caught.value.attempts == 3
        if sdk is openai:
            assert caught.value.code == "context_length_exceeded"
        await done(used.close())


def test_responses_that_wait_are_handed_on_after_a_while() -> None:
    """The model thinks for long after `response.created`: the caller gets that event before the first content."""
    with FakeProvider(fail_plan=["hold-first"]) as provider:
        used = wrap(client(openai.OpenAI, provider.base_url, http(library(openai), openai.OpenAI)), window=100_000)
        with used.responses.create(model="m", input=history(), stream=True) as stream:
            events = iter(stream)
            assert next(events).type == "response.created"
            assert next(events).type == "response.in_progress"
            provider.wait_held()
            provider.release()
            assert [e.type for e in events][-1] == "response.completed"
        used.close()


async def test_responses_that_wait_are_handed_on_after_a_while_async() -> None:
    kind = openai.AsyncOpenAI
    with FakeProvider(fail_plan=["hold-first", "hold-first"]) as provider:
        used = wrap(client(kind, provider.base_url, http(library(openai), kind)), window=100_000)
        async with await used.responses.create(model="m", input=history(), stream=True) as stream:
            events = aiter(stream)
            assert (await anext(events)).type == "response.created"
            assert (await anext(events)).type == "response.in_progress"
            await asyncio.to_thread(provider.wait_held)
            provider.release()
            assert [e.type async for e in events][-1] == "response.completed"
        # And one that is left alone while it waits.
        async with await used.responses.create(model="m", input=history(), stream=True) as stream:
            assert (await anext(aiter(stream))).type == "response.created"
        assert stream.response.is_closed
        await used.close()


@pytest.mark.parametrize("call", ["chat.stream", "responses.stream", "messages.stream"])
async def test_the_first_content_is_not_held(provider: FakeProvider, call: str) -> None:
    """The provider waits after the first piece of text: the caller has it by then."""
    provider.reset("hold-content")
    provider.answer = "a longer answer that comes in several pieces " * 4
    kind: Any = openai.OpenAI if CALLS[call].sdk == "openai" else anthropic.Anthropic
    used = wrap(client(kind, provider.base_url, http(library(sdk_of(kind)), kind)), window=100_000)
    options: dict[str, Any] = {"model": "m", "stream": True}
    if call == "chat.stream":
        stream = used.chat.completions.create(messages=history(), **options)
    elif call == "responses.stream":
        stream = used.responses.create(input=history(), **options)
    else:
        stream = used.messages.create(messages=history(), max_tokens=99, **options)
    with stream:
        assert next(iter(stream)) is not None
        provider.wait_held()


@pytest.mark.parametrize("call", ["chat.stream", "responses.stream", "messages.stream"])
@pytest.mark.parametrize("fault", ["drop", "drop-body", "drop-body;after=0", "error-stream", "error-stream;after=0"])
async def test_a_stream_that_breaks_breaks_as_without_us(provider: FakeProvider, call: str, fault: str) -> None:
    for asynchronous in (False, True):
        name = ("Async" if asynchronous else "") + ("OpenAI" if CALLS[call].sdk == "openai" else "Anthropic")
        kind: Any = KINDS[name]
        seen: list[tuple[str, str]] = []
        for wrapped in (False, True):
            provider.reset(fault)
            used = client(kind, provider.base_url, http(library(sdk_of(kind)), kind))
            used = wrap(used, window=100_000) if wrapped else used
            try:
                seen.append(("", await CALLS[call].run(used, history())))
            except Exception as error:
                seen.append((type(error).__name__, str(error)))
            assert provider.calls == 1
            await done(used.close())
        assert seen[0] == seen[1]


# --- the watch ---

OVERFLOW = {
    "error": {"message": "This model's maximum context length is 100 tokens.", "code": "context_length_exceeded"}
}
STREAMS: dict[str, tuple[bytes, str | None]] = {
    "chat content": (b'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\n', None),
    "chat content with a null error": (b'data: {"error":null,"choices":[]}\n\n', None),
    "an answer that quotes an error": (
        b"data: " + json.dumps({"choices": [{"delta": {"content": json.dumps(OVERFLOW)}}]}).encode() + b"\n\n",
        None,
    ),
    "an error": (b": hello\n\ndata: " + json.dumps(OVERFLOW).encode() + b"\n\n", "error"),
    "an error without an end": (b"data: " + json.dumps(OVERFLOW).encode(), "error"),
    "a ping, then an error": (
        b'event: ping\ndata: {"type":"ping"}\n\nevent: error\ndata: {"type":"error"}\n\n',
        "error",
    ),
    "created, then failed": (
        b'event: response.created\r\ndata: {"type":"response.created"}\r\n\r\n'
        b'event: response.failed\r\ndata: {"type":"response.failed"}\r\n\r\n',
        "response.failed",
    ),
    "created, then content": (
        b'event: response.created\ndata: {"type":"response.created"}\n\n'
        b'event: response.output_item.added\ndata: {"type":"response.output_item.added"}\n\n'
        b'event: error\ndata: {"type":"error"}\n\n',
        None,
    ),
    "nothing": (b"", None),
    "done at once": (b"data: [DONE]\n\n", None),
}


@pytest.mark.parametrize("name", STREAMS)
@given(data=st.data())
def test_the_pieces_of_a_stream_do_not_matter(name: str, data: st.DataObject) -> None:
    stream, event = STREAMS[name]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    seen = Watch("chat", lambda chunk: chunk)
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        seen.feed(stream[start:stop])
    seen.end()
    assert seen.decided
    assert seen.event == event


def test_a_stream_without_an_event_is_held_no_longer_than_its_bound() -> None:
    seen = Watch("chat", lambda chunk: chunk)
    held = 0
    while not seen.decided:
        seen.feed(b": OPENROUTER PROCESSING\n\n")
        held += 25
        assert not seen.begun
    assert held <= HOLD_BYTES + 25
    assert seen.event is None


def test_a_stream_that_is_not_what_its_encoding_says_is_handed_on() -> None:
    seen = Watch("chat", zlib.decompressobj(31).decompress)
    seen.feed(b"data: {}\n\n")
    assert seen.decided
    assert seen.event is None
