from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from ctxproxy.monitor import Event, screen
from ctxproxy.monitor.diff import lines_of
from ctxproxy.monitor.running import announced, running
from ctxproxy.monitor.summary import snapshot_of

MARKS = (0.8, 0.9, 0.95, 1.0)
HOSTILE = "\x1b[2J\x1b]0;owned\x07[bold]\u202e"


def status(sessions: int) -> dict[str, object]:
    events = [
        Event(type=type, at=n, session=f"{HOSTILE}{n}", model=HOSTILE, window=1_000, before=900, after=825, id=f"c{n}",
              reason="proactive", by_category={"history": 800})
        for n in range(sessions) for type in ("compaction", "request")
    ]  # fmt: skip
    return msgspec.to_builtins(snapshot_of(events))


@pytest.mark.parametrize("sessions", [0, 1, 300])
def test_the_live_view_fits_a_small_terminal_and_obeys_no_name(sessions: int) -> None:
    out = io.StringIO()
    console = Console(file=out, width=80, height=24, no_color=True)
    console.print(screen.top(status(sessions), url="http://127.0.0.1:1", height=24))
    lines = out.getvalue().splitlines()
    assert len(lines) <= 24
    assert all(len(line) <= 80 for line in lines)
    assert "\x1b" not in out.getvalue()
    assert "\u202e" not in out.getvalue()


def test_the_block_has_bar_level_and_categories() -> None:
    [talk] = status(1)["conversations"]
    told = screen.block(talk, MARKS, plain=True)
    assert "82.5%" in told
    assert "Level:   WARNING" in told
    assert "History: 800 / 375 tokens" in told
    assert "Note: Approaching the compaction threshold (90%)" in told
    assert "\x1b" not in told


def test_a_bar_has_ticks_where_the_levels_begin() -> None:
    assert screen.bar(0.5, cells=20, marks=MARKS, plain=True) == "##########.....|.||."[:17] + "||" + "|"


def test_a_diff_is_bounded_and_shows_both_sides() -> None:
    old = "\n".join(f"line {n}" for n in range(50_000))
    lines = lines_of(old, "line 0\n[cut]\nline 49999")
    assert len(lines) < 900
    assert lines[0] == [" ", "line 0"]
    assert ["+", "[cut]"] in lines
    assert lines[-1] == [" ", "line 49999"]
    assert any(sign == "~" for sign, _ in lines)
    assert lines_of(None, "") == []


def test_a_proxy_is_found_while_it_runs(tmp_path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path)}
    with announced("http://127.0.0.1:1", "secret", env=env) as path:
        assert path is not None
        assert path.stat().st_mode & 0o777 == 0o600
        [found] = running(env=env)
        assert (found.url, found.token) == ("http://127.0.0.1:1", "secret")
        assert "secret" not in repr(found)
        path.with_name("dead.json").write_text('{"url": "u", "pid": 4194303, "started": 1, "token": "t"}')
        path.with_name("bad.json").write_text("{")
        assert running(env=env) == [found]
    assert running(env=env) == []
