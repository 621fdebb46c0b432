"""The event log: what is written is what is read, it is YAML at any moment, and it never costs a request."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import stat
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxproxy.monitor import Event, EventType, Monitor
from ctxproxy.monitor.log import EventLog, event_of, line_of, log_files, read_log

AT = 1_769_248_800.0  # 2026-01-24T10:00:00Z


def event(n: int = 0, **more: Any) -> Event:
    return Event(**{"type": "request", "at": AT + n, "id": str(n), "session": "s", **more})


def test_a_line_has_the_names_of_the_design():
    log = line_of(
        Event(
            type="compaction", at=AT + 0.25, session="sess-20260124-100000", agent="executor", before=165_000,
            after=142_000, level="COMPRESS", strategies=("prune", "window"), reason="proactive", id="c1", model="m",
            window=200_000,
        )
    )  # fmt: skip
    (found,) = yaml.safe_load(log)
    assert found == {
        "timestamp": "2026-01-24T10:00:00.250Z",
        "type": "compaction",
        "session_id": "sess-20260124-100000",
        "agent": "executor",
        "id": "c1",
        "model": "m",
        "reason": "proactive",
        "trigger_level": "COMPRESS",
        "window": 200_000,
        "context_before": 165_000,
        "context_after": 142_000,
        "compression_applied": True,
        "tokens_saved": 23_000,
        "strategy": "prune+window",
    }
    assert log.startswith('- {"timestamp"')
    assert log.count("\n") == 1


numbers = st.integers(0, 10**9)
money = st.none() | st.floats(-1e4, 1e4).map(lambda v: round(v, 6) + 0.0)
names = st.text(st.characters(), max_size=20)
plain = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
events = st.builds(
    Event,
    type=st.sampled_from(get_args(EventType)),
    at=st.integers(0, 4_000_000_000_000).map(lambda v: v / 1000),
    id=plain, session=plain, agent=plain, model=plain, label=plain, message=plain, upstream=plain, level=plain,
    reason=st.none() | st.sampled_from(["proactive", "overflow", "retry"]),
    window=numbers, before=numbers, after=numbers, input=numbers, cached=numbers, output=numbers, status=numbers,
    strategies=st.lists(st.sampled_from(["window", "prune", "facts"]), max_size=3).map(tuple),
    archived=st.lists(plain, max_size=3).map(tuple),
    by_category=st.dictionaries(plain, numbers, max_size=3).map(MappingProxyType),
    allowed=st.none() | st.booleans(), replayed=st.booleans(), cost=money, saved_usd=money,
    overhead=st.floats(0, 100).map(lambda v: round(v, 6)),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(events)
def test_what_is_written_is_read_again_and_yaml_reads_the_same(given_event: Event):
    line = line_of(given_event)
    assert event_of(line.encode()) == given_event
    (found,) = yaml.safe_load(line)
    assert found == json.loads(line[2:])


@settings(max_examples=100, deadline=None)
@given(names)
def test_no_name_breaks_a_line(name: str):
    """Lone surrogates, line ends and control characters included."""
    line = line_of(event(session=name, label=name))
    assert len(line.splitlines()) == 1
    assert len(yaml.safe_load(line)) == 1


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), 1e-7, 1e300])
def test_odd_amounts_stay_readable(odd: float):
    (found,) = yaml.safe_load(line_of(event(cost=odd)))
    assert found["cost"] is None or isinstance(found["cost"], float)


def test_every_field_of_an_event_is_written(tmp_path: Path):
    values: dict[str, Any] = {"type": "gate", "at": AT}
    for f in fields(Event):
        if f.name not in values:
            kind = str(f.type)
            if f.name == "reason":
                values[f.name] = "retry"
            elif "tuple" in kind:
                values[f.name] = ("prune",)
            elif "Mapping" in kind:
                values[f.name] = MappingProxyType({"history": 3})
            elif "bool" in kind:
                values[f.name] = True
            else:
                values[f.name] = 7 if "int" in kind else 1.5 if "float" in kind else f"a {f.name}"
    full = Event(**values)
    EventLog(tmp_path / "log.yaml")(full)
    assert read_log(tmp_path / "log.yaml") == [full]


def test_it_is_a_listener_of_a_monitor(tmp_path: Path):
    log = EventLog(tmp_path / "new" / "folder" / "log.yaml")
    monitor = Monitor(listeners=[log])
    monitor.emit(event(1), event(2))
    assert [e.id for e in read_log(log.path)] == ["1", "2"]
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600
    assert len(yaml.safe_load(log.path.read_text())) == 2


# --- a process that was killed


def test_a_torn_line_is_cut_off_before_the_next_one(tmp_path: Path):
    path = tmp_path / "log.yaml"
    path.write_text(line_of(event(1)) + line_of(event(2))[:50])
    assert [e.id for e in read_log(path)] == ["1"]
    EventLog(path).open()
    assert path.read_text() == line_of(event(1))
    with path.open("a") as file:
        file.write("- {torn" * 5_000)  # another process, while this one runs
    log = EventLog(path)
    log(event(3))
    assert [e["id"] for e in yaml.safe_load(path.read_text())] == ["1", "3"]


WRITER = """
import sys, time
from ctxproxy.monitor import Event
from ctxproxy.monitor.log import EventLog
log = EventLog(sys.argv[1], max_bytes=int(sys.argv[3]), keep=1000)
for n in range(1_000_000):
    log(Event(type="request", at=1e9 + n, id=f"{sys.argv[2]}-{n}", session="s" * 3000, before=n))
    if n % 50 == 0:
        time.sleep(0.005)
    if n == 20:
        print("on the way", flush=True)
"""


def start(path: Path, name: str, max_bytes: int = 1 << 40) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), name, str(max_bytes)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "on the way\n"
    return process


def test_several_processes_are_killed_and_the_log_stays_whole(tmp_path: Path):
    """Each is killed by SIGKILL somewhere in its writing, while the others go on."""
    path = tmp_path / "log.yaml"
    chance = random.Random(7)
    for round_ in range(4):
        writers = [start(path, f"{round_}.{n}", max_bytes=1 << 20) for n in range(2)]
        for writer in writers:
            time.sleep(chance.random() * 0.05)
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            assert writer.stdout is not None
            writer.stdout.close()
        EventLog(path).open()
        text = path.read_text()
        assert text.endswith("\n") or not text
        assert all(event_of(line.encode()) for line in text.splitlines())
    for file in log_files(path):
        lines = file.read_text().splitlines()
        assert all(line.endswith("}") and event_of(line.encode()) for line in lines)
    assert len(log_files(path)) > 1
    numbers: dict[str, list[int]] = {}
    for found in read_log(path):
        name, _, n = found.id.partition("-")
        numbers.setdefault(name, []).append(int(n))
    assert len(numbers) == 8
    for seen in numbers.values():  # of each process every event up to its last is there, once, in order
        assert seen == list(range(len(seen)))


def test_yaml_reads_it_while_others_write(tmp_path: Path):
    path = tmp_path / "log.yaml"
    writers = [start(path, str(n), max_bytes=60_000) for n in range(2)]
    try:
        for _ in range(5):
            try:
                text = path.read_text()
            except FileNotFoundError:  # the moment between two files
                continue
            assert isinstance(yaml.safe_load(text), list | None)
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
            assert writer.stdout is not None
            writer.stdout.close()


# --- sizes


def test_a_large_log_becomes_an_older_one(tmp_path: Path):
    path = tmp_path / "log.yaml"
    log = EventLog(path, max_bytes=600, keep=2)
    for n in range(40):
        log(event(n))
    assert [file.name for file in log_files(path)] == ["log.yaml.2", "log.yaml.1", "log.yaml"]
    assert all(file.stat().st_size <= 600 for file in log_files(path))
    ids = [int(e.id) for e in read_log(path)]
    assert ids == list(range(ids[0], 40))
    assert len(ids) < 40
    assert [e.id for e in read_log(path, last=3)] == ["37", "38", "39"]


def test_none_of_the_older_ones_stays_if_none_shall(tmp_path: Path):
    log = EventLog(tmp_path / "log.yaml", max_bytes=300, keep=0)
    for n in range(10):
        log(event(n))
    assert [file.name for file in tmp_path.iterdir()] == ["log.yaml"]
    assert read_log(log.path)[-1].id == "9"


def test_a_line_over_the_limit_is_written_all_the_same(tmp_path: Path):
    log = EventLog(tmp_path / "log.yaml", max_bytes=10)
    log(event(1))
    log(event(2))
    assert [e.id for e in read_log(log.path)] == ["1", "2"]


# --- faults


def test_a_file_that_cannot_be_written_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    log = EventLog(tmp_path / "log.yaml")
    log(event(1))
    log.close()
    log.path.unlink()
    log.path.mkdir()
    with caplog.at_level(logging.WARNING, "ctxproxy"):
        log(event(2))
        log(event(3))
    assert [record.getMessage() for record in caplog.records] == [
        f"{log.path} can't be written to: Is a directory; events are not logged (setting: logging.log_file)"
    ]
    log.path.rmdir()
    log(event(4))
    assert [e.id for e in read_log(log.path)] == ["4"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path = tmp_path / "log.yaml"
    path.symlink_to("/dev/full")
    log = EventLog(path)
    with caplog.at_level(logging.WARNING, "ctxproxy"):
        log(event(1))
        log(event(2))
    assert len(caplog.records) == 1
    assert "No space left" in caplog.text


def test_a_process_that_was_stopped_holds_up_nobody(tmp_path: Path):
    import fcntl

    log = EventLog(tmp_path / "log.yaml")
    log(event(1))
    with log.path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        log(event(2))
    assert [e.id for e in read_log(log.path)] == ["1", "2"]


# --- reading


def test_lines_of_people_and_other_programs(tmp_path: Path):
    path = tmp_path / "log.yaml"
    path.write_text(
        "# the events of January\n"
        "- {timestamp: 2026-01-24T10:00:00Z, type: spawn, agent: planner, context_before: 45000, context_after: 72000}\n"
        '- {"timestamp": "2026-01-24T10:15:00+01:00", "type": "request", "context_before": "many", "new": {"a": 1}}\n'
        "- {timestamp: yesterday, type: spawn}\n"
        "- {type: spawn}\n"
        "- {timestamp: 2026-01-24T10:00:00Z, type: lunch}\n"
        "- [1, 2]\n- {\n- \n\n"
    )
    spawn, request = read_log(path)
    assert (spawn.at, spawn.agent, spawn.before, spawn.after) == (AT, "planner", 45_000, 72_000)
    assert (request.at, request.before) == (AT - 2_700, 0)


def test_some_events_only(tmp_path: Path):
    log = EventLog(tmp_path / "log.yaml")
    for n in range(6):
        log(event(n, session="ab"[n % 2], type="gate" if n > 2 else "request"))
    assert [e.id for e in read_log(log.path, session="a")] == ["0", "2", "4"]
    assert [e.id for e in read_log(log.path, types=["gate"], last=2)] == ["4", "5"]
    assert read_log(tmp_path / "none.yaml") == []


def test_a_file_of_many_blocks_is_read_whole(tmp_path: Path):
    path = tmp_path / "log.yaml"
    path.write_text("".join(line_of(event(n, label="x" * 900)) for n in range(3_000)))
    assert [int(e.id) for e in read_log(path)] == list(range(3_000))
