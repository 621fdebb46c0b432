"""OpenTelemetry spans of requests, by the semantic conventions for generative AI. Needs the extra `otel`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxproxy.errors import ConfigError
from ctxproxy.monitor.events import Event

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider
    from opentelemetry.util.types import AttributeValue

__all__ = ["Spans", "attributes_of", "exported"]


class Spans:
    """Turns each request into a span `chat MODEL`, when it has ended; an instance is a monitor's listener.

    Args:
        provider: whose tracer makes the spans.

    Raises:
        ConfigError: OpenTelemetry is not installed.
    """

    def __init__(self, provider: TracerProvider) -> None:
        try:
            from opentelemetry.trace import SpanKind, Status, StatusCode
        except ImportError as error:
            raise _missing(error) from None
        from ctxproxy import __version__

        self._tracer = provider.get_tracer("ctxproxy", __version__)
        self._kind, self._failed = SpanKind.CLIENT, Status(StatusCode.ERROR)

    def __call__(self, event: Event) -> None:
        if event.type != "request":
            return
        span = self._tracer.start_span(
            f"chat {event.model}".rstrip(),
            kind=self._kind,
            attributes=attributes_of(event),
            start_time=_nanoseconds(event.at),
        )
        if event.status >= 400:
            span.set_status(self._failed)
        span.end(end_time=_nanoseconds(event.at + max(event.seconds, event.overhead)))


def attributes_of(event: Event) -> dict[str, AttributeValue]:
    """The attributes of a request's span: numbers and names, no text and no key."""
    usage = {
        "gen_ai.usage.input_tokens": event.input,
        "gen_ai.usage.output_tokens": event.output,
        "gen_ai.usage.cache_read.input_tokens": event.cached,
        "gen_ai.usage.cache_creation.input_tokens": event.written,
    }
    names = {
        "gen_ai.request.model": event.model,
        "gen_ai.conversation.id": event.session,
        "gen_ai.agent.name": event.agent,
        "ctxproxy.request_id": event.id,
        "ctxproxy.reason": event.reason or "",
        "ctxproxy.level": event.level,
    }
    found: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "chat",
        # Whoever speaks a wire counts as its provider, as the conventions have it for compatible servers.
        "gen_ai.provider.name": "anthropic" if event.api == "messages" else "openai",
        "ctxproxy.tokens_before": event.before,
        "ctxproxy.tokens_after": event.after,
        "ctxproxy.window": event.window,
        "ctxproxy.overhead_ms": round(event.overhead * 1e3, 3),
    }
    found.update({name: value for name, value in names.items() if value})
    found.update({name: tokens for name, tokens in usage.items() if tokens})
    if event.strategies:
        found["ctxproxy.strategies"] = event.strategies
    if event.retries:
        found["ctxproxy.retries"] = event.retries
    if event.status:
        found["http.response.status_code"] = event.status
    if event.status >= 400:
        found["error.type"] = str(event.status)
    return found


def exported() -> Spans:
    """Spans for the provider that the program has set up; where it has none, sent over OTLP.

    Then the standard variables count, such as OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_SERVICE_NAME.

    Raises:
        ConfigError: OpenTelemetry's SDK or its exporter is not installed.
    """
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        found = trace.get_tracer_provider()
        if isinstance(found, TracerProvider):
            return Spans(found)
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise _missing(error) from None
    named = Resource.create({SERVICE_NAME: "ctxproxy"}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=named)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Spans(provider)


def _nanoseconds(at: float) -> int:
    """Of seconds since the epoch, which as a float have no more than microseconds."""
    return round(at * 1e6) * 1_000


def _missing(error: ImportError) -> ConfigError:
    return ConfigError(
        f"logging.otel needs OpenTelemetry ({error.name} is missing): pip install 'ctxproxy[otel]'", key="logging.otel"
    )
