"""Watching: what happened, as events, and what is made of them."""

from __future__ import annotations

from ctxproxy.monitor.events import Event, EventType, Finished, events_of, session_of
from ctxproxy.monitor.monitor import Listener, Monitor

__all__ = ["Event", "EventType", "Finished", "Listener", "Monitor", "events_of", "session_of"]
