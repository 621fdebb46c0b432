"""What `ctxproxy serve` says when it can't start: one line, no traceback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def serve(*args: str, folder: Path, **env: str) -> tuple[int, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CTXPROXY_")}
    done = subprocess.run(
        [sys.executable, "-m", "ctxproxy", "serve", *args],
        cwd=folder,
        env={**clean, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_a_port_in_use_is_named_with_the_setting(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, err = serve("--port", port, folder=tmp_path)
    assert code == 2
    assert err.count("\n") == 1
    assert err.startswith("ctxproxy: ")
    for word in (f"127.0.0.1:{port}", "in use", "server.port", "--port"):
        assert word in err


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--config", "none.yaml"), "none.yaml: No such file"),
        (("--config", "bad.yaml"), "bad.yaml, line 3, column 1: not valid YAML"),
        (("--config", "odd.yaml"), "server.prt (odd.yaml, line 2): there is no such key; did you mean server.port?"),
        (("--upstream", "localhost:8080"), "upstreams.upstream.base_url (command line): 'localhost:8080' is not"),
        (("--window", "0"), "window (command line): 0 is not allowed; it must be at least 1"),
        (("--mode", "compct"), "mode (command line): 'compct' is not allowed; it must be 'off', 'observe' or"),
        (("--policy", "gentel"), "policy.preset (command line): 'gentel' is not allowed"),
        (("--host", "0.0.0.0"), "server.host (command line): 0.0.0.0 lets other machines in: that needs server.token"),
        (("--host", "no.such.host.invalid"), "no.such.host.invalid"),
        (("--port", "70000"), "server.port (command line): 70000 is not allowed; it must be at most 65535"),
    ],
)
def test_a_wrong_setting_is_one_line(args: tuple[str, ...], told: str, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("server:\n  port: [1,\n")
    (tmp_path / "odd.yaml").write_text("server:\n  prt: 1\n")
    code, err = serve(*args, folder=tmp_path)
    assert code == 2
    assert told in err
    assert err.count("\n") == 1


def test_a_port_that_is_no_number_is_no_traceback(tmp_path: Path) -> None:
    code, err = serve("--port", "many", folder=tmp_path)
    assert code == 2
    assert "--port" in err
    assert "Traceback" not in err


def test_a_wrong_variable_is_named(tmp_path: Path) -> None:
    code, err = serve(folder=tmp_path, CTXPROXY_SERVER__PORT="many")
    assert code == 2
    assert "server.port (CTXPROXY_SERVER__PORT): 'many' is not allowed; it must be a whole number" in err
