"""The offline commands, as scripts use them: JSON in, JSON out, exit codes."""

from __future__ import annotations

import io
import json
import queue
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxproxy.cli import main
from ctxproxy.cli.batch import one_line


class Result(NamedTuple):
    code: int
    out: bytes
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> dict[Any, Any]:
        return {line["id"]: line for line in map(json.loads, self.out.splitlines())}


Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> Run:
    """Runs a command in an empty folder with some standard input."""
    monkeypatch.chdir(tmp_path)
    for name in ("CTXPROXY_CONFIG", "CTXPROXY_MODE", "CTXPROXY_WINDOW"):
        monkeypatch.delenv(name, raising=False)

    def call(*args: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            main(args)
        out, err = capsysbinary.readouterr()
        code = ended.value.code
        return Result(code if isinstance(code, int) else 0, out, err.decode())

    return call


def history(steps: int, *, words: int = 60) -> list[dict[str, Any]]:
    """A task, tool steps with outputs, and a last question."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": "Find out why service-47 in /srv/app/main.py does not start."},
    ]
    for i in range(steps):
        call = {"id": f"c{i}", "type": "function", "function": {"name": "read", "arguments": f'{{"n":{i}}}'}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{i}", "content": f"step {i} says value {i * 37}\n" * words})
    return [*messages, {"role": "user", "content": "And now?"}]


def request(steps: int = 20, **fields: Any) -> bytes:
    return json.dumps({"model": "gpt-4o", "messages": history(steps), **fields}).encode()


REPORT_KEYS = {
    "model",
    "window",
    "window_source",
    "level",
    "reason",
    "tokens_before",
    "tokens_after",
    "basis",
    "margin",
    "by_category",
    "strategies",
    "exchanges_cut",
    "archived",
    "changed",
}


# --- one request


def test_an_explicit_target_compacts_whatever_the_level(run: Run) -> None:
    body = request()
    result = run("compact", "--api", "chat", "--target-tokens", "2000", stdin=body)
    assert result.code == 0
    report = result.json["report"]
    assert report.keys() >= REPORT_KEYS
    assert (report["level"], report["reason"], report["changed"]) == ("NORMAL", "proactive", True)
    assert report["tokens_after"] <= 2000 < report["tokens_before"]
    assert report["archived"] == []
    messages = result.json["body"]["messages"]
    assert messages[0] == history(0)[0]
    assert messages[-1] == history(0)[-1]
    assert len(messages) < len(history(20))


def test_a_target_is_a_share_of_the_window(run: Run) -> None:
    for target in ("0.5", "50%"):
        report = run("compact", "--api", "chat", "--window", "6000", "--target", target, stdin=request()).json["report"]
        assert (report["window"], report["window_source"]) == (6000, "config")
        assert 1500 < report["tokens_after"] <= 3000


def test_without_a_target_the_level_decides(run: Run) -> None:
    small = run("compact", "--api", "chat", "--window", "100000", stdin=request()).json
    assert (small["report"]["changed"], small["report"]["reason"]) == (False, None)
    assert small["body"] == json.loads(request())
    full = run("compact", "--api", "chat", "--window", "6000", stdin=request()).json["report"]
    assert (full["level"], full["reason"], full["changed"]) == ("OVERFLOW", "overflow", True)
    assert full["tokens_after"] <= 0.7 * 6000


def test_measure_prints_the_report_with_the_reason_that_would_apply(run: Run) -> None:
    result = run("measure", "--api", "chat", "--window", "6000", stdin=request())
    report = result.json["report"]
    assert result.json.keys() == {"report"}
    assert (report["reason"], report["changed"], report["strategies"]) == ("overflow", False, [])
    assert (
        report["tokens_before"]
        == report["tokens_after"]
        == sum(tokens for name, tokens in report["by_category"].items() if name != "reserve")
    )


def test_explain_says_in_words_what_would_be_done(run: Run) -> None:
    told = run("explain", "--api", "chat", "--window", "6000", stdin=request()).json
    assert told.keys() == {"report", "decision", "edits"}
    assert "compacted to" in told["decision"]
    assert "overflow" in told["decision"]
    assert told["edits"]
    assert all(edit["cause"] and edit["cause"] in edit["words"] for edit in told["edits"])
    idle = run("explain", "--api", "chat", "--window", "900000", stdin=request()).json
    assert idle["edits"] == []
    assert "nothing to do" in idle["decision"]


def test_the_model_may_be_given_and_the_body_keeps_its_own(run: Run) -> None:
    for body in (request(), request().replace(b'"model": "gpt-4o", ', b"")):
        result = run("compact", "--api", "chat", "--model", "o3", "--target-tokens", "2000", stdin=body)
        assert result.json["report"]["model"] == "o3"
        assert result.json["report"]["window"] == 200_000
        assert result.json["body"].get("model") == json.loads(body).get("model")


VERBATIM = (
    b'{ "model" : "gpt-4o","x":1e400, "y":[1.0,2.50,-0, 123456789012345678901234567890], "z":"\\ud800 \\u00e9",\n'
    b'  "messages":[ {"content" : "hi \\ud83d\\ude00 \\udc00", "role":"user", "n":1.0} ]  }'
)


def test_an_unchanged_body_is_the_same_bytes(run: Run) -> None:
    result = run("compact", "--api", "chat", "--target-tokens", "5000", stdin=b"\xef\xbb\xbf" + VERBATIM + b"\n")
    assert result.out.startswith(b'{"body":' + VERBATIM + b',"report":{')


def test_a_changed_body_keeps_the_bytes_of_what_is_not_changed(run: Run) -> None:
    odd = b'"x":1e400, "y":[1.0,-0,123456789012345678901234567890],"z":"\\ud800",'
    body = b"{" + odd + request()[1:]
    result = run("compact", "--api", "chat", "--target-tokens", "2000", stdin=body)
    assert b'"changed":true' in result.out
    assert result.out.startswith(b'{"body":{' + odd)


def test_the_archive_holds_what_was_cut_and_is_private(run: Run, tmp_path: Path) -> None:
    args = ("compact", "--api", "chat", "--target-tokens", "2000")
    run(*args, stdin=request())
    assert list(tmp_path.iterdir()) == []
    folder = tmp_path / "kept" / "here"
    result = run(*args, "--archive", str(folder), stdin=request())
    names = result.json["report"]["archived"]
    assert names
    assert sorted(names) == sorted(path.name for path in folder.iterdir())
    assert all(stat.S_IMODE((folder / name).stat().st_mode) == 0o600 for name in names)
    kept = "".join((folder / name).read_text() for name in names)
    assert "step 3 says value 111" in kept
    assert any(f"{folder}/{name}" in json.dumps(result.json["body"]) for name in names)
    again = run(*args, "--archive", str(folder), stdin=request())
    assert again.json["report"]["archived"] == names


def test_stores_and_logs_of_the_config_are_left_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "ledger: {url: 'sqlite:ledger.sqlite'}\narchive: {mode: disk, dir: kept}\nlogging: {log_file: log.yaml}\n"
    )
    result = run("compact", "--api", "chat", "--config", "c.yaml", "--target-tokens", "2000", stdin=request())
    assert result.json["report"]["changed"] is True
    assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"]


def test_a_policy_by_name(run: Run) -> None:
    def after(policy: str) -> int:
        args = ("compact", "--api", "chat", "--window", "6400", "--policy", policy)
        return run(*args, stdin=request()).json["report"]["tokens_after"]

    assert after("aggressive") < after("default") < after("gentle")


def test_the_config_and_the_environment_count(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c.yaml").write_text("mode: off\nmodels: {'gpt-*': {window: 5000}}\n")
    args = ("measure", "--api", "chat")
    assert run(*args, "--config", "c.yaml", stdin=request()).json["report"]["window"] == 5000
    monkeypatch.setenv("CTXPROXY_WINDOW", "7000")
    assert run(*args, "--config", "c.yaml", stdin=request()).json["report"]["window"] == 7000
    assert run(*args, "--config", "c.yaml", "--window", "9000", stdin=request()).json["report"]["window"] == 9000
    # `mode: off` is for the proxy: whoever asks for a compaction gets one.
    changed = run("compact", *args[1:], "--config", "c.yaml", stdin=request(60)).json["report"]["changed"]
    assert changed is True


# --- a user's mistakes


@pytest.mark.parametrize(
    ("stdin", "told"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"hello", "not JSON"),
        (b'{"model":"gpt-4o","messages":[', "not JSON"),
        (b'{"model":"gpt-4o","messages":[]} {}', "not JSON"),
        (b'{"model":"gpt-4o","messages":[],"x":"\\ud800"} }', "not JSON"),
        (b"[1]", "expected {"),
        (b'{"model":"gpt-4o"}', "`messages` is missing"),
        (b'{"model":5,"messages":[]}', "`model`"),
        (b'{"messages":{"a":1}}', "expected ["),
        (b'{"messages":["x"]}', "not an object"),
        (b"[" * 200_000, "nested too deep"),
        (b'{"messages":[' + b'{"a":' * 100_000, "nested too deep"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run: Run, stdin: bytes, told: str) -> None:
    for command in ("measure", "explain", "compact"):
        result = run(command, "--api", "chat", stdin=stdin)
        assert (result.code, result.out) == (2, b""), command
        assert result.err.startswith("ctxproxy: ")
        assert result.err.count("\n") == 1
        assert told in result.err


def test_wrong_options_are_one_line_and_exit_code_2(run: Run, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("policy: {targt: 1}\n")
    (tmp_path / "d.yaml").write_text("a: [\n")
    for args, told in (
        (("compact",), "--api is missing"),
        (("compact", "--api", "chat2"), "there is no 'chat2'"),
        (("compact", "--api", "chat", "--target", "0.5", "--target-tokens", "9"), "exclude each other"),
        (("compact", "--api", "chat", "--target", "70"), "--target: '70' is not allowed"),
        (("compact", "--api", "chat", "--policy", "gentel"), "'gentel' is not allowed; it must be default or"),
        (("compact", "--api", "chat", "--config", "none.yaml"), "none.yaml: No such file"),
        (("compact", "--api", "chat", "--config", "c.yaml"), "did you mean policy.target?"),
        (("compact", "--api", "chat", "--config", "d.yaml"), "d.yaml, line 2, column 1: not valid YAML"),
        (("compact", "--api", "chat", "--archive", "c.yaml"), "--archive c.yaml"),
    ):
        result = run(*args, stdin=request())
        assert (result.code, result.out) == (2, b""), args
        assert told in result.err, args
        assert result.err.count("\n") == 1


def test_usage_errors_are_exit_code_2(run: Run) -> None:
    for args in (("compact", "--windo", "5"), ("compact", "--window", "0"), ("nosuch",)):
        result = run(*args, stdin=request())
        assert (result.code, result.out) == (2, b"")
        assert "Traceback" not in result.err


def test_what_cannot_fit_is_exit_code_3_and_names_the_fixed_parts(run: Run) -> None:
    body = json.dumps({"model": "gpt-4o", "messages": [{"role": "system", "content": "rule " * 500}, *history(3)[1:]]})
    result = run("compact", "--api", "chat", "--target-tokens", "300", stdin=body.encode())
    assert (result.code, result.out) == (3, b"")
    assert result.err.count("\n") == 1
    assert "system 5" in result.err
    assert "do not fit" in result.err
    assert run("compact", "--api", "chat", "--window", "300", stdin=body.encode()).code == 3


# --- many requests


def line(id: Any, body: bytes | None = None, **fields: Any) -> bytes:
    head = json.dumps({"id": id, "api": "chat", **fields}).encode()
    return head[:-1] + b',"body":' + (body or request()) + b"}\n"


def test_one_bad_line_never_stops_the_rest(run: Run) -> None:
    heavy = json.dumps({"messages": [{"role": "system", "content": "rule " * 500}]}).encode()
    stdin = b"".join(
        (
            line("a", target_tokens=2000),
            b"{broken\n",
            b"\n",
            b"[1, 2]\n",
            b"5\n",
            line("no-api", api=None),
            line("odd-api", api="smoke"),
            b'{"id":"no-body","api":"chat"}\n',
            line("bad-target", target_tokens=-1),
            line("bad-window", window="big"),
            line("bad-flag", no_model=1),
            line("bad-body", b'{"messages":5}'),
            line("cannot", heavy, target_tokens=100),
            line("deep", b'{"messages":[' + b"[" * 100_000),
            line(7, window=6000),
            line("b", target_tokens=2000, no_model=True)[:-1],
        )
    )
    result = run("compact", "--jsonl", stdin=stdin)
    assert result.code == 0
    answers = [json.loads(text) for text in result.out.splitlines()]
    found = {answer["id"]: answer for answer in answers if answer["id"] is not None}
    assert len(answers) == 15
    assert [a["error"]["type"] for a in answers if a["id"] is None] == ["WireFormatError"] * 4
    for id in ("no-api", "odd-api", "no-body", "bad-target", "bad-window", "bad-flag", "bad-body"):
        assert found[id].keys() == {"id", "error"}
        assert found[id]["error"]["type"] == "WireFormatError"
        assert found[id]["error"]["message"]
    assert found["cannot"]["error"]["type"] == "ContextOverflowError"
    assert found["cannot"]["error"]["fixed"]["system"] > 400
    assert found["cannot"]["error"]["context_window"] == 100
    for id in ("a", "b"):
        assert found[id].keys() == {"id", "body", "report"}
        assert found[id]["report"]["tokens_after"] <= 2000
    assert found[7]["report"]["window"] == 6000
    # The same request in the same engine comes out the same: nothing is remembered from line to line.
    assert found["a"]["body"] == found["b"]["body"]


def test_ids_come_back_as_they_are(run: Run) -> None:
    for id in (b'"x\\ud800"', b"1e400", b'{"a": [1.0]}', b"null", b'"caf\xc3\xa9"'):
        stdin = b'{"id":' + id + b',"api":"chat","body":{"messages":[{"role":"user","content":"hi"}]}}'
        assert run("measure", "--jsonl", stdin=stdin).out.startswith(b'{"id":' + id + b',"report":{')
    assert run("measure", "--jsonl", stdin=b'{"id":3,"api":"chat"}').out.startswith(b'{"id":3,"error":{')


def test_flags_count_where_a_line_does_not_say(run: Run) -> None:
    stdin = line("own", window=9000, target_tokens=1500) + line("flag")
    found = run("compact", "--jsonl", "--window", "6000", "--target", "0.5", stdin=stdin).lines
    assert (found["own"]["report"]["window"], found["flag"]["report"]["window"]) == (9000, 6000)
    assert found["own"]["report"]["tokens_after"] <= 1500 < found["flag"]["report"]["tokens_after"] <= 3000
    bare = json.dumps({"id": "bare", "body": json.loads(request(2))}).encode()
    assert "report" in run("measure", "--jsonl", "--api", "chat", stdin=bare).lines["bare"]


def test_every_answer_is_one_line_with_its_bytes_verbatim(run: Run) -> None:
    body = VERBATIM.replace(b"\n", b"")
    result = run("compact", "--jsonl", stdin=line("v", body, target_tokens=5000))
    assert result.out.startswith(b'{"id":"v","body":' + body + b',"report":{')
    returns = run("compact", "--jsonl", stdin=line("r", b'{"messages"\r:[{"role":"user",\r"content":"a\rb"}]}'))
    assert b"\r" not in returns.out
    assert returns.lines["r"]["body"] == {"messages": [{"role": "user", "content": "a\rb"}]}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(values, st.sampled_from([None, 1, "\n", "\r\n "]))
def test_one_line_changes_no_value(value: Any, indent: Any) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False).encode()
    flat = one_line(text)
    assert b"\n" not in flat
    assert b"\r" not in flat
    assert json.loads(flat) == value


def test_answers_do_not_wait_for_the_end_of_the_input() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "ctxproxy", "compact", "--jsonl"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    answers: queue.Queue[bytes] = queue.Queue()

    def read(stream: Any) -> None:
        for text in stream:
            answers.put(text)

    reader = threading.Thread(target=read, args=(process.stdout,), daemon=True)
    reader.start()
    try:
        for id in range(3):
            process.stdin.write(line(id, target_tokens=2000))
            process.stdin.flush()
            assert json.loads(answers.get(timeout=60))["id"] == id
        process.stdin.close()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        reader.join(10)
        process.stdout.close()


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "ctxproxy", "measure", "--jsonl"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, err = process.communicate(line("a") * 3, timeout=60)
    assert b"Traceback" not in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_standard_output_is_one_line() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ctxproxy", "measure", "--api", "chat"],
            input=request(),
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    assert done.returncode == 1
    assert (done.stderr.count(b"\n"), b"No space left" in done.stderr) == (1, True)


def test_without_any_standard_input_it_says_so() -> None:
    script = "import sys; sys.stdin = None; from ctxproxy.cli import main; main(sys.argv[1:])"
    for args in (["compact", "--api", "chat"], ["compact", "--jsonl"], ["classify"], ["classify", "--jsonl"]):
        done = subprocess.run([sys.executable, "-c", script, *args], capture_output=True, timeout=60)
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.startswith(b"ctxproxy: no input")
        assert done.stderr.count(b"\n") == 1


# --- errors of providers

OVERFLOW = {
    "id": "e1",
    "status": 400,
    "body": json.dumps(
        {
            "error": {
                "message": "This model's maximum context length is 8192 tokens. "
                "However, your messages resulted in 9000 tokens. Please reduce the length of the messages.",
                "code": "context_length_exceeded",
            }
        }
    ),
}


def test_classify_names_the_class_and_the_numbers(run: Run) -> None:
    verdict = run("classify", stdin=json.dumps(OVERFLOW).encode()).json
    assert verdict["id"] == "e1"
    assert (verdict["class"], verdict["context_window"], verdict["requested_tokens"]) == ("token_overflow", 8192, 9000)
    bad = run("classify", stdin=b'{"id":1,"status":"x","body":""}')
    assert (bad.code, bad.out) == (2, b"")


def test_classify_answers_every_line(run: Run) -> None:
    other = {"id": "e2", "status": 500, "body": "internal error"}
    stdin = b"\n".join((json.dumps(OVERFLOW).encode(), b"{", b"[]", b'{"id":"e3"}', json.dumps(other).encode()))
    answers = [json.loads(text) for text in run("classify", "--jsonl", stdin=stdin).out.splitlines()]
    assert [a.get("class") for a in answers] == ["token_overflow", None, None, None, "other"]
    assert [a["id"] for a in answers] == ["e1", None, None, "e3", "e2"]
    assert all(a["error"]["message"] for a in answers[1:4])
