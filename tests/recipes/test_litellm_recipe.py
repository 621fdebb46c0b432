"""The recipe for litellm, run as a user runs it, against a loopback provider."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from provider import FakeProvider

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.skipif(find_spec("litellm") is None, reason="litellm is not installed")
def test_litellm_completion() -> None:
    with FakeProvider(window=4_000) as provider:
        env = {"PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{provider.base_url}/v1"}
        done = subprocess.run(
            [sys.executable, str(ROOT / "recipes" / "litellm_completion.py")],
            env={**os.environ, **env}, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert not provider.violations
        assert provider.calls >= 12
    assert "25 messages, " in done.stdout
    assert "25 messages, 0 compactions" not in done.stdout
