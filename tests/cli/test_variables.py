"""What a command needs to talk to a proxy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ctxproxy.cli.variables import Server, command_for, servers, variables

BASE = "http://127.0.0.1:9"


def test_every_client_gets_the_proxy_in_its_own_form() -> None:
    found = variables({}, BASE)
    assert found["OPENAI_BASE_URL"] == found["OPENAI_API_BASE"] == f"{BASE}/v1"
    assert found["ANTHROPIC_BASE_URL"] == found["ANTHROPIC_API_BASE"] == BASE
    assert "AIDER_OPENAI_API_BASE" not in found
    assert opencode(found) == {"openai": f"{BASE}/v1", "anthropic": f"{BASE}/v1"}


def opencode(found: dict[str, str]) -> dict[str, str]:
    providers: dict[str, Any] = json.loads(found["OPENCODE_CONFIG_CONTENT"])["provider"]
    return {name: entry["options"]["baseURL"] for name, entry in providers.items()}


def test_a_forward_proxy_does_not_get_what_goes_to_loopback() -> None:
    found = variables({"NO_PROXY": "intra.example, localhost", "no_proxy": ""}, BASE)
    assert {"127.0.0.1", "localhost", "intra.example"} <= {h.strip() for h in found["NO_PROXY"].split(",")}
    assert found["no_proxy"] == "127.0.0.1,localhost"


def test_the_server_of_a_variable_is_known_and_its_path_kept() -> None:
    env = {"OPENAI_BASE_URL": "https://gw.example:8443/openai/v9/", "ANTHROPIC_API_BASE": "http://other.example"}
    assert servers(env) == (
        Server("OPENAI_BASE_URL", "https://gw.example:8443", ("chat", "responses")),
        Server("ANTHROPIC_API_BASE", "http://other.example", ("messages",)),
    )
    found = variables(env, BASE, keep_paths=("chat", "responses", "messages"))
    assert found["OPENAI_BASE_URL"] == found["OPENAI_API_BASE"] == f"{BASE}/openai/v9"
    assert found["ANTHROPIC_BASE_URL"] == found["ANTHROPIC_API_BASE"] == BASE
    # Without the server itself, its path means nothing.
    assert variables(env, BASE, keep_paths=("messages",))["OPENAI_BASE_URL"] == f"{BASE}/v1"


def test_two_servers_for_one_wire_are_told() -> None:
    env = {"OPENAI_BASE_URL": "http://a.example/v1", "OPENAI_API_BASE": "http://b.example/v1"}
    assert servers(env)[0].others == ("OPENAI_API_BASE",)


@pytest.mark.parametrize("value", ["", "localhost:8080", "unix:/run/x", "https://"])
def test_what_is_no_address_counts_as_not_set(value: str) -> None:
    assert servers({"OPENAI_BASE_URL": value}) == ()
    assert variables({"OPENAI_BASE_URL": value}, BASE, keep_paths=("chat", "responses"))["OPENAI_BASE_URL"]


def test_opencode_keeps_what_was_given() -> None:
    given = json.dumps({"model": "x/y", "provider": {"openai": {"options": {"baseURL": "http://mine", "k": 1}}}})
    found = variables({"OPENCODE_CONFIG_CONTENT": given}, BASE)
    assert opencode(found) == {"openai": "http://mine", "anthropic": f"{BASE}/v1"}
    assert json.loads(found["OPENCODE_CONFIG_CONTENT"])["model"] == "x/y"


@pytest.mark.parametrize("given", ["{broken", "[1]"])
def test_settings_of_opencode_that_are_wrong_stay_for_it_to_say_so(given: str) -> None:
    assert variables({"OPENCODE_CONFIG_CONTENT": given}, BASE)["OPENCODE_CONFIG_CONTENT"] == given


def test_codex_gets_its_setting_and_nobody_else_does() -> None:
    found = variables({}, BASE)
    setting = f'openai_base_url="{BASE}/v1"'
    assert command_for(["/opt/bin/codex", "exec", "p"], found) == ["/opt/bin/codex", "-c", setting, "exec", "p"]
    mine = ["codex", "-c", 'openai_base_url="http://mine"']
    assert command_for(mine, found) == mine
    assert command_for(["codexx", "a"], found) == ["codexx", "a"]
