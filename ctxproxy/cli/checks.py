"""What `ctxproxy doctor` looks at on this machine: lines of `ok`, `warn` or `fail`, none of which holds a secret."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from ctxproxy import __version__
from ctxproxy.config import Settings
from ctxproxy.errors import LedgerError
from ctxproxy.proxy.network import BUNDLES
from ctxproxy.stores import SqliteStore, state_folder
from ctxproxy.tokens import counter

__all__ = ["Check", "address", "local_checks"]

Status = Literal["ok", "warn", "fail"]

_PACKAGES = ("openai", "anthropic", "litellm", "aiohttp", "uvicorn", "toktok-rs")
_BASES = ("OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line. `facts` are the same in numbers and names, for `--json`."""

    name: str
    status: Status
    message: str
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def local_checks(settings: Settings, *, env: Mapping[str, str], config: str | None) -> Iterator[Check]:
    """What needs no network: versions, settings, environment, stores."""
    yield from (*_versions(), *_tokens(), *_config(settings, config), *_environment(env), *_stores(settings))


def _versions() -> Iterator[Check]:
    found = {"ctxproxy": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    yield Check(name="versions", status="ok", message=", ".join(f"{n} {v}" for n, v in found.items()), facts=found)


def _tokens() -> Iterator[Check]:
    known = counter("o200k")
    if known.exact:
        yield Check(name="tokenizer", status="ok", message=f"{known.name}: exact for OpenAI's models")
    else:
        message = f"{known.name}: estimates only, within {known.margin:.0%} (toktok-rs can't be used here)"
        yield Check(name="tokenizer", status="warn", message=message)


def _config(settings: Settings, path: str | None) -> Iterator[Check]:
    given = len(settings.sources)
    where = path or os.environ.get("CTXPROXY_CONFIG")
    message = f"{where or 'no file'}; {given} value{'s' * (given != 1)} set; mode {settings.mode}"
    status: Status = "ok" if settings.mode == "compact" else "warn"
    if status == "warn":
        message += ": nothing is compacted (setting: mode)"
    yield Check(name="settings", status=status, message=message, facts={"file": where, "mode": settings.mode})


def _environment(env: Mapping[str, str]) -> Iterator[Check]:
    proxies = {n: v for n in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY") if (v := env.get(n) or env.get(n.lower()))}
    shown = {name: address(value) for name, value in proxies.items()}
    if without := env.get("NO_PROXY") or env.get("no_proxy"):
        shown["NO_PROXY"] = without
    text = ", ".join(f"{name}={value}" for name, value in shown.items())
    yield Check(name="forward proxy", status="ok", message=text or "none in the environment", facts=shown)
    for name in ("SSL_CERT_FILE", *BUNDLES):
        path = env.get(name)
        if path:
            there = Path(path).exists()
            message = f"{name}={path}" + ("" if there else ": there is no such file")
            yield Check(name="certificates", status="ok" if there else "fail", message=message)
    for name in _BASES:
        if env.get(name):
            yield Check(name="base URL", status="ok", message=f"{name}={address(env[name])}")


def address(value: str) -> str:
    """An address without what may be secret in it."""
    parts = urlsplit(value if "://" in value else f"http://{value}")
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{'***@' if parts.username else ''}{host}{port}{parts.path}"


# --- stores


def _stores(settings: Settings) -> Iterator[Check]:
    url = settings.ledger.url
    kept = f"forgotten {_span(settings.ledger.ttl)} after its last use"
    if url == "memory":
        yield Check(name="ledger", status="ok", message="in memory: compactions end with the process")
    else:
        path = Path(url.partition(":")[2] or state_folder() / "ledger.sqlite")
        yield _ledger(path, kept)
    archive = settings.archive
    where = {
        "off": "originals are not kept",
        "memory": "originals in memory, until the process ends",
        "ledger": "originals where the ledger is",
    }.get(archive.mode)
    if where is None:
        yield _folder("archive", Path(archive.dir or state_folder() / "archive"), _span(archive.ttl))
    else:
        more = "" if archive.mode != "ledger" or url == "memory" else f", for {_span(archive.ttl)}"
        yield Check(name="archive", status="ok", message=where + more)
    if not settings.logging.enabled:
        yield Check(name="log", status="ok", message="off (setting: logging.enabled)")
        return
    log = Path(settings.logging.log_file or state_folder() / "context_log.yaml")
    size = log.stat().st_size if log.exists() else 0
    yield _writable("log", log, f"{log}: {_bytes(size)}, numbers and names only", size=size)


def _ledger(path: Path, kept: str) -> Check:
    if not path.exists():
        return _writable("ledger", path, f"{path}: not made yet; {kept}")
    try:
        store = SqliteStore(path)
        try:
            status = store.status()
        finally:
            store.close()
        with sqlite3.connect(path, timeout=2) as db:
            db.execute("BEGIN IMMEDIATE")
            db.rollback()
        db.close()
    except (LedgerError, sqlite3.Error, OSError) as error:
        return Check(name="ledger", status="fail", message=f"{path}: {error} (setting: ledger.url)")
    facts = {"path": str(path), "bytes": status.file_bytes, "conversations": status.conversations}
    facts |= {"originals": status.originals, "original_bytes": status.original_bytes, "limits": status.learned}
    message = (
        f"{path}: {_bytes(status.file_bytes)}, {status.conversations} conversations, {status.originals} originals "
        f"({_bytes(status.original_bytes)}); {kept}"
    )
    if status.damaged:
        return Check(name="ledger", status="warn", message=f"{message}; a damaged file was set aside", facts=facts)
    return Check(name="ledger", status="ok", message=message, facts=facts)


def _folder(name: str, path: Path, span: str) -> Check:
    sizes = [entry.stat().st_size for entry in path.rglob("*") if entry.is_file()] if path.is_dir() else []
    return _writable(
        name, path / "x", f"{path}: {len(sizes)} files, {_bytes(sum(sizes))}, for {span}", files=len(sizes)
    )


def _writable(name: str, path: Path, message: str, **facts: Any) -> Check:
    """Whether a file can be written, or made: by the nearest folder that is there. Nothing is written."""
    place = path
    while not place.exists() and place != place.parent:
        place = place.parent
    folder = path != place
    good = os.access(place, os.W_OK | (os.X_OK if folder else 0)) and (place.is_dir() if folder else place.is_file())
    if good:
        return Check(name=name, status="ok", message=message, facts={"path": str(path), **facts})
    return Check(name=name, status="fail", message=f"{path} can't be written: {place} does not allow it")


# --- words


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _span(seconds: float) -> str:
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            count = seconds / length
            return f"{count:g} {unit}{'s' * (count != 1)}"
    return f"{seconds:g} seconds"
