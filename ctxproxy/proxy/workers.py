"""Several worker processes on one listening socket: start them, start a crashed one again, stop all together.

Workers are spawned, never forked: a fork of a process with threads and event loops is not safe, and Windows has none.
Each gets the listening socket and a pipe. When the pipe closes, by the supervisor's will or by its death, the worker
ends, so that none is left behind.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from ctxproxy.proxy.server import say_where

__all__ = ["Work", "supervise"]

_log = logging.getLogger("ctxproxy.proxy")

_LOOK_SECONDS = 0.2
_STOP_SECONDS = 15.0  # a worker lets its requests end for ten
_YOUNG_SECONDS = 5.0  # a worker that dies younger than that is started again ever later
_LONGEST_PAUSE = 30.0

Work = Callable[[Any, socket.socket, Any, Callable[[], None], Callable[[Callable[[], None]], None]], int]


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    pipe: Connection
    began: float
    ready: bool = False


def supervise(work: Work, settings: Any, sock: socket.socket, prepare: Any, *, count: int) -> int:
    """Run `count` workers until SIGINT or SIGTERM; the exit code.

    Prints where they listen once all are ready. A worker that ends before it was ready the first time ends all: what
    keeps it from starting would keep the next one too.

    Args:
        work: the worker's own function; called with the settings, the socket, `prepare`, what to call once ready,
            and what to give the function to that ends it. It is a function of a module, its arguments can be pickled.
    """
    stopped = threading.Event()

    def end(number: int, frame: object) -> None:
        stopped.set()

    previous = {number: signal.signal(number, end) for number in _signals()}
    context = multiprocessing.get_context("spawn")

    def start() -> _Worker:
        ours, theirs = context.Pipe()
        process = context.Process(target=_run, args=(work, settings, sock, prepare, theirs), daemon=False)
        process.start()
        theirs.close()
        return _Worker(process, ours, time.monotonic())

    workers = [start() for _ in range(count)]
    told, code, pause, due = False, 0, 0.0, 0.0
    try:
        while not stopped.is_set():
            if workers:
                wait([w.process.sentinel for w in workers], timeout=_LOOK_SECONDS)
            else:
                stopped.wait(_LOOK_SECONDS)
            for worker in workers:
                worker.ready = worker.ready or _is_ready(worker)
            if not told and all(w.ready for w in workers):
                say_where(sock)
                told = True
            now = time.monotonic()
            for worker in [w for w in workers if not w.process.is_alive()]:
                workers.remove(worker)
                worker.pipe.close()
                if not told:
                    _log.error("a worker could not start (exit code %s)", worker.process.exitcode)
                    stopped.set()
                    code = 1
                    break
                young = now - worker.began < _YOUNG_SECONDS
                pause = min(_LONGEST_PAUSE, max(0.5, 2 * pause)) if young else 0.0
                due = max(due, now + pause)
                _log.warning("a worker ended (exit code %s); another one takes its place", worker.process.exitcode)
            while len(workers) < count and now >= due and not stopped.is_set():
                workers.append(start())
    finally:
        _stop(workers)
        for number, handler in previous.items():
            signal.signal(number, handler)
    return code


def _signals() -> tuple[signal.Signals, ...]:
    more = (signal.SIGBREAK,) if sys.platform == "win32" else ()
    return (signal.SIGINT, signal.SIGTERM, *more)


def _is_ready(worker: _Worker) -> bool:
    try:
        return worker.pipe.poll() and worker.pipe.recv() == "ready"
    except (EOFError, OSError):
        return False


def _stop(workers: list[_Worker]) -> None:
    """Ask all to end, and end those that do not."""
    for worker in workers:
        worker.pipe.close()
    deadline = time.monotonic() + _STOP_SECONDS
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()


def _run(work: Work, settings: Any, sock: socket.socket, prepare: Any, pipe: Connection) -> None:
    """In the worker: serve, and end when the pipe does. Ctrl-C reaches the whole group; the supervisor decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch(stop: Callable[[], None]) -> None:
        def look() -> None:
            try:
                pipe.recv()
            except (EOFError, OSError):
                stop()

        threading.Thread(target=look, name="ctxproxy-supervisor", daemon=True).start()

    sys.exit(work(settings, sock, prepare, lambda: pipe.send("ready"), watch))
