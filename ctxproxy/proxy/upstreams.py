"""Where a request goes: by its path and its headers, never by an address that it names itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from yarl import URL

from ctxproxy.conversation import Api
from ctxproxy.edits import Rules
from ctxproxy.errors import ConfigError

__all__ = ["ANTHROPIC", "OPENAI", "Upstream", "Upstreams", "target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A server that requests are relayed to. A path in `base_url` replaces the client's `/v1`.

    `wires` and `models` (glob patterns) say which requests it takes; empty takes all. `window` is in tokens,
    `rules` are those of a configured profile, `ca_file` names certificates to trust besides the system's. `basic` is an
    Authorization header that replaces the client's; `base_url` names no user, since it is shown and kept.
    """

    name: str
    base_url: str
    wires: tuple[Api, ...] = ()
    models: tuple[str, ...] = ()
    key: str | None = None
    basic: str | None = None
    window: int | None = None
    rules: Rules | None = None
    ca_file: str | None = None

    def __post_init__(self) -> None:
        if self.translated:
            return
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{self.base_url!r} is no http(s) address", key=f"upstreams.{self.name}.base_url")
        if parts.query or parts.fragment:
            raise ConfigError("a base URL has no query", key=f"upstreams.{self.name}.base_url")

    @property
    def translated(self) -> bool:
        """Whether requests go through the litellm library instead of to an address."""
        return self.base_url.startswith("litellm:")

    def __repr__(self) -> str:
        return f"Upstream({self.name!r}, {self.base_url!r})"


OPENAI = Upstream(name="openai", base_url="https://api.openai.com")
ANTHROPIC = Upstream(name="anthropic", base_url="https://api.anthropic.com")


@dataclass(frozen=True, slots=True)
class Upstreams:
    """The configured servers in order; without any, the public APIs by wire."""

    configured: Sequence[Upstream] = ()
    policies_by_model: bool = False

    @property
    def by_model(self) -> bool:
        """Whether upstream or policy depend on a request's model, which then has to be read first."""
        return self.policies_by_model or any(upstream.models for upstream in self.configured)

    def pick(self, *, path: str, api: Api | None, model: str, headers: Mapping[str, str]) -> Upstream:
        """The first configured server that takes the request, else the public one of its API."""
        for upstream in self.configured:
            if upstream.wires and (api or _family(path, headers)) not in upstream.wires:
                continue
            if upstream.models and not any(fnmatchcase(model, pattern) for pattern in upstream.models):
                continue
            return upstream
        if self.configured:
            return self.configured[-1]
        return ANTHROPIC if _family(path, headers) == "messages" else OPENAI


def _family(path: str, headers: Mapping[str, str]) -> Api:
    if "/messages" in path or "anthropic-version" in headers:
        return "messages"
    return "responses" if "/responses" in path else "chat"


def target(upstream: Upstream, raw_path: bytes, query: bytes) -> URL:
    """The address of a request: the client's path and query, byte for byte, behind the upstream's base."""
    path = raw_path.decode("latin-1")
    parts = urlsplit(upstream.base_url)
    base = parts.path.rstrip("/")
    if base:
        path = base + (path[3:] if path == "/v1" or path.startswith("/v1/") else path)
    address = f"{parts.scheme}://{parts.netloc}{path}"
    if query:
        address += "?" + query.decode("latin-1")
    return URL(address, encoded=True)
