"""Reading settings: the file, the environment, the command line, and what is said of mistakes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from ctxproxy.config import Settings, keys, load
from ctxproxy.errors import ConfigError

EXAMPLE = Path(__file__).parent.parent / "config.example.yaml"


@pytest.fixture
def file(tmp_path: Path) -> Any:
    """Writes a file and gives its path."""

    def write(text: str) -> str:
        path = tmp_path / "c.yaml"
        path.write_text(text)
        return str(path)

    return write


def message(path: str | None, env: dict[str, str] | None = None, overrides: dict[str, object] | None = None) -> str:
    with pytest.raises(ConfigError) as raised:
        load(path, env=env or {}, overrides=overrides or {})
    assert "\n" not in str(raised.value)
    return str(raised.value)


# --- the example


def flat(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, dict) and value:
            found |= flat(cast("dict[str, Any]", value), f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def entries() -> str:
    """The example with its commented entries of upstreams and models in place."""
    text = re.sub(r"^#  ", "  ", EXAMPLE.read_text(), flags=re.MULTILINE)
    return text.replace("upstreams: {}", "upstreams:").replace("models: {}", "models:")


def test_the_example_has_every_key_with_the_code_s_default() -> None:
    defaults = flat(load(env={}).values())
    example = flat(load(str(EXAMPLE), env={}).values())
    assert example == defaults
    given = flat(yaml.safe_load(EXAMPLE.read_text()))
    assert given.keys() == defaults.keys()


def test_the_example_s_entries_have_every_key_with_its_default(file: Any) -> None:
    data = yaml.safe_load(entries())
    (upstream,) = data["upstreams"].values()
    (model,) = data["models"].values()
    settings = load(file(entries()), env={})
    (found,) = settings.upstreams.values()
    assert upstream.keys() == type(found).model_fields.keys()
    assert found == type(found)(base_url=upstream["base_url"])
    (pattern,) = settings.models.values()
    assert model.keys() == type(pattern).model_fields.keys()
    assert pattern == type(pattern)()


def test_keys_name_every_value_once() -> None:
    found = list(keys())
    assert len(found) == len(set(found))
    assert set(flat(load(env={}).values())) - {"upstreams", "models"} <= set(found)
    assert {"upstreams.NAME.base_url", "models.NAME.window", "policy.tool_output.tokens"} <= set(found)


# --- where values come from


def test_the_command_line_goes_before_the_environment_and_that_before_the_file(file: Any) -> None:
    path = file("server:\n  port: 1\n  host: localhost\nwindow: 10\npolicy: {target: 50%}\n")
    env = {"CTXPROXY_CONFIG": path, "CTXPROXY_SERVER__PORT": "2", "CTXPROXY_POLICY__TARGET": "60%"}
    settings = load(env=env, overrides={"server.port": 3})
    assert (settings.server.port, settings.server.host, settings.window) == (3, "localhost", 10)
    assert settings.policy_for().target == 0.6
    assert settings.source("server.port") == "command line"
    assert settings.source("policy.target") == "CTXPROXY_POLICY__TARGET"
    assert settings.source("server.host") == f"{path}, line 3"
    assert settings.source("mode") == "default"
    assert load(env={}).server.port == 8484


def test_a_named_file_goes_before_the_variable(file: Any, tmp_path: Path) -> None:
    assert load(file("window: 5"), env={"CTXPROXY_CONFIG": str(tmp_path / "none.yaml")}).window == 5


def test_variables_have_the_type_of_their_key() -> None:
    settings = load(
        env={
            "CTXPROXY_MODE": "off",
            "CTXPROXY_WINDOW": "4096",
            "CTXPROXY_POLICY__SUMMARIES": "false",
            "CTXPROXY_POLICY__PINS": "[a, 'b c']",
            "CTXPROXY_POLICY__TOOL_OUTPUT__TOKENS": "null",
            "CTXPROXY_POLICY__TARGET": "0.5",
            "CTXPROXY_LIMITS__TTL": "60",
            "CTXPROXY_SERVER__TOKEN": "12345",
            "CTXPROXY_SERVER__ALLOWED_HOSTS": "a.example, b.example",
            "CTXPROXY_UPSTREAMS__LOCAL__BASE_URL": "http://127.0.0.1:9",
            "CTXPROXY_UPSTREAMS__LOCAL__POLICY": "gentle",
        }
    )
    assert (settings.mode, settings.window, settings.limits.ttl) == ("off", 4096, 60.0)
    assert settings.policy.pins == ["a", "b c"]
    assert settings.policy.summaries is False
    assert settings.policy_for().tool_output.of(1_000_000) == 200_000
    assert settings.server.token == "12345"
    assert settings.server.allowed_hosts == ["a.example", "b.example"]
    assert settings.upstreams["local"].policy.preset == "gentle"


def test_variables_that_a_cluster_injects_are_no_settings() -> None:
    env = {"CTXPROXY_PORT": "tcp://10.0.0.1:80", "CTXPROXY_SERVICE_HOST": "10.0.0.1", "CTXPROXY_PORT_80_TCP": "x"}
    assert load(env=env) == load(env={})


def test_variables_in_the_file_fill_in_values(file: Any) -> None:
    path = file(
        "upstreams:\n  u: {base_url: 'http://${HOST}:${PORT}/v1', key: '${KEY}'}\n"
        "server: {port: '${PORT}', allowed_hosts: ['${HOST}']}\npolicy: {pins: ['$${HOST}', '$5', '$']}\n"
    )
    env = {"HOST": "h.example", "PORT": "8000", "KEY": "key: {a: 1} #"}
    settings = load(path, env=env)
    upstream = settings.upstreams["u"]
    assert (upstream.base_url, upstream.key) == ("http://h.example:8000/v1", "key: {a: 1} #")
    assert (settings.server.port, settings.server.allowed_hosts) == (8000, ["h.example"])
    assert settings.policy.pins == ["${HOST}", "$5", "$"]
    del env["KEY"]
    assert message(path, env) == f"upstreams.u.key ({path}, line 2): the variable 'KEY' is not set"


def test_sections_may_be_empty_and_off_needs_no_quotes(file: Any) -> None:
    settings = load(file("mode: off\nserver:\npolicy:\nupstreams:\nmodels:\narchive: {mode: off}\n"), env={})
    assert (settings.mode, settings.archive.mode) == ("off", "off")
    assert settings.server == load(env={}).server
    for text in ("", "# nothing\n", "---\n"):
        assert load(file(text), env={}) == load(env={})


def test_shares_are_numbers_or_percentages(file: Any) -> None:
    for text in ("0.55", "'0.55'", "55%", "'55 %'", '"55.0%"'):
        if text == "'0.55'":
            assert "policy.target" in message(file(f"policy: {{target: {text}}}"))
        else:
            assert load(file(f"policy: {{target: {text}}}"), env={}).policy_for().target == 0.55


# --- mistakes


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("mode: [\n  a", ", line 2, column 4: not valid YAML: expected"),
        ("a:\n\tb: 1", ", line 2, column 1: not valid YAML: found character"),
        ("- 1", "must hold keys"),
        ("policy", "must hold keys"),
        ("\x00", "not valid YAML"),
        ("a: &a {b: *a}", "nested too deep"),
        ("a: &a [*a]", "nested too deep"),
        ("x: " + "[" * 2000, "not valid YAML"),
        ("mode: compact\nmode: off", "line 2: mode is there twice, first in line 1"),
        ("policy:\n  target: 0.5\n  target: 0.6", "line 3: policy.target is there twice, first in line 2"),
    ],
)
def test_a_file_that_is_not_such_yaml(file: Any, text: str, told: str) -> None:
    path = file(text)
    found = message(path)
    assert told in found
    assert path in found


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    path = str(tmp_path / "none.yaml")
    assert message(path) == f"{path}: No such file or directory (setting: --config or CTXPROXY_CONFIG)"
    assert str(tmp_path) in message(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "key", "meant"),
    [
        ("policy: {targt: 1}", "policy.targt", "policy.target"),
        ("polcy: {}", "polcy", "policy"),
        ("target: 0.7", "target", "policy.target"),
        ("tool_output: {}", "tool_output", "policy.tool_output"),
        ("upstreams: {a: {base_url: 'http://a', polcy: x}}", "upstreams.a.polcy", "upstreams.a.policy"),
        ("models: {'gpt-4.1*': {widow: 5}}", "models.gpt-4.1*.widow", "models.gpt-4.1*.window"),
        ("models: {a: {policy: {target: 0.5, tail: {hihg: 5}}}}", "models.a.policy.tail.hihg", "models.a.policy.tail"),
        ("prt: 80", "prt", "server.port"),
        ("policy: {wxyz: 1}", "policy.wxyz", None),
    ],
)
def test_an_unknown_key_is_named_with_the_one_that_was_meant(file: Any, text: str, key: str, meant: str) -> None:
    found = message(file(text))
    assert found.startswith(f"{key} (")
    assert "line 1): there is no such key" in found
    assert ("did you mean" in found) == bool(meant)
    assert not meant or f"did you mean {meant}" in found


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("mode: on", "mode (FILE, line 1): True is not allowed; it must be 'off', 'observe' or 'compact'"),
        ("policy: {target: 70}", "policy.target (FILE, line 1): 70 is not allowed; it must be a share between 0 and 1"),
        ("policy: {target: half}", "'half' is not allowed; it must be a share between 0 and 1, such as 0.8 or \"80%\""),
        ("policy: {target: true}", "True is not allowed; it must be a share"),
        ("policy: {preset: gentel}", "'gentel' is not allowed; it must be default or gentle or aggressive or grid"),
        ("policy: grids", "policy.preset (FILE, line 1): 'grids' is not allowed"),
        ("policy: {pins: x}", "'x' is not allowed; it must be a list such as [a, b]"),
        ("policy: {steps: {compress: [prun]}}", "policy.steps.compress.0 (FILE, line 1): 'prun' is not allowed"),
        ("window: 0", "0 is not allowed; it must be at least 1"),
        ("window: 8k", "'8k' is not allowed; it must be a whole number"),
        ("window: 1.5", "1.5 is not allowed; it must be a whole number"),
        ("server: {port: 70000}", "70000 is not allowed; it must be at most 65535"),
        ("server: 5", "server (FILE, line 1): 5 is not allowed; it must be a mapping of keys to values"),
        ("models: {a: 5}", "models.a (FILE, line 1): 5 is not allowed; it must be a mapping"),
        ("models: [a]", "models (FILE, line 1): ['a'] is not allowed; it must be a mapping of names"),
        ("upstreams: {a: {}}", "upstreams.a (FILE, line 1): base_url is missing"),
        ("upstreams: {a: {base_url: localhost}}", "'localhost' is not allowed; it must be an address such as http://"),
        ("upstreams: {a: {base_url: 'http://a', wires: [smoke]}}", "upstreams.a.wires.0 (FILE, line 1): 'smoke'"),
        ("upstreams: {a: {base_url: 'http://a', profile: nobody}}", "'nobody' is not allowed; it must be openai or"),
        ("ledger: {scope: mine}", "'mine' is not allowed; it must be auto, single, token or header:NAME"),
        ("ledger: {url: redis}", "'redis' is not allowed; it must be auto, memory, sqlite or sqlite:PATH"),
        ("archive: {mode: s3}", "'s3' is not allowed; it must be 'off', 'ledger', 'memory' or 'disk'"),
        ("logging: {verbose: 1}", "1 is not allowed; it must be true or false"),
        ("policy: {target: 90%}", "policy.target (FILE, line 1): 0.9 is not allowed; it must be over 0 and under"),
        ("policy: {target: 0}", "policy.target (FILE, line 1): 0 is not allowed"),
        ("policy: {thresholds: {compress: 50%}}", "policy.thresholds (FILE, line 1): must be over 0 and not fall"),
        ("models: {m: {policy: {emergency_target: 1}}}", "models.m.policy.emergency_target (FILE, line 1): 1 is not"),
        ("policy: {shares: {history: 0.9}}", "policy.shares (FILE, line 1): sum up to 1.53, over 1"),
        ("policy: {tail: {low: 9000}}", "policy.tail.low (FILE, line 1): 9000 is over policy.tail.high, which is 8000"),
        (
            "server: {host: 0.0.0.0}",
            "server.host (FILE, line 1): 0.0.0.0 lets other machines in: that needs server.tok",
        ),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(file: Any, text: str, told: str) -> None:
    path = file(text)
    assert told.replace("FILE", path) in message(path)


def test_a_wrong_variable_or_flag_is_named() -> None:
    assert message(None, {"CTXPROXY_POLICY__TARGT": "1"}).startswith("policy.targt (CTXPROXY_POLICY__TARGT): there is")
    assert "(CTXPROXY_SERVER__PORT): 'many' is not" in message(None, {"CTXPROXY_SERVER__PORT": "many"})
    assert "'[' is not allowed" in message(None, {"CTXPROXY_POLICY__PINS": "["})
    assert message(None, overrides={"server.port": -1}).startswith("server.port (command line): -1 is not allowed")


def test_all_problems_are_told(file: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        load(file("window: x\nmode: y\nserver: {prt: 1}\n"), env={})
    told = [str(raised.value), *raised.value.__notes__]
    assert len(told) == 3
    assert {line.split(" ")[0] for line in told} == {"window", "mode", "server.prt"}
    assert raised.value.key == told[0].split(" ")[0]


def test_no_message_and_no_print_shows_a_secret(file: Any) -> None:
    path = file("upstreams: {a: {base_url: 'http://a', key: 987654}}\nserver: {token: 987654}\n")
    with pytest.raises(ConfigError) as raised:
        load(path, env={})
    assert "987654" not in "".join((str(raised.value), *raised.value.__notes__))
    settings = load(
        file("upstreams: {a: {base_url: 'http://a', key: '${K}'}}\nserver: {token: '${K}'}\n"), env={"K": "s3cret"}
    )
    assert settings.upstreams["a"].key == settings.server.token == "s3cret"
    assert "s3cret" not in repr(settings) + str(settings.values())


def test_the_names_of_sections_are_those_of_the_file() -> None:
    assert list(Settings.model_fields) == list(yaml.safe_load(EXAMPLE.read_text()))
