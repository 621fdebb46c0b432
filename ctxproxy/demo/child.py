"""Child processes of the demo: start one, wait for the line with its address, stop it."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from ctxproxy.errors import CtxProxyError

__all__ = ["DemoError", "listening", "wait_until_ready"]

_MARK = "listening on "
_TAIL = 12  # lines of a child's output that an error message shows
_STOP_SECONDS = 5.0
_PACKAGES = Path(__file__).resolve().parents[2]


class DemoError(CtxProxyError):
    """The demo can't run here; the message says why and what to do."""


@contextmanager
def listening(
    module: str,
    arguments: Sequence[str],
    *,
    name: str,
    ready: str,
    seconds: float = 60.0,
    environment: Mapping[str, str] | None = None,
) -> Generator[str]:
    """Run `python -m module arguments` and give the base URL that it prints after "listening on ".

    name: what error messages call the process. ready: path that answers 200 once it can serve.
    seconds: deadline for both. environment: variables to set on top of the caller's. The process ends with the
    block; it runs in an empty temporary folder, so that it neither reads nor leaves files in the user's.

    Raises DemoError if it exits or stays silent, with the end of its output.
    """
    deadline = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="ctxproxy-demo-") as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=_environment(os.environ, folder) | dict(environment or {}),
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        output: deque[str] = deque(maxlen=_TAIL)
        addresses: queue.Queue[str | None] = queue.Queue()
        # The pipe is read to its end: a child must never block on what it logs.
        reader = threading.Thread(target=_read, args=(process, output, addresses), daemon=True)
        reader.start()
        try:
            try:
                url = addresses.get(timeout=seconds)
            except queue.Empty:
                raise DemoError(_trouble(f"{name} did not start within {seconds:.0f} s", output)) from None
            if url is None:
                raise DemoError(_trouble(f"{name} did not start (exit code {process.wait()})", output))
            wait_until_ready(url, ready, name=name, seconds=deadline - time.monotonic())
            yield url
        finally:
            _stop(process)
            reader.join(_STOP_SECONDS)


def wait_until_ready(url: str, path: str, *, name: str, seconds: float) -> None:
    """Ask `path` until it answers 200. Raises DemoError after `seconds`."""
    deadline = time.monotonic() + seconds
    last = "no answer"
    while time.monotonic() < deadline:
        try:
            status = _status(url, path)
        except (OSError, HTTPException) as error:
            last = str(error) or type(error).__name__
        else:
            if status == 200:
                return
            last = f"HTTP {status}"
        time.sleep(0.05)
    raise DemoError(f"{name} at {url} was not ready in time ({path}: {last})")


def _status(url: str, path: str) -> int:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=5.0)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def _environment(inherited: Mapping[str, str], folder: str) -> dict[str, str]:
    """The caller's environment without ctxproxy settings and proxies, with its data folders in `folder`."""
    kept = {name: value for name, value in inherited.items() if not name.startswith("CTXPROXY_")}
    paths = [str(_PACKAGES), kept.get("PYTHONPATH", "")]
    loopback = "127.0.0.1,localhost"
    return kept | {
        # One slot and a tiny model: a summary call would evict the prompt cache that the demo is about.
        "CTXPROXY_POLICY__SUMMARIES": "false",
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),  # a checkout that is not installed works too
        "NO_PROXY": loopback,
        "no_proxy": loopback,
        "XDG_CONFIG_HOME": folder,
        "XDG_DATA_HOME": folder,
        "XDG_STATE_HOME": folder,
        "XDG_CACHE_HOME": folder,
    }


def _read(process: subprocess.Popen[str], output: deque[str], addresses: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            output.append(line.rstrip())
            _, mark, rest = line.partition(_MARK)
            if mark and rest.startswith("http"):
                addresses.put(rest.split()[0])
    addresses.put(None)


def _stop(process: subprocess.Popen[str]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _trouble(message: str, output: Sequence[str]) -> str:
    said = [line for line in output if line]
    return "\n  ".join([f"{message}; its last output:", *said]) if said else message
