from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from ctxproxy.config import load
from ctxproxy.errors import ConfigError
from ctxproxy.monitor import Event, Monitor
from ctxproxy.monitor.otel import Spans

REQUEST = Event(
    type="request",
    at=1_800_000_000.25,
    id="r1",
    session="s1",
    agent="executor",
    api="chat",
    model="gpt-4o",
    reason="proactive",
    level="COMPRESS",
    window=128_000,
    before=120_000,
    after=80_000,
    strategies=("prune", "window"),
    status=200,
    overhead=0.004,
    seconds=1.5,
    input=79_990,
    cached=1_000,
    output=321,
)


@pytest.fixture
def spans() -> Iterator[tuple[Monitor, InMemorySpanExporter]]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield Monitor(listeners=[Spans(provider)]), exporter
    provider.shutdown()


def test_a_request_is_a_span_with_the_genai_attributes(spans: tuple[Monitor, InMemorySpanExporter]) -> None:
    monitor, exporter = spans
    monitor.emit(REQUEST)
    (span,) = exporter.get_finished_spans()
    assert span.name == "chat gpt-4o"
    assert span.kind is SpanKind.CLIENT
    assert span.start_time == 1_800_000_000_250_000_000
    assert span.end_time == 1_800_000_001_750_000_000
    assert span.status.is_unset
    assert dict(span.attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.conversation.id": "s1",
        "gen_ai.agent.name": "executor",
        "gen_ai.usage.input_tokens": 79_990,
        "gen_ai.usage.output_tokens": 321,
        "gen_ai.usage.cache_read.input_tokens": 1_000,
        "ctxproxy.request_id": "r1",
        "ctxproxy.reason": "proactive",
        "ctxproxy.level": "COMPRESS",
        "ctxproxy.tokens_before": 120_000,
        "ctxproxy.tokens_after": 80_000,
        "ctxproxy.window": 128_000,
        "ctxproxy.overhead_ms": 4.0,
        "ctxproxy.strategies": ("prune", "window"),
        "http.response.status_code": 200,
    }


def test_a_refused_request_is_an_error(spans: tuple[Monitor, InMemorySpanExporter]) -> None:
    monitor, exporter = spans
    monitor.emit(Event(type="request", at=1.0, api="messages", status=529))
    (span,) = exporter.get_finished_spans()
    assert not span.status.is_ok
    assert not span.status.is_unset
    attributes: dict[str, Any] = dict(span.attributes or {})
    assert attributes["error.type"] == "529"
    assert attributes["gen_ai.provider.name"] == "anthropic"
    assert "ctxproxy.reason" not in attributes
    assert "gen_ai.usage.input_tokens" not in attributes


@pytest.mark.parametrize("type", ["compaction", "overflow", "gate", "spawn", "checkpoint"])
def test_other_events_are_no_spans(spans: tuple[Monitor, InMemorySpanExporter], type: Any) -> None:
    monitor, exporter = spans
    monitor.emit(Event(type=type, at=1.0, model="gpt-4o"))
    assert exporter.get_finished_spans() == ()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    settings = load(None, overrides={"logging.otel": True}, env={})
    with pytest.raises(ConfigError, match=r"pip install 'ctxproxy\[otel\]'") as raised:
        settings.runtime()
    assert raised.value.key == "logging.otel"
    assert load(None, env={}).runtime().monitor.events() == ()
