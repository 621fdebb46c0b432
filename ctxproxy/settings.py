"""What the settings come to: the policy of a request, a model's window, whose conversation it is, a runtime.

`ctxproxy.config` reads them from a file, the environment and the command line.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import Field, PrivateAttr

from ctxproxy.budget import Level
from ctxproxy.errors import ConfigError, LedgerError
from ctxproxy.ledger import MemoryArchive, MemoryLedger
from ctxproxy.limits import Limits
from ctxproxy.meter import Meter
from ctxproxy.models import ModelInfo
from ctxproxy.monitor import Monitor
from ctxproxy.monitor.lines import human
from ctxproxy.monitor.log import EventLog, read_log
from ctxproxy.policy import Mode, Policy
from ctxproxy.runtime import Runtime, account_of
from ctxproxy.sections import (
    NO_CAP,
    SECRET,
    ArchiveSettings,
    GateSettings,
    LedgerSettings,
    LimitsSettings,
    LoggingSettings,
    MeasuringSettings,
    ModelSettings,
    PolicySettings,
    RecordingSettings,
    Section,
    ServerSettings,
    Tokens,
    Upstream,
    with_preset,
)
from ctxproxy.summaries import Summaries

if TYPE_CHECKING:
    from ctxproxy.stores import SqliteStore

__all__ = ["Settings"]

_IN_MEMORY = 64 << 20  # bytes of a ledger or an archive that ends with the process
_RECALLED = 10_000  # events of earlier processes
_log = logging.getLogger("ctxproxy")


class Settings(Section):
    """All settings. Made by `load`; `config.example.yaml` says what each key means."""

    mode: Mode = "compact"
    window: Tokens | None = None
    upstreams: dict[str, Upstream] = Field(default_factory=dict[str, Upstream])
    policy: PolicySettings = PolicySettings()
    models: dict[str, ModelSettings] = Field(default_factory=dict[str, ModelSettings])
    ledger: LedgerSettings = LedgerSettings()
    archive: ArchiveSettings = ArchiveSettings()
    limits: LimitsSettings = LimitsSettings()
    measuring: MeasuringSettings = MeasuringSettings()
    logging: LoggingSettings = LoggingSettings()
    recording: RecordingSettings = RecordingSettings()
    gate: GateSettings = GateSettings()
    server: ServerSettings = ServerSettings()
    _sources: dict[str, str] = PrivateAttr(default_factory=dict[str, str])
    _lenient: bool = PrivateAttr(default=False)  # the event log is one that nobody asked for
    _policies: dict[tuple[object, ...], Policy] = PrivateAttr(default_factory=dict[tuple[object, ...], Policy])

    def policy_for(self, model: str = "", name: str | None = None, *, upstream: str | None = None) -> Policy:
        """The policy of a request.

        The more special goes over the more general: `policy`, the upstream's, that of each pattern which matches
        (the first one last), and the preset `name`. `upstream` is the name of one.

        Raises:
            ConfigError: there is no preset `name`, or the keys contradict each other.
        """
        patterns = tuple(pattern for pattern in self.models if _matches(pattern, model))
        known = (patterns, name, upstream)
        if known not in self._policies:
            layers = [("policy", self.policy)]
            if upstream in self.upstreams:
                layers.append((f"upstreams.{upstream}.policy", self.upstreams[upstream].policy))
            layers += [(f"models.{p}.policy", self.models[p].policy) for p in reversed(patterns)]
            policy = Policy()
            for key, layer in layers:
                policy = layer.applied(policy)
                _check(policy, key)
            if name is not None:
                policy = with_preset(policy, name)
            quiet = upstream in self.upstreams and not self.upstreams[upstream].summaries
            self._policies[known] = replace(
                policy,
                mode=self.mode,
                provider_count=self.measuring.provider_count,
                archive=self.archive.mode != "off",
                summaries=policy.summaries and not quiet,
            )
        return self._policies[known]

    def window_for(self, model: str, *, upstream: str | None = None) -> int | None:
        """The configured window of a model in tokens: `window`, else the first pattern's, else the upstream's."""
        if self.window:
            return self.window
        for pattern, settings in self.models.items():
            if settings.window and _matches(pattern, model):
                return settings.window
        return self.upstreams[upstream].window if upstream in self.upstreams else None

    def output_for(self, model: str) -> int | None:
        """The configured output limit of a model in tokens."""
        return next((s.output for p, s in self.models.items() if s.output and _matches(p, model)), None)

    def account(self, headers: Mapping[str, str], *, secret: bytes) -> str:
        """Whose conversation a request belongs to, by `ledger.scope`; header names in lower case."""
        scope = self.ledger.scope
        if scope == "auto":
            scope = "single" if self.server.loopback else "token"
        if scope == "single":
            return "single"
        if scope == "token":
            return account_of(headers, secret=secret)
        value = headers.get(scope.removeprefix("header:").lower(), "")
        return hashlib.blake2b(value.encode("utf-8", "surrogateescape"), key=secret[:64], digest_size=12).hexdigest()

    def runtime(self, *, durable: bool = False, **options: Any) -> Runtime:
        """An engine with its stores; `options` are those of `Runtime` and go before the settings.

        `durable`: without a word on `ledger.url` a file is used, and memory where that can't be opened.
        Its monitor writes to the event log and begins with what is in it, unless one is given.

        Raises:
            ConfigError: a store can't be opened, or the log file can't be written.
        """
        hint = self.archive.hint
        settled: dict[str, Any] = {"policy": self.policy_for(), "hint": _hint(hint) if hint else None}
        if "ledger" not in options:
            settled |= self._stores(durable=durable)
        if "monitor" not in options:
            settled["monitor"] = self._monitor()
        return _Runtime(self, **{**settled, **options})

    def _monitor(self) -> Monitor:
        monitor, name = Monitor(), self.logging.log_file
        if self.logging.otel:
            from ctxproxy.monitor.otel import exported

            monitor.listen(exported())
        if not self.logging.enabled:
            return monitor
        if self.logging.verbose:
            monitor.listen(lambda event: _log.info("%s", human(event), extra={"event": event}))
        if not name:
            return monitor
        log = EventLog(name, max_bytes=self.logging.max_bytes, keep=self.logging.keep)
        try:
            log.open()
            monitor.recall(read_log(log.path, last=_RECALLED))
        except OSError as error:
            if not self._lenient:
                raise ConfigError(f"logging.log_file: {log.path}: {error.strerror}", key="logging.log_file") from None
            # Nobody asked for this file: the first event warns of it.
        monitor.listen(log)
        return monitor

    def logged_to(self, path: Path) -> Settings:
        """The same settings with an event log at `path` where none is named."""
        if self.logging.log_file is not None:
            return self
        made = self.model_copy(update={"logging": self.logging.model_copy(update={"log_file": str(path)})})
        made._lenient = True
        return made

    def _stores(self, *, durable: bool) -> dict[str, Any]:
        """Ledger, archive and what else outlives the process with them, opened, as options of a runtime."""
        archive = self.archive
        found: dict[str, Any] = {"archive": None, "keep_originals": archive.mode != "off"}
        try:
            store = self._file(durable=durable)
            found["ledger"] = store or MemoryLedger(max_bytes=self.ledger.max_bytes or _IN_MEMORY)
            if store is not None:
                from ctxproxy.stores import PersistentLimits, PersistentMeter, SharedSummaries

                found["secret"] = store.secret()
                found["meter"] = PersistentMeter(store)
                found["summaries"] = SharedSummaries(store, ttl=self.ledger.ttl)
                if self.limits.learn:
                    found["limits"] = PersistentLimits(store, ttl=self.limits.ttl)
                if archive.mode == "memory":
                    _log.warning(
                        "what is cut is kept in memory only, but compactions outlive the process: after a restart "
                        "requests mention originals that are gone (setting: archive.mode)"
                    )
            if archive.mode == "disk":
                from ctxproxy.stores import DiskArchive, state_folder

                found["archive"] = DiskArchive(
                    archive.dir or state_folder() / "archive",
                    ttl=archive.ttl,
                    max_bytes=archive.max_bytes or 1 << 30,
                    references=store,
                )
            elif archive.mode == "ledger" and store is not None:
                found["archive"] = store
            elif archive.mode != "off":
                found["archive"] = MemoryArchive(max_bytes=archive.max_bytes or _IN_MEMORY)
        except LedgerError as error:
            raise ConfigError(str(error)) from None
        return found

    def _file(self, *, durable: bool) -> SqliteStore | None:
        """The store file, opened; None for memory."""
        url = self.ledger.url
        if url == "memory" or (url == "auto" and not durable):
            return None
        from ctxproxy.stores import SqliteStore, state_folder

        try:
            return SqliteStore(
                url.partition(":")[2] or state_folder() / "ledger.sqlite",
                ledger_bytes=self.ledger.max_bytes or 256 << 20,
                archive_bytes=self.archive.max_bytes or 1 << 30,
                ttl=self.ledger.ttl,
                archive_ttl=self.archive.ttl,
            )
        except (LedgerError, OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
            if url != "auto":
                raise
            _log.warning("compactions are kept in memory only, they end with this process: %s", error)
            return None

    def given(self) -> dict[str, Any]:
        """The values that were set, as plain data that makes equal settings in another process. Secrets included."""
        return _plain_data(self.model_dump(exclude_unset=True))

    def values(self) -> dict[str, Any]:
        """The effective values as plain data, with secrets hidden and each policy key as it applies."""
        data = cast("dict[str, Any]", _hidden(self.model_dump(exclude={"policy"})))
        rules = _policy_values(self.policy_for())
        data["policy"] = {"preset": self.policy.preset, **rules}
        for name, upstream in self.upstreams.items():
            data["upstreams"][name]["base_url"] = upstream.shown
            data["upstreams"][name]["policy"] = upstream.policy.model_dump(exclude_unset=True)
        for pattern, model in self.models.items():
            data["models"][pattern]["policy"] = model.policy.model_dump(exclude_unset=True)
        return {name: data[name] for name in type(self).model_fields}

    @property
    def sources(self) -> dict[str, str]:
        """Where the given values come from, by dotted key."""
        return self._sources

    def source(self, key: str) -> str:
        """Where the value of a dotted key comes from: a file and line, a variable, the command line, or a default."""
        return self._sources.get(key, "default")


class _Runtime(Runtime):
    """A runtime whose windows and output limits come from patterns."""

    def __init__(
        self,
        settings: Settings,
        *,
        limits: Limits | None = None,
        summaries: Summaries | None = None,
        meter: Meter | None = None,
        **options: Any,
    ) -> None:
        self._settings = settings
        super().__init__(**options)
        self.engine.summaries = summaries or self.engine.summaries
        self.engine.meter = meter or self.engine.meter
        # A bound that expires at once is none: nothing is learned then.
        self.engine.limits = limits or Limits(ttl=settings.limits.ttl if settings.limits.learn else 0.0)

    def model(self, name: str, headers: Mapping[str, str], window: int | None, learned: int | None) -> ModelInfo:
        info = super().model(name, headers, window or self._settings.window_for(name), learned)
        output = self._settings.output_for(name)
        return replace(info, output_limit=output) if output else info


def _hint(template: str) -> Callable[[str], str]:
    return lambda id: " " + template.replace("{id}", id)


def _matches(pattern: str, model: str) -> bool:
    """Model names hold brackets ("claude-sonnet-4-5[1m]"), so the exact name counts too."""
    return pattern == model or fnmatchcase(model.lower(), pattern.lower())


def _check(policy: Policy, key: str) -> None:
    """Keys that only make sense together; a target at or over a threshold would compact on every turn."""
    marks = asdict(policy.thresholds)
    if list(marks.values()) != sorted(marks.values()) or not policy.thresholds.warning:
        told = ", ".join(f"{name} {value:g}" for name, value in marks.items())
        raise ConfigError(f"{key}.thresholds: must be over 0 and not fall: {told}", key=f"{key}.thresholds")
    for name in ("target", "emergency_target", "overflow_target"):
        value = getattr(policy, name)
        if not 0 < value < policy.thresholds.compress:
            raise ConfigError(
                f"{key}.{name}: {value:g} is not allowed; it must be over 0 and under thresholds.compress, "
                f"which is {policy.thresholds.compress:g}",
                key=f"{key}.{name}",
            )
    if sum(policy.shares.values()) > 1.0 + 1e-9:
        raise ConfigError(f"{key}.shares: sum up to {sum(policy.shares.values()):.3g}, over 1", key=f"{key}.shares")
    if policy.tail.low > policy.tail.high:
        raise ConfigError(
            f"{key}.tail.low: {policy.tail.low} is over {key}.tail.high, which is {policy.tail.high}",
            key=f"{key}.tail.low",
        )


def _policy_values(policy: Policy) -> dict[str, Any]:
    """A policy as the keys of its section."""
    found: dict[str, Any] = {}
    for name in PolicySettings.model_fields:
        if name == "preset":
            continue
        value = getattr(policy, name)
        if is_dataclass(value) and not isinstance(value, type):
            found[name] = {
                f.name: None if (v := getattr(value, f.name)) == NO_CAP else _plain(v) for f in fields(value)
            }
        elif isinstance(value, Mapping):
            items = cast("Mapping[Level | str, Any]", value).items()
            found[name] = {k.name.lower() if isinstance(k, Level) else k: _plain(v) for k, v in items}
        else:
            found[name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    return list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value


def _plain_data(data: Any) -> Any:
    """Texts from the environment are of a class of their own, which tells that their type is open."""
    if isinstance(data, dict):
        return {key: _plain_data(value) for key, value in cast("dict[str, Any]", data).items()}
    return str(data) if isinstance(data, str) else data


def _hidden(data: Any) -> Any:
    if isinstance(data, dict):
        items = cast("dict[str, Any]", data).items()
        return {k: "***" if k in SECRET and v is not None else _hidden(v) for k, v in items}
    return data
