"""What settings come to: policies by model and upstream, windows, accounts, an engine with its stores."""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ctxproxy.budget import Level
from ctxproxy.config import load
from ctxproxy.effects import Prepared, drive
from ctxproxy.errors import ConfigError
from ctxproxy.ledger import MemoryArchive, MemoryLedger
from ctxproxy.monitor import Event, Monitor
from ctxproxy.monitor.log import read_log
from ctxproxy.policy import PRESETS, Policy
from ctxproxy.sections import PolicySettings, Upstream
from ctxproxy.settings import Settings
from ctxproxy.stores import SqliteStore
from ctxproxy.wire.profiles import PROFILES, profile


def settings(**sections: Any) -> Settings:
    return Settings.model_validate(sections)


# --- policies


def test_every_field_of_a_policy_can_be_set() -> None:
    fields = {field.name for field in dataclasses.fields(Policy)}
    # `mode`, `archive.mode` and `measuring.provider_count` are keys of their own.
    assert PolicySettings.model_fields.keys() - {"preset"} == fields - {"mode", "archive", "provider_count"}


def test_without_settings_the_policy_is_the_code_s() -> None:
    assert settings().policy_for("gpt-4o") == Policy()


@pytest.mark.parametrize("name", PRESETS)
def test_the_values_of_a_preset_give_the_preset_again(name: str) -> None:
    shown = settings(policy=name).values()["policy"]
    assert settings(policy={**shown, "preset": "default"}).policy_for() == PRESETS[name]
    assert settings(policy=name).policy_for() == PRESETS[name]


def test_keys_go_over_the_preset_and_only_those_given() -> None:
    policy = settings(
        mode="observe",
        archive={"mode": "off"},
        policy={
            "preset": "aggressive",
            "thresholds": {"warning": "50%"},
            "tool_output": {"tokens": 77},
            "task": {"tokens": 5},
            "steps": {"compress": ["window"]},
            "shares": {"plan": 0.01},
            "pins": ["KEEP"],
        },
    ).policy_for()
    base = PRESETS["aggressive"]
    assert policy == dataclasses.replace(
        base,
        mode="observe",
        archive=False,
        thresholds=dataclasses.replace(base.thresholds, warning=0.5),
        tool_output=dataclasses.replace(base.tool_output, tokens=77),
        task=dataclasses.replace(base.task, tokens=5),
        steps={**base.steps, Level.COMPRESS: ("window",)},
        shares={**base.shares, "plan": 0.01},
        pins=("KEEP",),
    )


def test_a_lower_target_lowers_those_of_the_stricter_levels() -> None:
    policy = settings(policy={"target": 0.4}).policy_for()
    assert (policy.target, policy.emergency_target, policy.overflow_target) == (0.4, 0.4, 0.4)
    policy = settings(policy={"target": 0.8, "overflow_target": 0.3}).policy_for()
    assert (policy.target, policy.emergency_target, policy.overflow_target) == (0.8, 0.6, 0.3)


LAYERS = settings(
    policy={"preset": "gentle", "pins": ["A"], "keep_messages": 5},
    upstreams={"u": {"base_url": "http://u", "policy": {"keep_messages": 6, "protected_turns": 9}, "summaries": False}},
    models={
        "gpt-4o": {"policy": {"protected_turns": 7}},
        "GPT-*": {"policy": {"preset": "aggressive", "protected_turns": 8, "max_retries": 4}},
        "claude-x[1m]": {"window": 1_000_000, "policy": "grid"},
    },
)


def test_the_model_s_keys_go_over_the_upstream_s_and_those_over_the_general_ones() -> None:
    policy = LAYERS.policy_for("gpt-4o", upstream="u")
    assert policy.target == PRESETS["aggressive"].target
    assert (policy.pins, policy.keep_messages, policy.protected_turns, policy.max_retries) == (("A",), 6, 7, 4)
    assert policy.summaries is False
    other = LAYERS.policy_for("llama", upstream="elsewhere")
    assert (other.target, other.keep_messages, other.protected_turns) == (PRESETS["gentle"].target, 5, 2)
    assert other.summaries is True
    assert LAYERS.policy_for("claude-x[1m]").literal_window is True


def test_a_preset_goes_over_more_general_keys_where_presets_differ() -> None:
    found = settings(policy={"target": 0.5, "pins": ["A"]}, models={"m": {"policy": "gentle"}})
    assert (found.policy_for("m").target, found.policy_for("m").pins) == (PRESETS["gentle"].target, ("A",))
    assert (found.policy_for("n").target, found.policy_for("n").pins) == (0.5, ("A",))


def test_a_policy_by_name_goes_over_all_and_keeps_pins() -> None:
    policy = LAYERS.policy_for("gpt-4o", "grid")
    assert policy.relative_reduction == PRESETS["grid"].relative_reduction
    assert policy.target == PRESETS["grid"].target
    assert (policy.pins, policy.protected_turns) == (("A",), 7)
    assert LAYERS.policy_for("gpt-4o", "default").target == Policy().target
    with pytest.raises(ConfigError, match="there is no policy 'nix'"):
        LAYERS.policy_for("gpt-4o", "nix")


# --- windows and limits


def test_the_first_matching_pattern_that_has_a_window_counts() -> None:
    found = settings(
        upstreams={"u": {"base_url": "http://u", "window": 11}},
        models={"a": {"output": 5}, "a*": {"window": 22}, "*": {"window": 33, "output": 6}},
    )
    assert [found.window_for(m) for m in ("a", "ab", "b")] == [22, 22, 33]
    assert [found.output_for(m) for m in ("a", "ab", "b")] == [5, 6, 6]
    assert settings(upstreams={"u": {"base_url": "http://u", "window": 11}}).window_for("m", upstream="u") == 11
    assert settings(window=44, models={"a": {"window": 22}}).window_for("a", upstream="u") == 44
    assert settings().window_for("a") is None


def test_a_runtime_knows_the_windows_and_the_policy() -> None:
    runtime = settings(models={"gpt-4o*": {"window": 5000, "output": 70}}, policy="gentle").runtime()
    info = runtime.model("gpt-4o-mini", {}, None, None)
    assert (info.window, info.source, info.output_limit) == (5000, "config", 70)
    assert runtime.model("gpt-4o-mini", {}, 900, None).window == 900
    assert runtime.model("o3", {}, None, None).source == "catalogue"
    assert runtime.policy == PRESETS["gentle"]


def test_limits_are_learned_or_not() -> None:
    for learn, expected in ((True, 100), (False, None)):
        limits = settings(limits={"learn": learn, "ttl": 50.0}).runtime().engine.limits
        limits.learn("m", 100, now=1000.0)
        assert limits.get("m", now=1049.0) == expected
        assert limits.get("m", now=1051.0) is None


def test_a_profile_gives_its_rules() -> None:
    assert Upstream(base_url="http://a").rules is None
    for known in PROFILES:
        assert Upstream(base_url="http://a", profile=known.name).rules == profile(known.name)


# --- accounts


def test_conversations_are_told_apart_as_the_scope_says() -> None:
    secret = b"s" * 32
    one = {"authorization": "Bearer a", "x-user": "1"}
    two = {"authorization": "Bearer b", "x-user": "1"}

    def same(scope: str, **server: Any) -> bool:
        found = settings(ledger={"scope": scope}, server=server)
        return found.account(one, secret=secret) == found.account(two, secret=secret)

    assert same("single")
    assert same("auto")
    assert same("auto", host="localhost")
    assert same("auto", host="::1")
    assert not same("auto", host="10.0.0.1", token="t")
    assert not same("token")
    assert same("header:X-User")
    assert not same("header:authorization")
    assert "Bearer a" not in settings(ledger={"scope": "header:authorization"}).account(one, secret=secret)


@given(st.dictionaries(st.sampled_from(["x-api-key", "authorization", "x-user"]), st.text(max_size=50)))
def test_no_header_breaks_the_account(headers: dict[str, str]) -> None:
    for scope in ("single", "token", "header:x-user"):
        assert settings(ledger={"scope": scope}).account(headers, secret=b"k" * 32)


# --- stores and the event log


def request() -> bytes:
    filler = [{"role": ("assistant", "user")[i % 2], "content": f"item {i} is fine. " * 40} for i in range(60)]
    return json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": "Go."}, *filler]}).encode()


def compacted(found: Settings, **options: Any) -> Prepared:
    runtime = found.runtime(**options)
    call = runtime.call(api="chat", body=request(), policy=found.policy_for("gpt-4o"))
    return drive(runtime.engine.prepare(call), runtime.perform)


def test_the_archive_may_be_off_and_a_hint_stands_where_a_cut_is() -> None:
    kept = compacted(settings(window=5000, archive={"hint": "See http://127.0.0.1/o/{id}."}))
    assert kept.report.archived
    assert f" See http://127.0.0.1/o/{kept.report.archived[-1]}.".encode() in kept.body
    off = compacted(settings(window=5000, archive={"mode": "off", "hint": "See {id}."}))
    assert off.report.changed
    assert off.report.archived == ()
    assert b"See " not in off.body


def test_a_ledger_in_a_file_outlives_the_runtime_with_its_originals(tmp_path: Path) -> None:
    found = settings(window=5000, ledger={"url": f"sqlite:{tmp_path}/ledger.sqlite"}, archive={"hint": "See {id}."})
    first = compacted(found)
    assert first.report.changed
    again = compacted(found)
    assert (again.report.replayed, again.body) == (True, first.body)
    runtime = found.runtime()
    assert runtime.secret == found.runtime().secret
    assert runtime.archive is runtime.ledger
    assert runtime.archive is not None
    assert runtime.archive.restore("chat:", first.report.archived[-1])
    assert not compacted(settings(window=5000)).report.replayed


def test_learned_limits_lie_in_the_file_too(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/ledger.sqlite"
    settings(ledger={"url": url}).runtime().engine.limits.learn(("u", "s", "m"), 100, now=time.time())
    assert settings(ledger={"url": url}).runtime().engine.limits.get(("u", "s", "m"), now=time.time()) == 100
    off = settings(ledger={"url": url}, limits={"learn": False}).runtime().engine.limits
    assert off.get(("u", "s", "m"), now=time.time()) is None


def test_the_archive_may_be_a_folder(tmp_path: Path) -> None:
    found = settings(window=5000, archive={"mode": "disk", "dir": str(tmp_path / "kept")})
    runtime = found.runtime()
    call = runtime.call(api="chat", body=request(), policy=found.policy_for("gpt-4o"))
    report = drive(runtime.engine.prepare(call), runtime.perform).report
    kept = [path.name for path in (tmp_path / "kept").rglob("*") if path.is_file()]
    assert sorted(kept) == sorted(report.archived)


def test_stores_without_a_path_lie_in_the_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    settings(ledger={"url": "sqlite"}, archive={"mode": "disk"}).runtime()
    assert {path.name for path in (tmp_path / "ctxproxy").iterdir()} >= {"ledger.sqlite", "archive"}


def test_a_store_that_can_not_be_opened_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"setting: ledger\.url"):
        settings(ledger={"url": f"sqlite:{tmp_path}/file/ledger.sqlite"}).runtime()
    with pytest.raises(ConfigError, match=r"setting: archive\.dir"):
        settings(archive={"mode": "disk", "dir": f"{tmp_path}/file/kept"}).runtime()


def test_the_proxy_keeps_its_ledger_in_a_file_and_clients_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert isinstance(settings().runtime().ledger, MemoryLedger)
    assert isinstance(settings(ledger={"url": "memory"}).runtime(durable=True).ledger, MemoryLedger)
    assert not (tmp_path / "ctxproxy").exists()
    runtime = settings().runtime(durable=True)
    assert isinstance(runtime.ledger, SqliteStore)
    assert runtime.archive is runtime.ledger
    assert runtime.ledger.path == tmp_path / "ctxproxy" / "ledger.sqlite"


def test_the_default_file_that_can_not_be_opened_costs_a_warning_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "ctxproxy").write_text("in the way")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with caplog.at_level("WARNING", logger="ctxproxy"):
        runtime = settings(window=5000).runtime(durable=True)
    assert isinstance(runtime.ledger, MemoryLedger)
    assert isinstance(runtime.archive, MemoryArchive)
    assert "ledger.url" in caplog.text
    with pytest.raises(ConfigError, match=r"setting: ledger\.url"):
        settings(ledger={"url": "sqlite"}).runtime(durable=True)


def test_originals_that_end_before_the_compactions_that_mention_them_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:{tmp_path}/ledger.sqlite"
    with caplog.at_level("WARNING", logger="ctxproxy"):
        settings(ledger={"url": url}).runtime()
        settings(archive={"mode": "memory"}).runtime()
    assert "archive.mode" not in caplog.text
    with caplog.at_level("WARNING", logger="ctxproxy"):
        settings(ledger={"url": url}, archive={"mode": "memory"}).runtime()
    assert "archive.mode" in caplog.text


def test_the_event_log_gets_every_event_and_the_next_process_begins_with_it(tmp_path: Path) -> None:
    path = tmp_path / "log.yaml"
    found = settings(logging={"log_file": str(path), "max_bytes": 100, "keep": 1})
    events = [Event(type="request", at=float(n), id=str(n)) for n in range(3)]
    found.runtime().monitor.emit(*events)
    assert [e["id"] for e in yaml.safe_load(path.read_text())] == ["2"]
    assert [e.id for e in found.runtime().monitor.events()] == ["1", "2"]
    # Recalled events are not written again, and nothing is where it is switched off or another monitor is given.
    settings(logging={"log_file": str(path), "enabled": False}).runtime().monitor.emit(*events)
    found.runtime(monitor=Monitor()).monitor.emit(*events)
    assert [e.id for e in read_log(path)] == ["1", "2"]


def test_a_log_that_can_not_be_written_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"logging\.log_file: .*: Not a directory"):
        settings(logging={"log_file": str(tmp_path / "file" / "log.yaml")}).runtime()


def test_a_log_that_nobody_asked_for_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    runtime = settings().logged_to(tmp_path / "file" / "log.yaml").runtime()
    with caplog.at_level(logging.WARNING, "ctxproxy"):
        runtime.monitor.emit(Event(type="request", at=1.0), Event(type="request", at=2.0))
    assert len(runtime.monitor.events()) == 2
    assert len(caplog.records) == 1
    named = settings(logging={"log_file": "named.yaml"})
    assert named.logged_to(tmp_path / "other.yaml") is named


def test_verbose_logs_every_event_for_people(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ctxproxy"):
        settings().runtime().monitor.emit(Event(type="request", at=1.0, session="quiet"))
        settings(logging={"verbose": True}).runtime().monitor.emit(Event(type="request", at=1.0, session="told"))
    assert ["told" in record.getMessage() for record in caplog.records] == [True]


def test_a_file_and_its_values_say_the_same(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(LAYERS.values(), sort_keys=False))
    again = load(str(path), env={})
    for model in ("gpt-4o", "gpt-5", "claude-x[1m]", "llama"):
        assert again.policy_for(model, upstream="u") == LAYERS.policy_for(model, upstream="u")
        assert again.window_for(model) == LAYERS.window_for(model)
