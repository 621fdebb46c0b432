"""The running proxy, asked over HTTP: found by its file in the state folder, or named by its address."""

from __future__ import annotations

import http.client
import json
import os
import ssl
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from ctxproxy.errors import ConfigError, CtxProxyError

__all__ = ["Remote", "find"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A proxy's address, its token, and the key whose texts are wanted."""

    url: str
    token: str = field(repr=False)
    key: str | None = field(default=None, repr=False)

    def get(self, *path: str) -> bytes:
        """What it answers to a path under `/ctxproxy/`.

        Raises:
            CtxProxyError: it can't be reached, or refuses.
        """
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        headers = {"x-ctxproxy-token": self.token}
        if self.key:
            headers["authorization"] = f"Bearer {self.key}"
        connection = kind(parts.hostname or "", parts.port, timeout=10)
        try:
            place = "/".join(quote(step, safe="") for step in path)
            connection.request("GET", f"/ctxproxy/{place}", headers=headers)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, ssl.SSLError, http.client.HTTPException, ValueError) as error:
            raise CtxProxyError(f"no proxy answers at {self.url}: {error or type(error).__name__}") from None
        finally:
            connection.close()
        if answer.status == 404:
            raise CtxProxyError(f"{self.url} has no {path[-1]!r} (or it is of another credential: --key)")
        if answer.status == 401:
            raise CtxProxyError(f"{self.url}: the token is missing or wrong (--token, or CTXPROXY_TOKEN)")
        if answer.status != 200:
            raise CtxProxyError(f"{self.url} answered with status {answer.status}")
        return body

    def json(self, *path: str) -> Any:
        """The same, decoded."""
        try:
            return json.loads(self.get(*path))
        except ValueError:
            raise CtxProxyError(f"{self.url} is no ctxproxy, or one of another version") from None


def find(url: str | None = None, token: str | None = None, key: str | None = None) -> Remote:
    """The proxy at `url`, else the only one that runs.

    Raises:
        CtxProxyError: none runs.
        ConfigError: several run, or the address is none.
    """
    from ctxproxy.monitor.running import running

    known = running()
    token = token or os.environ.get("CTXPROXY_TOKEN") or None
    if url is not None:
        url = url.rstrip("/")
        try:
            good = urlsplit(url).scheme in ("http", "https") and bool(urlsplit(url).hostname)
            _ = urlsplit(url).port
        except ValueError:
            good = False
        if not good:
            raise ConfigError(f"--url: {url!r} is no address such as http://127.0.0.1:8484")
        token = token or next((proxy.token for proxy in known if proxy.url == url), "")
        return Remote(url=url, token=token, key=key)
    if not known:
        raise CtxProxyError("no proxy runs (start one with `ctxproxy serve`, or name one with --url)")
    if len(known) > 1:
        raise ConfigError(f"several proxies run; choose one with --url: {', '.join(proxy.url for proxy in known)}")
    return Remote(url=known[0].url, token=token or known[0].token, key=key)
