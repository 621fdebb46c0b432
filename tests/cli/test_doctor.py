"""`ctxproxy doctor`: the real command against real servers on loopback."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ctxproxy.cli import app

KEY = "sk-doctor-secret-1234"


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().endswith(("_PROXY", "_BASE_URL", "_API_BASE", "_CA_BUNDLE")) or name.startswith(
            ("CTXPROXY_", "SSL_CERT")
        ):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@contextmanager
def server(pages: dict[str, Any], *, key: str | None = None, at: float | None = None) -> Iterator[str]:
    """A server with these JSON documents by path; with `key` only for callers that show it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = pages.get(self.path)
            status = 401 if key and self.headers["authorization"] != f"Bearer {key}" else 200 if found else 404
            body = json.dumps(found if status == 200 else {"error": {"message": "no"}}).encode()
            self.send_response_only(status)
            self.send_header("date", formatdate(at, usegmt=True))
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{running.server_port}/v1"
    finally:
        running.shutdown()
        running.server_close()


def doctor(*args: str, code: int = 0) -> list[dict[str, Any]]:
    done = CliRunner().invoke(app, ["doctor", "--json", *args])
    assert done.exit_code == code, done.output
    told = json.loads(done.output)
    assert told["ok"] is (code == 0)
    return told["checks"]


def one(checks: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(check for check in checks if check["name"] == name)


def windows(checks: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    return {c["facts"]["model"]: (c["status"], c["facts"]["source"]) for c in checks if c["name"] == "window"}


def configured(folder: Path, text: str) -> str:
    (folder / "c.yaml").write_text(text)
    return str(folder / "c.yaml")


def test_all_is_well_on_a_fresh_machine_and_nothing_is_made(tmp_path: Path) -> None:
    with server({"/v1/models": {"data": [{"id": "gpt-4o"}]}}) as url:
        checks = doctor("--upstream", url)
        assert {c["status"] for c in checks} == {"ok"}
        assert one(checks, "versions")["facts"]["ctxproxy"]
        assert "without a key" in one(checks, "upstream upstream")["message"]
        assert windows(checks) == {"gpt-4o": ("ok", "catalogue")}
        assert "not made yet" in one(checks, "ledger")["message"]
        plain = CliRunner().invoke(app, ["doctor", "--upstream", url])
    assert plain.exit_code == 0
    assert plain.output.count("\n") == len(checks)
    assert all(line.startswith("ok    ") for line in plain.output.splitlines())
    assert not (tmp_path / "state").exists()


def test_where_each_window_comes_from(tmp_path: Path) -> None:
    listed = [{"id": "gpt-4o"}, {"id": "odd-1"}, {"id": "vllm-1", "max_model_len": 8192}, {"id": "set-1"}]
    with server({"/v1/models": {"data": listed}}) as url:
        text = f"upstreams: {{a: {{base_url: {url}}}}}\nmodels:\n  set-1: {{window: 9000}}\n  only-here: {{window: 7000}}\n"
        checks = doctor("--config", configured(tmp_path, text))
    assert windows(checks) == {
        "gpt-4o": ("ok", "catalogue"),
        "odd-1": ("warn", "default"),
        "vllm-1": ("warn", "default"),
        "set-1": ("ok", "config"),
        "only-here": ("ok", "config"),
    }
    assert "the server says 8,192" in str(checks)


def test_a_server_that_admits_less_than_is_set_is_a_warning(tmp_path: Path) -> None:
    pages = {
        "/v1/models": {"data": [{"id": "local.gguf", "owned_by": "llamacpp", "meta": {"n_ctx_train": 131_072}}]},
        "/props": {"default_generation_settings": {"n_ctx": 2048}},
    }
    with server(pages) as url:
        text = f"upstreams: {{a: {{base_url: {url}, window: 32000}}}}\n"
        checks = doctor("--config", configured(tmp_path, text))
    found = one(checks, "window")
    assert found["status"] == "warn"
    assert "32,000 tokens (config), but the server says 2,048" in found["message"]


def test_ollama_is_known_to_cut_silently() -> None:
    pages = {
        "/v1/models": {"data": [{"id": "qwen3:8b", "owned_by": "library"}]},
        "/api/ps": {"models": [{"name": "qwen3:8b", "context_length": 4096}]},
    }
    with server(pages) as url:
        checks = doctor("--upstream", url)
    found = one(checks, "silent truncation")
    assert found["status"] == "warn"
    assert "qwen3:8b 4,096" in found["message"]


def test_a_long_list_is_not_printed_whole() -> None:
    with server({"/v1/models": {"data": [{"id": f"gpt-4o-{n}x"} for n in range(200)]}}) as url:
        checks = doctor("--upstream", url)
    assert sum(c["name"] == "window" for c in checks) <= 13


@pytest.mark.parametrize(("right", "code", "told"), [(True, 0, "takes the key"), (False, 1, "refuses the key")])
def test_a_key_is_tried_and_never_shown(right: bool, code: int, told: str, tmp_path: Path) -> None:
    with server({"/v1/models": {"data": []}}, key=KEY if right else "another") as url:
        checks = doctor(
            "--config", configured(tmp_path, f"upstreams: {{a: {{base_url: {url}, key: {KEY}}}}}"), code=code
        )
    assert told in one(checks, "upstream a")["message"]
    assert KEY not in str(checks)


def test_a_server_that_wants_a_key_is_fine_without_one() -> None:
    with server({"/v1/models": {"data": []}}, key=KEY) as url:
        assert "wants a key" in one(doctor("--upstream", url), "upstream upstream")["message"]


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    message = one(doctor("--upstream", f"http://127.0.0.1:{port}/v1", code=1), "upstream upstream")["message"]
    assert "can't be reached" in message
    assert "upstreams.upstream.base_url" in message


def test_what_is_no_web_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"SSH-2.0-OpenSSH\r\n")

        threading.Thread(target=serve, daemon=True).start()
        found = one(doctor("--upstream", f"http://127.0.0.1:{listener.getsockname()[1]}", code=1), "upstream upstream")
    assert found["status"] == "fail"


def test_a_clock_that_is_wrong() -> None:
    with server({"/v1/models": {"data": []}}, at=1_700_000_000.0) as url:
        found = one(doctor("--upstream", url), "clock")
    assert found["status"] == "warn"
    assert "ahead of upstream" in found["message"]


def test_stores_are_measured_and_their_faults_told(tmp_path: Path) -> None:
    with server({"/v1/models": {"data": []}}) as url:
        store = tmp_path / "here.sqlite"
        text = f"upstreams: {{a: {{base_url: {url}}}}}\nledger: {{url: 'sqlite:{store}'}}\narchive: {{mode: disk, dir: {tmp_path}/cut}}\n"
        config = configured(tmp_path, text)
        (tmp_path / "cut").mkdir()
        (tmp_path / "cut" / "one").write_bytes(b"x" * 2048)
        from ctxproxy.stores import SqliteStore

        SqliteStore(store).close()
        checks = doctor("--config", config)
        assert "0 conversations" in one(checks, "ledger")["message"]
        assert "1 files, 2 KiB" in one(checks, "archive")["message"]
        blocked = configured(tmp_path, text.replace(str(store), "/dev/null/x.sqlite"))
        found = one(doctor("--config", blocked, code=1), "ledger")
    assert found["status"] == "fail"
    assert "/dev/null/x.sqlite" in found["message"]


def test_a_store_that_another_process_holds_is_told(tmp_path: Path) -> None:
    from ctxproxy.stores import SqliteStore

    store = tmp_path / "held.sqlite"
    SqliteStore(store).close()
    with server({"/v1/models": {"data": []}}) as url:
        holder = sqlite3.connect(store)
        holder.execute("BEGIN EXCLUSIVE")
        text = f"upstreams: {{a: {{base_url: {url}}}}}\nledger: {{url: 'sqlite:{store}'}}\n"
        found = one(doctor("--config", configured(tmp_path, text), code=1), "ledger")
        holder.close()
    assert "locked" in found["message"]


def test_proxies_and_certificates_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:pa55word@proxy.example:3128")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/file.pem")
    with server({"/v1/models": {"data": []}}) as url:
        checks = doctor("--upstream", url, code=1)
    assert one(checks, "forward proxy")["message"] == "HTTPS_PROXY=http://***@proxy.example:3128"
    assert one(checks, "certificates")["status"] == "fail"
    assert "pa55word" not in str(checks)
