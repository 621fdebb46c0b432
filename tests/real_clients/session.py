"""One session: the client under `ctxproxy run`, the strict provider behind it, and what came of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from provider import FakeProvider

from real_clients.clients import Client
from real_clients.script import Script, write_files

__all__ = ["HEADER", "Result", "run_session"]

_ROOT = Path(__file__).parent.parent.parent
_LARGEST = re.compile(r"the largest prompt, ([\d,]+) tokens")
_KEPT = ("PATH", "LANG", "LC_ALL", "TERM", "SYSTEMROOT")
HEADER = f"{'client':26} {'version':10} {'requests':>8} {'raw':>9} {'windows':>7}  {'compactions':36} {'errors':>6} {'invalid':>7}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a session came to. `raw` are the tokens that the client's last history would have needed."""

    client: Client
    code: int
    output: str = field(repr=False)
    said: str = field(repr=False)
    requests: int
    raw: int
    compactions: Counter[str]
    refused: int
    invalid: int
    faults: int
    steps: int

    @property
    def windows(self) -> float:
        return self.raw / self.client.window

    @property
    def errors(self) -> int:
        """What the client saw: a failed end, or an answer of the provider's that was an error and not sent again."""
        return int(self.code != 0) + int(self.client.done not in self.output) + self.faults

    def line(self) -> str:
        cut = ", ".join(f"{count} {reason}" for reason, count in sorted(self.compactions.items())) or "none"
        return (
            f"{self.client.name:26} {self.client.version:10} {self.requests:8} {self.raw:9,} {self.windows:7.1f}  "
            f"{cut:36} {self.errors:6} {self.invalid:7}"
        )


def run_session(client: Client, folder: Path, *, known: bool = True, timeout: float = 300) -> Result:
    """Run a session in `folder`. With `known` the proxy knows the window; else it learns it from the first refusal."""
    work, home = folder / "work", folder / "home"
    work.mkdir(parents=True)
    home.mkdir()
    write_files(work, count=client.calls, size=client.size)
    script = Script(client.calls, client.tool, client.arguments, client.end)
    log = folder / "context_log.yaml"
    with FakeProvider(window=client.window, wording=client.wording, answer=script, preserved=False) as provider:
        start = client.start(work, home, client.calls)
        settings = folder / "ctxproxy.yaml"
        settings.write_text(
            yaml.safe_dump(
                {
                    "upstreams": {"fake": {"base_url": provider.base_url}},
                    "logging": {"log_file": str(log)},
                    **({"window": client.window} if known else {"models": {"*": {"window": 1_000_000}}}),
                }
            )
        )
        env = {name: os.environ[name] for name in _KEPT if name in os.environ}
        env |= {"HOME": str(home), "TMPDIR": str(folder), "PYTHONPATH": str(_ROOT), **start.env}
        done = subprocess.run(
            [sys.executable, "-m", "ctxproxy", "run", "--config", str(settings), "--", *start.command],
            cwd=work, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip
        assert not provider.errors, provider.errors
        calls = list(provider.model_requests)
        refused = [r for r in calls if r.status >= 400]
        invalid = [v for r in calls for v in r.violations]
    events = [event for event in yaml.safe_load(log.read_text()) or [] if event["type"] == "compaction"]
    return Result(
        client=client,
        code=done.returncode,
        output=done.stdout,
        said=done.stderr,
        requests=len(calls),
        raw=int(said[1].replace(",", "")) if (said := _LARGEST.search(done.stderr)) else 0,
        compactions=Counter(event["reason"] for event in events),
        refused=len(refused),
        invalid=len(invalid),
        faults=sum(r.status not in (200, 400, 413) for r in calls),
        steps=script.steps,
    )
