from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ctxproxy import catalogue
from ctxproxy.models import resolve

LITELLM: dict[str, Any] = {
    "sample_spec": {"max_tokens": "a note", "mode": "one of: chat, embedding", "input_cost_per_token": 0.0},
    "gpt-5": {
        "mode": "chat",
        "max_input_tokens": 272_000,
        "max_output_tokens": 128_000,
        "input_cost_per_token": 1.25e-6,
        "output_cost_per_token": 1e-5,
        "cache_read_input_token_cost": 1.25e-7,
    },
    "azure/gpt-5.4-2026-03-05": {"mode": "responses", "max_input_tokens": 1_050_000, "max_output_tokens": 128_000},
    "gpt-5-chat": {"mode": "chat", "max_input_tokens": 128_000, "max_output_tokens": 16_384},
    "gemini/gemini-9-pro": {
        "mode": "chat",
        "litellm_provider": "gemini",
        "max_input_tokens": 1_048_576,
        "max_output_tokens": 65_536,
        "input_cost_per_token": 2e-6,
        "output_cost_per_token": 1.2e-5,
        "input_cost_per_token_above_200k_tokens": 4e-6,
        "output_cost_per_token_above_200k_tokens": 1.8e-5,
        "input_cost_per_token_above_200k_tokens_batches": 1e-6,
        "prompt_cache_min_tokens": 4096.0,
    },
    "xai/grok-9": {"mode": "chat", "max_input_tokens": 500_000, "max_output_tokens": 500_000},
    "cheap/grok-9": {"mode": "chat", "max_input_tokens": 100_000},
    "one/some-model": {"mode": "chat", "max_tokens": 32_000},
    "two/some-model": {"mode": "chat", "max_input_tokens": 16_000},
    "dashscope/qwen9-max": {"mode": "chat", "litellm_provider": "dashscope", "max_input_tokens": 991_808},
    "text-embedding-9": {"mode": "embedding", "max_input_tokens": 8_191},
    "odd": {"mode": "chat", "max_input_tokens": None, "max_output_tokens": "many", "input_cost_per_token": "free"},
    "broken": 7,
}


@pytest.fixture
def rows(tmp_path: Path):
    path = tmp_path / "models.json"
    path.write_text(json.dumps(LITELLM))
    return catalogue.read_litellm(path)


def test_an_input_limit_is_told_from_a_context_by_the_known_total(rows):
    assert (rows["gpt-5"].context, rows["gpt-5"].input_limit, rows["gpt-5"].shared) == (400_000, 272_000, False)
    later = rows["azure/gpt-5.4-2026-03-05"]
    assert (later.context, later.input_limit, later.window) == (1_050_000, 922_000, 922_000)
    assert (rows["gpt-5-chat"].context, rows["gpt-5-chat"].shared) == (128_000, True)


def test_providers_that_state_input_limits(rows):
    assert rows["gemini/gemini-9-pro"].window == 1_048_576
    assert not rows["gemini/gemini-9-pro"].shared
    assert (rows["dashscope/qwen9-max"].context, rows["dashscope/qwen9-max"].window) == (None, 991_808)


def test_prices_are_per_million_with_their_steps(rows):
    prices = rows["gpt-5"].prices
    assert (prices.input, prices.output, prices.cache_read, prices.cache_write) == (1.25, 10, 0.125, 1.25)
    assert prices.tiers == ()
    steps = rows["gemini/gemini-9-pro"].prices.tiers
    assert [(step.above, step.input, step.output, step.cache_read) for step in steps] == [(200_000, 4, 18, 4)]
    assert rows["gemini/gemini-9-pro"].min_cache_tokens == 4096


def test_models_are_also_listed_without_their_provider(rows):
    assert rows["grok-9"] is rows["xai/grok-9"]
    assert rows["some-model"].window == 16_000


def test_rows_of_other_kinds_are_left_out(rows):
    assert not {"text-embedding-9", "broken", "sample_spec"} & rows.keys()
    assert rows["odd"].window is None
    assert rows["odd"].prices is None


@pytest.mark.parametrize("content", ["", "[]", "not json", '"text"'])
def test_a_file_that_is_no_table_gives_no_rows(tmp_path: Path, content: str):
    path = tmp_path / "models.json"
    path.write_text(content)
    assert catalogue.read_litellm(path) == {}
    assert catalogue.read_litellm(tmp_path / "missing.json") == {}


# Windows as their providers state them (November 2026): window, output limit.
CURRENT = [
    ("gpt-6-sol", 922_000, 128_000),
    ("gpt-5.6", 922_000, 128_000),
    ("gpt-5.5", 922_000, 128_000),
    ("openai/gpt-5", 272_000, 128_000),
    ("gpt-5-mini-2025-08-07", 272_000, 128_000),
    ("gpt-4.1", 1_047_576, 32_768),
    ("gpt-4o", 128_000, 16_384),
    ("o3", 200_000, 100_000),
    ("claude-opus-5-5", 1_000_000, 128_000),
    ("claude-opus-4-8", 1_000_000, 128_000),
    ("claude-sonnet-5", 1_000_000, 128_000),
    ("claude-sonnet-4-5-20250929", 200_000, 64_000),
    ("claude-haiku-4-5", 200_000, 64_000),
    ("bedrock/us.anthropic.claude-haiku-4-5-20251001-v1:0", 200_000, 64_000),
    ("gemini-2.5-pro", 1_048_576, 65_536),
    ("gemini/gemini-3.1-pro-preview", 1_048_576, 65_536),
    ("deepseek-v4-pro", 1_000_000, 384_000),
    ("xai/grok-4.5", 500_000, None),
    ("kimi-k3", 1_048_576, 131_072),
    ("zai/glm-5.1", 200_000, 131_072),
    ("MiniMax-M2.5", 204_800, 131_072),
    ("qwen3-max", 258_048, 65_536),
    ("mistral-large-latest", 262_144, None),
    ("meta-llama/Llama-3.3-70B-Instruct", 128_000, None),
    ("openai/gpt-oss-120b", 131_072, 131_072),
]


@pytest.mark.parametrize(("model", "window", "output"), CURRENT)
def test_our_own_table_knows_current_models(model: str, window: int, output: int | None):
    info = resolve(model, catalogue=catalogue.CURATED)
    assert (info.window, info.output_limit, info.source) == (window, output, "catalogue")
    assert info.prices is not None
    assert info.prices.cache_read <= info.prices.input < info.prices.output


@pytest.mark.parametrize("name", catalogue.CURATED)
def test_our_rows_are_sound(name: str):
    row = catalogue.CURATED[name]
    assert name == name.lower()
    assert row.window
    assert row.shared == (row.input_limit is None)
    assert row.output_limit is None or row.output_limit <= (row.context or 0)
    for tier in row.prices.tiers if row.prices else ():
        assert tier.above < row.window
        assert tier.input > row.prices.input


def test_the_catalogue_is_read_without_importing_the_package(tmp_path: Path):
    package = tmp_path / "litellm"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    table = {
        "gpt-4o": {"mode": "chat", "max_input_tokens": 500_000, "max_output_tokens": 9, "input_cost_per_token": 1e-6,
                   "output_cost_per_token": 2e-6},
        "gpt-4.1": {"mode": "chat", "max_input_tokens": 100_000, "max_output_tokens": 9},
        "xai/grok-4.5": {"mode": "chat", "max_input_tokens": 900_000},
        "new-model-9": {"mode": "chat", "max_input_tokens": 7_000},
    }  # fmt: skip
    (package / "model_prices_and_context_window_backup.json").write_text(json.dumps(table))
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from ctxproxy.catalogue import data_file, load\n"
        "rows = load()\n"
        "print(data_file().parent.name, 'litellm' in sys.modules)\n"
        "for name in ('gpt-4o', 'gpt-4.1', 'xai/grok-4.5', 'new-model-9', 'o3'):\n"
        "    row = rows[name]; print(name, row.window, row.output_limit, row.prices and row.prices.input, row.origin)\n"
    )
    run = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [
        "litellm False",
        "gpt-4o 128000 16384 1.0 litellm",
        "gpt-4.1 100000 32768 2 litellm",
        "xai/grok-4.5 500000 None 2 litellm",
        "new-model-9 7000 None None litellm",
        "o3 200000 100000 2 ctxproxy",
    ]


@pytest.mark.parametrize(
    ("name", "context", "output", "right"),
    [
        ("openrouter/anthropic/claude-sonnet-4.5", 1_000_000, 64_000, (200_000, 64_000)),
        ("vertex_ai/claude-sonnet-4-5@20250929", 1_000_000, 64_000, (200_000, 64_000)),
        ("claude-sonnet-4-20250514", 1_000_000, 64_000, (200_000, 64_000)),
        ("claude-sonnet-4-6", 1_000_000, 128_000, (1_000_000, 128_000)),
        ("reseller/minimax-m2.5", 1_000_000, 1_000_000, (204_800, 131_072)),
        ("reseller/minimax-m3", 1_000_000, 128_000, (1_000_000, 128_000)),
        ("reseller/kimi-k3", 1_048_576, 1_048_576, (1_048_576, 131_072)),
        ("reseller/deepseek-v4-pro", 1_048_576, 393_216, (1_000_000, 384_000)),
        ("reseller/some-model", 32_768, 32_768, (32_768, None)),
        ("reseller/other-model", 32_768, 4_096, (32_768, 4_096)),
        ("reseller/smaller-kimi-k3", 65_536, 8_192, (65_536, 8_192)),
    ],
)
def test_rows_that_are_known_to_be_wrong_are_put_right(
    name: str, context: int, output: int, right: tuple[int, int | None], tmp_path: Path
) -> None:
    path = tmp_path / "table.json"
    row = {"mode": "chat", "max_input_tokens": context, "max_output_tokens": output, "litellm_provider": "x"}
    path.write_text(json.dumps({name: row}))
    entry = catalogue.read_litellm(path)[name]
    assert (entry.context, entry.output_limit) == right
