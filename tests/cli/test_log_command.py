"""`ctxproxy log` on a log that a proxy has written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ctxproxy.cli import main
from ctxproxy.monitor import Event
from ctxproxy.monitor.log import EventLog
from ctxproxy.stores import state_folder


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EventLog:
    """The proxy's own log, with three events."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("CTXPROXY_CONFIG", raising=False)
    log = EventLog(state_folder() / "context_log.yaml")
    for n, (session, kind) in enumerate([("one", "spawn"), ("two", "request"), ("one", "compaction")]):
        log(Event(type=kind, at=1_769_248_800.0 + n, session=session, level="NORMAL", before=50, after=40))
    return log


@pytest.fixture
def run(log: EventLog, capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*args: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["log", *args])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out + err

    return call


def test_one_line_an_event(run: Any):
    code, out = run()
    assert code == 0
    assert [line.split()[1] for line in out.splitlines()] == ["spawn", "request", "compaction"]


def test_only_some(run: Any):
    assert [line.split()[1] for line in run("--session", "one")[1].splitlines()] == ["spawn", "compaction"]
    assert [line.split()[1] for line in run("--type", "request")[1].splitlines()] == ["request"]
    assert [line.split()[1] for line in run("--tail", "1")[1].splitlines()] == ["compaction"]


def test_json_has_the_names_of_the_log(run: Any, log: EventLog):
    found = [json.loads(line) for line in run("--json")[1].splitlines()]
    assert found == yaml.safe_load(log.path.read_text())
    assert found[0]["context_before"] == 50


def test_grid_is_the_nested_document(run: Any):
    found = yaml.safe_load(run("--grid")[1])
    assert [(s["session_id"], len(s["events"])) for s in found["sessions"]] == [("one", 2), ("two", 1)]
    assert found["sessions"][0]["events"][0]["timestamp"] == "2026-01-24T10:00:00Z"


def test_a_file_of_ones_own_and_one_of_the_settings(run: Any, tmp_path: Path):
    EventLog(tmp_path / "own.yaml")(Event(type="gate", at=1.0, session="own"))
    assert "own" in run("--file", str(tmp_path / "own.yaml"))[1]
    (tmp_path / "c.yaml").write_text(f"logging: {{log_file: {tmp_path / 'own.yaml'}}}\n")
    assert "own" in run("--config", str(tmp_path / "c.yaml"))[1]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--file", "none.yaml"], "none.yaml: there is no such log"),
        (["--type", "lunch"], "there is no 'lunch'; there are spawn, request"),
        (["--grid", "--json"], "--grid"),
    ],
)
def test_mistakes_are_told(run: Any, args: list[str], told: str):
    code, out = run(*args)
    assert code == 2
    assert told in out


def test_following_goes_on_across_a_rotation(log: EventLog):
    process = subprocess.Popen(
        [sys.executable, "-m", "ctxproxy", "log", "--follow", "--json", "--tail", "1"],
        stdout=subprocess.PIPE, text=True, env={**os.environ},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        assert json.loads(process.stdout.readline())["type"] == "compaction"
        small = EventLog(log.path, max_bytes=300)
        for n in range(6):
            small(Event(type="gate", at=2.0, id=str(n)))
            assert json.loads(process.stdout.readline())["id"] == str(n)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
