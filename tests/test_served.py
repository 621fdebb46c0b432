"""What upstreams say that they serve: the shapes of real servers, and garbage."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxproxy.models import CatalogueEntry, resolve, with_served
from ctxproxy.served import ANSWER_BYTES, Fact, Question, Served, asked, root_of, window_of

LOCAL = "http://127.0.0.1:8080"
KEY = (LOCAL, "m")


def find(answers: dict[str, Any], *, upstream: str = LOCAL, model: str = "m") -> tuple[Fact, list[str]]:
    """What comes of asking a server with these answers by path, and which paths were asked for."""
    steps, paths = window_of(upstream, model), []
    answer: bytes | None = None
    try:
        question = next(steps)
        while True:
            assert isinstance(question, Question)
            path = question.url.removeprefix(upstream.removesuffix("/v1"))
            paths.append(path)
            found = answers.get(path)
            answer = found if isinstance(found, bytes | None) else json.dumps(found).encode()
            question = steps.send(answer)
    except StopIteration as stop:
        return stop.value, paths


def row(**fields: Any) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": "m", "object": "model", **fields}]}


LLAMA = row(owned_by="llamacpp", meta={"n_ctx_train": 131_072})
PROPS = {"default_generation_settings": {"n_ctx": 4_096}}
OLLAMA = row(owned_by="library")

SHAPES = {
    "llama.cpp, young": ({"/v1/models": row(owned_by="llamacpp", meta={"n_ctx": 2_048, "n_ctx_train": 8_192})}, 2_048),
    "llama.cpp, older": ({"/v1/models": LLAMA, "/props": PROPS}, 4_096),
    "llama.cpp, nothing": ({"/v1/models": LLAMA}, None),
    "vLLM": ({"/v1/models": row(owned_by="vllm", max_model_len=32_768)}, 32_768),
    "OpenRouter": ({"/v1/models": row(context_length=200_000, top_provider={"context_length": 128_000})}, 128_000),
    "Groq": ({"/v1/models": row(context_window=131_072)}, 131_072),
    "Mistral": ({"/v1/models": row(max_context_length=262_144)}, 262_144),
    "Anthropic's list": ({"/v1/models": row(max_input_tokens=200_000)}, 200_000),
    "Ollama, loaded": ({"/v1/models": OLLAMA, "/api/ps": {"models": [{"model": "m", "context_length": 8_192}]}}, 8_192),
    "Ollama, set": (
        {"/v1/models": OLLAMA, "/api/ps": {"models": []}, "/api/show": {"parameters": "stop x\nnum_ctx    16384"}},
        16_384,
    ),
    "Ollama, only what the model could": (
        {"/v1/models": OLLAMA, "/api/ps": {"models": []}, "/api/show": {"model_info": {"llama.context_length": 131_072}}},
        None,
    ),
    "LM Studio": (
        {
            "/v1/models": row(owned_by="organization_owner"),
            "/api/v0/models": row(loaded_context_length=4_096, max_context_length=131_072),
        },
        4_096,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_each_server_states_its_window_in_its_way(name: str) -> None:
    answers, window = SHAPES[name]
    assert find(answers)[0].window == window
    assert find(answers, upstream=LOCAL + "/v1")[0].window == window


def test_a_server_far_away_is_asked_for_its_models_only() -> None:
    fact, paths = find({"/v1/models": OLLAMA}, upstream="https://llm.example.com")
    assert (fact, paths) == (Fact(), ["/v1/models"])


def test_the_row_of_the_model_counts_and_a_server_of_one_model_has_it_under_any_name() -> None:
    two = {"data": [{"id": "a", "max_model_len": 1_000}, {"id": "b", "max_model_len": 2_000}]}
    assert find({"/v1/models": two}, model="b")[0].window == 2_000
    assert find({"/v1/models": two}, model="openai/B")[0].window == 2_000
    assert find({"/v1/models": two}, model="c")[0].window is None
    assert find({"/v1/models": row(owned_by="vllm", max_model_len=3_000)}, model="gpt-4o")[0].window == 3_000


@pytest.mark.parametrize("value", [0, -1, True, 5, 1e300, "32768", None, [], {}, 10**30, 3.5])
def test_a_figure_that_no_window_has_is_none(value: object) -> None:
    assert find({"/v1/models": row(owned_by="vllm", max_model_len=value)})[0].window is None
    assert find({"/v1/models": row(owned_by="llamacpp", meta={"n_ctx": value})})[0].window is None


@pytest.mark.parametrize(
    "body", [b"", b"\xff\xfe", b"<html>", b"[" * 100_000, b"null", b"[1]", b'{"data":[1,null,[]]}', b"NaN", b'{"data":{}}']
)  # fmt: skip
def test_garbage_states_nothing(body: bytes) -> None:
    assert (
        find(dict.fromkeys(("/v1/models", "/props", "/api/ps", "/api/show", "/api/v0/models"), body))[0].window is None
    )


def test_an_answer_that_is_too_long_is_not_read() -> None:
    long = json.dumps(row(max_model_len=4_096)).encode() + b" " * ANSWER_BYTES
    assert find({"/v1/models": long})[0] == Fact()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["m", "llamacpp"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["data", "models", "id", "model", "aliases", "meta", "n_ctx", "max_model_len", "owned_by", "parameters",
             "context_length", "top_provider", "default_generation_settings", "loaded_context_length"]
        ),
        inner,
        max_size=5,
    ),
    max_leaves=20,
)  # fmt: skip


@given(JSON, JSON)
def test_any_json_gives_a_window_or_none(first: Any, second: Any) -> None:
    paths = ("/props", "/api/ps", "/api/show", "/api/v0/models")
    second = json.dumps(second).encode()
    fact, _ = find({"/v1/models": json.dumps(first).encode(), **dict.fromkeys(paths, second)})
    assert fact.window is None or 256 <= fact.window <= 100_000_000


@pytest.mark.parametrize(
    ("upstream", "asks"),
    [
        ("https://api.openai.com", False),
        ("https://api.anthropic.com/v1", False),
        ("https://x.openai.azure.com", False),
        ("https://bedrock-runtime.us-east-1.amazonaws.com", False),
        ("https://notapi.openai.com.example.org", True),
        ("https://openrouter.ai/api/v1", True),
        (LOCAL, True),
        ("", False),
    ],
)
def test_who_is_asked(upstream: str, asks: bool) -> None:
    assert asked(upstream) == asks


def test_where_the_questions_go() -> None:
    assert root_of("http://h:1") == ("http://h:1/v1", "http://h:1")
    assert root_of("http://h:1/v1/") == ("http://h:1/v1", "http://h:1")
    assert root_of("https://openrouter.ai/api/v1") == ("https://openrouter.ai/api/v1", "https://openrouter.ai/api")


# -- remembering


def test_a_model_is_asked_about_once_and_again_when_the_fact_is_old() -> None:
    served = Served(ttl=600, retry=60)
    assert served.get(KEY, now=0) == Fact()
    assert served.take("http://other", now=0) == ()
    assert served.take(LOCAL, now=0) == (KEY,)
    served.get(KEY, now=1)
    assert served.take(LOCAL, now=1) == ()
    assert served.put(KEY, Fact(window=4_096), now=2)
    assert served.get(KEY, now=601).window == 4_096
    assert served.take(LOCAL, now=601) == ()
    assert served.get(KEY, now=602).window == 4_096
    assert served.take(LOCAL, now=602) == (KEY,)
    assert not served.put(KEY, Fact(), now=603)
    assert served.get(KEY, now=604).window == 4_096
    assert served.put(KEY, Fact(window=8_192), now=700)
    assert served.get(KEY, now=701).window == 8_192


def test_a_failure_is_remembered_for_a_while() -> None:
    served = Served(ttl=600, retry=60)
    served.get(KEY, now=0)
    served.take(LOCAL, now=0)
    served.put(KEY, Fact(), now=1)
    served.get(KEY, now=60)
    assert served.take(LOCAL, now=60) == ()
    served.get(KEY, now=62)
    assert served.take(LOCAL, now=62) == (KEY,)


def test_memory_and_wishes_are_bounded() -> None:
    served = Served()
    for i in range(5_000):
        served.get((LOCAL, str(i)), now=0)
    taken = served.take(LOCAL, now=0)
    assert len(taken) == 1_024
    for i in range(5_000):
        served.put((LOCAL, str(i)), Fact(window=1_000 + i), now=0)
    assert served.get((LOCAL, "0"), now=0) == Fact()
    assert served.get((LOCAL, "4999"), now=0).window == 5_999


def test_the_public_apis_and_unnamed_models_are_no_wish() -> None:
    served = Served()
    served.get(("https://api.openai.com", "gpt-4o"), now=0)
    served.get((LOCAL, ""), now=0)
    assert served.take(LOCAL, now=0) == served.take("https://api.openai.com", now=0) == ()


# -- what it changes


@pytest.mark.parametrize(
    ("config", "learned", "served", "window", "source"),
    [
        (None, None, 4_096, 4_096, "served"),
        (None, None, 1_000_000, 1_000_000, "served"),
        (32_000, None, 4_096, 32_000, "config"),
        (None, 3_000, 4_096, 3_000, "learned"),
        (None, 6_000, 4_096, 4_096, "served"),
    ],
)
def test_served_goes_over_the_catalogue_and_under_config_and_learned(
    config: int | None, learned: int | None, served: int, window: int, source: str
) -> None:
    catalogue = {"m": CatalogueEntry(context=100_000, output_limit=8_000)}
    for rows in (catalogue, None):
        info = with_served(resolve("m", config=config, learned=learned, catalogue=rows), served)
        assert (info.window, info.source) == (window, source)
        assert info.output_limit is None or info.output_limit <= info.window
