from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxproxy.frames import Frame, Frames, Tail, verdict_of

CHAT = (
    b': keep-alive\r\n\r\ndata: {"choices":[{"delta":{"content":"a"},"finish_reason":null}]}\r\n\r\n'
    b'data: {"choices":[{"delta":{},"finish_reason":"length"}]}\r\n\r\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":3}}\r\n\r\ndata: [DONE]\r\n\r\n'
)
MESSAGES = (
    b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":7,"cache_read_input_tokens":90}}}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":4}}\n\n'
)
RESPONSES = (
    b'event: response.completed\ndata: {"type":"response.completed","response":{"usage":{"input_tokens":9}}}\n\n'
)


def read(api: str, data: bytes, *, step: int) -> tuple[object, object]:
    tail = Tail(api, stream=True)
    for i in range(0, len(data), step):
        tail.feed(data[i : i + step])
    return tail.result()


@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_usage_and_stop_reason_of_each_stream(step: int) -> None:
    assert read("chat", CHAT, step=step) == ({"prompt_tokens": 12, "completion_tokens": 3}, "length")
    usage = {"input_tokens": 7, "cache_read_input_tokens": 90, "output_tokens": 4}
    assert read("messages", MESSAGES, step=step) == (usage, "end_turn")
    assert read("responses", RESPONSES, step=step) == ({"input_tokens": 9}, None)


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_usage_of_a_whole_body(encoding: str) -> None:
    data = json.dumps({"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": 5}}).encode()
    tail = Tail("chat", stream=False, encoding=encoding)
    tail.feed(gzip.compress(data) if encoding else data)
    assert tail.result() == ({"prompt_tokens": 5}, "stop")


def test_a_body_beyond_the_bound_is_not_read() -> None:
    tail = Tail("chat", stream=False, max_bytes=10)
    tail.feed(b'{"usage":{"prompt_tokens":5}}')
    assert tail.result() == (None, None)


@given(st.lists(st.binary(max_size=60), max_size=20), st.booleans())
def test_any_bytes_are_read_without_an_error(chunks: list[bytes], stream: bool) -> None:
    tail = Tail("chat", stream=stream)
    for chunk in chunks:
        tail.feed(chunk)
    tail.result()


@given(st.data())
def test_frames_do_not_depend_on_the_chunks(data: st.DataObject) -> None:
    whole = list(Frames().feed(CHAT))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(CHAT)), max_size=12)))
    frames, found = Frames(), list[Frame]()
    for a, b in zip([0, *cuts], [*cuts, len(CHAT)], strict=True):
        found += frames.feed(CHAT[a:b])
    assert found == whole


@pytest.mark.parametrize(
    ("event", "data", "verdict"),
    [
        ("", b'{"choices":[{"delta":{}}]}', ""),
        ("", b'{"error":{"message":"x"}}', "error"),
        ("", b'{"error":null,"choices":[]}', ""),
        ("error", b"{}", "error"),
        ("response.created", b"{}", None),
        ("response.failed", b"{}", "response.failed"),
        ("ping", b"{}", None),
        ("message_start", b"{}", ""),
        ("", b"[DONE]", ""),
    ],
)
def test_what_an_early_event_means(event: str, data: bytes, verdict: str | None) -> None:
    assert verdict_of(Frame(event, data), "chat") == verdict
