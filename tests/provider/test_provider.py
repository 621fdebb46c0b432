"""The fake provider itself: counting, answers, refusals, faults, and the bytes on the connection."""

from __future__ import annotations

import json

import pytest

from . import WORDINGS, Answer, FakeProvider, Numbers, ToolCall, count_request, o200k, problem_for
from .asking import WIRES, frames, post, prompt_tokens, request, streamed_text, text_of, usages

LONG = "word " * 9000
# --- counting ---


def test_the_count_is_the_plain_sum() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    chat = [
        {"role": "system", "content": "be brief"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "héllo"}, {"type": "image_url", "image_url": {"url": "x"}}],
        },
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "done"},
    ]
    wanted = 16 + 1000 + o200k("be brief") + o200k("héllo") + o200k('{"x": 1}') + o200k("done")
    wanted += o200k('[{"type":"function","function":{"name":"f"}}]')
    assert count_request({"messages": chat, "tools": tools}, "chat") == wanted
    blocks = [
        {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
        {"type": "thinking", "thinking": "hm", "signature": "s"},
    ]
    body = {"system": "be brief", "messages": [{"role": "assistant", "content": blocks}]}
    assert count_request(body, "messages") == 4 + o200k("be brief") + o200k('{"x":1}') + o200k("hm")
    items = [
        {"type": "reasoning", "summary": [{"text": "hm"}]},
        {"type": "function_call_output", "call_id": "a", "output": "done"},
    ]
    assert count_request({"instructions": "x", "input": items}, "responses") == 8 + o200k("x") + o200k("hm") + o200k(
        "done"
    )
    assert count_request({"input": "\ud800"}, "responses") == 4 + o200k("?")


# --- answers ---


@pytest.mark.parametrize("wire", WIRES)
def test_plain_and_streamed_answers_agree(wire: str) -> None:
    said = Answer("A longer answer, in several pieces.", (ToolCall("read", {"path": "a"}),), thinking="hm")
    with FakeProvider(answer=said) as provider:
        whole = post(provider, wire, request(wire)).json()
        streamed = post(provider, wire, request(wire, stream=True, stream_options={"include_usage": True})).text
        assert text_of(wire, whole) == streamed_text(wire, streamed) == said.text
        *_, last = usages(frames(streamed))
        assert prompt_tokens(whole["usage"]) == prompt_tokens(last) == count_request(request(wire), wire) == 5
        assert provider.calls == 2
        assert [r.tokens for r in provider.requests] == [5, 5]
        assert not provider.violations
        assert not provider.errors


@pytest.mark.parametrize("wire", WIRES)
def test_the_look_of_a_stream_does_not_change_what_it_says(wire: str) -> None:
    with FakeProvider(crlf=True, chunk_bytes=7, comments=True, pings=True, compress=True) as provider:
        response = post(provider, wire, request(wire, stream=True))
        assert response.headers["content-encoding"] == "gzip"
        assert ": keep-alive\r\n\r\n" in response.text
        assert ("event: ping" in response.text) == (wire == "messages")
        assert streamed_text(wire, response.text) == "Understood."


def test_answers_come_from_a_function_of_the_request() -> None:
    with FakeProvider(answer=lambda r: r.json()["messages"][-1]["content"].upper()) as provider:
        assert text_of("chat", post(provider, "chat", request("chat", "say")).json()) == "SAY"
    with FakeProvider(answer=lambda r: 1 / 0) as provider:
        assert post(provider, "chat", request("chat")).status_code == 500
        assert [type(e) for e in provider.errors] == [ZeroDivisionError]


@pytest.mark.parametrize(
    ("wire", "stop"), [("chat", "length"), ("responses", "incomplete"), ("messages", "max_tokens")]
)
def test_answers_end_at_max_tokens(wire: str, stop: str) -> None:
    key = "max_output_tokens" if wire == "responses" else "max_tokens"
    with FakeProvider(answer="one two three four " * 20) as provider:
        body = post(provider, wire, request(wire, "hi", **{key: 16})).json()
        assert o200k(text_of(wire, body)) == 16
        assert stop in json.dumps(body)


# --- the window ---


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("wording", sorted(WORDINGS))
def test_overflow_in_each_wording(wire: str, wording: str) -> None:
    body = request(wire, LONG)
    numbers = Numbers(count_request(body, wire), 8192, body.get("max_tokens", 0), "m")
    with FakeProvider(window=8192, wording=wording, profile="default") as provider:
        response = post(provider, wire, body)
        assert response.status_code == WORDINGS[wording].status
        assert response.content == problem_for(wording, numbers, wire).encoded()[0]
        provider.window = 16384
        assert post(provider, wire, body).status_code == 200
        assert [r.tokens for r in provider.requests] == [numbers.prompt] * 2


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("wording", ["openai", "anthropic", "openrouter-200"])
def test_overflow_inside_a_stream(wire: str, wording: str) -> None:
    with FakeProvider(wording=wording, fail_plan=["overflow-stream", "overflow-stream;form=error"]) as provider:
        for form in ("failed", "error"):
            response = post(provider, wire, request(wire, stream=True))
            last = list(frames(response.text))[-1]
            assert response.status_code == 200
            assert streamed_text(wire, response.text) == ""
            if wire == "responses":
                assert last["type"] == {"failed": "response.failed", "error": "error"}[form]
                last = last if form == "error" else last["response"]["error"]
            else:
                assert wire == "chat" or last["type"] == "error"
                last = last["error"]
            assert last["message"]
        assert post(provider, wire, request(wire, stream=True)).status_code == 200


def test_openai_reports_overflow_of_streamed_responses_inside_the_stream() -> None:
    with FakeProvider(wording="openai") as provider:
        assert post(provider, "responses", request("responses", LONG, stream=True)).status_code == 200
        assert post(provider, "chat", request("chat", LONG, stream=True)).status_code == 400


def test_output_that_does_not_fit_beside_the_prompt() -> None:
    with FakeProvider(window=1000, wording="anthropic") as provider:
        body = post(provider, "messages", request("messages", max_tokens=996)).json()
        assert "5 + 996 > 1000" in body["error"]["message"]
        assert post(provider, "messages", request("messages", max_tokens=995)).status_code == 200
    with FakeProvider(window=1000, wording="gemini", answer="word " * 2000) as provider:
        body = post(provider, "chat", request("chat", max_tokens=2000)).json()
        assert body["choices"][0]["finish_reason"] == "length"
        assert body["usage"]["total_tokens"] == 1000
    with FakeProvider(max_output=4096) as provider:
        assert "4096" in post(provider, "chat", request("chat", max_tokens=5000)).text


def test_silent_truncation_and_window_stops() -> None:
    with FakeProvider(window=1000, overflow="truncate") as provider:
        body = post(provider, "chat", request("chat", LONG)).json()
        assert body["usage"]["prompt_tokens"] == 1000
    with FakeProvider(window=1000, overflow="stop") as provider:
        for wire, reason in (
            ("messages", "model_context_window_exceeded"),
            ("chat", "length"),
            ("responses", "max_output_tokens"),
        ):
            response = post(provider, wire, request(wire, LONG))
            assert response.status_code == 200
            assert f'"{reason}"' in response.text


def test_an_input_limit_apart_from_the_window() -> None:
    with FakeProvider(window=20_000, limit_input=5000, wording="copilot") as provider:
        assert "limit of 5000" in post(provider, "chat", request("chat", LONG)).text


def test_a_known_previous_response_counts() -> None:
    with FakeProvider(window=8192) as provider:
        first = post(provider, "responses", request("responses", "word " * 5000)).json()
        more = request("responses", "word " * 5000, previous_response_id=first["id"])
        assert post(provider, "responses", more).status_code == 400
        assert provider.requests[-1].tokens == provider.requests[0].tokens * 2 + first["usage"]["output_tokens"]


def test_the_prompt_cache_reads_the_longest_prefix_it_has_seen() -> None:
    with FakeProvider(cache=True) as provider:
        messages = [{"role": "user", "content": "one two three"}]
        post(provider, "chat", {"model": "m", "messages": messages})
        messages = [*messages, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "more"}]
        usage = post(provider, "chat", {"model": "m", "messages": messages}).json()["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == 7
        messages[0] = {"role": "user", "content": "changed"}
        usage = post(provider, "chat", {"model": "m", "messages": messages}).json()["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == 0
