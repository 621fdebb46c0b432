"""The way to an upstream: the forward proxy that the environment names, and the authorities whose word counts.

aiohttp's own `trust_env` is not used: it would also read ~/.netrc, and fail on a request that has a key already.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from ctxproxy.errors import ConfigError
from ctxproxy.proxy.access import is_loopback

__all__ = ["BUNDLES", "Way", "forward_proxy", "trusted", "way"]

BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables that name files of certificates, besides those that Python reads by itself."""


@dataclass(frozen=True, slots=True)
class Way:
    """How to get to an upstream. `options` are those of a request of aiohttp."""

    proxy: URL | None = None
    auth: aiohttp.BasicAuth | None = None
    context: ssl.SSLContext | None = None

    @property
    def options(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.proxy is not None:
            found |= {"proxy": self.proxy, "proxy_auth": self.auth}
        if self.context is not None:
            found["ssl"] = self.context
        return found


def way(base_url: str, *, name: str, ca_file: str | None = None, env: Mapping[str, str] | None = None) -> Way:
    """The way to an address; `name` is the upstream's in the settings.

    Raises:
        ConfigError: a file of certificates can't be read, or the forward proxy is of a kind that is not supported.
    """
    env = os.environ if env is None else env
    proxy = forward_proxy(base_url)
    context = trusted(ca_file, name=name, env=env) if base_url.lower().startswith("https:") else None
    if proxy is None:
        return Way(context=context)
    auth = aiohttp.BasicAuth(proxy.user, proxy.password or "") if proxy.user else None
    return Way(proxy.with_user(None), auth, context)


def forward_proxy(base_url: str) -> URL | None:
    """The proxy of the environment (or of the system's settings) for an address; none for a loopback one.

    Raises:
        ConfigError: it is no HTTP proxy.
    """
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    known = getproxies()
    address = known.get(parts.scheme) or known.get("all")
    if not address or is_loopback(host) or proxy_bypass(host):
        return None
    if "://" not in address:
        address = f"http://{address}"
    proxy = URL(address)
    if proxy.scheme not in ("http", "https") or not proxy.host:
        raise ConfigError(
            f"the proxy of the environment for {host} is {proxy.scheme}://{proxy.host or ''}, and only HTTP proxies "
            f"are supported (variables: {parts.scheme.upper()}_PROXY, ALL_PROXY, NO_PROXY)"
        )
    return proxy


def trusted(ca_file: str | None, *, name: str, env: Mapping[str, str]) -> ssl.SSLContext:
    """What certificates are checked against: the system's authorities, those of the environment, and `ca_file`.

    Raises:
        ConfigError: a file can't be read or holds no certificate.
    """
    # This reads SSL_CERT_FILE and SSL_CERT_DIR, but leaves out a file that is not there without a word.
    context = ssl.create_default_context()
    files = [(variable, env.get(variable)) for variable in ("SSL_CERT_FILE", *BUNDLES)]
    for what, path in (*files, (f"upstreams.{name}.ca_file", ca_file)):
        if not path:
            continue
        try:
            if os.path.isdir(path):
                context.load_verify_locations(capath=path)
            else:
                context.load_verify_locations(cafile=path)
        except (OSError, ssl.SSLError) as error:
            reason = "it holds no certificate in PEM form" if isinstance(error, ssl.SSLError) else error.strerror
            raise ConfigError(f"{what}: {path}: {reason}", key=what if path is ca_file else None) from None
    return context
