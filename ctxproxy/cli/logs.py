"""The log on standard error, as text or as JSON."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from ctxproxy.monitor.events import Event
from ctxproxy.monitor.log import line_of

__all__ = ["JsonLines", "formatter"]


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, message, and the event or the traceback that the message is about."""

    def format(self, record: logging.LogRecord) -> str:
        found: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        event = getattr(record, "event", None)
        if isinstance(event, Event):
            found["event"] = json.loads(line_of(event).removeprefix("- "))
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found, default=str)


def formatter(form: str) -> logging.Formatter:
    """The formatter of `logging.format`."""
    return JsonLines() if form == "json" else logging.Formatter("%(asctime)s %(levelname)s %(message)s")
