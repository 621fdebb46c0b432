"""`ctxproxy run`: the real command in front of real commands."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from provider import FakeProvider

ROOT = Path(__file__).parent.parent.parent
CTXPROXY = [sys.executable, "-m", "ctxproxy"]

ASK = """
import json, os, sys, urllib.request
base = os.environ[sys.argv[1]] + sys.argv[2]
body = json.loads(sys.argv[3]) if len(sys.argv) > 3 else {
    "model": "fake-model", "max_tokens": 64, "messages": [{"role": "user", "content": "Hi"}]}
headers = {"content-type": "application/json", "anthropic-version": "2023-06-01", "x-api-key": "k"}
with urllib.request.urlopen(urllib.request.Request(base, json.dumps(body).encode(), headers)) as answer:
    print(answer.status, answer.headers["x-ctxproxy-id"] is not None)
"""


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider(window=100_000) as found:
        yield found


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the proxy keeps by default goes to a folder of the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def environment(**more: str) -> dict[str, str]:
    skip = ("CTXPROXY", "OPENAI", "ANTHROPIC", "NO_PROXY", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(skip)}
    return {**clean, "PYTHONPATH": str(ROOT), **more}


def run(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CTXPROXY, "run", *args],
        env=environment(**env), capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def python(code: str, *args: str) -> list[str]:
    return [sys.executable, "-c", code, *args]


def test_a_request_goes_through_and_nothing_is_mixed_in(provider: FakeProvider) -> None:
    done = run(
        "--upstream", provider.base_url, "--window", "100000", *python(ASK, "OPENAI_BASE_URL", "/chat/completions")
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "200 True\n", "")
    assert provider.calls == 1


def test_the_server_of_a_variable_becomes_the_upstream_of_its_wire(provider: FakeProvider) -> None:
    with FakeProvider(window=100_000) as other:
        env = {"OPENAI_BASE_URL": f"{other.base_url}/deep/v7", "ANTHROPIC_BASE_URL": provider.base_url}
        first = run(*python(ASK, "OPENAI_BASE_URL", "/chat/completions"), **env)
        second = run(*python(ASK, "ANTHROPIC_BASE_URL", "/v1/messages"), **env)
        assert first.stdout == second.stdout == "200 True\n", first.stderr + second.stderr
        assert [r.target for r in other.model_requests] == ["/deep/v7/chat/completions"]
        assert [r.target for r in provider.model_requests] == ["/v1/messages"]


def test_the_settings_go_before_the_environment(provider: FakeProvider, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(f"upstreams:\n  mine:\n    base_url: {provider.base_url}\n    wires: [chat]\n")
    with FakeProvider(window=100_000) as other:
        env = {"OPENAI_BASE_URL": f"{other.base_url}/v1", "ANTHROPIC_BASE_URL": other.base_url}
        for variable, path in (("OPENAI_BASE_URL", "/chat/completions"), ("ANTHROPIC_BASE_URL", "/v1/messages")):
            done = run("--config", str(config), "--", *python(ASK, variable, path), **env)
            assert done.stdout == "200 True\n", done.stderr
        assert [r.path for r in provider.model_requests] == ["/v1/chat/completions"]
        assert [r.path for r in other.model_requests] == ["/v1/messages"]


def test_what_was_compacted_is_said_once_on_standard_error(provider: FakeProvider) -> None:
    words = "The quick brown fox jumps over the lazy dog. " * 60
    turn = [{"role": "user", "content": words}, {"role": "assistant", "content": words}]
    body = json.dumps({"model": "fake-model", "messages": [*turn * 8, {"role": "user", "content": "Go on."}]})
    provider.window = 8192
    # The second run finds the compaction of the first in the store: nothing new to say.
    told: list[str] = []
    for said in (1, 0):
        done = run(
            "--upstream", provider.base_url, "--window", "8192", "--",
            *python(ASK, "OPENAI_BASE_URL", "/chat/completions", body),
        )  # fmt: skip
        assert (done.stdout, done.stderr.count("\n")) == ("200 True\n", said)
        told.append(done.stderr)
    assert told[0].startswith("ctxproxy: 1 request, compacted once (1 overflow); the largest prompt, ")


@pytest.mark.parametrize(
    ("command", "code"),
    [(["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -KILL $$"], 137)],
)
def test_the_exit_code_is_that_of_the_command(command: list[str], code: int) -> None:
    done = run("--", *command)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    done = run("--", "no-such-command-here", "--flag")
    assert (done.returncode, done.stdout) == (127, "")
    assert done.stderr == "ctxproxy: there is no command 'no-such-command-here'\n"
    (tmp_path / "data").write_text("no program")
    done = run(str(tmp_path / "data"))
    assert done.returncode == 126
    assert "can't be run: Permission denied" in done.stderr


def test_a_wrong_setting_runs_nothing(tmp_path: Path) -> None:
    for args in (("--mode", "odd"), ("--config", "none.yaml")):
        done = run(*args, "--", "touch", str(tmp_path / "ran"))
        assert done.returncode == 2
        assert done.stderr.startswith("ctxproxy: ")
    done = run("--", "touch", str(tmp_path / "ran"), CTXPROXY_LEDGER__URL="sqlite:/dev/null/x")
    assert done.returncode == 2
    assert "ledger.url" in done.stderr
    assert not (tmp_path / "ran").exists()


# --- signals

TELL = """
import os, signal, sys, time
def got(number, frame):
    print("got", signal.Signals(number).name, flush=True)
for name in ("SIGINT", "SIGTERM", "SIGHUP"):
    signal.signal(getattr(signal, name), got)
signal.signal(signal.SIGUSR1, lambda n, f: sys.exit(9))
print(os.environ["OPENAI_BASE_URL"], flush=True)
while True:
    time.sleep(0.02)
"""


def test_signals_go_to_the_command_and_the_port_ends_with_it() -> None:
    process = subprocess.Popen(
        [*CTXPROXY, "run", "--", *python(TELL)],
        env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,  # no terminal: a Ctrl-C there would reach the command by itself
    )  # fmt: skip
    with process:
        assert process.stdout
        assert process.stderr
        port = int(process.stdout.readline().rsplit(":", 1)[1].partition("/")[0])
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            process.send_signal(getattr(signal, name))
            assert process.stdout.readline() == f"got {name}\n"
        process.send_signal(signal.SIGUSR1)
        assert process.wait(30) == 9
        assert process.stderr.read() == ""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def on_a_terminal(code: str) -> tuple[int, int]:
    """Start a command on a terminal of its own; its process id and our end."""
    pid, ours = pty.fork()
    if pid == 0:
        os.execvpe(sys.executable, [*CTXPROXY, "run", "--", *python(code)], environment())
    return pid, ours


def read_until(ours: int, word: bytes) -> bytes:
    found = b""
    while word not in found:
        found += os.read(ours, 4096)
    return found


def test_ctrl_c_reaches_the_command_once() -> None:
    pid, ours = on_a_terminal(TELL)
    read_until(ours, b"/v1")
    os.write(ours, b"\x03")
    seen = read_until(ours, b"got SIGINT")
    os.kill(pid, signal.SIGTERM)
    seen += read_until(ours, b"got SIGTERM")
    assert seen.count(b"got SIGINT") == 1
    os.kill(pid, signal.SIGUSR1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    os.close(ours)


def test_a_command_that_dies_of_ctrl_c_ends_us_the_same_way() -> None:
    pid, ours = on_a_terminal("import signal; signal.signal(2, signal.SIG_DFL); print('up'); signal.pause()")
    read_until(ours, b"up")
    os.write(ours, b"\x03")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGINT
    os.close(ours)


def test_warnings_wait_while_the_command_has_the_screen(provider: FakeProvider) -> None:
    # The window of the model is not known, which is a warning.
    code = ASK.replace("sys.argv[1]", "'OPENAI_BASE_URL'").replace("sys.argv[2]", "'/chat/completions'")
    code = code.replace("sys.argv) > 3", "[]) > 3").replace("fake-model", "nobody-knows-it") + "\nprint('END')"
    pid, ours = pty.fork()
    if pid == 0:
        os.execvpe(
            sys.executable,
            [*CTXPROXY, "run", "--upstream", provider.base_url, "--", *python(code)],
            environment(),
        )
    seen = read_until(ours, b"nobody-knows-it")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert 0 <= seen.index(b"END") < seen.index(b"ctxproxy: the window of model")
    os.close(ours)
