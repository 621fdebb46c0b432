"""What one command needs in its environment, and on its command line, to talk to a proxy instead of a provider."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, cast
from urllib.parse import urlsplit

from ctxproxy.conversation import Api

__all__ = ["PUBLIC", "Server", "command_for", "servers", "variables"]

_OPENAI = ("chat", "responses")
_ANTHROPIC = ("messages",)
_LOOPBACK = ("127.0.0.1", "localhost")


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable that names a provider's base URL. `path` is what such a URL ends in where nobody has set it."""

    name: str
    wires: tuple[Api, ...]
    path: str
    only_if_set: bool = False


# The SDKs read the *_BASE_URL; litellm, and with it aider and mini-swe-agent, the *_API_BASE. The first of a wire
# that is set says where its requests go.
_VARIABLES = (
    Variable("OPENAI_BASE_URL", _OPENAI, "/v1"),
    Variable("OPENAI_API_BASE", _OPENAI, "/v1"),
    Variable("AIDER_OPENAI_API_BASE", _OPENAI, "/v1", only_if_set=True),
    Variable("ANTHROPIC_BASE_URL", _ANTHROPIC, ""),
    Variable("ANTHROPIC_API_BASE", _ANTHROPIC, ""),
)
PUBLIC: Mapping[tuple[Api, ...], str] = {_OPENAI: "https://api.openai.com", _ANTHROPIC: "https://api.anthropic.com"}


@dataclass(frozen=True, slots=True)
class Server:
    """The server that a variable of the caller names: where requests of some wires went until now.

    `origin` is its address without a path: the path stays in the command's variable, so that requests keep it.
    `others` are variables that name another server for the same wires.
    """

    name: str
    origin: str
    wires: tuple[Api, ...]
    others: tuple[str, ...] = ()


def servers(env: Mapping[str, str]) -> tuple[Server, ...]:
    """The servers that the environment names, one for each group of wires at most."""
    found: list[Server] = []
    for wires in PUBLIC:
        named = [(name, origin) for name in _names(wires) if (origin := _origin(env.get(name)))]
        if named:
            name, origin = named[0]
            found.append(Server(name, origin, wires, tuple(n for n, other in named if other != origin)))
    return tuple(found)


def variables(env: Mapping[str, str], base: str, *, keep_paths: Iterable[Api] = ()) -> dict[str, str]:
    """The variables to set for a command that is to use the proxy at `base`.

    Where a variable names a server already, its path is kept for the wires in `keep_paths`. A forward proxy of the
    environment must not get what goes to the loopback address, so that is added to NO_PROXY.
    """
    kept = frozenset(keep_paths)
    found: dict[str, str] = {}
    for variable in _VARIABLES:
        if variable.only_if_set and not env.get(variable.name):
            continue
        path = variable.path
        if kept.issuperset(variable.wires):
            # One that is not set goes to the same server as the first that is, so it needs the same path.
            known = [env.get(name, "") for name in (variable.name, *_names(variable.wires))]
            path = next((urlsplit(address).path.rstrip("/") for address in known if _origin(address)), path)
        found[variable.name] = base + path
    found["OPENCODE_CONFIG_CONTENT"] = _opencode(
        env.get("OPENCODE_CONFIG_CONTENT"), openai=found["OPENAI_BASE_URL"], anthropic=found["ANTHROPIC_BASE_URL"]
    )
    for name in ("NO_PROXY", "no_proxy"):
        hosts = [host for host in env.get(name, "").split(",") if host.strip()]
        found[name] = ",".join([*hosts, *(host for host in _LOOPBACK if host not in hosts)])
    return found


def command_for(command: Sequence[str], found: Mapping[str, str]) -> list[str]:
    """The command with the options that its program needs because it reads no variable.

    Codex takes its base URL from its settings only; `-c` sets one for this run.
    """
    program, *rest = command
    name = PurePath(program).name.lower().removesuffix(".exe").removesuffix(".cmd")
    if name == "codex" and not any("openai_base_url" in argument for argument in rest):
        return [program, "-c", f"openai_base_url={json.dumps(found['OPENAI_BASE_URL'])}", *rest]
    return list(command)


def _names(wires: tuple[Api, ...]) -> list[str]:
    return [variable.name for variable in _VARIABLES if variable.wires == wires]


def _origin(address: str | None) -> str | None:
    """Scheme and host of an http(s) address, None for anything else."""
    parts = urlsplit(address or "")
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme in ("http", "https") and parts.hostname else None


def _opencode(known: str | None, *, openai: str, anthropic: str) -> str:
    """opencode's settings for one run, over those that were given already."""
    try:
        settings: Any = json.loads(known or "{}")
    except ValueError:
        return known or ""  # opencode says what is wrong with it
    if not isinstance(settings, dict):
        return known or ""
    settings = cast("dict[str, Any]", settings)
    # Its Anthropic client wants the version in the base URL, other than Anthropic's own.
    for provider, base in (("openai", openai), ("anthropic", anthropic + "/v1")):
        entry = settings.setdefault("provider", {}).setdefault(provider, {})
        entry.setdefault("options", {}).setdefault("baseURL", base)
    return json.dumps(settings)
