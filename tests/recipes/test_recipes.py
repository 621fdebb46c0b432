"""Each recipe as a process of its own: the usual variables name the provider, and what it prints is checked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from provider import Answer, FakeProvider, Request, ToolCall
from serving import serving

RECIPES = Path(__file__).parents[2] / "recipes"
STEPS = 30
WINDOW = 3_000  # tokens, as in the recipes


def _step(request: Request) -> Answer:
    """The model of the recipes: it reads the 30 lines one after another; asked for a summary it has nothing to say."""
    if request.json().get("tools") is None or b"read_line" not in request.body:
        return Answer("Nothing to add.")
    lines = [int(n) for n in re.findall(rb"Line (\d+) of the log says", request.body)]
    last = max(lines, default=0)
    return Answer("all read") if last >= STEPS else Answer("", (ToolCall("read_line", {"n": last + 1}),))


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider(window=WINDOW, answer=_step) as server:
        yield server
        assert not server.violations
        assert not server.errors


def _run(name: str, url: str, *arguments: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "ANTHROPIC_"))}
    env |= {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "k",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "k",
        "PYTHONPATH": os.pathsep.join([str(RECIPES.parent), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, str(RECIPES / name), *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _needs(*modules: str) -> None:
    for module in modules:
        if find_spec(module) is None:
            pytest.skip(f"{module} is not installed")


@pytest.mark.parametrize(
    ("name", "arguments", "modules"),
    [
        ("dropin_openai.py", (), ["openai"]),
        ("dropin_anthropic.py", (), ["anthropic"]),
        ("langchain_agent.py", (), ["langchain", "langchain_openai"]),
        ("langchain_agent.py", ("anthropic",), ["langchain", "langchain_anthropic"]),
        ("openai_agents_sdk.py", (), ["agents"]),
        ("pydantic_ai_agent.py", (), ["pydantic_ai", "openai"]),
        ("strands_agent.py", (), ["strands", "openai"]),
    ],
)
def test_a_recipe_in_the_program(
    provider: FakeProvider, name: str, arguments: Sequence[str], modules: Sequence[str]
) -> None:
    _needs(*modules)
    printed = _run(name, provider.base_url, *arguments)
    assert "answer: all read\n" in printed
    counted = re.search(r"^compactions: (\d+)$", printed, re.MULTILINE)
    assert counted
    assert int(counted[1]) > 0
    changes = re.findall(r"^  (proactive|overflow): ([\d,]+) -> ([\d,]+) tokens by \S+$", printed, re.MULTILINE)
    assert len(changes) == int(counted[1])
    assert all(int(after.replace(",", "")) < int(before.replace(",", "")) for _, before, after in changes)
    assert all(request.status == 200 for request in provider.model_requests)


def test_the_recipe_through_the_proxy(provider: FakeProvider) -> None:
    _needs("openai")
    with serving(provider.base_url, window=WINDOW) as proxy:
        printed = _run("proxy_with_openai_sdk.py", proxy.url)
    assert "answer: all read\n" in printed
    assert f"model calls: {STEPS + 1}\n" in printed
    assert re.search(r"^call \d+: proactive: [\d,]+ -> [\d,]+ tokens$", printed, re.MULTILINE)
    assert all(request.status == 200 for request in provider.model_requests)
