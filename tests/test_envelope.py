"""Opening envelopes: what is found in them, what is left out, and that no body makes it raise or run away."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxproxy.envelope import Finding, Stop, unwrap
from ctxproxy.overflow import classify

OVERFLOW, OUTPUT, RATE, OTHER = "token_overflow", "output_too_long", "rate_limit", "other"


def messages(body: object, **how: Any) -> list[str]:
    text = body if isinstance(body, str) else json.dumps(body)
    return [finding.message for finding in unwrap(text.encode(), **({"status": 400} | how)).findings]


def only(body: object, **how: Any) -> Finding:
    (finding,) = unwrap(json.dumps(body).encode(), **({"status": 400} | how)).findings
    return finding


@pytest.mark.parametrize("wrap", [
    lambda text: json.dumps({"error": {"message": text, "type": "invalid_request_error"}}),
    lambda text: json.dumps({"error": text}),
    lambda text: json.dumps({"object": "error", "message": text, "code": 40303}),
    lambda text: json.dumps(text),
    lambda text: json.dumps([{"error": {"code": 400, "message": text}}]),
    lambda text: json.dumps({"errors": [{"code": "x", "message": text}], "trace": "t"}),
    lambda text: json.dumps({"error": {"message": json.dumps({"error": {"message": text}}), "code": 400}}),
    lambda text: json.dumps({"error_code": "BAD_REQUEST", "message": json.dumps({"message": text})}),
    lambda text: json.dumps({"error": {"message": "Provider returned error",
      "metadata": {"raw": json.dumps({"error": text})}}}),
    lambda text: json.dumps({"error": {"message": "All failed.", "attempts": [{"status": 400,
      "details": {"error": {"message": text}}}]}}),
    lambda text: json.dumps({"error_type": "v", "error_message": json.dumps({"error": {"message": text}})}),
    lambda text: json.dumps({"error": {"message": f"litellm.BadRequestError: XException - {text} Received Model"
      f" Group=m"}}),
    lambda text: f'400 {json.dumps({"error": {"message": text}})}\n\nTroubleshooting URL: https://example.org/e/',
    lambda text: f"Error code: 400 - {{'error': {{'message': \"{text}\", 'code': 400}}}}",
    lambda text: f"event:error\ndata:{json.dumps({'code': 'InvalidParameter', 'message': text})}\n\n",
    lambda text: json.dumps(json.dumps({"error": {"message": text}})),
    lambda text: json.dumps({"outer": 1, "error": {"message": text}})[:-2],
    lambda text: f"<html><body><h1>400</h1><p>{text.replace('>', '&gt;')}</p></body></html>",
], ids=range(18))  # fmt: skip
@pytest.mark.parametrize(("text", "kind"), [
    ("prompt is too long: 1200 tokens > 900 maximum", OVERFLOW),
    ("input length and max_tokens exceed context limit: 700 + 400 > 900, decrease one", OUTPUT),
    ("Rate limit: too many input tokens per minute", RATE),
    ("max_tokens: 900 > 400, which is the maximum allowed number of output tokens", OTHER),
])  # fmt: skip
def test_every_envelope_is_opened(wrap: Any, text: str, kind: str) -> None:
    verdict = classify(status=400, body=wrap(text).encode())
    assert verdict.kind == kind
    if kind in (OVERFLOW, OUTPUT):
        assert verdict.context_window == 900


def test_codes_status_counts_and_names_stand_beside_the_sentence() -> None:
    finding = only(
        {"error": {"message": "m", "code": "A-b", "type": "T", "n_ctx": 9, "n_prompt_tokens": "12", "model": "x"}}
    )
    assert finding.codes == ("a_b", "t")
    assert finding.fields == {"window": 9, "prompt": 12}
    assert (finding.model, finding.status) == ("x", 400)
    assert only({"error": {"message": "m", "code": 413}}).status == 413
    assert only({"error": {"message": "m", "code": 20015}}).codes == ("20015",)
    assert only({"__type": "ValidationException", "Message": "m"}).codes == ("validationexception",)
    assert only({"message": "400 m", "statusCode": "503"}, status=None).status == 400


def test_inner_errors_keep_the_codes_of_the_outer() -> None:
    body = {"error": {"code": "outer", "message": json.dumps({"error": {"code": "inner", "message": "deep"}})}}
    assert only(body).codes == ("outer", "inner")


def test_an_error_without_a_sentence_is_its_codes() -> None:
    assert only({"error": {"code": "context_length_exceeded"}}).message == ""


def test_text_around_embedded_json_is_kept_apart() -> None:
    assert messages('Upstream: {"message": "inner"} (request id: 1)') == ["Upstream: (request id: 1)", "inner"]
    assert messages("Range of input length should be [1, 900]") == ["Range of input length should be [1, 900]"]
    assert messages('cut {"error": {"message": "half') == ['cut {"error": {"message": "half']


@pytest.mark.parametrize(
    "body",
    [
        {"detail": [{"msg": "Field required", "input": {"messages": "QUOTE"}, "ctx": {"error": "QUOTE"}}]},
        {"error": {"message": "no", "failed_generation": "QUOTE", "param": "QUOTE", "request": {"body": "QUOTE"}}},
        {
            "error": {"message": "no"},
            "messages": [{"content": "QUOTE"}],
            "body": "QUOTE",
            "metadata": {"message": "QUOTE"},
        },
        {"error": {"message": "no"}, "choices": [{"message": {"content": "QUOTE"}, "text": "QUOTE"}]},
    ],
)
def test_what_no_error_envelope_has_is_left_out(body: dict[str, Any]) -> None:
    assert not any("QUOTE" in message for message in messages(body))


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "m"}},
        {"error": "m"},
        {"type": "error", "message": "m"},
        {"object": "error", "message": "m"},
        {"code": 20015, "message": "m", "data": None},
        {"type": "response.failed", "response": {"status": "failed", "error": {"message": "m"}, "output": []}},
        {"sdkType": "result", "isError": True, "result": "m"},
        {"choices": [{"error": {"message": "m"}, "finish_reason": "error"}]},
        [{"error": {"message": "m"}}],
    ],
)
def test_an_error_inside_http_200(body: object) -> None:
    assert messages(body, status=200) == ["m"]


@pytest.mark.parametrize(
    "body",
    [
        {"choices": [{"message": {"content": "error"}}], "error": None},
        {"message": {"role": "assistant", "content": "error"}},
        {"role": "assistant", "content": "error", "message": "error"},
        {"response": "error", "done": True},
        {"object": "response", "status": "completed", "error": None, "metadata": {"error": "m"}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "error"}},
        "error",
    ],
)
def test_an_answer_inside_http_200(body: object) -> None:
    assert messages(json.dumps(body), status=200) == []


def test_a_long_answer_is_searched_at_its_ends() -> None:
    filler = "error " * 20_000
    answer = {"content": [{"type": "text", "text": filler}], "stop_reason": "model_context_window_exceeded"}
    stop = unwrap(json.dumps(answer).encode(), status=200).stop
    assert stop is not None
    assert (stop.reason, stop.silent) == ("model_context_window_exceeded", False)


def test_stops_of_each_wire() -> None:
    def stop(body: dict[str, Any]) -> Stop | None:
        return unwrap(json.dumps(body).encode(), status=200, usage=True).stop

    usage = {"prompt_tokens": 7, "completion_tokens": 0, "total_tokens": 7}
    assert stop({"choices": [{"finish_reason": "length"}], "usage": usage}) == Stop(
        reason="length", prompt=7, output=0, total=7
    )
    cached = {"input_tokens": 1, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 4, "output_tokens": 3}
    assert stop({"stop_reason": "max_tokens", "usage": cached}) == Stop(reason="max_tokens", prompt=7, output=3)
    assert stop({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}) == Stop(reason="end_turn")
    incomplete = {
        "incomplete_details": {"reason": "max_output_tokens"},
        "usage": {"input_tokens": 5, "output_tokens": 2},
    }
    assert stop({"type": "response.incomplete", "response": incomplete}) == Stop(
        reason="max_output_tokens", prompt=5, output=2
    )
    assert stop({"prompt_eval_count": 9, "response": "text"}) == Stop(reason="", prompt=9, silent=False)
    assert stop({"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}) == Stop(
        reason="stop", silent=False
    )
    assert stop({"id": 1}) is None


@pytest.mark.parametrize("text", ["", "  ", "413 status code (no body)", "Error: 400 (no body)"])
def test_an_empty_error(text: str) -> None:
    assert unwrap(text.encode(), status=400).empty
    assert not unwrap(text.encode(), status=200).empty


def test_frames() -> None:
    body = 'event: ping\ndata: {}\n\nevent: error\ndata: {"message":\ndata: "m"}\n\n'
    assert messages(body, status=200) == ["m"]
    assert messages("event: error\ndata: plain words\n\n", status=200) == ["plain words"]
    assert messages("data: plain error words\n\n", status=200) == []
    assert messages("event: error\n\n", status=200) == []


def test_long_text_keeps_head_and_tail() -> None:
    (message,) = messages("head " + "x" * 50_000 + " tail")
    assert message.startswith("head")
    assert message.endswith("tail")
    assert len(message) < 3000


def test_bounds_hold() -> None:
    nested: object = "prompt is too long"
    for _ in range(60):
        nested = {"error": nested}
    assert messages(nested) == []
    assert len(messages({"errors": ["m"] * 5000})) == 8
    encoded = "m"
    for _ in range(4):
        encoded = json.dumps({"message": encoded})
    assert messages(encoded) == ["m"]


@settings(deadline=None)
@given(st.binary(max_size=200), st.sampled_from([None, 200, 400]), st.booleans())
def test_no_bytes_raise(body: bytes, status: int | None, usage: bool) -> None:
    unwrap(body, status=status, usage=usage)
    unwrap(b"data: " + body + b"\n\n", status=status, usage=usage)
    unwrap(json.dumps({"error": body.decode("latin-1")}).encode(), status=status, usage=usage)
