"""`ctxproxy replay` on what a proxy has recorded."""

from __future__ import annotations

import json
import logging
import stat
from pathlib import Path
from typing import Any

import openai
import pytest
from provider import FakeProvider
from serving import serving

from ctxproxy.cli import main

TURN = "please go on with the next reading of the gauge " * 20


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("CTXPROXY_CONFIG", raising=False)

    def call(*args: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["replay", *map(str, args)])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call


def record(path: Path, **settings: Any) -> None:
    """Eight turns through a proxy."""
    messages: list[Any] = [{"role": "user", "content": "Read /srv/harbour/tide_7714.csv."}]
    names = {"x-ctxproxy-session": "tides", "x-ctxproxy-agent": "reader"}
    with (
        FakeProvider() as provider,
        serving(provider.base_url, recording={"file": str(path)}, **settings) as proxy,
        openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="sk-secret", default_headers=names) as client,
    ):
        for n in range(8):
            client.chat.completions.create(model="gpt-4o", messages=messages)
            messages += [{"role": "assistant", "content": f"{n}: {TURN}"}, {"role": "user", "content": TURN}]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What was recorded with a large window."""
    path = tmp_path_factory.mktemp("recording") / "r.jsonl"
    record(path, window=50_000)
    return path


def test_the_proxy_records_bodies_and_usage_but_no_keys(recording: Path):
    lines = [json.loads(line) for line in recording.read_bytes().splitlines()]
    assert [len(found["body"]["messages"]) for found in lines] == [1, 3, 5, 7, 9, 11, 13, 15]
    assert {(f["session"], f["agent"], f["window"], f["status"]) for f in lines} == {("tides", "reader", 50_000, 200)}
    assert all(found["usage"]["input"] > 0 for found in lines)
    assert b"sk-secret" not in recording.read_bytes()
    assert stat.S_IMODE(recording.stat().st_mode) == 0o600


def test_it_compares_policies(run: Any, recording: Path):
    code, out, err = run(recording, "--window", 2_500, "--target", "40%")
    assert (code, err) == (0, "")
    words = out.split()
    assert "session tides" in out
    assert "a window of 2,500 tokens" in out
    assert "compactions  recorded none, here " in out
    assert "proactive" in words or "overflow" in words
    for name in ("requests", "tokens", "cost", "facts kept"):
        assert f"\n  {name}" in out


def test_json_has_the_same_figures(run: Any, recording: Path):
    code, out, _ = run(recording, "--policy", "aggressive", "--window", 2_500, "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["policy"], found["window"], found["problems"]) == ("aggressive", 2_500, [])
    (session,) = found["sessions"]
    assert session["session"] == "tides"
    assert found["total"] == {name: value for name, value in session.items() if name != "session"}
    assert session["tokens"] < session["tokens_none"]
    assert session["compactions"]
    same = json.loads(run(recording, "--json")[1])["total"]
    assert same["tokens"] == same["tokens_none"] == same["tokens_recorded"]


def test_under_the_same_settings_the_same_happens(run: Any, tmp_path: Path):
    path = tmp_path / "r.jsonl"
    record(path, window=2_500, policy={"summaries": False})
    (found,) = json.loads(run(path, "--json")[1])["sessions"]
    assert found["compactions"] == found["compactions_recorded"] != {}
    assert found["tokens"] == found["tokens_recorded"] < found["tokens_none"]


def test_bad_lines_are_told_with_their_number(run: Any, recording: Path, tmp_path: Path):
    lines = recording.read_bytes().splitlines()
    body = b'{"at": 1, "api": "chat", "body": {"model": "gpt-4o", "messages": "none"}}'
    log = tmp_path / "bad.jsonl"
    log.write_bytes(b"\n".join([b'{"at": 1,', lines[0], b"", b'{"at": 1, "api": "fax", "body": {}}', lines[1], body]))
    code, out, err = run(log, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["total"]["requests"] == 2
    assert [p["line"] for p in found["problems"]] == [1, 4, 6]
    assert [line.split(": ")[1].rpartition(" ")[2] for line in err.splitlines()] == ["1", "4", "6"]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("none.jsonl",), "none.jsonl: No such file"),
        (("empty.jsonl",), "empty.jsonl: there is no request that can be replayed"),
        (("empty.jsonl", "--policy", "gentel"), "policy.preset (command line): 'gentel' is not allowed"),
        (("empty.jsonl", "--target", "1.5"), "policy.target (command line)"),
    ],
)
def test_wrong_input_is_one_line(
    run: Any, args: tuple[str, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.jsonl").touch()
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1


def test_a_start_says_that_bodies_are_recorded(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    from ctxproxy.config import load
    from ctxproxy.recording import announce

    with caplog.at_level(logging.WARNING, "ctxproxy"):
        announce(load(None, env={}))
        announce(load(None, env={}, overrides={"recording.file": str(tmp_path / "r.jsonl")}))
    assert [f"recorded in {tmp_path / 'r.jsonl'}" in r.getMessage() for r in caplog.records] == [True]
