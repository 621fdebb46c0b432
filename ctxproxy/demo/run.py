"""The demo from start to end: the conversation without ctxproxy, then with it."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from rich.console import Console

from ctxproxy.demo.agent import APIS, ask, count_tokens
from ctxproxy.demo.child import DemoError, listening
from ctxproxy.demo.result import Outcome, Turn, turn_of
from ctxproxy.demo.script import Step, conversation
from ctxproxy.demo.server import ModelServer, model_server
from ctxproxy.demo.view import View

__all__ = ["run_demo"]

_WINDOWS = 10  # length of the raw history at the end
_TOO_LARGE = 4  # the wrong window of the first part with ctxproxy, in real ones
_SMALLEST, _LARGEST = 1024, 8192  # tokens; the model was trained for 8,192


def run_demo(
    *, api: str = "chat", as_json: bool, window: int = 2048, turns: int | None = None, console: Console
) -> int:
    """Run the demo and give the exit code: 0 if everything that it claims was seen, else 1.

    api: "chat", "responses" or "messages". as_json: print one JSON object instead of the view.
    window: the model's context window in tokens. turns: end after so many requests through ctxproxy instead of
    when the raw history is ten windows long. console: where to print.
    """
    try:
        outcome = _run(api=api, window=window, turns=turns, console=None if as_json else console)
    except DemoError as error:
        if as_json:
            _print_json(console, {"ok": False, "error": str(error)})
        else:
            console.print(f"ctxproxy demo: {error}", style="bold red", markup=False, highlight=False, soft_wrap=True)
        return 1
    if as_json:
        _print_json(console, outcome.as_dict())
    return 1 if outcome.problems() else 0


def _run(*, api: str, window: int, turns: int | None, console: Console | None) -> Outcome:
    if api not in APIS:
        raise DemoError(f"unknown API {api!r}; one of {', '.join(APIS)}")
    if not _SMALLEST <= window <= _LARGEST:
        raise DemoError(f"the window must be {_SMALLEST} to {_LARGEST} tokens with this model, not {window}")
    start = time.monotonic()
    goal = _WINDOWS * window
    with _ended_by_sigterm(), ExitStack() as stack:
        server = stack.enter_context(model_server(n_ctx=window))
        view = stack.enter_context(View(console or Console(quiet=True, force_terminal=False), window=window, goal=goal))
        without = _without(server, api=api, view=view)
        with_it = _with(server, api=api, view=view, goal=goal, turns=turns)
        outcome = Outcome(
            api=api,
            window=window,
            without=tuple(without),
            turns=tuple(with_it),
            refusal=without[-1].error,
            complete=turns is None or len(with_it) < turns,
            seconds=time.monotonic() - start,
        )
        view.end(outcome)
    return outcome


def _without(server: ModelServer, *, api: str, view: View) -> list[Turn]:
    """The agent alone, until the server refuses the prompt."""
    view.part("1. Without ctxproxy", f"The agent talks to the model server, whose window is {server.window:,} tokens.")
    script = conversation(window=server.window)
    step = next(script)
    turns: list[Turn] = []
    while True:
        turn, answer = _turn(len(turns) + 1, step, server, server.url, api=api)
        turns.append(turn)
        view.turn(turn)
        # Twice the window can't be accepted: a server that cuts silently must not make this endless.
        if turn.error is not None or turn.raw > 2 * server.window:
            return turns
        step = script.send(answer)


def _with(server: ModelServer, *, api: str, view: View, goal: int, turns: int | None) -> list[Turn]:
    """The same conversation through ctxproxy: its first task with far too large a window, then the right one."""
    wrong = _TOO_LARGE * server.window
    parts = (
        (
            wrong,
            f"2. Through ctxproxy, which is told a window of {wrong:,}",
            "So it learns of the limit from the server's refusal, compacts and sends again; the agent sees an answer.",
        ),
        (
            server.window,
            f"3. Through ctxproxy, which is told the real window of {server.window:,}",
            "So it compacts before it sends, at 90 %, or at once where a tool output is longer than the window.",
        ),
    )
    script = conversation(window=server.window)
    step = next(script)
    done: list[Turn] = []
    for told, title, note in parts:
        if _over(done, goal=goal, turns=turns):
            break
        view.part(title, note)
        with _proxy(server, window=told) as url:
            while not _over(done, goal=goal, turns=turns) and (told == server.window or step.task == 0):
                turn, answer = _turn(len(done) + 1, step, server, url, api=api)
                done.append(turn)
                view.turn(turn)
                step = script.send(answer)
    return done


def _over(done: list[Turn], *, goal: int, turns: int | None) -> bool:
    """Whether to end: at an error, after `turns`, or at the goal, but then not right on a compaction."""
    if not done:
        return False
    last = done[-1]
    return last.error is not None or len(done) == turns or (last.raw >= goal and last.reason is None)


def _proxy(server: ModelServer, *, window: int) -> AbstractContextManager[str]:
    """`ctxproxy serve` as a user would start it; gives its base URL."""
    arguments = ["serve", "--port", "0", "--upstream", server.url, "--window", str(window)]
    return listening("ctxproxy", arguments, name="ctxproxy serve", ready="/readyz")


def _turn(number: int, step: Step, server: ModelServer, url: str, *, api: str) -> tuple[Turn, str]:
    """Send one request to `url`; its record, and the answer's text ("" if there was none)."""
    raw = count_tokens(server.url, step.entries, api=api, model=server.model)
    reply = ask(url, step.entries, api=api, model=server.model)
    return turn_of(number, step.label, raw, reply), reply.text


@contextmanager
def _ended_by_sigterm() -> Generator[None]:
    """Let SIGTERM unwind the stack, so that no child process is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        sys.exit(128 + number)

    previous = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _print_json(console: Console, value: dict[str, object]) -> None:
    """Without rich's wrapping and colours, so that it can be piped."""
    console.file.write(json.dumps(value, ensure_ascii=False) + "\n")
    console.file.flush()
