"""Settings: what can be set, which values are allowed, and what they come to: a policy, a window, a runtime.

`ctxproxy.config` reads them from a file, the environment and the command line.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin
from urllib.parse import urlsplit

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    model_validator,
)

from ctxproxy.budget import Level
from ctxproxy.compaction import Compaction
from ctxproxy.edits import Rules
from ctxproxy.errors import ConfigError
from ctxproxy.ledger import MemoryArchive, MemoryLedger
from ctxproxy.limits import Limits
from ctxproxy.models import ModelInfo
from ctxproxy.policy import PRESETS, Limit, Mode, Policy, Step, preset
from ctxproxy.runtime import Runtime, account_of
from ctxproxy.wire.profiles import PROFILES, profile

__all__ = ["SECRET", "PolicySettings", "Section", "Settings", "Text", "Upstream", "section_of"]

SECRET = frozenset({"key", "token"})  # keys whose values are never shown
_log = logging.getLogger("ctxproxy")
_NO_CAP = 1 << 62  # `null` for a number of tokens beside a share: only the share counts
_DEFAULT = Policy()


class Text(str):
    """A value from the environment: a text whose type only its key tells."""


# --- values


def _share(value: object) -> float:
    if isinstance(value, str) and re.fullmatch(r"\s*\d+(\.\d+)?\s*%\s*", value):
        value = float(value.strip().rstrip("%")) / 100
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError('must be a share between 0 and 1, such as 0.8 or "80%"')
    return float(value)


def _url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("must be an address such as http://127.0.0.1:8080/v1, without a query")
    return value


def _one_of(*names: str) -> AfterValidator:
    def check(value: str) -> str:
        if value not in names:
            raise ValueError(f"must be {' or '.join(names)}")
        return value

    return AfterValidator(check)


def _scope(value: str) -> str:
    if value not in ("auto", "single", "token") and not re.fullmatch(r"header:[A-Za-z0-9-]+", value):
        raise ValueError("must be auto, single, token or header:NAME")
    return value


Share = Annotated[float, BeforeValidator(_share)]
Tokens = Annotated[int, Field(ge=1)]
Bytes = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]


class Section(BaseModel):
    """A mapping of the file: strict types, no unknown keys."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        found: dict[str, Any] = {}
        for key, value in cast("dict[str, Any]", data).items():
            field = cls.model_fields.get(key)
            kind = field.annotation if field else None
            if value is None and (section_of(kind) or get_origin(kind) is dict):
                continue  # an empty section: all of its keys are comments
            if value is False and get_origin(kind) is Literal and "off" in get_args(kind):
                value = "off"  # YAML 1.1 reads a bare `off` as a boolean
            found[key] = _typed(value, kind) if isinstance(value, Text) else value
        return found


def _typed(text: str, kind: Any) -> Any:
    """A text of the environment as the type that its key has."""
    kinds = _kinds(kind)
    if str in kinds or any(get_origin(k) is Literal or section_of(k) for k in kinds):
        return str(text)
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return str(text)
    if isinstance(value, str) and any(get_origin(k) is list for k in kinds):
        return [item.strip() for item in value.split(",")]
    return value


def _kinds(kind: Any) -> tuple[Any, ...]:
    """The members of a union, without their constraints; a type that is no union alone."""
    members = get_args(kind) if isinstance(kind, UnionType) or get_origin(kind) is Union else (kind,)
    return tuple(get_args(k)[0] if get_origin(k) is Annotated else k for k in members)


def section_of(kind: Any) -> type[Section] | None:
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


# --- sections


class ThresholdSettings(Section):
    warning: Share = _DEFAULT.thresholds.warning
    compress: Share = _DEFAULT.thresholds.compress
    emergency: Share = _DEFAULT.thresholds.emergency
    overflow: Share = _DEFAULT.thresholds.overflow


class ShareSettings(Section):
    system_instructions: Share = _DEFAULT.shares["system_instructions"]
    warmth: Share = _DEFAULT.shares["warmth"]
    plan: Share = _DEFAULT.shares["plan"]
    current_input: Share = _DEFAULT.shares["current_input"]
    history: Share = _DEFAULT.shares["history"]
    reserve: Share = _DEFAULT.shares["reserve"]


class StepSettings(Section):
    warning: list[Step] = list(_DEFAULT.steps[Level.WARNING])
    compress: list[Step] = list(_DEFAULT.steps[Level.COMPRESS])
    emergency: list[Step] = list(_DEFAULT.steps[Level.EMERGENCY])
    overflow: list[Step] = list(_DEFAULT.steps[Level.OVERFLOW])


class TailSettings(Section):
    share: Share = _DEFAULT.tail.share
    low: Tokens = _DEFAULT.tail.low
    high: Tokens = _DEFAULT.tail.high
    cap_share: Share = _DEFAULT.tail.cap_share


class LimitSettings(Section):
    tokens: Tokens | None = None
    share: Share = 1.0


def _limit(limit: Limit) -> LimitSettings:
    return LimitSettings(tokens=None if limit.tokens == _NO_CAP else limit.tokens, share=limit.share)


class PolicySettings(Section):
    """Changes to a policy. A key that is not given changes nothing, whatever its default here says."""

    preset: Annotated[str, _one_of(*PRESETS)] = "default"
    thresholds: ThresholdSettings = ThresholdSettings()
    target: Share = _DEFAULT.target
    emergency_target: Share = _DEFAULT.emergency_target
    overflow_target: Share = _DEFAULT.overflow_target
    retry_target: Share = _DEFAULT.retry_target
    relative_reduction: Share | None = _DEFAULT.relative_reduction
    steps: StepSettings = StepSettings()
    pins: list[str] = []
    protected_tools: list[str] = []
    protected_turns: Count = _DEFAULT.protected_turns
    protected_output: LimitSettings = _limit(_DEFAULT.protected_output)
    preserve_checkpoints: bool = _DEFAULT.preserve_checkpoints
    preserve_decisions: bool = _DEFAULT.preserve_decisions
    task: LimitSettings = _limit(_DEFAULT.task)
    tail: TailSettings = TailSettings()
    tool_output: LimitSettings = _limit(_DEFAULT.tool_output)
    keep_messages: Tokens = _DEFAULT.keep_messages
    emergency_keep_messages: Tokens = _DEFAULT.emergency_keep_messages
    literal_window: bool = _DEFAULT.literal_window
    min_saving: LimitSettings = _limit(_DEFAULT.min_saving)
    summaries: bool = _DEFAULT.summaries
    summary: LimitSettings = _limit(_DEFAULT.summary)
    min_output: Tokens = _DEFAULT.min_output
    max_retries: Count = _DEFAULT.max_retries
    tpm_compaction: bool = _DEFAULT.tpm_compaction
    shares: ShareSettings = ShareSettings()

    @model_validator(mode="before")
    @classmethod
    def _name(cls, data: Any) -> Any:
        return {"preset": str(data)} if isinstance(data, str) else data

    def applied(self, policy: Policy) -> Policy:
        """The policy with the preset that is named here and then the keys that are given."""
        if "preset" in self.model_fields_set:
            policy = _with_preset(policy, self.preset)
        changes: dict[str, Any] = {}
        for name in self.model_fields_set - {"preset"}:
            value, old = getattr(self, name), getattr(policy, name)
            if isinstance(value, StepSettings):
                given = {Level[n.upper()]: tuple(getattr(value, n)) for n in value.model_fields_set}
                changes[name] = MappingProxyType({**policy.steps, **given})
            elif isinstance(value, ShareSettings):
                given = {n: getattr(value, n) for n in value.model_fields_set}
                changes[name] = MappingProxyType({**policy.shares, **given})
            elif isinstance(value, Section):
                given = {n: getattr(value, n) for n in value.model_fields_set}
                changes[name] = replace(old, **{n: _NO_CAP if v is None else v for n, v in given.items()})
            else:
                changes[name] = tuple(cast("list[str]", value)) if isinstance(value, list) else value
        if "target" in changes:  # a lower target must not leave the stricter levels with a higher one
            for name in {"emergency_target", "overflow_target"} - changes.keys():
                changes[name] = min(changes["target"], getattr(policy, name))
        return replace(policy, **changes)


class Upstream(Section):
    """A server that requests are relayed to."""

    base_url: Annotated[str, AfterValidator(_url)]
    wires: list[Literal["chat", "responses", "messages"]] = []
    models: list[str] = []
    key: Annotated[str, Field(min_length=1)] | None = Field(default=None, repr=False)
    window: Tokens | None = None
    policy: PolicySettings = PolicySettings()
    profile: Annotated[str, _one_of(*(p.name for p in PROFILES))] | None = None
    summaries: bool = True

    @property
    def rules(self) -> Rules | None:
        """What the provider demands of the order of messages, None to tell by its host and the model."""
        return profile(self.profile) if self.profile else None


class ModelSettings(Section):
    window: Tokens | None = None
    output: Tokens | None = None
    policy: PolicySettings = PolicySettings()


class LedgerSettings(Section):
    url: Annotated[str, _one_of("memory")] = "memory"
    max_bytes: Bytes = 64 << 20
    scope: Annotated[str, AfterValidator(_scope)] = "auto"


class ArchiveSettings(Section):
    mode: Literal["off", "memory"] = "memory"
    max_bytes: Bytes = 64 << 20
    hint: str = ""


class LimitsSettings(Section):
    learn: bool = True
    ttl: Seconds = 86_400.0


class LoggingSettings(Section):
    enabled: bool = True
    verbose: bool = False
    log_file: str | None = None


class ServerSettings(Section):
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8484
    token: Annotated[str, Field(min_length=1)] | None = Field(default=None, repr=False)
    allowed_hosts: list[str] = []
    max_body_bytes: Bytes = 64 << 20
    connect_timeout: Seconds = 10.0

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the address."""
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False


class Settings(Section):
    """All settings. Made by `load`; `config.example.yaml` says what each key means."""

    mode: Mode = "compact"
    window: Tokens | None = None
    upstreams: dict[str, Upstream] = {}
    policy: PolicySettings = PolicySettings()
    models: dict[str, ModelSettings] = {}
    ledger: LedgerSettings = LedgerSettings()
    archive: ArchiveSettings = ArchiveSettings()
    limits: LimitsSettings = LimitsSettings()
    logging: LoggingSettings = LoggingSettings()
    server: ServerSettings = ServerSettings()
    _sources: dict[str, str] = PrivateAttr(default_factory=dict[str, str])
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
            policy = _DEFAULT
            for key, layer in layers:
                policy = layer.applied(policy)
                _check(policy, key)
            if name is not None:
                policy = _with_preset(policy, name)
            quiet = upstream in self.upstreams and not self.upstreams[upstream].summaries
            self._policies[known] = replace(
                policy,
                mode=self.mode,
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

    def runtime(self, **options: Any) -> Runtime:
        """An engine with its stores; `options` are those of `Runtime` and go before the settings.

        Raises:
            ConfigError: the log file can't be written.
        """
        hint, events = self.archive.hint, self.logging.log_file if self.logging.enabled else None
        settled: dict[str, Any] = {
            "policy": self.policy_for(),
            "ledger": MemoryLedger(max_bytes=self.ledger.max_bytes),
            "archive": None if self.archive.mode == "off" else MemoryArchive(max_bytes=self.archive.max_bytes),
            "keep_originals": self.archive.mode != "off",
            "hint": _hint(hint) if hint else None,
        }
        if events and "on_compaction" not in options:
            settled["on_compaction"] = _event_log(Path(events))
        return _Runtime(self, **{**settled, **options})

    def values(self) -> dict[str, Any]:
        """The effective values as plain data, with secrets hidden and each policy key as it applies."""
        data = cast("dict[str, Any]", _hidden(self.model_dump(exclude={"policy"})))
        rules = _policy_values(self.policy_for())
        data["policy"] = {"preset": self.policy.preset, **rules}
        for name, upstream in self.upstreams.items():
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

    def __init__(self, settings: Settings, **options: Any) -> None:
        self._settings = settings
        super().__init__(**options)
        # A bound that expires at once is none: nothing is learned then.
        self.engine.limits = Limits(ttl=settings.limits.ttl if settings.limits.learn else 0.0)

    def model(self, name: str, headers: Mapping[str, str], window: int | None, learned: int | None) -> ModelInfo:
        info = super().model(name, headers, window or self._settings.window_for(name), learned)
        output = self._settings.output_for(name)
        return replace(info, output_limit=output) if output else info


def _hint(template: str) -> Callable[[str], str]:
    return lambda id: " " + template.replace("{id}", id)


def _matches(pattern: str, model: str) -> bool:
    """Model names hold brackets ("claude-sonnet-4-5[1m]"), so the exact name counts too."""
    return pattern == model or fnmatchcase(model.lower(), pattern.lower())


def _with_preset(policy: Policy, name: str) -> Policy:
    """The policy with all that presets are about as the named one has it; pins and the like are not its business."""
    named = preset(name)
    differing = [
        f.name for f in fields(Policy) if any(getattr(p, f.name) != getattr(named, f.name) for p in PRESETS.values())
    ]
    return replace(policy, **{name: getattr(named, name) for name in differing})


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
            found[name] = {f.name: None if (v := getattr(value, f.name)) == _NO_CAP else v for f in fields(value)}
        elif isinstance(value, Mapping):
            items = cast("Mapping[Level | str, Any]", value).items()
            found[name] = {k.name.lower() if isinstance(k, Level) else k: _plain(v) for k, v in items}
        else:
            found[name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    return list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value


def _hidden(data: Any) -> Any:
    if isinstance(data, dict):
        items = cast("dict[str, Any]", data).items()
        return {k: "***" if k in SECRET and v is not None else _hidden(v) for k, v in items}
    return data


def _event_log(path: Path) -> Callable[[Compaction], None]:
    """Appends a line for each compaction: a YAML list of flow mappings, so that it is both a log and valid YAML.

    Raises:
        ConfigError: the file can't be written.
    """
    try:
        path.open("a").close()
    except OSError as error:
        raise ConfigError(f"logging.log_file: {path}: {error.strerror}", key="logging.log_file") from None

    def write(compaction: Compaction) -> None:
        event = {
            "timestamp": compaction.at,
            "type": "compaction",
            "reason": compaction.reason,
            "trigger_level": compaction.level,
            "model": compaction.model,
            "context_before": compaction.tokens_before,
            "context_after": compaction.tokens_after,
            "compression_applied": True,
            "tokens_saved": compaction.tokens_saved,
            "strategy": "+".join(compaction.strategies),
            "id": compaction.id,
        }
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(f"- {json.dumps(event)}\n")
        except OSError as error:  # a full disk must not fail the request
            _log.warning("an event was not logged: %s", error)

    return write
