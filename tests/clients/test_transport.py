"""The HTTP clients themselves: what is rebuilt, what is left alone, faults of ours, event loops, summaries."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Sequence
from typing import Any

import anthropic
import openai
import pytest
from provider import Answer, FakeProvider

from ctxproxy.clients import wrap
from ctxproxy.clients.transport import seam_of, through
from ctxproxy.compaction import Compaction
from ctxproxy.ledger import Entry, MemoryLedger
from ctxproxy.runtime import Runtime

from .calls import CALLS, RULES, SSL, client, done, history, http, library

httpx: Any = library(openai)
LARGE = 400_000  # tokens


def _client(asynchronous: bool = False, **options: Any) -> Any:
    return (httpx.AsyncClient if asynchronous else httpx.Client)(verify=SSL, timeout=30.0, **options)


def _body(messages: list[dict[str, Any]], **more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": messages, **more}).encode()


# --- what is rebuilt ---


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_rebuilt_request_keeps_everything_but_its_body(provider: FakeProvider, asynchronous: bool) -> None:
    provider.reset("overflow;window=800")
    extensions: list[dict[str, Any]] = []

    def note(request: Any) -> None:
        extensions.append(request.extensions)

    async def anote(request: Any) -> None:
        extensions.append(request.extensions)

    used = wrap(
        _client(asynchronous, event_hooks={"request": [anote if asynchronous else note]}), policy=RULES, window=LARGE
    )
    headers = [("X-One", "1"), ("X-One", "2"), ("Idempotency-Key", "abc"), ("Content-Type", "application/json")]
    url = f"{provider.base_url}/base/v1/chat/completions?api-version=2&x=%2F"
    request = used.build_request("POST", url, content=_body(history()), headers=headers, timeout=7.0)
    request.extensions["mine"] = "kept"
    response = await done(used.send(request))
    assert response.status_code == 200
    first, second = provider.model_requests
    assert (first.target, second.target) == (url.removeprefix(provider.base_url),) * 2
    changed = {"content-length", "idempotency-key"}
    assert [h for h in first.headers if h[0].lower() not in changed] == [
        h for h in second.headers if h[0].lower() not in changed
    ]
    assert (first.header("idempotency-key"), second.header("idempotency-key")) == ("abc", "abc-2")
    assert second.header("content-length") == str(len(second.body))
    for seen in extensions:
        assert seen["mine"] == "kept"
        assert seen["timeout"]["read"] == 7.0
    await done(used.aclose() if asynchronous else used.close())


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_compressed_request_is_read_and_sent_plain_only_if_it_changes(provider: FakeProvider, encoding: str) -> None:
    import zstandard

    body = _body(history())
    packed = gzip.compress(body) if encoding == "gzip" else zstandard.ZstdCompressor().compress(body)
    headers = {"content-encoding": encoding, "content-type": "application/json"}
    with wrap(_client(), policy=RULES, window=LARGE) as used:
        answer = used.post(f"{provider.base_url}/v1/chat/completions", content=packed, headers=headers)
        assert answer.headers["x-ctxproxy-level"] == "NORMAL"
        assert provider.requests[0].body == packed
    provider.reset()
    with wrap(_client(), policy=RULES, window=1_000) as used:
        used.post(f"{provider.base_url}/v1/chat/completions", content=packed, headers=headers)
        (request,) = provider.model_requests
        assert not request.header("content-encoding")
        assert len(request.json()["messages"]) < len(history())
    provider.reset()


def test_a_signed_request_is_not_changed(provider: FakeProvider) -> None:
    """Its signature covers the body: the provider would refuse any other."""
    body = _body(history())
    headers = {"authorization": "AWS4-HMAC-SHA256 Credential=AKIA/...", "content-type": "application/json"}
    with wrap(_client(), policy=RULES, window=1_000) as used:
        answer = used.post(f"{provider.base_url}/v1/chat/completions", content=body, headers=headers)
        assert provider.model_requests[0].body == body
        assert answer.headers["x-ctxproxy-reason"] == "overflow"  # what would have been done


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_body_that_is_made_while_it_is_sent_goes_through(provider: FakeProvider, asynchronous: bool) -> None:
    body = _body(history())

    def pieces() -> Any:
        yield body[:50]
        yield body[50:]

    async def apieces() -> Any:
        yield body[:50]
        yield body[50:]

    used = wrap(_client(asynchronous), policy=RULES, window=1_000)
    content = apieces() if asynchronous else pieces()
    await done(used.post(f"{provider.base_url}/v1/chat/completions", content=content))
    assert provider.model_requests[0].body == body
    await done(used.aclose() if asynchronous else used.close())


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/chat/completions"), ("PUT", "/v1/messages"), ("POST", "/v1/embeddings")]
)
def test_other_requests_are_the_inner_clients(provider: FakeProvider, method: str, path: str) -> None:
    with wrap(_client(), window=10) as used:
        answer = used.request(method, provider.base_url + path, json={"messages": history()})
        assert not [name for name in answer.headers if name.startswith("x-ctxproxy-id")]


class Loud(httpx.Client):
    """A user's own client with a `send` of its own."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.sent: list[int] = []

    def send(self, request: Any, **options: Any) -> Any:
        self.sent.append(len(request.content))
        return super().send(request, **options)

    def shout(self) -> str:
        return "kept"


def test_a_users_own_client_keeps_what_it_overrides(provider: FakeProvider) -> None:
    provider.reset("overflow;window=800")
    inner = Loud(verify=SSL)
    used: Any = wrap(inner, policy=RULES, window=LARGE)
    assert isinstance(used, Loud)
    assert used.shout() == "kept"
    used.post(f"{provider.base_url}/v1/chat/completions", content=_body(history()))
    assert inner.sent == [len(r.body) for r in provider.model_requests]
    assert used.sent is inner.sent
    assert seam_of(used) is not None
    assert seam_of(inner) is None
    used.close()
    assert inner.is_closed


def test_only_http_clients_are_wrapped() -> None:
    from ctxproxy.clients.seam import Seam

    with pytest.raises(TypeError, match=r"an httpx2 or httpx client is wanted, not builtins\.dict"):
        through({}, Seam())


# --- the answers ---


@pytest.mark.parametrize("wire", ["chat.create", "responses.create", "messages.create"])
async def test_a_refusal_with_http_200_is_one_too(provider: FakeProvider, wire: str) -> None:
    provider.wording = "openrouter-200"
    provider.reset("overflow;window=800")
    kind: Any = anthropic.Anthropic if wire == "messages.create" else openai.OpenAI
    used = wrap(client(kind, provider.base_url, http(library(kind and openai), kind)), policy=RULES, window=LARGE)
    assert await CALLS[wire].run(used, history()) == "Understood."
    assert provider.calls == 2
    used.close()


@pytest.mark.parametrize("wire", ["chat.create", "chat.stream", "responses.stream", "messages.create"])
async def test_quoted_errors_change_nothing(provider: FakeProvider, wire: str) -> None:
    """In the prompt and in the answer."""
    quote = (
        "Error code: 400 - {'error': {'message': \"This model's maximum context length is 100 tokens\", "
        "'code': 'context_length_exceeded'}} prompt is too long: 300000 tokens > 200000 maximum"
    )
    provider.answer = Answer(quote)
    kind: Any = anthropic.Anthropic if CALLS[wire].sdk == "anthropic" else openai.OpenAI
    used = wrap(client(kind, provider.base_url, http(library(openai), kind)), policy=RULES, window=LARGE)
    assert await CALLS[wire].run(used, history(newest=quote)) == quote
    assert provider.calls == 1
    used.close()


@pytest.mark.parametrize("call", ["chat.create", "chat.stream", "responses.create", "messages.stream"])
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_prompt_that_is_cut_without_a_word_is_noticed_and_compacted(
    provider: FakeProvider, call: str, asynchronous: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The usage tells: the reported prompt stays where it is while the conversation grows."""
    provider.window, provider.overflow = 1_500, "truncate"
    try:
        name = ("Async" if asynchronous else "") + ("OpenAI" if CALLS[call].sdk == "openai" else "Anthropic")
        kind: Any = getattr(openai if CALLS[call].sdk == "openai" else anthropic, name)
        seen: list[Compaction] = []
        runtime = Runtime(policy=RULES, window=LARGE, on_compaction=seen.append)
        used = wrap(client(kind, provider.base_url, http(library(openai), kind)), runtime=runtime)
        messages: list[dict[str, Any]] = history(4)
        for turn in range(5):
            options = {"stream_options": {"include_usage": True}} if call == "chat.stream" else {}
            if options:
                stream = await done(used.chat.completions.create(model="m", messages=messages, stream=True, **options))
                if asynchronous:
                    assert [x async for x in stream]
                else:
                    assert list(stream)
            else:
                await CALLS[call].run(used, messages)
            messages = [*messages, {"role": "assistant", "content": "so"}, *history(8, newest=f"turn {turn}")]
        assert "it cut the prompt without a word" in caplog.text
        assert seen
        assert provider.model_requests[-1].tokens < 2_500
        await done(used.close())
    finally:
        provider.overflow = "error"


# --- faults of ours ---


class Broken(MemoryLedger):
    """A store that fails in a way that no store should."""

    def __init__(self, *, late: bool = False) -> None:
        super().__init__()
        self.late = late

    def recall(self, scope: str, first: bytes) -> Sequence[Entry]:
        if not self.late:
            raise ZeroDivisionError
        return super().recall(scope, first)

    def remember(self, entry: Entry) -> None:
        raise ZeroDivisionError


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_fault_before_sending_sends_the_original(
    provider: FakeProvider, asynchronous: bool, caplog: pytest.LogCaptureFixture
) -> None:
    used = wrap(_client(asynchronous), runtime=Runtime(ledger=Broken(), policy=RULES), window=1_000)
    response = await done(used.post(f"{provider.base_url}/v1/chat/completions", content=_body(history())))
    assert response.status_code == 200
    assert provider.model_requests[0].body == _body(history())
    assert "a fault in ctxproxy" in caplog.text
    await done(used.aclose() if asynchronous else used.close())


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_fault_after_the_answer_costs_no_second_call(provider: FakeProvider, asynchronous: bool) -> None:
    provider.reset("overflow;window=800")
    used = wrap(_client(asynchronous), runtime=Runtime(ledger=Broken(late=True), policy=RULES), window=LARGE)
    response = await done(used.post(f"{provider.base_url}/v1/chat/completions", content=_body(history())))
    assert response.status_code == 200
    assert provider.calls == 2
    await done(used.aclose() if asynchronous else used.close())


@pytest.mark.parametrize("fault", ["drop", "drop-body"])
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_broken_connection_is_the_callers_matter(
    provider: FakeProvider, asynchronous: bool, fault: str
) -> None:
    for wrapped in (False, True):
        provider.reset(fault)
        used = wrap(_client(asynchronous), window=LARGE) if wrapped else _client(asynchronous)
        with pytest.raises(httpx.RemoteProtocolError):
            await done(used.post(f"{provider.base_url}/v1/chat/completions", content=_body(history())))
        assert provider.calls == 1
        await done(used.aclose() if asynchronous else used.close())


# --- event loops ---


class Where(MemoryLedger):
    """Notes the threads that the engine runs in."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[int] = []

    def recall(self, scope: str, first: bytes) -> Sequence[Entry]:
        self.threads.append(threading.get_ident())
        return super().recall(scope, first)


async def test_large_bodies_are_measured_beside_the_event_loop(provider: FakeProvider) -> None:
    provider.window = LARGE
    where = Where()
    used = wrap(_client(True), runtime=Runtime(ledger=where, policy=RULES), window=LARGE)
    for turns in (3, 3, 2_000):  # the first one loads the tokenizer
        response = await used.post(f"{provider.base_url}/v1/chat/completions", content=_body(history(turns)))
        assert response.status_code == 200
    here = threading.get_ident()
    assert [thread == here for thread in where.threads] == [False, True, False]
    await used.aclose()


async def test_many_tasks_share_a_client(provider: FakeProvider) -> None:
    used = wrap(
        client(openai.AsyncOpenAI, provider.base_url, http(library(openai), openai.AsyncOpenAI)),
        policy=RULES,
        window=1_000,
    )

    async def talk(number: int) -> None:
        messages = history(10, newest=f"task {number}")
        for _ in range(3):
            answer = await used.chat.completions.create(model="m", messages=messages)
            assert answer.choices[0].message.content == "Understood."
            messages = [*messages, {"role": "assistant", "content": "ok"}, {"role": "user", "content": f"{number}?"}]

    await asyncio.gather(*(talk(number) for number in range(20)))
    assert provider.calls == 60
    await used.close()


async def test_a_cancelled_call_closes_its_connection(provider: FakeProvider) -> None:
    for fault in ("hold", "hold-first"):
        provider.reset(fault)
        used = wrap(
            client(openai.AsyncOpenAI, provider.base_url, http(library(openai), openai.AsyncOpenAI)), window=LARGE
        )
        call = asyncio.ensure_future(used.responses.create(model="m", input=history(2), stream=True))
        await asyncio.to_thread(provider.wait_held)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.to_thread(provider.requests[0].disconnected.wait, 10)
        assert provider.requests[0].disconnected.is_set()
        await used.close()


# --- summaries ---

SUMMARY = """## Decisions Made
- Sort notes.txt by name, because the user asked for it.
## Files Modified
- notes.txt
## Critical Context
- Names matter.
## Errors
- none
## Pending
- the last step
## User Preferences
- careful with names
"""


def _summarizing(request: Any) -> Answer:
    return Answer(SUMMARY if _asks_for_summary(request) else "Understood.")


def _asks_for_summary(request: Any) -> bool:
    return b"Summarize the conversation so far" in request.body


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("call", ["chat.create", "chat.stream", "responses.create", "messages.create"])
async def test_a_summary_is_asked_of_the_callers_provider(
    provider: FakeProvider, call: str, asynchronous: bool
) -> None:
    provider.answer = _summarizing
    name = ("Async" if asynchronous else "") + ("OpenAI" if CALLS[call].sdk == "openai" else "Anthropic")
    kind: Any = getattr(openai if CALLS[call].sdk == "openai" else anthropic, name)
    used = wrap(client(kind, provider.base_url, http(library(openai), kind)), window=1_250)
    assert await CALLS[call].run(used, history()) == "Understood."
    summary, sent = provider.model_requests
    assert _asks_for_summary(summary)
    assert not _asks_for_summary(sent)
    assert summary.header("authorization") == sent.header("authorization")
    assert summary.header("x-api-key") == sent.header("x-api-key")
    await done(used.close())


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("fault", ["500", "drop", "garbage"])
async def test_a_summary_that_fails_costs_no_request(provider: FakeProvider, asynchronous: bool, fault: str) -> None:
    provider.reset(fault)
    kind: Any = openai.AsyncOpenAI if asynchronous else openai.OpenAI
    used = wrap(client(kind, provider.base_url, http(library(openai), kind)), window=1_250)
    assert await CALLS["chat.create"].run(used, history()) == "Understood."
    assert provider.calls == 2
    assert _asks_for_summary(provider.model_requests[0])
    await done(used.close())


async def test_one_summary_serves_all_who_wait_for_it() -> None:
    kind: Any = openai.AsyncOpenAI
    with FakeProvider(answer=_summarizing, fail_plan=["hold"]) as provider:
        used = wrap(client(kind, provider.base_url, http(library(openai), kind)), window=1_250)
        first = asyncio.ensure_future(CALLS["chat.create"].run(used, history()))
        await asyncio.to_thread(provider.wait_held)
        others = [asyncio.ensure_future(CALLS["chat.create"].run(used, history())) for _ in range(3)]
        await asyncio.sleep(0)
        provider.release()
        assert await asyncio.gather(first, *others) == ["Understood."] * 4
        assert sum(_asks_for_summary(request) for request in provider.model_requests) == 1
        await used.close()
