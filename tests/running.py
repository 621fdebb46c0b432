"""`ctxproxy serve` as a user starts it: a process of its own, with a store of its own."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

__all__ = ["Running", "running"]

ROOT = Path(__file__).parent.parent


@dataclass
class Running:
    """A started proxy: its process, its address, and what it wrote to standard error so far."""

    process: subprocess.Popen[str]
    url: str
    lines: list[str] = field(default_factory=list)

    @property
    def workers(self) -> list[int]:
        """The process ids of its workers (Linux)."""
        text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        found = [int(pid) for pid in text.split()]
        return [pid for pid in found if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.terminate()
        return self.process.wait(30)


@contextmanager
def running(upstream: str, folder: Path, *, window: int, workers: int = 1, **sections: Any) -> Iterator[Running]:
    """Start the proxy with a config file of these sections; its state lies in `folder`."""
    config = {
        "window": window,
        "upstreams": {"test": {"base_url": upstream}},
        **sections,
        "server": {"port": 0, "workers": workers, **sections.get("server", {})},
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CTXPROXY_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "ctxproxy", "serve", "--config", str(path)],
        cwd=folder,
        env={**clean, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(folder / "state")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    first: queue.Queue[str] = queue.Queue()
    found = Running(process, "")

    def read_out() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            first.put(line)
        first.put("")

    def read_err() -> None:
        assert process.stderr is not None
        found.lines.extend(process.stderr)

    readers = [threading.Thread(target=target, daemon=True) for target in (read_out, read_err)]
    for reader in readers:
        reader.start()
    try:
        line = first.get(timeout=60)
        if "listening on" not in line:
            process.wait(10)
            raise RuntimeError(f"the proxy did not start: {''.join(found.lines)}")
        found.url = line.split()[-1]
        yield found
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for reader in readers:
            reader.join(10)
