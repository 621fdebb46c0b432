from __future__ import annotations

import io
import json
import logging

import pytest

from ctxproxy.cli.logs import formatter
from ctxproxy.config import load
from ctxproxy.errors import ConfigError
from ctxproxy.monitor import Event


def logged(form: str) -> tuple[logging.Logger, io.StringIO]:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter(form))
    logger = logging.Logger("ctxproxy")
    logger.addHandler(handler)
    return logger, out


def test_json_is_one_object_a_line_with_the_event_and_the_traceback() -> None:
    logger, out = logged("json")
    event = Event(type="request", at=1.0, session="s1", model="gpt-4o", before=10, after=5, by_category={"history": 5})
    logger.info("%s was\nlong", "it", extra={"event": event})
    try:
        raise ValueError("broken")
    except ValueError:
        logger.exception("failed")
    first, second = map(json.loads, out.getvalue().splitlines())
    assert first["level"] == "INFO"
    assert first["message"] == "it was\nlong"
    assert first["time"].endswith("+00:00")
    assert first["event"]["session_id"] == "s1"
    assert first["event"]["tokens_saved"] == 5
    assert "exception" not in first
    assert second["level"] == "ERROR"
    assert "ValueError: broken" in second["exception"]


def test_text_stays_text() -> None:
    logger, out = logged("text")
    logger.warning("careful")
    assert out.getvalue().endswith(" WARNING careful\n")


def test_the_setting_names_one_of_two_forms() -> None:
    assert load(None, env={}).logging.format == "text"
    assert load(None, env={"CTXPROXY_LOGGING__FORMAT": "json"}).logging.format == "json"
    with pytest.raises(ConfigError, match=r"logging\.format"):
        load(None, overrides={"logging.format": "xml"}, env={})
