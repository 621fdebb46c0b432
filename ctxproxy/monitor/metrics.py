"""Prometheus metrics of one app, in a registry of its own. Labels are few and bounded; none names a session."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, Info
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from ctxproxy.monitor.events import Event

__all__ = ["Metrics"]

_MOST_MODELS = 50
_RATIO = (0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.5)
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
_ERROR = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class Metrics:
    """Counts events; `add` is a monitor's listener. Of more than 50 models the later ones are `other`."""

    def __init__(self) -> None:
        from ctxproxy import __version__

        registry = self._registry = CollectorRegistry()
        who = ("model", "wire")
        self._models: set[str] = set()
        self._requests = Counter("ctxproxy_requests", "Measured requests.", (*who, "outcome"), registry=registry)
        self._compactions = Counter("ctxproxy_compactions", "Compactions.", (*who, "reason"), registry=registry)
        self._refused = Counter(
            "ctxproxy_upstream_overflows", "Prompts that the provider refused as too long.", who, registry=registry
        )
        self._blocked = Counter(
            "ctxproxy_blocked", "Prompts that were not sent, since they can't fit.", who, registry=registry
        )
        self._truncated = Counter(
            "ctxproxy_silent_truncations", "Prompts that the provider cut silently.", who, registry=registry
        )
        self._removed = Counter("ctxproxy_tokens_removed", "Tokens removed by compactions.", who, registry=registry)
        self._spared = Counter("ctxproxy_tokens_spared", "Tokens that were not sent.", who, registry=registry)
        self._tokens = Counter(
            "ctxproxy_tokens", "Tokens by the provider's figures.", (*who, "kind"), registry=registry
        )
        self._lookups = Counter(
            "ctxproxy_ledger_lookups", "Requests by whether a compaction was replayed.", ("result",), registry=registry
        )
        self._fill = Histogram(
            "ctxproxy_context_fill_ratio", "Share of the window that was sent.", who, buckets=_RATIO, registry=registry
        )
        self._duration = Histogram(
            "ctxproxy_compaction_duration_seconds", "Time of a request with a compaction, without the upstream's.",
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self._overhead = Histogram(
            "ctxproxy_overhead_seconds", "Time added to a request.", buckets=_SECONDS, registry=registry
        )
        self._error = Histogram(
            "ctxproxy_estimate_error_ratio", "How far the measure was from the provider's figure.",
            buckets=_ERROR, registry=registry,
        )  # fmt: skip
        Info("ctxproxy_build", "This build.", registry=registry).info({"version": __version__})

    def add(self, event: Event) -> None:
        """Count one event."""
        who = (self._model(event.model), event.api)
        match event.type:
            case "compaction":
                self._compactions.labels(*who, event.reason or "").inc()
                self._removed.labels(*who).inc(max(0, event.tokens_saved))
                self._duration.observe(event.overhead)
            case "overflow":
                (self._refused if event.reason == "retry" else self._blocked).labels(*who).inc()
            case "request":
                self._request(event, who)
            case _:
                pass

    def _request(self, event: Event, who: tuple[str, str]) -> None:
        self._requests.labels(*who, "ok" if event.status < 400 else f"{event.status // 100}xx").inc()
        self._truncated.labels(*who).inc(event.truncated)
        self._spared.labels(*who).inc(max(0, event.before - event.after))
        self._lookups.labels("hit" if event.replayed else "miss").inc()
        self._overhead.observe(event.overhead)
        if event.window:
            self._fill.labels(*who).observe(event.after / event.window)
        if event.input and event.after:
            self._error.observe(abs(event.after - event.input) / event.input)
        fresh = max(0, event.input - event.cached - event.written)
        for kind, tokens in (
            ("input", fresh), ("cached", event.cached), ("written", event.written), ("output", event.output)
        ):  # fmt: skip
            self._tokens.labels(*who, kind).inc(tokens)

    def exposition(self) -> tuple[bytes, str]:
        """The text that Prometheus reads, and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def _model(self, name: str) -> str:
        name = name[:64]
        if name in self._models or len(self._models) < _MOST_MODELS:
            self._models.add(name)
            return name
        return "other"
