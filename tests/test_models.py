from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxproxy.models import CatalogueEntry, Prices, PriceTier, family_of, find, names_of, resolve
from ctxproxy.tokens.families import FAMILIES

CATALOGUE = {
    "gpt-4o": CatalogueEntry(context=128_000, output_limit=16_384),
    "gpt-4o-mini": CatalogueEntry(context=128_000, output_limit=16_000),
    "gpt-5": CatalogueEntry(context=400_000, input_limit=272_000, output_limit=128_000, shared=False),
    "claude-sonnet-4-5": CatalogueEntry(context=200_000, output_limit=64_000, min_cache_tokens=1024),
    "claude-sonnet-4": CatalogueEntry(context=200_000, output_limit=64_000),
    "claude-opus-5": CatalogueEntry(context=1_000_000, output_limit=128_000),
    "groq/llama-3.3-70b-versatile": CatalogueEntry(context=131_072, output_limit=32_768),
    "llama-3.3-70b": CatalogueEntry(context=128_000),
    "strange": CatalogueEntry(output_limit=10),
}


@pytest.mark.parametrize(
    ("model", "row"),
    [
        ("gpt-4o", "gpt-4o"),
        ("GPT-4o ", "gpt-4o"),
        ("openai/gpt-4o", "gpt-4o"),
        ("azure/gpt-4o-2024-08-06", "gpt-4o"),
        ("ft:gpt-4o-2024-08-06:acme::abc123", "gpt-4o"),
        ("gpt-4o-mini-2024-07-18", "gpt-4o-mini"),
        ("gpt-4o-prod-eu", "gpt-4o"),
        ("gpt-5-2025-08-07", "gpt-5"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("claude-sonnet-4.5", "claude-sonnet-4-5"),
        ("anthropic/claude-sonnet-4.5:thinking", "claude-sonnet-4-5"),
        ("openrouter/anthropic/claude-sonnet-4.5:free", "claude-sonnet-4-5"),
        ("bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
        ("arn:aws:bedrock:us-east-1:1234:inference-profile/global.anthropic.claude-opus-5-v1:0", "claude-opus-5"),
        ("vertex_ai/claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
        ("claude-sonnet-4@default", "claude-sonnet-4"),
        ("claude-opus-5-latest", "claude-opus-5"),
        ("claude-sonnet-4-5[1m]", "claude-sonnet-4-5"),
        ("groq/llama-3.3-70b-versatile", "groq/llama-3.3-70b-versatile"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.3-70b"),
    ],
)
def test_a_model_is_found_under_any_of_its_names(model: str, row: str):
    found = find(model, CATALOGUE)
    assert found is not None
    assert found == (row, CATALOGUE[row])


@pytest.mark.parametrize(
    "model", ["", "gpt", "gpt-4", "gpt-4.7", "my-model", "claude", "claude-haiku-9", "/", ":", "ft:"]
)
def test_other_models_are_not_found(model: str):
    assert find(model, CATALOGUE) is None


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("gpt-4o-mini", "o200k"),
        ("gpt-4.1", "o200k"),
        ("openai/gpt-5.6-sol", "o200k"),
        ("gpt-6-luna", "o200k"),
        ("o3-mini", "o200k"),
        ("chatgpt-4o-latest", "o200k"),
        ("groq/openai/gpt-oss-120b", "o200k"),
        ("ft:gpt-4.1-2025-04-14:acme:x:y", "o200k"),
        ("azure/our-deployment", "o200k"),
        ("gpt-4", "cl100k"),
        ("gpt-4-turbo-2024-04-09", "cl100k"),
        ("gpt-3.5-turbo", "cl100k"),
        ("azure/gpt-35-turbo", "cl100k"),
        ("claude-3-5-sonnet-20241022", "claude-old"),
        ("claude-2.1", "claude-old"),
        ("claude-opus-4-20250514", "claude-old"),
        ("claude-sonnet-4-6", "claude-old"),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", "claude-old"),
        ("claude-opus-4-7", "claude-4.7"),
        ("claude-opus-4-8", "claude"),
        ("claude-opus-5-5", "claude"),
        ("vertex_ai/claude-sonnet-5@20260901", "claude"),
        ("claude-fable-5-1", "claude"),
        ("sonnet", "claude"),
        ("gemini/gemini-2.5-pro", "gemini"),
        ("models/gemini-4-argon", "gemini"),
        ("google/gemma-3-27b-it", "gemini"),
        ("deepseek/deepseek-v4-pro", "deepseek"),
        ("deepseek-r1-distill-llama-70b", "llama"),
        ("deepseek-r1-distill-qwen-32b", "qwen"),
        ("Qwen/Qwen3-Coder-480B", "qwen"),
        ("mistral-large-latest", "mistral"),
        ("codestral-2508", "mistral"),
        ("zai/glm-5.1", "glm"),
        ("moonshotai/kimi-k2-0905-preview", "kimi"),
        ("MiniMaxAI/MiniMax-M2.5", "minimax"),
        ("xai/grok-4.5", "grok"),
        ("llama3.1:8b", "llama"),
        ("smollm2-135m-instruct", "smollm"),
        ("my-model", "unknown"),
        ("", "unknown"),
    ],
)
def test_families(model: str, family: str):
    assert family_of(model) == family


@given(st.text(max_size=60))
def test_any_name_has_a_family_and_resolves(model: str):
    assert family_of(model) in FAMILIES
    assert len(list(names_of(model))) == len(set(names_of(model)))
    assert resolve(model, catalogue=CATALOGUE).window > 0


def test_the_order_of_sources():
    def window(**given: int) -> tuple[int, str]:
        info = resolve("gpt-4o", catalogue=CATALOGUE, **given)
        return info.window, info.source

    assert window() == (128_000, "catalogue")
    assert window(served=32_000) == (32_000, "served")
    assert window(served=500_000) == (500_000, "served")
    assert window(served=32_000, learned=30_000) == (30_000, "learned")
    assert window(served=32_000, learned=90_000) == (32_000, "served")
    assert window(served=32_000, learned=30_000, config=64_000) == (64_000, "config")
    assert window(served=0, learned=-1, config=0) == (128_000, "catalogue")


def test_a_learned_limit_is_only_an_upper_bound():
    assert resolve("gpt-4o", catalogue=CATALOGUE, learned=1_000_000).source == "catalogue"
    unknown = resolve("my-model", catalogue=CATALOGUE, learned=200_000)
    assert (unknown.window, unknown.source) == (200_000, "learned")


def test_nothing_known_is_said_to_be_a_default():
    info = resolve("my-model", catalogue=CATALOGUE)
    assert (info.window, info.source, info.context, info.output_limit, info.matched) == (
        128_000,
        "default",
        None,
        None,
        "",
    )
    assert resolve("my-model", default=8_000).window == 8_000
    assert resolve("strange", catalogue=CATALOGUE).source == "default"


def test_the_window_is_the_input_limit_where_that_is_stated_apart():
    info = resolve("gpt-5", catalogue=CATALOGUE)
    assert (info.window, info.context, info.input_limit, info.output_limit) == (272_000, 400_000, 272_000, 128_000)
    assert not info.shared
    assert resolve("gpt-5", catalogue=CATALOGUE, learned=200_000).input_limit == 200_000


def test_a_smaller_window_bounds_context_and_output():
    info = resolve("gpt-4o", catalogue=CATALOGUE, served=8_192)
    assert (info.window, info.context, info.output_limit) == (8_192, 8_192, 8_192)


@pytest.mark.parametrize(
    ("model", "headers", "window"),
    [
        ("claude-sonnet-4-5", {}, 200_000),
        ("claude-sonnet-4-5", {"Anthropic-Beta": "tools-2025-01-01, context-1m-2025-08-07"}, 1_000_000),
        ("claude-sonnet-4-20250514", {"anthropic-beta": "context-1m-2025-08-07"}, 1_000_000),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", {"anthropic-beta": "context-1m-2025-08-07"}, 1_000_000),
        ("claude-sonnet-4-5[1m]", None, 1_000_000),
        ("claude-opus-5", {"anthropic-beta": "context-1m-2025-08-07"}, 1_000_000),
        ("gpt-4o", {"anthropic-beta": "context-1m-2025-08-07"}, 128_000),
        ("claude-sonnet-4-5", {"x-other": "context-1m-2025-08-07"}, 200_000),
    ],
)
def test_headers_that_change_the_window(model: str, headers: dict[str, str] | None, window: int):
    assert resolve(model, catalogue=CATALOGUE, headers=headers).window == window


def test_a_refused_long_context_is_learned():
    info = resolve(
        "claude-sonnet-4-5", catalogue=CATALOGUE, headers={"anthropic-beta": "context-1m-2025-08-07"}, learned=200_000
    )
    assert (info.window, info.source) == (200_000, "learned")


def test_prices_step_with_the_prompt():
    tier = PriceTier(above=200_000, input=4, output=18, cache_read=0.4, cache_write=4)
    prices = Prices(input=2, output=12, cache_read=0.2, cache_write=2, tiers=(tier,))
    assert prices.at(200_000).input == 2
    assert prices.at(200_001).input == 4
    assert prices.at(200_001).cache_read == 0.4


def test_a_row_that_states_no_window_gives_way_to_one_that_does():
    bare = CatalogueEntry(context=None, input_limit=None, output_limit=None)
    whole = CatalogueEntry(context=128_000, input_limit=None, output_limit=None)
    assert find("vendor/llama-9-70b-instruct", {"llama-9-70b-instruct": bare, "llama-9-70b": whole}) == (
        "llama-9-70b",
        whole,
    )
    assert find("llama-9-70b-instruct", {"llama-9-70b-instruct": bare}) == ("llama-9-70b-instruct", bare)
