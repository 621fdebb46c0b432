"""The fake provider when something is wrong: broken requests, altered thinking, and every planned fault."""

from __future__ import annotations

import http.client
import json
import threading

import httpx
import pytest

from . import Answer, FakeProvider, ToolCall
from .asking import PATHS, WIRES, frames, post, request
from .faults import KINDS, as_fault

# --- rules on the wire ---


def test_broken_requests_get_the_providers_text_and_are_recorded() -> None:
    orphan = {"model": "m", "messages": [{"role": "tool", "tool_call_id": "a", "content": "x"}]}
    with FakeProvider() as provider:
        response = post(provider, "chat", orphan)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "messages.[0].role"
        provider.rules = False
        assert post(provider, "chat", orphan).status_code == 200
        assert [v.rule for v in provider.violations] == ["tool-orphan", "tool-orphan"]


@pytest.mark.parametrize(("model", "bound"), [("claude-opus-5-5", True), ("claude-sonnet-4-5", False)])
def test_thinking_is_bound_to_what_came_before_it(model: str, bound: bool) -> None:
    said = Answer("", (ToolCall("f", {}, "t1"),), thinking="hm")
    with FakeProvider(answer=said) as provider:
        first = request("messages", "go", model=model, system="S")
        content = post(provider, "messages", first).json()["content"]
        result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}]}
        after = {**first, "messages": [*first["messages"], {"role": "assistant", "content": content}, result]}
        assert post(provider, "messages", after).status_code == 200
        marked = {"type": "text", "text": "go", "cache_control": {"type": "ephemeral"}}
        same = {**after, "messages": [{"role": "user", "content": [marked]}, *after["messages"][1:]]}
        assert post(provider, "messages", same).status_code == 200
        for change in ({"system": "T"}, {"messages": [{"role": "user", "content": "come"}, *after["messages"][1:]]}):
            response = post(provider, "messages", {**after, **change})
            assert response.status_code == (400 if bound else 200)
            assert ("bound to a different conversation" in response.text) == bound
        altered = [{**content[0], "thinking": "else"}, *content[1:]]
        response = post(
            provider,
            "messages",
            {**after, "messages": [first["messages"][0], {"role": "assistant", "content": altered}, result]},
        )
        assert "cannot be modified" in response.text
        foreign = [{**content[0], "signature": "of another"}, *content[1:]]
        body = {**after, "messages": [first["messages"][0], {"role": "assistant", "content": foreign}, result]}
        assert post(provider, "messages", body).status_code == 200
        provider.strict_thinking = True
        assert post(provider, "messages", body).status_code == 400


# --- faults ---


@pytest.mark.parametrize("wire", WIRES)
def test_statuses_and_bodies_of_plain_faults(wire: str) -> None:
    with FakeProvider(
        fail_plan=["429;retry_after=2", "529", 500, "empty", "html", "garbage", None, "drop"]
    ) as provider:
        answers = [post(provider, wire, request(wire)) for _ in range(7)]
        assert [a.status_code for a in answers] == [429, 529, 500, 400, 502, 200, 200]
        assert answers[0].headers["retry-after"] == "2"
        with pytest.raises(json.JSONDecodeError):
            answers[5].json()
        with pytest.raises(httpx.RemoteProtocolError):
            post(provider, wire, request(wire))
        assert provider.calls == 8


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("stream", [False, True])
def test_a_connection_that_drops_in_the_middle(wire: str, stream: bool) -> None:
    with FakeProvider(fault="drop-body") as provider, pytest.raises(httpx.RemoteProtocolError):
        post(provider, wire, request(wire, stream=stream))


@pytest.mark.parametrize("wire", WIRES)
def test_an_error_after_the_first_content(wire: str) -> None:
    with FakeProvider(fail_plan=["error-stream"]) as provider:
        response = post(provider, wire, request(wire, stream=True))
        events = list(frames(response.text))
        assert "error" in (*events[-1], events[-1].get("type"))
        assert len(events) > 1


def test_faults_by_header_and_by_function() -> None:
    with FakeProvider(fault=lambda r: "529" if provider.calls == 2 else None) as provider:
        statuses = [post(provider, "chat", request("chat")).status_code for _ in range(3)]
        assert statuses == [200, 529, 200]
        assert post(provider, "chat", request("chat"), headers={"x-fake-fault": "overflow"}).status_code == 400
    with pytest.raises(ValueError, match="unknown fault"):
        as_fault("nonsense")
    assert all(as_fault(kind) for kind in KINDS)


@pytest.mark.parametrize("kind", ["hold", "hold-first", "hold-content"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_held_answer_goes_on_when_released(kind: str, stream: bool) -> None:
    with FakeProvider(fail_plan=[kind]) as provider:
        done: list[httpx.Response] = []
        thread = threading.Thread(
            target=lambda: done.append(post(provider, "messages", request("messages", stream=stream)))
        )
        thread.start()
        provider.wait_held()
        assert not done
        provider.release()
        thread.join(20)
        assert "Understood." in done[0].text


def test_a_client_that_leaves_a_held_answer_is_noticed() -> None:
    with FakeProvider(fail_plan=["hold"]) as provider:
        connection = http.client.HTTPConnection(provider.base_url.removeprefix("http://"))
        connection.request("POST", PATHS["chat"], json.dumps(request("chat")))
        provider.wait_held()
        connection.close()
        assert provider.requests[0].disconnected.wait(10)
