"""The proxy's event log: written by default in the state folder, whole after kill -9, recalled at the next start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import openai
import yaml
from provider import FakeProvider
from serving import serving

HISTORY = [{"role": "user", "content": "count to ten " * 8}] + [
    {"role": role, "content": f"{role} says marzipan {n} " * 40} for n in range(12) for role in ("assistant", "user")
]


def test_a_killed_proxy_leaves_valid_yaml_without_texts_or_keys(tmp_path: Path):
    with FakeProvider() as provider:
        process = subprocess.Popen(
            [sys.executable, "-m", "ctxproxy", "serve", "--port", "0", "--window", "1500", "--upstream",
             provider.base_url],
            stdout=subprocess.PIPE, text=True, cwd=tmp_path,
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "CTXPROXY_POLICY__SUMMARIES": "false"},
        )  # fmt: skip
        assert process.stdout is not None
        try:
            url = process.stdout.readline().split()[-1]
            names = {"x-ctxproxy-session": "s1", "x-ctxproxy-agent": "planner"}
            with openai.OpenAI(base_url=f"{url}/v1", api_key="sk-secret", default_headers=names) as client:
                for n in range(3):
                    client.chat.completions.create(model="m", messages=[*HISTORY[:-1], HISTORY[2 * n]])
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
    text = (tmp_path / "ctxproxy" / "context_log.yaml").read_text()
    events = yaml.safe_load(text)
    assert [e["type"] for e in events].count("request") == 3
    assert {(e["session_id"], e["agent"]) for e in events} == {("s1", "planner")}
    assert all(e["context_after"] < 1_500 for e in events if e["type"] == "request")
    for secret in ("sk-secret", "marzipan", "count to ten"):
        assert secret not in text


def test_the_next_process_knows_what_happened(tmp_path: Path):
    log = {"log_file": str(tmp_path / "log.yaml")}
    with FakeProvider() as provider:
        for n in range(2):
            with serving(provider.base_url, window=9_000, logging=log) as proxy:
                assert proxy.app.relay is not None
                monitor = proxy.app.relay.runtime.monitor
                assert len(monitor.events()) == n
                with openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="k") as client:
                    client.chat.completions.create(model="m", messages=HISTORY[:3])
    assert [event.type for event in monitor.events()] == ["request", "request"]
