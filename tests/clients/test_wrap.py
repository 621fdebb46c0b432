"""wrap() and the drop-in names: what is kept, what is shared, what is refused."""

from __future__ import annotations

import gc
import inspect
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import openai
import pytest
from provider import FakeProvider

from ctxproxy.clients import http_client, last_report, runtime_of, wrap
from ctxproxy.clients.anthropic import Anthropic, AsyncAnthropic
from ctxproxy.clients.openai import AsyncAzureOpenAI, AsyncOpenAI, AzureOpenAI, OpenAI
from ctxproxy.compaction import Compaction
from ctxproxy.errors import ConfigError, ContextOverflowError
from ctxproxy.ledger import MemoryArchive
from ctxproxy.policy import Policy
from ctxproxy.runtime import Runtime

from .calls import CALLS, KINDS, RULES, client, done, history, http, library, sdk_of

DROP_INS: dict[str, Any] = {
    "OpenAI": OpenAI,
    "AsyncOpenAI": AsyncOpenAI,
    "AzureOpenAI": AzureOpenAI,
    "AsyncAzureOpenAI": AsyncAzureOpenAI,
    "Anthropic": Anthropic,
    "AsyncAnthropic": AsyncAnthropic,
}


def _openai(provider: FakeProvider, **options: Any) -> openai.OpenAI:
    return client(openai.OpenAI, provider.base_url, http(library(openai), openai.OpenAI), **options)


# --- nothing is imported that was not asked for ---


def test_the_clients_import_no_sdk_and_no_http_library() -> None:
    code = (
        "import sys, ctxproxy, ctxproxy.clients; "
        "print([m for m in ('openai', 'anthropic', 'httpx', 'httpx2', 'litellm', 'aiohttp') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# --- what is kept ---


@pytest.mark.parametrize("name", KINDS)
async def test_settings_of_the_client_are_kept(name: str) -> None:
    kind: Any = KINDS[name]
    inner = http(library(sdk_of(kind)), kind)
    given = client(kind, "http://127.0.0.1:9/some/base", inner, max_retries=5, timeout=12.5, default_headers={"a": "b"})
    used = wrap(given)
    assert type(used) is kind
    assert used is not given
    assert (used.base_url, used.max_retries, used.timeout, used.api_key) == (given.base_url, 5, 12.5, "k")
    assert used.default_headers["a"] == "b"
    assert isinstance(used._client, type(inner))
    assert used._client is not inner
    assert given._client is inner
    assert used._client.timeout == inner.timeout
    inner.headers["x-late"] = "1"
    assert used._client.headers["x-late"] == "1"
    await done(used.close())
    assert inner.is_closed
    assert given.is_closed()


async def test_event_hooks_and_auth_see_each_attempt(provider: FakeProvider) -> None:
    seen: list[str] = []
    module = library(openai)
    inner = module.Client(event_hooks={"request": [lambda request: seen.append(request.headers["content-length"])]})
    provider.reset("overflow;window=800")
    used = wrap(client(openai.OpenAI, provider.base_url, inner), policy=RULES, window=100_000)
    used.chat.completions.create(model="m", messages=history())
    assert seen == [str(len(r.body)) for r in provider.model_requests]
    assert len(set(seen)) == 2
    for request in provider.model_requests:
        assert [v for k, v in request.headers if k.lower() == "content-length"] == [str(len(request.body))]
    used.close()


def test_a_dropped_wrapper_closes_nothing() -> None:
    """The SDKs' own HTTP clients close themselves when they go; the given client is still in use."""
    for kind in (openai.OpenAI, anthropic.Anthropic):
        given: Any = kind(api_key="k", base_url="http://127.0.0.1:9")
        used = wrap(given)
        del used
        gc.collect()
        assert not given.is_closed()
        given.close()


@pytest.mark.parametrize("name", KINDS)
async def test_client_and_result_work_side_by_side(provider: FakeProvider, name: str) -> None:
    kind: Any = KINDS[name]
    call = CALLS["messages.create" if sdk_of(kind) is anthropic else "chat.create"]
    given = client(kind, provider.base_url, http(library(sdk_of(kind)), kind))
    await call.run(given, history(1))
    used = wrap(given, window=100_000)
    await call.run(used, history(1))
    await call.run(given, history(1))
    assert [type(x) is kind for x in (given, used)] == [True, True]
    assert runtime_of(given) is None
    assert runtime_of(used) is not None
    await done(given.close())


def test_other_paths_go_through_untouched(provider: FakeProvider) -> None:
    used: Any = wrap(_openai(provider), window=10)
    assert used.models.list().data
    assert used.responses.input_tokens.count(model="m", input=history()).input_tokens > 1_000
    used.completions.create(model="m", prompt="x " * 5_000)
    used.files.create(file=b"x" * 100_000, purpose="batch")
    used.close()
    http_client = http(library(anthropic), anthropic.Anthropic)
    other: Any = wrap(client(anthropic.Anthropic, provider.base_url, http_client), window=10)
    assert other.messages.count_tokens(model="m", messages=history()).input_tokens > 1_000
    assert other.beta.messages.count_tokens(model="m", messages=history()).input_tokens > 1_000
    assert other.models.list().data is not None
    other.close()
    assert provider.calls == 0


def test_a_body_that_is_no_request_of_the_api_is_the_providers_matter(provider: FakeProvider) -> None:
    seen: list[str] = []
    for used in (_openai(provider), wrap(_openai(provider), window=10)):
        with pytest.raises(openai.BadRequestError) as caught:
            used.chat.completions.create(model="m", messages=[], extra_body={"messages": "not a list"})
        seen.append(str(caught.value))
        used.close()
    first, second = provider.model_requests
    assert first.body == second.body
    assert seen[0] == seen[1]
    provider.reset()


# --- what is shared ---


async def test_copies_share_the_memory(provider: FakeProvider) -> None:
    seen: list[Compaction] = []
    used = wrap(_openai(provider), policy=RULES, window=1_000, runtime=Runtime(on_compaction=seen.append))
    for each in (used, used.with_options(timeout=9), used.copy(max_retries=1), used.with_options(timeout=9).copy()):
        each.chat.completions.create(model="m", messages=history())
    assert len(seen) == 1
    assert len({request.body for request in provider.model_requests}) == 1
    assert len(provider.model_requests) == 4
    used.close()


async def test_wrapping_again_changes_the_settings(provider: FakeProvider) -> None:
    once = wrap(_openai(provider), window=1_000)
    twice = wrap(once, window=100_000)
    assert runtime_of(once) is not runtime_of(twice)
    twice.chat.completions.create(model="m", messages=history())
    assert provider.model_requests[0].json()["messages"] == history()
    assert type(twice._client).__mro__.count(type(once._client)) == 1
    twice.close()


async def test_two_clients_of_one_runtime_share_the_memory(provider: FakeProvider) -> None:
    seen: list[Compaction] = []
    runtime = Runtime(window=1_000, policy=RULES, on_compaction=seen.append)
    first = wrap(_openai(provider), runtime=runtime)
    second = wrap(
        client(openai.AsyncOpenAI, provider.base_url, http(library(openai), openai.AsyncOpenAI)), runtime=runtime
    )
    first.chat.completions.create(model="m", messages=history())
    await second.chat.completions.create(model="m", messages=history())
    assert len(seen) == 1
    first.close()
    await second.close()


def test_what_was_cut_is_in_the_archive(provider: FakeProvider) -> None:
    archive = MemoryArchive()
    kept: list[tuple[str, str]] = []

    class Noting(MemoryArchive):
        def keep(self, scope: str, originals: Any) -> None:
            kept.extend((scope, original.id) for original in originals)
            archive.keep(scope, originals)

    used = wrap(_openai(provider), runtime=Runtime(archive=Noting(), policy=RULES), window=1_000)
    raw: Any = used.chat.completions.with_raw_response.create(model="m", messages=history())
    report = last_report(raw)
    assert report is not None
    assert report.archived == tuple(id for _, id in kept)
    assert b"Step 0" in b"".join(archive.restore(scope, id) or b"" for scope, id in kept)
    used.close()


# --- what is said ---


@pytest.mark.parametrize("name", KINDS)
async def test_the_response_says_what_was_done(provider: FakeProvider, name: str) -> None:
    kind: Any = KINDS[name]
    used: Any = wrap(client(kind, provider.base_url, http(library(sdk_of(kind)), kind)), policy=RULES, window=1_000)
    if sdk_of(kind) is anthropic:
        raw = await done(used.messages.with_raw_response.create(model="m", messages=history(), max_tokens=99))
    else:
        raw = await done(used.chat.completions.with_raw_response.create(model="m", messages=history()))
    report = last_report(raw)
    assert report is not None
    assert report.reason == "overflow"
    assert raw.headers["x-ctxproxy-reason"] == "overflow"
    assert raw.headers["x-ctxproxy-level"] == "OVERFLOW"
    assert raw.headers["x-ctxproxy-tokens-before"] == str(report.tokens_before)
    assert raw.headers["x-ctxproxy-tokens-after"] == str(report.tokens_after)
    assert int(raw.headers["x-ctxproxy-tokens-after"]) <= 1_000
    assert raw.headers["x-ctxproxy-window"] == "1000"
    assert float(raw.headers["x-ctxproxy-overhead-ms"]) > 0
    await done(used.close())


def test_nothing_is_said_of_what_was_not_measured(provider: FakeProvider) -> None:
    used = wrap(_openai(provider))
    raw: Any = used.models.with_raw_response.list()
    assert last_report(raw) is None
    assert not [name for name in raw.headers if name.startswith("x-ctxproxy")]
    assert last_report(object()) is None
    used.close()


# --- settings ---


@pytest.mark.parametrize("mode", ["off", "observe"])
async def test_off_is_off_and_observe_only_reports(provider: FakeProvider, mode: Any) -> None:
    provider.reset("overflow;window=800")
    used = wrap(_openai(provider), window=1_000, mode=mode)
    with pytest.raises(openai.BadRequestError) as caught:
        used.chat.completions.create(model="m", messages=history())
    assert not isinstance(caught.value, ContextOverflowError)
    raw: Any = used.chat.completions.with_raw_response.create(model="m", messages=history())
    assert [request.json()["messages"] for request in provider.model_requests] == [history()] * 2
    assert raw.headers.get("x-ctxproxy-reason") == (None if mode == "off" else "overflow")
    used.close()


def test_policies_go_by_name_or_value(provider: FakeProvider) -> None:
    given = _openai(provider)
    assert wrap(given, policy="gentle")._client._ctxproxy_seam.policy.target == 0.80  # type: ignore[attr-defined]
    assert wrap(given, policy=Policy(target=0.5))._client._ctxproxy_seam.policy.target == 0.5  # type: ignore[attr-defined]
    runtime = Runtime(policy=Policy(target=0.3))
    assert wrap(given, runtime=runtime, mode="observe")._client._ctxproxy_seam.policy == Policy(  # type: ignore[attr-defined]
        target=0.3, mode="observe"
    )
    with pytest.raises(ConfigError, match="no policy 'tidy'"):
        wrap(given, policy="tidy")
    given.close()


@pytest.mark.parametrize("thing", [object(), "client", 3, threading.Lock(), openai])
def test_other_things_are_refused(thing: Any) -> None:
    with pytest.raises(TypeError, match="takes a client of openai or anthropic"):
        wrap(thing)


async def test_one_call_can_be_let_through(provider: FakeProvider) -> None:
    used = wrap(_openai(provider), window=1_000)
    used.chat.completions.create(model="m", messages=history(), extra_headers={"x-ctxproxy-bypass": "1"})
    assert provider.model_requests[0].json()["messages"] == history()
    used.close()


# --- subclasses ---


class Stubborn(openai.OpenAI):
    """Takes none of the SDK's arguments."""

    def __init__(self, url: str) -> None:
        super().__init__(base_url=url, api_key="k", max_retries=0)
        self.extra = "kept"


def test_a_subclass_with_its_own_constructor_is_wrapped_too(provider: FakeProvider) -> None:
    provider.reset("overflow;window=800")
    given = Stubborn(provider.base_url)
    assert given.chat is not None  # a resource that was used already
    used = wrap(given, policy=RULES, window=100_000)
    assert type(used) is Stubborn
    assert used.extra == "kept"
    assert used.chat.completions.create(model="m", messages=history()).choices
    assert provider.calls == 2
    assert used._strict_response_validation == given._strict_response_validation
    given.close()


@pytest.mark.skipif("middleware" not in inspect.signature(anthropic.Anthropic).parameters, reason="an older anthropic")
def test_middleware_of_anthropic_runs_once_for_each_of_its_attempts(provider: FakeProvider) -> None:
    seen: list[int] = []

    def count(request: Any, call_next: Any) -> Any:
        seen.append(1)
        return call_next(request)

    provider.reset("overflow;window=800")
    http_client = http(library(anthropic), anthropic.Anthropic)
    given = client(anthropic.Anthropic, provider.base_url, http_client, middleware=[count])
    used = wrap(given, policy=RULES, window=100_000)
    used.messages.create(model="m", messages=history(), max_tokens=99)
    assert seen == [1]
    assert provider.calls == 2
    provider.reset(*["overflow;window=800"] * 9)
    with pytest.raises(anthropic.BadRequestError) as caught:
        used.messages.create(model="m", messages=history(13), max_tokens=99)
    assert isinstance(caught.value, ContextOverflowError)
    used.close()


# --- drop-in names ---


@pytest.mark.parametrize("name", DROP_INS)
async def test_a_drop_in_makes_a_genuine_client(provider: FakeProvider, name: str) -> None:
    kind, sdk_class = DROP_INS[name], KINDS[name]
    assert issubclass(kind, sdk_class)
    assert kind.__name__ == sdk_class.__name__
    made = client(kind, provider.base_url, None, window=1_000, policy="aggressive")
    assert type(made) is sdk_class
    assert isinstance(made, kind)
    assert isinstance(made, sdk_class)
    assert not isinstance(client(sdk_class, provider.base_url, None), kind)
    assert isinstance(made.with_options(timeout=3), kind)
    assert runtime_of(made.with_options(timeout=3)) is runtime_of(made)
    assert {"policy", "window", "runtime", "mode", "api_key"} <= set(inspect.signature(kind).parameters)
    await done(made.close())
    assert made.is_closed()


class Mine(OpenAI):
    """A user's subclass of a drop-in."""

    def greet(self) -> str:
        return "hello"


def test_a_drop_in_can_be_subclassed(provider: FakeProvider) -> None:
    provider.reset("overflow;window=800")
    made: Any = client(Mine, provider.base_url, None, window=100_000, policy=RULES)
    assert type(made) is Mine
    assert made.greet() == "hello"
    assert isinstance(made, OpenAI)
    with made.with_options(timeout=5) as used:
        assert type(used) is Mine
        assert runtime_of(used) is runtime_of(made)
        used.chat.completions.create(model="m", messages=history())
    assert provider.calls == 2
    assert made.is_closed()


def test_wrong_arguments_are_the_sdks_own_errors() -> None:
    with pytest.raises(TypeError, match="no_such_argument"):
        OpenAI(api_key="k", no_such_argument=1)
    with pytest.raises(ConfigError):
        Anthropic(api_key="k", policy="tidy")


def test_anthropics_profiles_are_found_as_without_us(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subclass of anthropic's client does not look for credentials where the client itself does."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("ANTHROPIC_FEDERATION_RULE_ID", "rule")
    monkeypatch.setenv("ANTHROPIC_ORGANIZATION_ID", "org")
    monkeypatch.setenv("ANTHROPIC_IDENTITY_TOKEN", "token")
    try:
        plain = anthropic.Anthropic()
    except anthropic.AnthropicError:
        pytest.skip("this version of anthropic wants the profile in a file")
    ours = Anthropic()
    assert type(ours.credentials) is type(plain.credentials)
    plain.close()
    ours.close()


# --- threads ---


def test_threads_share_a_client(provider: FakeProvider) -> None:
    used = wrap(_openai(provider), policy=RULES, window=1_000)

    def talk(number: int) -> int:
        messages = history(10, newest=f"thread {number}")
        for turn in range(4):
            assert used.chat.completions.create(model="m", messages=messages).choices
            messages = [
                *messages,
                {"role": "assistant", "content": f"answer {turn}"},
                {"role": "user", "content": f"question {turn} of {number}"},
            ]
        return number

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(talk, range(16))) == list(range(16))
    assert provider.calls == 64
    used.close()


def test_many_threads_make_drop_ins(provider: FakeProvider) -> None:
    def make(_: int) -> bool:
        with client(OpenAI, provider.base_url, http(library(openai), openai.OpenAI)) as made:
            return bool(made.chat.completions.create(model="m", messages=history(1)).choices)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(make, range(24)))


# --- http_client ---


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("name", ["httpx", "httpx2"])
async def test_an_http_client_is_of_the_library_that_is_asked_for(name: Any, asynchronous: bool) -> None:
    module = pytest.importorskip(name)
    made = http_client(asynchronous=asynchronous, library=name, window=5, headers={"a": "b"})
    assert isinstance(made, module.AsyncClient if asynchronous else module.Client)
    assert made.headers["a"] == "b"
    assert made.timeout == module.Timeout(600.0, connect=5.0)
    assert made.follow_redirects
    assert runtime_of(made) is not None
    await done(made.aclose() if asynchronous else made.close())


def test_the_usual_library_is_the_sdks_own() -> None:
    with http_client() as made:
        assert isinstance(made, library(openai).Client)
    with pytest.raises(ConfigError, match="no HTTP library 'requests'"):
        http_client(library="requests")  # type: ignore[arg-type]
