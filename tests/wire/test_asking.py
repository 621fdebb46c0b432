from __future__ import annotations

import json
from typing import Any

import pytest

from ctxproxy.errors import WireFormatError
from ctxproxy.wire import WIRES
from ctxproxy.wire.asking import DIALECTS, ask, quiet, reply, shapes_answer


def test_every_wire_can_be_asked() -> None:
    assert set(DIALECTS) == set(WIRES)


@pytest.mark.parametrize("api", DIALECTS)
def test_a_request_of_our_own_is_readable_and_asks_nothing_else(api: str) -> None:
    value = json.loads(ask(api, "m", "sum it up", output=77))
    assert value["model"] == "m"
    assert value[WIRES[api].array] == [{"role": "user", "content": "sum it up"}]
    assert 77 in value.values()
    assert "tools" not in value


@pytest.mark.parametrize("api", DIALECTS)
def test_the_own_prefix_stays_as_it_is(api: str) -> None:
    key = DIALECTS[api].output[-1]
    body = b'{"model":"m","tools":[{"a":1.0}],"stream":true,"%s":9,"x":1e400}' % key.encode()
    changed = quiet(api, body, output=77)
    assert b'"tools":[{"a":1.0}]' in changed
    assert b"1e400" in changed
    assert b'"stream":false' in changed
    assert f'"{key}":77'.encode() in changed


def test_stream_options_go_with_the_stream() -> None:
    assert b"stream_options" not in quiet("chat", b'{"stream":true,"stream_options":{"include_usage":true}}', output=1)


@pytest.mark.parametrize(
    ("api", "body", "shaped"),
    [("chat", b'{"response_format":{}}', True), ("chat", b'{"tools":[]}', False), ("responses", b'{"text":{}}', True)],
)
def test_a_forced_form_is_noticed(api: str, body: bytes, shaped: bool) -> None:
    assert shapes_answer(api, body) is shaped


ANSWERS: list[tuple[str, Any, tuple[str, bool]]] = [
    ("chat", {"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}, ("a", True)),
    ("chat", {"choices": [{"message": {"content": "a"}, "finish_reason": "length"}]}, ("a", False)),
    ("chat", {"choices": [{"message": {"content": None, "tool_calls": []}, "finish_reason": "tool_calls"}]}, ("", False)),
    ("chat", {"choices": [{"message": {"content": [{"type": "text", "text": "a"}]}, "finish_reason": "stop"}]}, ("a", True)),
    ("messages", {"content": [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "a"}], "stop_reason": "end_turn"}, ("a", True)),
    ("messages", {"content": [], "stop_reason": "max_tokens"}, ("", False)),
    ("responses", {"output": [{"type": "reasoning"}, {"type": "message", "content": [{"type": "output_text", "text": "a"}]}], "status": "completed"}, ("a", True)),
    ("responses", {"output": [], "status": "incomplete"}, ("", False)),
]  # fmt: skip


@pytest.mark.parametrize(("api", "value", "expected"), ANSWERS)
def test_answers_are_read(api: str, value: Any, expected: tuple[str, bool]) -> None:
    assert reply(api, json.dumps(value).encode()) == expected


@pytest.mark.parametrize("api", DIALECTS)
@pytest.mark.parametrize(
    "data", [b"", b"[]", b'"x"', b"garbage", b'{"choices":[]}', b'{"choices":[3]}', b'{"content":5}']
)
def test_garbage_is_an_error_or_empty(api: str, data: bytes) -> None:
    try:
        assert reply(api, data) == ("", False)
    except WireFormatError:
        pass
