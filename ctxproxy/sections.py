"""The sections of the settings: their keys, the values that are allowed, and the defaults.

A section is strict: no unknown keys, no value of another type. `ctxproxy.settings` says what they come to.
"""

from __future__ import annotations

import ipaddress
import re
from base64 import b64encode
from dataclasses import fields, replace
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin
from urllib.parse import unquote, urlsplit

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ctxproxy.budget import Level
from ctxproxy.edits import Rules
from ctxproxy.policy import PRESETS, Limit, Policy, Step, preset
from ctxproxy.wire.profiles import PROFILES, profile

__all__ = [
    "NO_CAP",
    "SECRET",
    "ArchiveSettings",
    "GateSettings",
    "LedgerSettings",
    "LimitsSettings",
    "LoggingSettings",
    "MeasuringSettings",
    "ModelSettings",
    "PolicySettings",
    "RecordingSettings",
    "Section",
    "ServerSettings",
    "Text",
    "Tokens",
    "Upstream",
    "section_of",
    "with_preset",
]

SECRET = frozenset({"key", "token"})
"""Keys whose values are never shown."""
NO_CAP = 1 << 62  # `null` for a number of tokens beside a share: only the share counts
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
    if re.fullmatch(r"litellm:[a-z0-9_]*", value):
        return value
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


def _store_url(value: str) -> str:
    if value not in ("auto", "memory", "sqlite") and not re.fullmatch(r"sqlite:.+", value, re.DOTALL):
        raise ValueError("must be auto, memory, sqlite or sqlite:PATH")
    return value


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
    return LimitSettings(tokens=None if limit.tokens == NO_CAP else limit.tokens, share=limit.share)


class TagSettings(Section):
    plan: list[str] = list(_DEFAULT.tags.plan)
    warmth: list[str] = list(_DEFAULT.tags.warmth)


def _field(value: Any) -> Any:
    """A value as the policy has it."""
    if value is None:
        return NO_CAP
    return tuple(cast("list[str]", value)) if isinstance(value, list) else value


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
    payback_turns: Annotated[int, Field(ge=1)] | None = None
    min_saving: LimitSettings = _limit(_DEFAULT.min_saving)
    summaries: bool = _DEFAULT.summaries
    summary: LimitSettings = _limit(_DEFAULT.summary)
    summary_wait: Seconds = _DEFAULT.summary_wait
    min_output: Tokens = _DEFAULT.min_output
    max_retries: Count = _DEFAULT.max_retries
    tpm_compaction: bool = _DEFAULT.tpm_compaction
    shares: ShareSettings = ShareSettings()
    allocations: Literal["compaction", "spawn"] = _DEFAULT.allocations
    tags: TagSettings = TagSettings()

    @model_validator(mode="before")
    @classmethod
    def _name(cls, data: Any) -> Any:
        return {"preset": str(data)} if isinstance(data, str) else data

    def applied(self, policy: Policy) -> Policy:
        """The policy with the preset that is named here and then the keys that are given."""
        if "preset" in self.model_fields_set:
            policy = with_preset(policy, self.preset)
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
                changes[name] = replace(old, **{n: _field(v) for n, v in given.items()})
            else:
                changes[name] = tuple(cast("list[str]", value)) if isinstance(value, list) else value
        if "target" in changes:  # a lower target must not leave the stricter levels with a higher one
            for name in {"emergency_target", "overflow_target"} - changes.keys():
                changes[name] = min(changes["target"], getattr(policy, name))
        return replace(policy, **changes)


class Upstream(Section):
    """A server that requests are relayed to."""

    base_url: Annotated[str, AfterValidator(_url)] = Field(repr=False)  # it may hold a password
    wires: list[Literal["chat", "responses", "messages"]] = []
    models: list[str] = []
    key: Annotated[str, Field(min_length=1)] | None = Field(default=None, repr=False)
    ca_file: Annotated[str, Field(min_length=1)] | None = None
    window: Tokens | None = None
    policy: PolicySettings = PolicySettings()
    profile: Annotated[str, _one_of(*(p.name for p in PROFILES))] | None = None
    summaries: bool = True

    @property
    def address(self) -> str:
        """`base_url` without the user and password that it may name: what may be shown."""
        parts = urlsplit(self.base_url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in parts.netloc else self.base_url

    @property
    def shown(self) -> str:
        """`base_url` with a password hidden."""
        return self.address if self.basic is None else self.address.replace("://", "://***@", 1)

    @property
    def basic(self) -> str | None:
        """User and password of `base_url` as the value of an Authorization header, None where it names none."""
        user, at, _ = urlsplit(self.base_url).netloc.rpartition("@")
        return "Basic " + b64encode(unquote(user).encode()).decode() if at else None

    @property
    def rules(self) -> Rules | None:
        """What the provider demands of the order of messages, None to tell by its host and the model."""
        return profile(self.profile) if self.profile else None


class ModelSettings(Section):
    window: Tokens | None = None
    output: Tokens | None = None
    policy: PolicySettings = PolicySettings()


class LedgerSettings(Section):
    url: Annotated[str, AfterValidator(_store_url)] = "auto"
    ttl: Seconds = 7 * 86_400.0
    max_bytes: Bytes | None = None
    scope: Annotated[str, AfterValidator(_scope)] = "auto"


class ArchiveSettings(Section):
    mode: Literal["off", "ledger", "memory", "disk"] = "ledger"
    dir: Annotated[str, Field(min_length=1)] | None = None
    ttl: Seconds = 7 * 86_400.0
    max_bytes: Bytes | None = None
    hint: str = ""


class LimitsSettings(Section):
    learn: bool = True
    ttl: Seconds = 86_400.0


class MeasuringSettings(Section):
    served: bool = True
    provider_count: Literal["off", "near"] = "off"


class LoggingSettings(Section):
    enabled: bool = True
    verbose: bool = False
    format: Literal["text", "json"] = "text"
    otel: bool = False
    log_file: Annotated[str, Field(min_length=1)] | None = None
    max_bytes: Bytes = 16 << 20
    keep: Count = 3


class RecordingSettings(Section):
    file: Annotated[str, Field(min_length=1)] | None = None
    max_bytes: Bytes = 256 << 20


class GateSettings(Section):
    cost_limit: Annotated[float, Field(ge=0)] | None = None


class ServerSettings(Section):
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8484
    token: Annotated[str, Field(min_length=1)] | None = Field(default=None, repr=False)
    allowed_hosts: list[str] = []
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    max_body_bytes: Bytes = 64 << 20
    connect_timeout: Seconds = 10.0
    client_timeout: Seconds = 60.0

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the address."""
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False


def with_preset(policy: Policy, name: str) -> Policy:
    """The policy with all that presets are about as the named one has it; pins and the like are not its business."""
    named = preset(name)
    differing = [
        f.name for f in fields(Policy) if any(getattr(p, f.name) != getattr(named, f.name) for p in PRESETS.values())
    ]
    return replace(policy, **{name: getattr(named, name) for name in differing})
