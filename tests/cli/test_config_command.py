"""`ctxproxy config check` and `config show`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from ctxproxy.cli import main
from ctxproxy.config import load


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CTXPROXY_CONFIG", raising=False)


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["config", *args])
    out, err = capsys.readouterr()
    return (ended.value.code if isinstance(ended.value.code, int) else 0), out, err


def test_check_lists_all_problems(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("mode: compct\nserver:\n  prt: 1\nwindow: x\n")
    code, out, err = run(capsys, "check", "--config", str(path))
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 3
    assert f"server.prt ({path}, line 3): there is no such key; did you mean server.port?" in err.splitlines()
    path.write_text("mode: observe\n")
    assert run(capsys, "check", "--config", str(path)) == (0, "no problems found\n", "")
    code, _, err = run(capsys, "check", "--config", str(tmp_path / "none"))
    assert (code, err.count("\n")) == (2, 1)


def test_other_commands_say_how_many_more_there_are(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("mode: compct\nwindow: x\n")
    code, _, err = run(capsys, "show", "--config", str(path))
    assert code == 2
    assert err.count("\n") == 1
    assert err.endswith("(and 1 more: `ctxproxy config check` lists all)\n")


def test_show_prints_values_and_their_sources(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "policy: gentle\nupstreams:\n  local: {base_url: 'http://127.0.0.1:1', key: hidden-key}\n"
        'models:\n  "x: y*": {window: 5}\nserver:\n  allowed_hosts: ["a # b"]\n'
    )
    monkeypatch.setenv("CTXPROXY_SERVER__PORT", "9000")
    code, out, _ = run(capsys, "show", "--config", str(path))
    assert code == 0
    assert "hidden-key" not in out
    values = load(str(path), env={"CTXPROXY_SERVER__PORT": "9000"}).values()
    assert yaml.safe_load(out) == values
    lines = {line.split(":")[0].strip(): line for line in out.splitlines()}
    assert lines["port"].endswith("# CTXPROXY_SERVER__PORT")
    assert lines["allowed_hosts"].endswith(f"# {path}, line 7")
    assert lines["target"].endswith("# preset gentle")
    assert lines["mode"].endswith("# default")
    code, out, _ = run(capsys, "show", "--json", "--config", str(path))
    assert json.loads(out)["values"] == values
    assert json.loads(out)["sources"]["server.port"] == "CTXPROXY_SERVER__PORT"
    assert "hidden-key" not in out
