"""Who may use the proxy: loopback by default; anybody else needs the token. No web page may reach it."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ctxproxy.errors import ConfigError

__all__ = ["Access", "is_loopback"]


def is_loopback(host: str) -> bool:
    """Whether an address or name is this machine's own."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The rules of admission.

    `host` is the address that the server listens on, `allowed_hosts` further names that a Host header may
    carry, `token` what callers from elsewhere must show (header `x-ctxproxy-token`, or as their API key where
    the upstream's key is in the config).
    """

    host: str = "127.0.0.1"
    allowed_hosts: Sequence[str] = ()
    token: str | None = None
    token_as_key: bool = False

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.token:
            raise ConfigError(
                f"listening on {self.host} lets other machines in: that needs a token (setting: server.token)",
                key="server.token",
            )

    def refusal(self, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Status and reason to refuse a request, None to admit it."""
        host = _name(headers.get("host", ""))
        if host and not is_loopback(host) and host != self.host and host not in self.allowed_hosts:
            return 403, f"the Host {host!r} is not served here (setting: server.allowed_hosts)"
        origin = headers.get("origin")
        if origin is not None and not is_loopback(_name(origin.partition("://")[2])):
            return 403, f"requests from pages of {origin!r} are refused"
        if not is_loopback(self.host) and not self.shows_token(headers):
            return 401, "the token is missing or wrong (header: x-ctxproxy-token, setting: server.token)"
        return None

    def shows_token(self, headers: Mapping[str, str]) -> bool:
        """Whether a request carries the token."""
        if not self.token:
            return False
        shown = [headers.get("x-ctxproxy-token", "")]
        if self.token_as_key:
            shown += [headers.get("x-api-key", ""), headers.get("authorization", "").removeprefix("Bearer ")]
        return any(hmac.compare_digest(value.encode(), self.token.encode()) for value in shown)


def _name(host: str) -> str:
    """The host of a Host header or origin, without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and ":" in host else host
