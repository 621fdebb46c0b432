from __future__ import annotations

import logging

import pytest

from ctxproxy.monitor import Event, Monitor


def event(n: int, **more: str) -> Event:
    return Event(type="request", at=float(n), id=str(n), **more)


def test_keeps_the_newest():
    monitor = Monitor(keep=3)
    for n in range(5):
        monitor.emit(event(n))
    assert [e.id for e in monitor.events()] == ["2", "3", "4"]


def test_a_listener_hears_every_event_until_it_stops():
    monitor, heard = Monitor(), []
    stop = monitor.listen(heard.append)
    monitor.emit(event(1), event(2))
    stop()
    monitor.emit(event(3))
    assert [e.id for e in heard] == ["1", "2"]


def test_a_failing_listener_costs_nothing_and_is_logged_once(caplog: pytest.LogCaptureFixture):
    heard: list[Event] = []

    def fail(_: Event) -> None:
        raise OSError("full")

    monitor = Monitor(listeners=[fail, heard.append])
    with caplog.at_level(logging.ERROR):
        monitor.emit(event(1))
        monitor.emit(event(2))
    assert [e.id for e in heard] == ["1", "2"]
    assert len(caplog.records) == 1


def test_events_of_one_session_or_account():
    monitor = Monitor()
    monitor.emit(event(1, session="a", account="x"), event(2, session="b", account="x"), event(3, session="a"))
    assert [e.id for e in monitor.events(session="a")] == ["1", "3"]
    assert [e.id for e in monitor.events(account="x")] == ["1", "2"]
    assert [e.id for e in monitor.events(session="a", account="x")] == ["1"]


def test_events_of_an_earlier_process_come_first():
    monitor, heard = Monitor(keep=3), []
    monitor.emit(event(9))
    monitor.listen(heard.append)
    monitor.recall([event(n) for n in range(4)])
    assert [e.id for e in monitor.events()] == ["2", "3", "9"]
    assert heard == []
