"""The recipes for loops of one's own, run as a user runs them, against a loopback provider."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import yaml
from provider import FakeProvider

ROOT = Path(__file__).parent.parent.parent


def run(name: str, provider: FakeProvider, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "recipes" / name)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{provider.base_url}/v1",
             **env},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not provider.violations
    return done.stdout


def test_own_loop_with_guard():
    with FakeProvider(window=4_000) as provider:
        out = run("own_loop_with_guard.py", provider)
        assert provider.calls == 12
    assert "25 messages, " in out
    assert "0 compactions" not in out
    assert "Context Budget Status" in out


def test_multi_agent_gate_warmth(tmp_path: Path):
    with FakeProvider(window=4_000) as provider:
        out = run("multi_agent_gate_warmth.py", provider, LOG=str(tmp_path / "log.yaml"))
    types = [line.split()[0] for line in out.splitlines()]
    assert {"request", "checkpoint", "gate", "spawn", "compaction"} <= set(types)
    events = yaml.safe_load((tmp_path / "log.yaml").read_text())
    assert [event["type"] for event in events] == types
    assert {event["agent"] for event in events} == {"planner", "executor"}
    assert len({event["session_id"] for event in events}) == 1
