"""The recorder: what a line holds, its bounds, and that a failure costs nothing else."""

from __future__ import annotations

import json
import logging
import os
import stat
from pathlib import Path

import pytest

from ctxproxy.config import load
from ctxproxy.effects import Answer, Outcome, drive
from ctxproxy.errors import ConfigError, ContextOverflowError
from ctxproxy.monitor import Finished
from ctxproxy.recording import Recorder, line_of, recorder_of
from ctxproxy.runtime import Runtime
from ctxproxy.tokens.spent import Spent

BODY = b'\xef\xbb\xbf{\r\n "model": "gpt-4o",\n "messages": [{"role": "user", "content": "a \\n line \xc3\xa9"}]\n}\n'


def finished(runtime: Runtime, body: bytes = BODY) -> Finished:
    headers = {"authorization": "Bearer sk-secret", "x-other": "hidden"}
    call = runtime.call(api="chat", body=body, upstream="https://me:pw-secret@host.test/v1", headers=headers)
    prepared = drive(runtime.engine.prepare(call), runtime.perform)
    outcome = Outcome(answer=Answer(status=200), report=prepared.report, prepared=prepared)
    return Finished(id="1", call=call, outcome=outcome, status=200, agent="planner", upstream="u")


def test_a_line_is_the_body_and_figures_without_headers_and_keys():
    runtime = Runtime(clock=lambda: 12.3456)
    done = finished(runtime)
    line = line_of(done, session="s")
    assert line.count(b"\n") == 1
    assert b"secret" not in line
    assert b"hidden" not in line
    found = json.loads(line)
    assert found.pop("body") == json.loads(BODY.removeprefix(b"\xef\xbb\xbf"))
    assert found.pop("window") == 128_000
    assert found.pop("sent") > 5
    assert found == {
        "at": 12.346, "api": "chat", "session": "s", "agent": "planner", "upstream": "https://host.test/v1",
        "model": "gpt-4o", "window_source": "catalogue", "status": 200, "compaction": None, "usage": None,
    }  # fmt: skip


def test_a_refusal_of_our_own_is_a_line_too():
    runtime = Runtime()
    error = ContextOverflowError("no", model="m", context_window=100)
    call = runtime.call(api="chat", body=BODY)
    found = json.loads(line_of(Finished(id="1", call=call, outcome=None, error=error, status=400), session="s"))
    assert (found["model"], found["window"], found["status"], found["sent"]) == ("m", 100, 400, 0)


def test_the_runtime_tells_the_recorder_of_the_usage(tmp_path: Path):
    path = tmp_path / "new" / "r.jsonl"
    runtime = Runtime(recorder=Recorder(path))
    runtime.finished(finished(runtime), {"prompt_tokens": 40, "completion_tokens": 7})
    runtime.close()
    assert json.loads(path.read_bytes())["usage"] == {"input": 40, "cached": 0, "written": 0, "output": 7}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_others_can_read_is_closed_to_them(tmp_path: Path):
    path = tmp_path / "r.jsonl"
    path.touch(mode=0o644)
    Recorder(path).open()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_it_stops_at_its_size_with_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path, runtime = tmp_path / "r.jsonl", Runtime()
    done = finished(runtime)
    size = len(line_of(done, session="s"))
    recorder = Recorder(path, max_bytes=2 * size)
    with caplog.at_level(logging.WARNING, "ctxproxy"):
        for _ in range(5):
            recorder(done, "s")
    assert len(path.read_bytes().splitlines()) == 2
    assert [r.getMessage().count("recording.max_bytes") for r in caplog.records] == [1]


def test_a_line_that_was_not_finished_spoils_only_itself(tmp_path: Path):
    path, runtime = tmp_path / "r.jsonl", Runtime()
    path.write_bytes(b'{"at": 1, "api": "ch')
    Recorder(path)(finished(runtime), "s")
    torn, whole = path.read_bytes().splitlines()
    assert torn == b'{"at": 1, "api": "ch'
    assert json.loads(whole)["session"] == "s"


def test_a_failure_costs_the_request_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "file").touch()
    runtime = Runtime(recorder=Recorder(tmp_path / "file" / "r.jsonl"))
    done = finished(runtime)
    with caplog.at_level(logging.WARNING, "ctxproxy"):
        for _ in range(2):
            assert runtime.finished(done, {"prompt_tokens": 40}).spent == Spent(input=40)
    assert [r.getMessage().count("recording.file") for r in caplog.records] == [1]
    assert len(runtime.monitor.events()) == 2


def test_what_can_not_be_opened_is_told_at_the_start(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        settings = load(None, env={}, overrides={"recording.file": str(path)})
        with pytest.raises(ConfigError, match=r"recording\.file: .*no regular file"):
            recorder_of(settings)
    assert recorder_of(load(None, env={})) is None
