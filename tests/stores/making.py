"""Entries, originals and processes for the tests of the stores."""

from __future__ import annotations

import os
import random
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows, where no process is forked
    fcntl = None

from ctxproxy.compaction import Compaction, Original
from ctxproxy.ledger import Entry

DAY = 86_400.0


class Clock:
    """A time that only tests move."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


def compaction(**fields: Any) -> Compaction:
    given: dict[str, Any] = {
        "id": "c0ffee",
        "reason": "proactive",
        "level": "COMPRESS",
        "model": "some-model",
        "window": 8_192,
        "target": 5_734,
        "tokens_before": 7_500,
        "tokens_after": 5_000,
        "strategies": ("prune", "window"),
        "exchanges_cut": 3,
        "messages_cut": 7,
        "at": 1_000_000.0,
    }
    return Compaction(**{**given, **fields})


def entry(
    *,
    scope: str = "chat:anna",
    first: bytes = b"first",
    length: int = 4,
    chain: bytes = b"chain",
    items: tuple[int | bytes, ...] = (0, b'{"role":"user","content":"notes"}', 3),
    archived: tuple[str, ...] = (),
) -> Entry:
    return Entry(
        scope=scope, first=first, length=length, chain=chain, items=items, compaction=compaction(archived=archived)
    )


def original(id: str, data: bytes = b"what was cut") -> Original:
    return Original(id=id, data=data, kind="output")


def noise(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


@dataclass
class Process:
    """A process of its own, forked: it starts in no time, so that many can be killed."""

    pid: int
    output: IO[bytes]

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def lines(self) -> list[str]:
        """What it wrote and was not read yet, once it has ended; a line that it did not finish does not count."""
        rest = self.output.read()
        self.output.close()
        return rest.decode().split("\n")[:-1]

    def status(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def start(work: Callable[[Callable[[str], None]], object], *, user: int | None = None) -> Process:
    """Run `work` in a process; it is given a function that writes a line. `user` is the id to become, if allowed."""
    out, into = os.pipe()
    if hasattr(fcntl, "F_SETPIPE_SZ"):  # so that it can't run far ahead of whoever reads
        fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, 4_096)
    pid = os.fork()
    if pid:
        os.close(into)
        return Process(pid, os.fdopen(out, "rb"))
    code = 1
    try:
        os.close(out)
        if user is not None and os.geteuid() == 0:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        work(lambda line: void(os.write(into, f"{line}\n".encode())))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def void(_: object) -> None:
    """Nothing, whatever it is given."""
