"""The calls of the matrix: each is made on a sync or an async client alike and returns the text of the answer."""

from __future__ import annotations

import inspect
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anthropic
import openai
import pydantic

from ctxproxy.policy import preset

MODEL = "a-model"
ANSWER = '{"n": 1}'
RULES = preset("default", summaries=False)  # so that every call of the provider is one of the caller's
SSL = ssl.create_default_context()  # making one takes longer than most tests


class Number(pydantic.BaseModel):
    n: int


def history(turns: int = 12, *, words: int = 40, newest: str = "and now the last step") -> list[dict[str, Any]]:
    """A conversation of about `turns * (2 * words + 10)` tokens that ends with a user message."""
    found: list[dict[str, Any]] = [{"role": "user", "content": "The task: sort the list in notes.txt."}]
    for i in range(turns):
        found.append({"role": "assistant", "content": f"Step {i}: " + "looking at the list again " * (words // 5)})
        found.append({"role": "user", "content": f"Continue with {i + 1}. " + "be careful with names " * (words // 4)})
    found[-1]["content"] += newest
    return found


# --- sync and async alike ---


async def done(value: Any) -> Any:
    """The value, awaited if it has to be."""
    return await value if inspect.isawaitable(value) else value


async def each(values: Any) -> AsyncIterator[Any]:
    """The items of an iterable or an async iterable."""
    if hasattr(values, "__aiter__"):
        async for value in values:
            yield value
    else:
        for value in values:
            yield value


@asynccontextmanager
async def opened(manager: Any) -> AsyncIterator[Any]:
    """A context manager or an async context manager, entered."""
    if hasattr(manager, "__aenter__"):
        async with manager as value:
            yield value
    else:
        with manager as value:
            yield value


# --- clients ---


def library(sdk: Any) -> Any:
    """The HTTP library that an SDK uses by itself."""
    import importlib

    kinds = sdk.DefaultHttpxClient.__mro__
    return importlib.import_module(next(k.__module__ for k in kinds if k.__name__ == "Client").partition(".")[0])


def http(module: Any, kind: type) -> Any:
    """A fresh HTTP client for an SDK class, quick to make."""
    name = "AsyncClient" if "Async" in kind.__name__ else "Client"
    return getattr(module, name)(verify=SSL, timeout=30.0)


def client(kind: Any, url: str, http_client: Any, **options: Any) -> Any:
    """An SDK client that does not retry by itself."""
    options = {"api_key": "k", "max_retries": 0, "http_client": http_client, **options}
    if "Azure" in kind.__name__:
        return kind(azure_endpoint=url, api_version="2026-01-01", **options)
    return kind(base_url=url, **options)


KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        openai.OpenAI,
        openai.AsyncOpenAI,
        openai.AzureOpenAI,
        openai.AsyncAzureOpenAI,
        anthropic.Anthropic,
        anthropic.AsyncAnthropic,
    )
}


def sdk_of(kind: Any) -> Any:
    return openai if issubclass(kind, openai.OpenAI | openai.AsyncOpenAI) else anthropic


# --- calls ---

Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Made:
    """One way to call: `wire` is the API that it uses."""

    wire: str
    sdk: str
    run: Callable[[Any, Messages], Awaitable[str]]


async def _chat_create(c: Any, m: Messages) -> str:
    return (await done(c.chat.completions.create(model=MODEL, messages=m))).choices[0].message.content


async def _chat_chunks(stream: Any) -> str:
    return "".join([x.choices[0].delta.content or "" async for x in each(stream) if x.choices])


async def _chat_stream(c: Any, m: Messages) -> str:
    return await _chat_chunks(await done(c.chat.completions.create(model=MODEL, messages=m, stream=True)))


async def _chat_helper(c: Any, m: Messages) -> str:
    async with opened(c.chat.completions.stream(model=MODEL, messages=m)) as stream:
        return (await done(stream.get_final_completion())).choices[0].message.content


async def _chat_parse(c: Any, m: Messages) -> str:
    made = await done(c.chat.completions.parse(model=MODEL, messages=m, response_format=Number))
    assert made.choices[0].message.parsed == Number(n=1)
    return made.choices[0].message.content


async def _chat_raw(c: Any, m: Messages) -> str:
    raw = await done(c.chat.completions.with_raw_response.create(model=MODEL, messages=m))
    assert raw.status_code == 200
    return (await done(raw.parse())).choices[0].message.content


async def _chat_raw_stream(c: Any, m: Messages) -> str:
    raw = await done(c.chat.completions.with_raw_response.create(model=MODEL, messages=m, stream=True))
    return await _chat_chunks(await done(raw.parse()))


async def _chat_streaming(c: Any, m: Messages) -> str:
    async with opened(c.chat.completions.with_streaming_response.create(model=MODEL, messages=m)) as response:
        return (await done(response.parse())).choices[0].message.content


async def _chat_streaming_bytes(c: Any, m: Messages) -> str:
    made = c.chat.completions.with_streaming_response.create(model=MODEL, messages=m)
    async with opened(made) as response:
        data = b"".join([chunk async for chunk in each(response.iter_bytes(7))])
    return pydantic.TypeAdapter(dict[str, Any]).validate_json(data)["choices"][0]["message"]["content"]


async def _chat_options(c: Any, m: Messages) -> str:
    return await _chat_create(c.with_options(timeout=20, max_retries=0), m)


async def _chat_copy_stream(c: Any, m: Messages) -> str:
    return await _chat_stream(c.copy(default_headers={"x-other": "1"}), m)


async def _chat_post(c: Any, m: Messages) -> str:
    body = {"model": MODEL, "messages": m}
    made: Any = await done(c.post("/chat/completions", cast_to=object, body=body))
    return made["choices"][0]["message"]["content"]


async def _responses_create(c: Any, m: Messages) -> str:
    return (await done(c.responses.create(model=MODEL, input=m))).output_text


async def _responses_deltas(stream: Any) -> str:
    return "".join([x.delta async for x in each(stream) if x.type == "response.output_text.delta"])


async def _responses_stream(c: Any, m: Messages) -> str:
    return await _responses_deltas(await done(c.responses.create(model=MODEL, input=m, stream=True)))


async def _responses_helper(c: Any, m: Messages) -> str:
    async with opened(c.responses.stream(model=MODEL, input=m)) as stream:
        return (await done(stream.get_final_response())).output_text


async def _responses_parse(c: Any, m: Messages) -> str:
    made = await done(c.responses.parse(model=MODEL, input=m, text_format=Number))
    assert made.output_parsed == Number(n=1)
    return made.output_text


async def _responses_raw(c: Any, m: Messages) -> str:
    raw = await done(c.responses.with_raw_response.create(model=MODEL, input=m))
    return (await done(raw.parse())).output_text


async def _responses_streaming(c: Any, m: Messages) -> str:
    made = c.responses.with_streaming_response.create(model=MODEL, input=m, stream=True)
    async with opened(made) as response:
        return await _responses_deltas(await done(response.parse()))


async def _responses_options(c: Any, m: Messages) -> str:
    return await _responses_create(c.with_options(timeout=20), m)


async def _responses_beta(c: Any, m: Messages) -> str:
    made = await done(c.beta.responses.create(model=MODEL, input=m))
    return "".join(part.text for item in made.output for part in item.content)


def _text(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def _messages(name: str) -> Callable[[Any], Any]:
    return lambda c: c.messages if name == "messages" else c.beta.messages


def _anthropic(name: str) -> dict[str, Callable[[Any, Messages], Awaitable[str]]]:
    api = _messages(name)
    common: dict[str, Any] = {"model": MODEL, "max_tokens": 200}

    async def create(c: Any, m: Messages) -> str:
        return _text(await done(api(c).create(messages=m, **common)))

    async def deltas(stream: Any) -> str:
        return "".join([x.delta.text async for x in each(stream) if x.type == "content_block_delta"])

    async def stream(c: Any, m: Messages) -> str:
        return await deltas(await done(api(c).create(messages=m, stream=True, **common)))

    async def helper(c: Any, m: Messages) -> str:
        async with opened(api(c).stream(messages=m, **common)) as made:
            return await done(made.get_final_text())

    async def parse(c: Any, m: Messages) -> str:
        made = await done(api(c).parse(messages=m, output_format=Number, **common))
        assert made.parsed_output == Number(n=1)
        return _text(made)

    async def raw(c: Any, m: Messages) -> str:
        return _text(await done((await done(api(c).with_raw_response.create(messages=m, **common))).parse()))

    async def raw_stream(c: Any, m: Messages) -> str:
        made = await done(api(c).with_raw_response.create(messages=m, stream=True, **common))
        return await deltas(await done(made.parse()))

    async def streaming(c: Any, m: Messages) -> str:
        async with opened(api(c).with_streaming_response.create(messages=m, **common)) as response:
            return _text(await done(response.parse()))

    async def options(c: Any, m: Messages) -> str:
        return await create(c.with_options(timeout=20), m)

    async def copied(c: Any, m: Messages) -> str:
        return await stream(c.copy(default_headers={"x-other": "1"}), m)

    made = (create, stream, helper, parse, raw, raw_stream, streaming, options, copied)
    return {f"{name}.{run.__name__}": run for run in made}


CALLS: dict[str, Made] = {
    **{
        f"{wire}.{name}": Made(wire, "openai", run)
        for wire, name, run in (
            ("chat", "create", _chat_create),
            ("chat", "stream", _chat_stream),
            ("chat", "helper", _chat_helper),
            ("chat", "parse", _chat_parse),
            ("chat", "raw", _chat_raw),
            ("chat", "raw_stream", _chat_raw_stream),
            ("chat", "streaming", _chat_streaming),
            ("chat", "streaming_bytes", _chat_streaming_bytes),
            ("chat", "options", _chat_options),
            ("chat", "copied", _chat_copy_stream),
            ("chat", "post", _chat_post),
            ("responses", "create", _responses_create),
            ("responses", "stream", _responses_stream),
            ("responses", "helper", _responses_helper),
            ("responses", "parse", _responses_parse),
            ("responses", "raw", _responses_raw),
            ("responses", "streaming", _responses_streaming),
            ("responses", "options", _responses_options),
            ("responses", "beta", _responses_beta),
        )
        if name != "beta" or hasattr(openai.resources.beta.Beta, "responses")  # younger than some that are tried
    },
    **{name: Made("messages", "anthropic", run) for name, run in _anthropic("messages").items()},
    **{name: Made("messages", "anthropic", run) for name, run in _anthropic("beta").items()},
}
